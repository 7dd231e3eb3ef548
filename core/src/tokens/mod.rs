//! Fencing tokens: what makes a later grant of a key recognisable as later.
//!
//! Kleppmann, "How to do distributed locking" (2016): the resource refuses a token smaller than one it has seen. That
//! needs tokens that grow over *all* grants of a key, also after the key was released, deleted or flushed. So the
//! highest token is kept outside the keys, one per stripe of keys: memory stays fixed however many keys were ever
//! locked, and a grant is always above everything its stripe has seen.

pub mod stripe_ceilings;

use std::collections::BTreeMap;

use crate::refusal::Refusal;
use crate::tokens::stripe_ceilings::{StripeCeiling, StripeCeilings};
use crate::values::limits::{
    CEILING_LEAD, CLOCKS_APART_US, FENCE_SPAN_US, ISSUED_LEAD, START_LEAD, STRIPE_CEILINGS_MAX, TOKEN_LIMIT,
    TOKEN_STRIPES,
};
use crate::values::mode::Mode;
use crate::values::time::{BootTime, Now, ahead_us};
use crate::values::token::Token;

/// `last` of every stripe, the highest token ever issued or observed for its keys, and the ceiling above which none is
/// issued: it is on the disk before a token needs it, so a later incarnation knows what this one can have issued.
#[derive(Clone, Debug)]
pub struct Tokens {
    last: Box<[u64]>,
    /// Where readers had the highest tokens of a stripe: the highest that anybody else had, which is less.
    ordered: BTreeMap<u32, u64>,
    floor: u64,
    high: u64,
    ceiling: u64,
    /// How many were issued: where tokens are ahead of the clock they are counted on from the floor.
    issued: u64,
    /// More stripes need ceilings up to here than are kept apart.
    demanded: u64,
    stripes: StripeCeilings,
}

impl Tokens {
    /// Every stripe starts at `floor`: no token up to it is issued again. Without a ceiling until one is set.
    pub fn new(floor: u64) -> Self {
        Self::with_stripes(floor, TOKEN_STRIPES, STRIPE_CEILINGS_MAX)
    }

    /// The same with this many stripes, a power of two, of which `apart_max` may have ceilings of their own: a model checker
    /// makes millions of nodes.
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
        }
    }

    /// An earlier incarnation may have issued tokens up to these ceilings on these stripes.
    pub fn restore_stripes(&mut self, ceilings: &[StripeCeiling]) {
        for &StripeCeiling { stripe, ceiling } in ceilings {
            if let Some(last) = self.last.get_mut(stripe as usize) {
                *last = (*last).max(ceiling.min(TOKEN_LIMIT - 1));
            }
        }
        self.stripes.restore(ceilings);
    }

    /// A master may have issued tokens up to these ceilings on these stripes.
    pub fn observe_stripes(&mut self, ceilings: &[StripeCeiling]) {
        for &StripeCeiling { stripe, ceiling } in ceilings {
            if let Some(token) = Token::new(ceiling.min(TOKEN_LIMIT - 1))
                && (stripe as usize) < self.last.len()
            {
                self.observe_on(stripe, token);
            }
        }
    }

    /// The highest token that a key of this key's stripe ever had.
    pub fn last(&self, key: &[u8]) -> u64 {
        self.last[self.stripe(key) as usize]
    }

    /// The highest token that a key of this key's stripe ever had by a grant that was not shared: what a reader comes after.
    pub fn last_ordered(&self, key: &[u8]) -> u64 {
        let stripe = self.stripe(key);
        self.ordered.get(&stripe).copied().unwrap_or(self.last[stripe as usize])
    }

    /// The highest token issued or observed over all stripes whose tokens are below the node's ceiling; 0 before the first.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// Every stripe is at least there.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// No token above it is issued, but on the stripes with a ceiling of their own.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// No token of this key is issued above it.
    pub fn ceiling_of(&self, key: &[u8]) -> u64 {
        self.ceiling.max(self.stripes.of(self.stripe(key)))
    }

    /// The ceiling on the disk is this now.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling.min(TOKEN_LIMIT - 1);
    }

    /// The ceilings of stripes that are to be on the disk, and the number of the last change in them.
    pub fn stripe_ceilings(&self) -> (Vec<StripeCeiling>, u64) {
        self.stripes.wanted()
    }

    /// What a successor should know beside the ceiling: up to where it should take tokens of any key for issued, and the ceilings of
    /// stripes. Where clocks are apart, any key may have got as far as one of them. What is further ahead than clocks can be
    /// apart is one key's alone.
    pub fn to_tell(&self, wall_us: u64, skew_ms: u32) -> (u64, Vec<StripeCeiling>) {
        let reach = ahead_us(wall_us, skew_ms) + CLOCKS_APART_US;
        let (stripes, _) = self.stripes.wanted();
        let within_reach = stripes.iter().map(|stripe| stripe.ceiling).filter(|&ceiling| ceiling <= reach);
        (within_reach.max().unwrap_or(0), stripes)
    }

    /// The number of the last change of those.
    pub fn stripe_changes(&self) -> u64 {
        self.stripes.changes()
    }

    /// What there was with this change is on the disk.
    pub fn stripes_saved(&mut self, change: u64) {
        self.stripes.saved(change);
    }

    /// Drops ceilings of stripes that are needed no longer.
    pub fn sweep_stripes(&mut self, now: BootTime) {
        self.stripes.sweep(self.ceiling, |stripe| self.last.get(stripe as usize).copied().unwrap_or(0), now);
    }

    /// Somebody else may have issued tokens up to `floor`: no stripe issues one up to it.
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

    /// Where the ceiling should be: ahead of the clock by some seconds and of everything issued. A start alone raises
    /// it hardly: what it issues first is little above where it starts.
    pub fn wanted_ceiling(&self, wall_us: u64, skew_ms: u32) -> u64 {
        self.ahead(wall_us, skew_ms, 1)
    }

    /// Whether `ceiling` should be raised: half of what it was ahead is used up.
    pub fn uses_up(&self, ceiling: u64, wall_us: u64, skew_ms: u32) -> bool {
        self.ahead(wall_us, skew_ms, 2) > ceiling
    }

    /// Ahead of all that is known by this part of the leads. Tokens that clients raised do not count: whoever can raise one
    /// would drive all others ahead.
    fn ahead(&self, wall_us: u64, skew_ms: u32, part: u64) -> u64 {
        let ahead_of_clock = ahead_us(wall_us, skew_ms) + CEILING_LEAD / part;
        let lead = if self.issued > 0 { ISSUED_LEAD } else { START_LEAD };
        ahead_of_clock.max(self.floor + self.issued + lead / part).max(self.demanded).min(TOKEN_LIMIT - 1)
    }

    /// A new token for `key`: the proposal, if it is above `last` and at most the clock plus skew and the ceiling, else
    /// last + 1; without a proposal max(last + 1, clock).
    // Inlined, as it was when nothing else issued tokens: some dozens of instructions an ACQUIRE (`make instructions`).
    #[inline(always)]
    pub fn issue(&mut self, key: &[u8], proposal: Option<Token>, now: Now, skew_ms: u32) -> Result<Token, Refusal> {
        let stripe = self.stripe(key);
        self.issue_on(stripe, self.last[stripe as usize], false, proposal, now, skew_ms)
    }

    /// The same for a grant in `mode` that need not be above `last`, but above `floor`: a proposal between the two is taken as it is.
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
        let last = self.last[stripe as usize];
        let bound = ahead_us(now.wall_us, skew_ms).min(self.ceiling);
        let value = match proposal {
            Some(proposal) if floor < proposal.get() && proposal.get() <= bound => proposal.get(),
            Some(_) => last + 1,
            None => (last + 1).max(now.wall_us.min(self.ceiling)),
        };
        let token = Token::new(value).ok_or(Refusal::TokensExhausted)?;
        if !self.is_below_ceiling(stripe, token) {
            self.raise_ceiling(stripe, token, now, skew_ms);
            return Err(Refusal::NotYet);
        }
        self.issued += 1;
        self.set_last(stripe, token, is_shared);
        Ok(token)
    }

    /// The token of a grant of `key` in `mode` is raised to `token`, which a client names.
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
        Ok(())
    }

    /// A token of `key` came from elsewhere (loaded, replicated, renamed): nothing at or below it is issued again, and the disk
    /// is to know.
    pub fn observe(&mut self, key: &[u8], token: Token) {
        self.observe_on(self.stripe(key), token);
    }

    fn observe_on(&mut self, stripe: u32, token: Token) {
        // A later incarnation starts above the ceiling, which is never below the floor.
        let is_covered = token.get() <= self.floor || self.is_below_ceiling(stripe, token);
        if !is_covered && !self.stripes.want(stripe, token.get(), BootTime::default()) {
            self.demanded = self.demanded.max(token.get());
        }
        // Whose it was is not asked: that is only stricter.
        self.set_last(stripe, token, false);
    }

    /// Whether a token that arrives from a client's payload is one this node could have issued: none above the highest it has
    /// issued or observed, and its clock + skew. A larger one would drive the key's tokens towards their end.
    pub fn plausible(&self, key: &[u8], token: Token, wall_us: u64, skew_ms: u32) -> bool {
        token.get() <= self.last(key).max(self.high).max(ahead_us(wall_us, skew_ms))
    }

    fn is_below_ceiling(&self, stripe: u32, token: Token) -> bool {
        token.get() <= self.ceiling || token.get() <= self.stripes.of(stripe)
    }

    /// Sees to it that a ceiling will be raised for `token`; whether one will be. The node's own where it soon will be there
    /// anyway, else that of the stripe alone. Where too many stripes need that the node's own follows, as far as clocks can be
    /// apart.
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
        // Where the floor is ahead of that already, a start must not drive it further by more than it takes.
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

    /// A grant that is not shared had `token`.
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

/// FNV-1a: short, and no key can do harm by sharing a stripe with another.
fn stripe(key: &[u8], stripes: usize) -> usize {
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The low bits of FNV-1a are its weakest: fold the high half in.
    (hash ^ (hash >> 32)) as usize & (stripes - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A moment at which the wall clock shows this.
    fn at(wall_us: u64) -> Now {
        Now::new(BootTime::from_us(wall_us), wall_us)
    }

    #[test]
    fn follows_the_clock_and_never_falls_back_with_it() {
        // (wall clock, expected token)
        let cases = [(100, 1_001), (1_000, 1_002), (5_000, 5_000), (5_000, 5_001), (4_000, 5_002), (0, 5_003)];
        let mut tokens = Tokens::new(1_000);
        for (wall_us, expected) in cases {
            assert_eq!(tokens.issue(b"k", None, at(wall_us), 0).map(Token::get), Ok(expected));
        }
        assert_eq!(tokens.high(), 5_003);
    }

    /// A reader comes after everybody but readers, whoever else has the stripe; everybody else comes after all.
    #[test]
    fn readers_come_after_all_that_were_no_readers() {
        let mut tokens = Tokens::new(100);
        let token = |value| Token::new(value).unwrap();
        let read = |tokens: &mut Tokens, proposal| {
            let floor = tokens.last_ordered(b"k");
            tokens.issue_above(floor, b"k", Mode::Shared, Some(token(proposal)), at(1_000), 0).map(Token::get)
        };
        assert_eq!(read(&mut tokens, 300), Ok(300));
        assert_eq!((tokens.last(b"k"), tokens.last_ordered(b"k")), (300, 100));
        assert_eq!(read(&mut tokens, 200), Ok(200), "one round trip, whatever readers had");
        assert_eq!(read(&mut tokens, 100), Ok(301));
        // A permit beside others may have less than readers had; readers come after it.
        let permit = Mode::Permit(crate::values::mode::Permit::new(1, 3).unwrap());
        assert_eq!(tokens.issue_above(100, b"k", permit, Some(token(150)), at(1_000), 0).map(Token::get), Ok(150));
        assert_eq!(
            (tokens.last_ordered(b"k"), read(&mut tokens, 150), read(&mut tokens, 151)),
            (150, Ok(302), Ok(151))
        );
        // A reader's token that is raised is no order; anybody else's is.
        tokens.raise(b"k", Mode::Shared, token(400), at(1_000), 0).unwrap();
        assert_eq!((tokens.last(b"k"), tokens.last_ordered(b"k")), (400, 150));
        tokens.raise(b"k", permit, token(350), at(1_000), 0).unwrap();
        assert_eq!(tokens.last_ordered(b"k"), 350);
        assert_eq!(
            tokens.issue(b"k", Some(token(380)), at(1_000), 0).map(Token::get),
            Ok(401),
            "a writer comes after readers"
        );
        assert_eq!(tokens.last_ordered(b"k"), 401);
        for known in [
            |tokens: &mut Tokens| tokens.raise_floor(450),
            |tokens: &mut Tokens| tokens.observe(b"k", Token::new(450).unwrap()),
        ] {
            let mut tokens = tokens.clone();
            assert_eq!(read(&mut tokens, 500), Ok(500));
            known(&mut tokens);
            assert_eq!((tokens.last_ordered(b"k"), read(&mut tokens, 450)), (450, Ok(501)));
            tokens.raise_floor(600);
            assert_eq!(tokens.last_ordered(b"k"), 600);
        }
    }

    #[test]
    fn unrelated_keys_do_not_disturb_each_other() {
        let mut tokens = Tokens::new(10);
        tokens.observe(b"a", Token::new(1_000_000).unwrap());
        assert_ne!(stripe(b"a", TOKEN_STRIPES), stripe(b"b", TOKEN_STRIPES));
        assert_eq!(tokens.issue(b"b", None, at(20), 0).map(Token::get), Ok(20));
    }

    #[test]
    fn the_end_of_the_token_space_is_a_refusal() {
        let mut tokens = Tokens::new(TOKEN_LIMIT - 2);
        assert_eq!(tokens.issue(b"k", None, at(0), 0).map(Token::get), Ok(TOKEN_LIMIT - 1));
        assert_eq!(tokens.issue(b"k", None, at(0), 0), Err(Refusal::TokensExhausted));
        assert_eq!(Tokens::new(u64::MAX).issue(b"k", None, at(0), 0), Err(Refusal::TokensExhausted));
    }

    #[test]
    fn plausible_up_to_clock_plus_skew_or_last() {
        let mut tokens = Tokens::new(10);
        let token = |value| Token::new(value).unwrap();
        assert!(tokens.plausible(b"k", token(3_000), 1_000, 2));
        assert!(!tokens.plausible(b"k", token(3_001), 1_000, 2));
        tokens.observe(b"k", token(9_000));
        assert!(tokens.plausible(b"k", token(9_000), 1_000, 2));
        assert!(!tokens.plausible(b"k", token(9_001), 1_000, 2));
    }

    #[test]
    fn proposals() {
        // (last, clock, skew ms, ceiling, proposal, issued)
        let cases = [
            (10, 5_000, 1, 9_000, 5_500, Ok(5_500)),
            (10, 5_000, 1, 9_000, 11, Ok(11)),
            (10, 5_000, 1, 9_000, 10, Ok(11)),
            (10, 5_000, 1, 9_000, 9, Ok(11)),
            (10, 5_000, 1, 9_000, 6_000, Ok(6_000)),
            (10, 5_000, 1, 9_000, 6_001, Ok(11)),
            (10, 5_000, 1, 5_400, 5_500, Ok(11)),
            (10, 5_000, 1, 9_000, TOKEN_LIMIT - 1, Ok(11)),
            (8_000, 5_000, 1, 9_000, 5_500, Ok(8_001)),
            (9_000, 5_000, 1, 9_000, 5_500, Err(Refusal::NotYet)),
        ];
        for (last, wall_us, skew_ms, ceiling, proposal, expected) in cases {
            let mut tokens = Tokens::new(last);
            tokens.set_ceiling(ceiling);
            let issued = tokens.issue(b"k", Token::new(proposal), at(wall_us), skew_ms).map(Token::get);
            assert_eq!(issued, expected, "{last} {proposal}");
        }
    }

    /// Lives of one node, small numbers, every combination of clock and number of grants: no token repeats or falls,
    /// none is above the ceiling that was on the disk, whatever the clock does between two incarnations.
    #[test]
    fn every_small_history_of_lives() {
        fn live(saved: u64, highest: u64, lives: u32) {
            if lives == 0 {
                return;
            }
            for wall_us in [0, 40, 1_000_000_000] {
                for grants in 0..4 {
                    let mut tokens = Tokens::new(saved.max(wall_us));
                    // The disk may stand still (the ceiling of the incarnation before) or work.
                    for ceiling in [saved, tokens.wanted_ceiling(wall_us, 0)] {
                        tokens.set_ceiling(ceiling);
                        let mut last = highest;
                        for _ in 0..grants {
                            match tokens.issue(b"k", None, at(wall_us), 0) {
                                Ok(token) => {
                                    assert!(token.get() > last && token.get() <= ceiling);
                                    last = token.get();
                                }
                                Err(refusal) => assert_eq!(refusal, Refusal::NotYet),
                            }
                        }
                        live(ceiling.max(saved), last, lives - 1);
                    }
                }
            }
        }
        live(100, 100, 3);
    }

    #[test]
    fn starts_alone_raise_the_ceiling_hardly() {
        let mut ceiling = 1_000_000;
        for _ in 0..1_000 {
            ceiling = Tokens::new(ceiling).wanted_ceiling(0, 0).max(ceiling);
        }
        assert!(ceiling <= 1_000_000 + CEILING_LEAD + 1_000 * START_LEAD, "{ceiling}");
    }

    /// A hostile client raises its own key as far as it is let; then the node starts again. Its other keys start where they
    /// would have, and that key above all it had.
    #[test]
    fn one_keys_outlier_stays_with_its_stripe() {
        let (wall_us, skew_ms, year) = (1 << 50, 2_000, FENCE_SPAN_US);
        let mut tokens = Tokens::new(wall_us);
        tokens.set_ceiling(tokens.wanted_ceiling(wall_us, skew_ms));
        let evil = Token::new(wall_us + year).unwrap();
        assert_eq!(tokens.raise(b"evil", Mode::Exclusive, evil, at(wall_us), skew_ms), Err(Refusal::NotYet));
        let (ceilings, change) = tokens.stripe_ceilings();
        assert_eq!(
            tokens.raise(b"evil", Mode::Exclusive, evil, at(wall_us), skew_ms),
            Err(Refusal::NotYet),
            "not on the disk yet"
        );
        tokens.stripes_saved(change);
        assert_eq!(tokens.raise(b"evil", Mode::Exclusive, evil, at(wall_us), skew_ms), Ok(()));
        assert!(tokens.issue(b"evil", None, at(wall_us), skew_ms).unwrap() > evil, "its own ceiling leaves room");
        let further = Token::new(evil.get() + 1).unwrap();
        assert_eq!(
            tokens.raise(b"evil", Mode::Exclusive, further, at(wall_us), skew_ms),
            Err(Refusal::FenceTooFar { max: evil.get() })
        );
        let ceiling = tokens.wanted_ceiling(wall_us, skew_ms);
        assert!(ceiling < wall_us + 10_000_000, "{ceiling}");
        let mut later = Tokens::new(ceiling.max(wall_us));
        later.restore_stripes(&ceilings);
        later.set_ceiling(later.wanted_ceiling(wall_us, skew_ms));
        assert!(later.issue(b"other", None, at(wall_us), skew_ms).unwrap().get() < wall_us + 10_000_000);
        assert_eq!(later.issue(b"evil", None, at(wall_us), skew_ms), Err(Refusal::NotYet));
        later.stripes_saved(later.stripe_changes());
        assert!(later.issue(b"evil", None, at(wall_us), skew_ms).unwrap() > evil);
    }

    #[test]
    fn what_was_refused_and_never_came_again_is_forgotten() {
        let mut tokens = Tokens::new(1_000);
        tokens.set_ceiling(tokens.wanted_ceiling(1_000, 0));
        let far = Token::new(FENCE_SPAN_US).unwrap();
        assert_eq!(tokens.raise(b"k", Mode::Exclusive, far, at(1_000), 0), Err(Refusal::NotYet));
        tokens.stripes_saved(tokens.stripe_changes());
        tokens.sweep_stripes(BootTime::from_us(1_000).plus_ms(9_999));
        assert_eq!(tokens.stripe_ceilings().0.len(), 1);
        tokens.sweep_stripes(BootTime::from_us(1_000).plus_ms(10_000));
        assert_eq!(tokens.stripe_ceilings().0, []);
        assert_eq!(tokens.raise(b"k", Mode::Exclusive, far, at(1_000), 0), Err(Refusal::NotYet), "from the beginning");
        tokens.stripes_saved(tokens.stripe_changes());
        tokens.raise(b"k", Mode::Exclusive, far, at(1_000), 0).unwrap();
        tokens.sweep_stripes(BootTime::from_us(u64::MAX));
        assert_eq!(tokens.stripe_ceilings().0.len(), 1, "one that was used is kept");
        tokens.set_ceiling(far.get() + ISSUED_LEAD);
        tokens.sweep_stripes(BootTime::from_us(1_000));
        assert_eq!(tokens.stripe_ceilings().0, [], "until the node's own has passed it");
    }

    /// Another node's clock is a day ahead: every key that is locked is raised to its tokens. All of them get there.
    #[test]
    fn where_clocks_are_apart_the_nodes_ceiling_follows() {
        let (wall_us, day) = (1 << 50, 86_400_000_000);
        let mut tokens = Tokens::with_stripes(wall_us, 1 << 10, 2);
        tokens.set_ceiling(tokens.wanted_ceiling(wall_us, 0));
        let mut refused = 0;
        for n in 0..2_000_u64 {
            let token = Token::new(wall_us + day + n).unwrap();
            let mut tries = 0;
            while let Err(refusal) = tokens.raise(&n.to_le_bytes(), Mode::Exclusive, token, at(wall_us + n), 0) {
                assert_eq!(refusal, Refusal::NotYet);
                (refused, tries) = (refused + 1, tries + 1);
                assert!(tries < 3);
                tokens.set_ceiling(tokens.wanted_ceiling(wall_us + n, 0));
                tokens.stripes_saved(tokens.stripe_changes());
            }
        }
        assert!(refused < 10, "{refused}");
        // Further than any clocks are apart it does not follow.
        let further = Token::new(wall_us + 3 * day).unwrap();
        let mut ends: Vec<_> =
            (0..4_u8).map(|n| tokens.raise(&[n], Mode::Exclusive, further, at(wall_us), 0)).collect();
        ends.dedup();
        assert_eq!(ends, [Err(Refusal::NotYet), Err(Refusal::FenceTooFar { max: tokens.ceiling() })]);
    }

    /// Clocks are apart, a hostile client takes a stripe's ceiling for itself, and the node starts again and again: the ceiling
    /// follows the clocks, not the client.
    #[test]
    fn starts_do_not_add_up_what_the_ceiling_followed() {
        let (wall_us, hour) = (1 << 50, 3_600_000_000);
        let mut ceiling = wall_us;
        let mut stripes = vec![];
        for _ in 0..10 {
            let mut tokens = Tokens::with_stripes(ceiling, 1 << 10, 2);
            tokens.restore_stripes(&stripes);
            tokens.set_ceiling(ceiling);
            let raise = |tokens: &mut Tokens, key: &[u8], token: u64| {
                while tokens.raise(key, Mode::Exclusive, Token::new(token).unwrap(), at(wall_us), 0)
                    == Err(Refusal::NotYet)
                {
                    tokens.set_ceiling(tokens.wanted_ceiling(wall_us, 0));
                    tokens.stripes_saved(tokens.stripe_changes());
                }
            };
            raise(&mut tokens, b"evil", wall_us + FENCE_SPAN_US);
            for key in 0..10_u8 {
                raise(&mut tokens, &[key], wall_us + hour);
            }
            ceiling = tokens.ceiling();
            stripes = tokens.stripe_ceilings().0;
        }
        assert!(ceiling < wall_us + 2 * hour, "{}", ceiling - wall_us);
    }

    /// Whoever may lock and raise a key cannot drive the node's own ceiling ahead of what it granted.
    #[test]
    fn raising_and_granting_in_turn_drives_nothing_ahead() {
        let wall_us = 1 << 50;
        let mut tokens = Tokens::new(wall_us);
        let mut ceiling = tokens.wanted_ceiling(wall_us, 0);
        for _ in 0..1_000 {
            tokens.set_ceiling(ceiling);
            let token = Token::new(ceiling).unwrap();
            let _ = tokens.raise(b"evil", Mode::Exclusive, token, at(wall_us), 0);
            let _ = tokens.issue(b"evil", None, at(wall_us), 0);
            tokens.stripes_saved(tokens.stripe_changes());
            ceiling = tokens.wanted_ceiling(wall_us, 0).max(ceiling);
        }
        assert!(ceiling <= wall_us + CEILING_LEAD + ISSUED_LEAD + 1_000, "{}", ceiling - wall_us);
    }

    #[test]
    fn a_raised_floor_is_below_every_later_token() {
        let mut tokens = Tokens::new(10);
        tokens.raise_floor(5_000);
        assert_eq!(tokens.issue(b"k", None, at(20), 0).map(Token::get), Ok(5_001));
        tokens.raise_floor(1);
        assert_eq!(tokens.issue(b"k", None, at(20), 0).map(Token::get), Ok(5_002));
    }

    proptest! {
        #[test]
        fn strictly_grows_whatever_clock_and_neighbours_do(
            steps in prop::collection::vec((0u8..6, 0u64..1 << 40, any::<bool>()), 1..200),
        ) {
            let mut tokens = Tokens::new(0);
            let mut seen = std::collections::HashMap::new();
            for (key, value, learn) in steps {
                let key = [key];
                let before = seen.get(&key).copied().unwrap_or(0);
                if learn {
                    if let Some(token) = Token::new(value) {
                        tokens.observe(&key, token);
                        seen.insert(key, before.max(value));
                    }
                } else {
                    let token = tokens.issue(&key, Token::new(value ^ 5), at(value), 3).unwrap().get();
                    prop_assert!(token > before);
                    seen.insert(key, token);
                }
            }
        }
    }
}
