//! A node's keys, and the stripes that they share. A stripe is a set of keys with a common last token.

use palisade_core::engine::Key;
use palisade_core::{Token, Tokens};

/// The number of stripes. It is small, so that keys share stripes and a node stays small.
pub(super) const STRIPES: usize = 4;

/// The number of stripes that may have ceilings of their own. It is smaller than [`STRIPES`], so that the node's own
/// ceiling is used too.
pub(super) const STRIPES_APART: usize = 2;

/// The only database.
pub(super) const DB: u32 = 0;

/// The time, in milliseconds, after which a client repeats a request to a node that was not ready.
pub const NOT_YET_MS: u32 = 10;

/// Returns the name of a key.
pub fn name(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

/// Returns the key `name` of the only database.
pub(super) fn key_of(name: &[u8]) -> Key<'_> {
    Key { db: DB, name }
}

/// Returns a key that shares its stripe with none of the first `keys` keys.
pub(super) fn key_apart(keys: u32) -> u32 {
    (keys..).find(|key| !shares_stripe(*key, keys)).unwrap_or(keys)
}

/// Returns true if `key` shares its stripe with one of the first `keys` keys.
pub fn shares_stripe(key: u32, keys: u32) -> bool {
    let mut tokens = Tokens::with_stripes(0, STRIPES, STRIPES_APART);
    tokens.observe(&name(key), Token::new(1).expect("it is a token"));
    (0..keys).any(|other| tokens.last(&name(other)) != 0)
}
