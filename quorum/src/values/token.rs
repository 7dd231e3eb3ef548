//! Fencing tokens as values; a node issues them (`Tokens` in `palisade-core`).

use crate::values::limits::TOKEN_LIMIT;

/// A fencing token: 1 ≤ token < 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Creates the token with this value; `None` if it is out of bounds.
    pub const fn new(value: u64) -> Option<Self> {
        if value >= 1 && value < TOKEN_LIMIT { Some(Self(value)) } else { None }
    }

    /// Returns the token as an integer.
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_a_token() {
        for (value, valid) in [(0, false), (1, true), (TOKEN_LIMIT - 1, true), (TOKEN_LIMIT, false), (u64::MAX, false)]
        {
            assert_eq!(Token::new(value).is_some(), valid, "{value}");
        }
    }
}
