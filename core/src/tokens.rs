//! Fencing tokens: what makes a later grant of a key recognisable as later.
//!
//! Kleppmann, "How to do distributed locking" (2016): the resource refuses a token smaller than one it has seen. That
//! needs tokens that grow over *all* grants of a key, also after the key was released, deleted or flushed. So the
//! highest token is kept outside the keys, one per stripe of keys: memory stays fixed however many keys were ever
//! locked, and a grant is always above everything its stripe has seen.

use crate::limits::{CEILING_LEAD, ISSUED_LEAD, START_LEAD, TOKEN_LIMIT, TOKEN_STRIPES};
use crate::{Refusal, ahead_us};

/// A fencing token: 1 ≤ token < 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token with this value, if it is one.
    pub const fn new(value: u64) -> Option<Self> {
        if value >= 1 && value < TOKEN_LIMIT { Some(Self(value)) } else { None }
    }

    /// Its value.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// `last` of every stripe, the highest token ever issued or learnt for its keys, and the ceiling above which none is
/// issued: it is on the disk before a token needs it, so a later life knows what this one can have issued.
#[derive(Clone, Debug)]
pub struct Tokens {
    last: Box<[u64]>,
    floor: u64,
    high: u64,
    ceiling: u64,
}

impl Tokens {
    /// Every stripe starts at `floor`: no token up to it is issued again. Without a ceiling until one is set.
    pub fn new(floor: u64) -> Self {
        Self::with_stripes(floor, TOKEN_STRIPES)
    }

    /// The same with this many stripes, a power of two: a model checker makes millions of nodes.
    pub fn with_stripes(floor: u64, stripes: usize) -> Self {
        debug_assert!(stripes.is_power_of_two());
        let floor = floor.min(TOKEN_LIMIT - 1);
        Self { last: vec![floor; stripes].into_boxed_slice(), floor, high: 0, ceiling: TOKEN_LIMIT - 1 }
    }

    /// The highest token that a key of this key's stripe ever had.
    pub fn last(&self, key: &[u8]) -> u64 {
        self.last[stripe(key, self.last.len())]
    }

    /// The highest token issued or learnt over all stripes; 0 before the first.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// No token above it is issued.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// The ceiling on the disk is this now.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling.min(TOKEN_LIMIT - 1);
    }

    /// Somebody else may have issued tokens up to `floor`: no stripe issues one up to it.
    pub fn raise_floor(&mut self, floor: u64) {
        let floor = floor.min(TOKEN_LIMIT - 1);
        self.floor = self.floor.max(floor);
        for last in &mut self.last {
            *last = (*last).max(floor);
        }
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

    /// Ahead of all that is known by this part of the leads.
    fn ahead(&self, wall_us: u64, skew_ms: u32, part: u64) -> u64 {
        let ahead_of_clock = ahead_us(wall_us, skew_ms) + CEILING_LEAD / part;
        let (issued, lead) = if self.high > self.floor { (self.high, ISSUED_LEAD) } else { (self.floor, START_LEAD) };
        ahead_of_clock.max(issued + lead / part).min(TOKEN_LIMIT - 1)
    }

    /// A new token for `key`: the proposal, if it is above `last` and at most the clock plus skew and the ceiling, else
    /// last + 1; without a proposal max(last + 1, clock).
    pub fn issue(&mut self, key: &[u8], proposal: Option<Token>, wall_us: u64, skew_ms: u32) -> Result<Token, Refusal> {
        let last = self.last(key);
        let bound = ahead_us(wall_us, skew_ms).min(self.ceiling);
        let value = match proposal {
            Some(proposal) if last < proposal.get() && proposal.get() <= bound => proposal.get(),
            Some(_) => last + 1,
            None => (last + 1).max(wall_us.min(self.ceiling)),
        };
        let token = Token::new(value).ok_or(Refusal::TokensExhausted)?;
        self.below_ceiling(token)?;
        self.learn(key, token);
        Ok(token)
    }

    /// Refuses a token above the ceiling, and sees to it that the ceiling will be raised for it.
    pub fn below_ceiling(&mut self, token: Token) -> Result<(), Refusal> {
        if token.get() <= self.ceiling {
            return Ok(());
        }
        self.high = self.high.max(token.get());
        Err(Refusal::NotYet)
    }

    /// A token of `key` came from elsewhere (loaded, replicated, renamed): nothing at or below it is issued again.
    pub fn learn(&mut self, key: &[u8], token: Token) {
        let stripe = stripe(key, self.last.len());
        let last = &mut self.last[stripe];
        *last = (*last).max(token.get());
        self.high = self.high.max(token.get());
    }

    /// Whether a token that arrives from a client's payload is one this node could have issued: none above the highest it has
    /// issued or learnt, and its clock + skew. A larger one would drive the key's tokens towards their end.
    pub fn plausible(&self, key: &[u8], token: Token, wall_us: u64, skew_ms: u32) -> bool {
        token.get() <= self.last(key).max(self.high).max(ahead_us(wall_us, skew_ms))
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

    #[test]
    fn bounds_of_a_token() {
        for (value, valid) in [(0, false), (1, true), (TOKEN_LIMIT - 1, true), (TOKEN_LIMIT, false), (u64::MAX, false)]
        {
            assert_eq!(Token::new(value).is_some(), valid, "{value}");
        }
    }

    #[test]
    fn follows_the_clock_and_never_falls_back_with_it() {
        // (wall clock, expected token)
        let cases = [(100, 1_001), (1_000, 1_002), (5_000, 5_000), (5_000, 5_001), (4_000, 5_002), (0, 5_003)];
        let mut tokens = Tokens::new(1_000);
        for (wall_us, expected) in cases {
            assert_eq!(tokens.issue(b"k", None, wall_us, 0).map(Token::get), Ok(expected));
        }
        assert_eq!(tokens.high(), 5_003);
    }

    #[test]
    fn unrelated_keys_do_not_disturb_each_other() {
        let mut tokens = Tokens::new(10);
        tokens.learn(b"a", Token::new(1_000_000).unwrap());
        assert_ne!(stripe(b"a", TOKEN_STRIPES), stripe(b"b", TOKEN_STRIPES));
        assert_eq!(tokens.issue(b"b", None, 20, 0).map(Token::get), Ok(20));
    }

    #[test]
    fn the_end_of_the_token_space_is_a_refusal() {
        let mut tokens = Tokens::new(TOKEN_LIMIT - 2);
        assert_eq!(tokens.issue(b"k", None, 0, 0).map(Token::get), Ok(TOKEN_LIMIT - 1));
        assert_eq!(tokens.issue(b"k", None, 0, 0), Err(Refusal::TokensExhausted));
        assert_eq!(Tokens::new(u64::MAX).issue(b"k", None, 0, 0), Err(Refusal::TokensExhausted));
    }

    #[test]
    fn plausible_up_to_clock_plus_skew_or_last() {
        let mut tokens = Tokens::new(10);
        let token = |value| Token::new(value).unwrap();
        assert!(tokens.plausible(b"k", token(3_000), 1_000, 2));
        assert!(!tokens.plausible(b"k", token(3_001), 1_000, 2));
        tokens.learn(b"k", token(9_000));
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
            let issued = tokens.issue(b"k", Token::new(proposal), wall_us, skew_ms).map(Token::get);
            assert_eq!(issued, expected, "{last} {proposal}");
        }
    }

    /// Lives of one node, small numbers, every combination of clock and number of grants: no token repeats or falls,
    /// none is above the ceiling that was on the disk, whatever the clock does between two lives.
    #[test]
    fn every_small_history_of_lives() {
        fn live(saved: u64, highest: u64, lives: u32) {
            if lives == 0 {
                return;
            }
            for wall_us in [0, 40, 1_000_000_000] {
                for grants in 0..4 {
                    let mut tokens = Tokens::new(saved.max(wall_us));
                    // The disk may stand still (the ceiling of the life before) or work.
                    for ceiling in [saved, tokens.wanted_ceiling(wall_us, 0)] {
                        tokens.set_ceiling(ceiling);
                        let mut last = highest;
                        for _ in 0..grants {
                            match tokens.issue(b"k", None, wall_us, 0) {
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

    #[test]
    fn a_raised_floor_is_below_every_later_token() {
        let mut tokens = Tokens::new(10);
        tokens.raise_floor(5_000);
        assert_eq!(tokens.issue(b"k", None, 20, 0).map(Token::get), Ok(5_001));
        tokens.raise_floor(1);
        assert_eq!(tokens.issue(b"k", None, 20, 0).map(Token::get), Ok(5_002));
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
                        tokens.learn(&key, token);
                        seen.insert(key, before.max(value));
                    }
                } else {
                    let token = tokens.issue(&key, Token::new(value ^ 5), value, 3).unwrap().get();
                    prop_assert!(token > before);
                    seen.insert(key, token);
                }
            }
        }
    }
}
