//! What one node remembers beside the locks themselves.

use crate::{Counters, Deadlines, Tokens};

/// One node's own memory: the rules read and write it, the locks live in the keys.
#[derive(Debug)]
pub struct Node {
    /// Highest tokens, so that no token ever repeats or falls.
    pub tokens: Tokens,
    /// When which lock's lease may have ended.
    pub deadlines: Deadlines,
    /// Totals since load.
    pub counters: Counters,
}

impl Node {
    /// A node that issues no token up to `token_floor`.
    pub fn new(token_floor: u64) -> Self {
        Self { tokens: Tokens::new(token_floor), deadlines: Deadlines::default(), counters: Counters::default() }
    }
}
