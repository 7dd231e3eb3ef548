//! Fencing tokens, which show that a later grant of a key is later.
//!
//! Kleppmann, "How to do distributed locking" (2016): the resource refuses a token smaller than one it has seen. That
//! needs tokens that grow over *all* grants of a key, also after the key was released, deleted or flushed. So the
//! highest token is kept outside the keys, one for each stripe of keys. Memory stays fixed, however many keys were ever
//! locked. A grant's token is above all earlier ones of its stripe, except among readers and among permits.

pub mod stripe_ceilings;
pub mod told;

use std::collections::BTreeMap;

use crate::refusal::Refusal;
use crate::tokens::stripe_ceilings::{StripeCeiling, StripeCeilings};
use crate::tokens::told::{TokenBounds, Told};
use crate::values::limits::{
    CEILING_LEAD, CLOCKS_APART_US, FENCE_SPAN_US, ISSUED_LEAD, START_LEAD, STRIPE_CEILINGS_MAX, TOKEN_LIMIT,
    TOKEN_STRIPES,
};
use crate::values::mode::Mode;
use crate::values::time::{BootTime, Now, ahead_us};
use crate::values::token::Token;

/// The number of tokens that a node may issue in one stripe (group of keys) while its answer to another node counts, if
/// its tokens are ahead of its clock, so that each grant adds one. It covers 5000 grants of one key a second; further
/// ones are refused for up to 0.2 s. It is so small that the tokens of nodes that import slots from each other grow more
/// slowly than their clocks, although each answer adds it.
const TOKENS_MEANWHILE: u64 = 1_000;

/// The highest token of each stripe (a group of keys), in `last`: no key of the stripe ever had a larger one, whether
/// it was issued here or elsewhere. Also the ceiling, above which no token is issued. The ceiling is on the disk before
/// a token needs it, so a later incarnation knows how large the tokens of this one can be.
#[derive(Clone, Debug)]
pub struct Tokens {
    last: Box<[u64]>,
    /// For each stripe (group of keys) whose highest token belongs to a reader: the highest token of its other grants.
    ordered: BTreeMap<u32, u64>,
    floor: u64,
    high: u64,
    ceiling: u64,
    /// The number of issued tokens. Where tokens are ahead of the clock, the next ceiling (the highest token that may
    /// be issued) is calculated from it.
    issued: u64,
    /// The highest ceiling that a stripe (group of keys) needed for itself, but could not get because too many stripes
    /// have one.
    demanded: u64,
    stripes: StripeCeilings,
    told: Told,
}

impl Tokens {
    /// Creates the tokens of a node: no token up to `floor` is issued for any key. There is no ceiling until one is
    /// set.
    pub fn new(floor: u64) -> Self {
        Self::with_stripes(floor, TOKEN_STRIPES, STRIPE_CEILINGS_MAX)
    }

    /// Does what [`Tokens::new`] does, with this number of stripes (groups of keys that share a highest token), a power
    /// of two. At most `apart_max` stripes may have a ceiling of their own. A model checker creates millions of nodes,
    /// so it uses few stripes.
    pub fn with_stripes(floor: u64, stripes: usize, apart_max: usize) -> Self {
        debug_assert!(stripes.is_power_of_two());
        let floor = floor.min(TOKEN_LIMIT - 1);
        Self {
            last: vec![floor; stripes].into_boxed_slice(),
            ordered: BTreeMap::new(),
            floor,
            high: 0,
            ceiling: TOKEN_LIMIT - 1,
            issued: 0,
            demanded: 0,
            stripes: StripeCeilings::new(apart_max),
            told: Told::default(),
        }
    }

    /// Restores the ceilings of single stripes (groups of keys) that an earlier incarnation left: it may have issued
    /// tokens up to these.
    pub fn restore_stripes(&mut self, ceilings: &[StripeCeiling]) {
        for &StripeCeiling { stripe, ceiling } in ceilings {
            if let Some(last) = self.last.get_mut(stripe as usize) {
                *last = (*last).max(ceiling.min(TOKEN_LIMIT - 1));
            }
        }
        self.stripes.restore(ceilings);
    }

    /// Notes the ceilings of another node's single stripes (groups of keys): it may have issued tokens up to these. Each
    /// stripe gets such a ceiling here too, if it needs one, however many have one already. Other nodes have no more of
    /// them than clients could raise there.
    pub fn observe_stripes(&mut self, ceilings: &[StripeCeiling]) {
        for &StripeCeiling { stripe, ceiling } in ceilings {
            if (stripe as usize) < self.last.len() {
                let ceiling = ceiling.min(TOKEN_LIMIT - 1);
                if ceiling > self.ceiling.max(self.floor) {
                    self.stripes.take(stripe, ceiling);
                }
                self.pass_on(stripe, ceiling);
            }
        }
    }

    /// Returns the highest token that this key, or another key of its stripe (group of keys), ever had.
    pub fn last(&self, key: &[u8]) -> u64 {
        self.last[self.stripe(key) as usize]
    }

    /// Returns the highest token that a grant other than a reader's ever had in this key's stripe (group of keys). A
    /// new reader's token has to be larger than this one only.
    pub fn last_ordered(&self, key: &[u8]) -> u64 {
        let stripe = self.stripe(key);
        self.ordered.get(&stripe).copied().unwrap_or(self.last[stripe as usize])
    }

    /// Returns the highest token issued or seen up to the node's ceiling; 0 if there is none. It leaves out stripes
    /// (groups of keys) with a ceiling of their own.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// Returns the floor: every later token is larger.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the ceiling: no token above it is issued, except in stripes (groups of keys) with a ceiling of their
    /// own.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Returns the ceiling for the tokens of this key: the higher one of the node's and that of the key's stripe (group
    /// of keys).
    pub fn ceiling_of(&self, key: &[u8]) -> u64 {
        self.ceiling.max(self.stripes.of(self.stripe(key)))
    }

    /// Sets the ceiling, the highest token that may be issued, to `ceiling`, which is on the disk now.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling.min(TOKEN_LIMIT - 1);
    }

    /// Returns the ceilings of single stripes (groups of keys) to write to the disk, and the number of their last
    /// change.
    pub fn stripe_ceilings(&self) -> (Vec<StripeCeiling>, u64) {
        self.stripes.wanted()
    }

    /// Returns the values that a replica needs to become the next master: the token up to which tokens of any key may
    /// have been issued, and the ceilings of stripes. That token also covers stripes whose ceiling is no further ahead
    /// than clocks may differ. A ceiling further ahead counts for its own stripe only.
    pub fn to_tell(&self, wall_us: u64, skew_ms: u32) -> (u64, Vec<StripeCeiling>) {
        let reach = ahead_us(wall_us, skew_ms) + CLOCKS_APART_US;
        let (stripes, _) = self.stripes.wanted();
        let within_reach = stripes.iter().map(|stripe| stripe.ceiling).filter(|&ceiling| ceiling <= reach);
        (within_reach.max().unwrap_or(0), stripes)
    }

    /// Tells another node, to which slots move, which tokens may be issued until `until`, while it relies on that. Until
    /// then [`Tokens::ensure_told`] refuses larger ones.
    pub fn tell(&mut self, now: Now, skew_ms: u32, until: BootTime) -> TokenBounds {
        let mut bounds = self.bounds();
        let by_clock = ahead_us(now.wall_us, skew_ms) + until.us_since(now.boot);
        bounds.highest = bounds.highest.max(by_clock) + TOKENS_MEANWHILE;
        bounds.stripes.iter_mut().for_each(|stripe| stripe.ceiling += TOKENS_MEANWHILE);
        self.told.tell(&bounds, now.boot, until);
        bounds
    }

    /// Refuses a grant of `key`, whose slot moves, if the grant's token would be larger than this node has told another
    /// one, which may be about to grant the same key.
    pub fn ensure_told(&self, key: &[u8], proposal: Option<Token>, now: Now, skew_ms: u32) -> Result<(), Refusal> {
        let stripe = self.stripe(key);
        self.told.ensure(stripe, self.value(self.last[stripe as usize], stripe, proposal, now, skew_ms), now.boot)
    }

    /// Returns the highest tokens, those of stripes (groups of keys) with a ceiling of their own apart.
    pub fn bounds(&self) -> TokenBounds {
        let (mut stripes, _) = self.stripes.wanted();
        let (mut highest, mut rest) = (0, &self.last[..]);
        for apart in stripes.iter_mut().rev() {
            let (before, from) = rest.split_at(apart.stripe as usize);
            apart.ceiling = from[0];
            highest = from[1..].iter().copied().fold(highest, u64::max);
            rest = before;
        }
        TokenBounds { highest: rest.iter().copied().fold(highest, u64::max), stripes }
    }

    /// Notes that another node may have issued tokens within `bounds`: every later token is larger.
    pub fn pass(&mut self, bounds: &TokenBounds) {
        if bounds.highest > self.floor {
            self.raise_floor(bounds.highest);
        }
        self.observe_stripes(&bounds.stripes);
    }

    /// Notes that another node may have issued tokens within `bounds` for `key`: the key's later tokens are larger.
    pub fn pass_for(&mut self, key: &[u8], bounds: &TokenBounds) {
        let stripe = self.stripe(key);
        self.pass_on(stripe, bounds.highest);
        self.observe_stripes(bounds.apart(stripe).as_slice());
    }

    /// Returns whether a node with these `bounds` can have issued `token` for `key`.
    pub fn is_within(&self, key: &[u8], token: Token, bounds: &TokenBounds) -> bool {
        token.get() <= bounds.of(self.stripe(key))
    }

    fn pass_on(&mut self, stripe: u32, token: u64) {
        if let Some(token) = Token::new(token.min(TOKEN_LIMIT - 1)) {
            self.set_last(stripe, token, false);
        }
    }

    /// Returns the number of the last change in the ceilings of single stripes (groups of keys).
    pub fn stripe_changes(&self) -> u64 {
        self.stripes.changes()
    }

    /// Notes that the ceilings of single stripes are on the disk as they were after the change with this number.
    pub fn stripes_saved(&mut self, change: u64) {
        self.stripes.saved(change);
    }

    /// Removes ceilings of single stripes (groups of keys) that are no longer needed.
    pub fn sweep_stripes(&mut self, now: BootTime) {
        self.stripes.sweep(self.ceiling, |stripe| self.last.get(stripe as usize).copied().unwrap_or(0), now);
    }

    /// Raises the floor to `floor`: tokens up to it may have been issued elsewhere, so every later token is larger.
    pub fn raise_floor(&mut self, floor: u64) {
        let floor = floor.min(TOKEN_LIMIT - 1);
        self.floor = self.floor.max(floor);
        for last in &mut self.last {
            *last = (*last).max(floor);
        }
        let last = &self.last;
        self.ordered.retain(|&stripe, ordered| {
            *ordered = (*ordered).max(floor);
            *ordered < last[stripe as usize]
        });
    }

    /// Returns the ceiling that should be on the disk: some seconds ahead of the clock, and ahead of every issued
    /// token. Where tokens are ahead of the clock, a start puts it only [`START_LEAD`] above the old ceiling until the
    /// first token is issued, so restarts alone hardly raise it.
    pub fn wanted_ceiling(&self, wall_us: u64, skew_ms: u32) -> u64 {
        self.ahead(wall_us, skew_ms, 1)
    }

    /// Returns whether `ceiling` should be raised: less than half of its lead over the clock and the issued tokens is
    /// left.
    pub fn uses_up(&self, ceiling: u64, wall_us: u64, skew_ms: u32) -> bool {
        self.ahead(wall_us, skew_ms, 2) > ceiling
    }

    /// Returns a ceiling that is ahead of clock and tokens by the full lead divided by `part`. Tokens that clients
    /// raised do not count: one client could otherwise drive the tokens of all others ahead.
    fn ahead(&self, wall_us: u64, skew_ms: u32, part: u64) -> u64 {
        let ahead_of_clock = ahead_us(wall_us, skew_ms) + CEILING_LEAD / part;
        let lead = if self.issued > 0 { ISSUED_LEAD } else { START_LEAD };
        ahead_of_clock.max(self.floor + self.issued + lead / part).max(self.demanded).min(TOKEN_LIMIT - 1)
    }

    /// Issues a token for `key`. It is the client's proposal, if that is above the highest token of the stripe and
    /// neither above the clock plus `skew_ms` nor above the ceiling; otherwise the highest token + 1. Without a
    /// proposal it is the clock, or the highest token + 1 if that is larger.
    // Inlined because a call costs some dozens of instructions per ACQUIRE (`make instructions`).
    #[inline(always)]
    pub fn issue(&mut self, key: &[u8], proposal: Option<Token>, now: Now, skew_ms: u32) -> Result<Token, Refusal> {
        let stripe = self.stripe(key);
        self.issue_on(stripe, self.last[stripe as usize], false, proposal, now, skew_ms)
    }

    /// Issues a token above `floor` for a grant in `mode`. If `floor` is below the highest token of the stripe, a
    /// proposal between the two is accepted as it is.
    #[inline(never)]
    pub fn issue_above(
        &mut self,
        floor: u64,
        key: &[u8],
        mode: Mode,
        proposal: Option<Token>,
        now: Now,
        skew_ms: u32,
    ) -> Result<Token, Refusal> {
        self.issue_on(self.stripe(key), floor, mode == Mode::Shared, proposal, now, skew_ms)
    }

    /// Returns the value of the next token in `stripe` for a grant that has to be above `floor`.
    #[inline(always)]
    fn value(&self, floor: u64, stripe: u32, proposal: Option<Token>, now: Now, skew_ms: u32) -> u64 {
        let last = self.last[stripe as usize];
        let bound = ahead_us(now.wall_us, skew_ms).min(self.ceiling);
        match proposal {
            Some(proposal) if floor < proposal.get() && proposal.get() <= bound => proposal.get(),
            Some(_) => last + 1,
            None => (last + 1).max(now.wall_us.min(self.ceiling)),
        }
    }

    #[inline(always)]
    fn issue_on(
        &mut self,
        stripe: u32,
        floor: u64,
        is_shared: bool,
        proposal: Option<Token>,
        now: Now,
        skew_ms: u32,
    ) -> Result<Token, Refusal> {
        let value = self.value(floor, stripe, proposal, now, skew_ms);
        let token = Token::new(value).ok_or(Refusal::TokensExhausted)?;
        if !self.is_below_ceiling(stripe, token) {
            self.raise_ceiling(stripe, token, now, skew_ms);
            return Err(Refusal::NotYet);
        }
        self.issued += 1;
        self.set_last(stripe, token, is_shared);
        Ok(token)
    }

    /// Raises the token of a grant of `key` in `mode` to `token`, which a client chose. Refuses a token that is too far
    /// above both clock and floor, or above the ceiling. Also refuses one that is larger than this node has told another
    /// one, to which slots move; what it tells from then on allows that token.
    pub fn raise(&mut self, key: &[u8], mode: Mode, token: Token, now: Now, skew_ms: u32) -> Result<(), Refusal> {
        let max = now.wall_us.max(self.floor).saturating_add(FENCE_SPAN_US).min(TOKEN_LIMIT - 1);
        if token.get() > max {
            return Err(Refusal::FenceTooFar { max });
        }
        let stripe = self.stripe(key);
        if !self.is_below_ceiling(stripe, token) {
            let raised = self.raise_ceiling(stripe, token, now, skew_ms);
            return Err(if raised { Refusal::NotYet } else { Refusal::FenceTooFar { max: self.ceiling } });
        }
        self.set_last(stripe, token, mode == Mode::Shared);
        self.told.ensure(stripe, token.get(), now.boot)
    }

    /// Notes that `key` has or had `token`, which came from elsewhere (loaded, replicated, renamed). Later tokens are
    /// larger, and the state file has to record it.
    pub fn observe(&mut self, key: &[u8], token: Token) {
        let stripe = self.stripe(key);
        // A later incarnation starts above the ceiling, which is never below the floor. So such a token needs no new
        // ceiling.
        let is_covered = token.get() <= self.floor || self.is_below_ceiling(stripe, token);
        if !is_covered && !self.stripes.want(stripe, token.get(), BootTime::default()) {
            self.demanded = self.demanded.max(token.get());
        }
        // The mode is unknown, so the token counts like one of an exclusive grant. Later tokens can only be larger than
        // necessary.
        self.set_last(stripe, token, false);
    }

    /// Returns whether this node could have issued a token that a client's payload (RESTORE) contains. It must not
    /// exceed the highest token that the node issued or saw, or its clock + skew. A larger one would bring the key's
    /// tokens near their maximum.
    pub fn plausible(&self, key: &[u8], token: Token, wall_us: u64, skew_ms: u32) -> bool {
        token.get() <= self.last(key).max(self.high).max(ahead_us(wall_us, skew_ms))
    }

    fn is_below_ceiling(&self, stripe: u32, token: Token) -> bool {
        token.get() <= self.ceiling || token.get() <= self.stripes.of(stripe)
    }

    /// Asks for a higher ceiling, so that `token` can be issued; returns whether a ceiling that high will be set. If
    /// the node's own ceiling will soon reach the token anyway, that one is used; otherwise the stripe gets a ceiling
    /// of its own. If too many stripes have one, the node's own ceiling is raised, at most as far as another node's
    /// clock may be ahead.
    fn raise_ceiling(&mut self, stripe: u32, token: Token, now: Now, skew_ms: u32) -> bool {
        if token.get() <= self.wanted_ceiling(now.wall_us, skew_ms) {
            return true;
        }
        if self.stripes.is_full() {
            self.sweep_stripes(now.boot);
        }
        if self.stripes.want(stripe, token.get().saturating_add(ISSUED_LEAD).min(TOKEN_LIMIT - 1), now.boot) {
            return true;
        }
        // A floor that is already further ahead must not be driven on by a restart more than necessary.
        let reach = (ahead_us(now.wall_us, skew_ms) + CLOCKS_APART_US).max(self.floor + 2 * CEILING_LEAD);
        if token.get() > reach {
            return false;
        }
        let largest = self.stripes.largest_up_to(reach).max(token.get());
        self.demanded = self.demanded.max(largest + CEILING_LEAD);
        true
    }

    #[inline(always)]
    fn set_last(&mut self, stripe: u32, token: Token, is_shared: bool) {
        let last = &mut self.last[stripe as usize];
        let before = *last;
        *last = before.max(token.get());
        if is_shared && token.get() > before {
            self.ordered.entry(stripe).or_insert(before);
        } else if !is_shared && !self.ordered.is_empty() {
            self.is_ordered(stripe, token);
        }
        if token.get() <= self.ceiling {
            self.high = self.high.max(token.get());
        }
    }

    /// Notes that `token` belongs to a grant other than a reader's, so that later readers' tokens must exceed it.
    #[cold]
    fn is_ordered(&mut self, stripe: u32, token: Token) {
        if let Some(ordered) = self.ordered.get_mut(&stripe) {
            *ordered = token.get().max(*ordered);
            if *ordered >= self.last[stripe as usize] {
                self.ordered.remove(&stripe);
            }
        }
    }

    fn stripe(&self, key: &[u8]) -> u32 {
        stripe(key, self.last.len()) as u32
    }
}

/// Returns the stripe of a key, from the hash FNV-1a, which takes few instructions. A client that forces keys into one
/// stripe gains nothing.
fn stripe(key: &[u8], stripes: usize) -> usize {
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The low bits of FNV-1a are its weakest, so the high half is combined with them.
    (hash ^ (hash >> 32)) as usize & (stripes - 1)
}

#[cfg(test)]
mod tests;
