//! Fencing tokens: what makes a later grant of a key recognisable as later.
//!
//! Kleppmann, "How to do distributed locking" (2016): the resource refuses a token smaller than one it has seen. That
//! needs tokens that grow over *all* grants of a key, also after the key was released, deleted or flushed. So the
//! highest token is kept outside the keys, one per stripe of keys: memory stays fixed however many keys were ever
//! locked, and a grant is always above everything its stripe has seen.

use crate::limits::{TOKEN_LIMIT, TOKEN_STRIPES};

/// A fencing token: 1 ≤ token < 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// `last` of every stripe: the highest token ever issued or learnt for its keys.
#[derive(Debug)]
pub struct Tokens {
    last: Box<[u64]>,
    high: u64,
}

impl Tokens {
    /// Every stripe starts at `floor`: no token up to it is issued again.
    pub fn new(floor: u64) -> Self {
        let floor = floor.min(TOKEN_LIMIT - 1);
        Self { last: vec![floor; TOKEN_STRIPES].into_boxed_slice(), high: 0 }
    }

    /// The highest token that a key of this key's stripe ever had.
    pub fn last(&self, key: &[u8]) -> u64 {
        self.last[stripe(key)]
    }

    /// The highest token issued or learnt over all stripes; 0 before the first.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// A new token for `key`: max(last + 1, wall clock). `None` when the token space is used up.
    pub fn issue(&mut self, key: &[u8], wall_us: u64) -> Option<Token> {
        let last = &mut self.last[stripe(key)];
        let token = Token::new((*last + 1).max(wall_us))?;
        *last = token.get();
        self.high = self.high.max(token.get());
        Some(token)
    }

    /// A token of `key` came from elsewhere (loaded, replicated, renamed): nothing at or below it is issued again.
    pub fn learn(&mut self, key: &[u8], token: Token) {
        let last = &mut self.last[stripe(key)];
        *last = (*last).max(token.get());
        self.high = self.high.max(token.get());
    }

    /// Whether a token that arrives from a client's payload is one this node could have issued: at most
    /// max(last, clock + skew). A larger one would drive the key's tokens towards their end.
    pub fn plausible(&self, key: &[u8], token: Token, wall_us: u64, skew_ms: u32) -> bool {
        token.get() <= self.last(key).max(wall_us + u64::from(skew_ms) * 1_000)
    }
}

/// FNV-1a: short, and no key can do harm by sharing a stripe with another.
fn stripe(key: &[u8]) -> usize {
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The low bits of FNV-1a are its weakest: fold the high half in.
    (hash ^ (hash >> 32)) as usize % TOKEN_STRIPES
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
            assert_eq!(tokens.issue(b"k", wall_us).map(Token::get), Some(expected));
        }
        assert_eq!(tokens.high(), 5_003);
    }

    #[test]
    fn unrelated_keys_do_not_disturb_each_other() {
        let mut tokens = Tokens::new(10);
        tokens.learn(b"a", Token::new(1_000_000).unwrap());
        assert_ne!(stripe(b"a"), stripe(b"b"));
        assert_eq!(tokens.issue(b"b", 20).map(Token::get), Some(20));
    }

    #[test]
    fn the_end_of_the_token_space_is_a_refusal() {
        let mut tokens = Tokens::new(TOKEN_LIMIT - 2);
        assert_eq!(tokens.issue(b"k", 0).map(Token::get), Some(TOKEN_LIMIT - 1));
        assert_eq!(tokens.issue(b"k", 0), None);
        assert_eq!(Tokens::new(u64::MAX).issue(b"k", 0), None);
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
                    let token = tokens.issue(&key, value).unwrap().get();
                    prop_assert!(token > before);
                    seen.insert(key, token);
                }
            }
        }
    }
}
