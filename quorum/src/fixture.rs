//! Times and tokens for tests.

use crate::ask::NodeId;
use crate::values::time::{BootTime, Now};
use crate::values::token::Token;

pub fn token(value: u64) -> Token {
    Token::new(value).unwrap()
}

/// Returns the moment `ms` milliseconds after boot.
pub fn ms(ms: u64) -> BootTime {
    BootTime::from_us(ms * 1_000)
}

/// Returns the moment `ms` milliseconds after boot, at which the wall clock shows 1 000 µs more.
pub fn at(ms: u64) -> Now {
    Now::new(BootTime::from_us(ms * 1_000), ms * 1_000 + 1_000)
}

pub fn id(n: u128) -> Option<NodeId> {
    Some(NodeId(n))
}
