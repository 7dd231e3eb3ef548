//! What one node remembers beside the locks themselves.

use crate::limits::MAX_CLOCK_SKEW_DEFAULT_MS;
use crate::{
    BootTime, Cause, Counters, Deadlines, Evicted, Guard, Ledger, Lock, SavedGuard, Slots, Tokens, Waiting, guard_ms,
};

/// One node's own memory: the rules read and write it, the locks live in the keys.
#[derive(Clone, Debug)]
pub struct Node {
    /// Highest tokens, so that no token ever repeats or falls.
    pub tokens: Tokens,
    /// When which lock's lease may have ended.
    pub deadlines: Deadlines,
    /// Totals since load.
    pub counters: Counters,
    /// Refuses while grants may have been forgotten.
    pub guard: Guard,
    /// Locks granted before are of a life that the node cannot prove to remember.
    pub vouches_from: BootTime,
    /// Locks that the server dropped to make room.
    pub evicted: Evicted,
    /// In a cluster: what is known of its slots.
    pub slots: Slots,
    /// Requests that wait for a lock.
    pub waiting: Waiting,
    /// What is on the disk, and must be.
    pub ledger: Ledger,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
}

impl Node {
    /// A node that issues no token up to `token_floor`.
    pub fn new(token_floor: u64) -> Self {
        Self::with_tokens(Tokens::new(token_floor))
    }

    /// A node with these tokens.
    pub fn with_tokens(tokens: Tokens) -> Self {
        Self {
            tokens,
            deadlines: Deadlines::default(),
            counters: Counters::default(),
            guard: Guard::default(),
            vouches_from: BootTime::default(),
            evicted: Evicted::default(),
            slots: Slots::default(),
            waiting: Waiting::default(),
            ledger: Ledger::without_file(),
            skew_ms: MAX_CLOCK_SKEW_DEFAULT_MS,
        }
    }

    /// What a later life must know of the guard. Of single slots it does not tell which: all are guarded after a start.
    pub fn saved_guard(&self, now: BootTime) -> Option<SavedGuard> {
        let mut guard = self.guard;
        if let Some(until) = self.slots.guarded_until(now) {
            guard.arm(Cause::Slot, now, until);
        }
        guard.saved(now)
    }

    /// What a later life must know of [`Node::vouches_from`]; zero: nothing, once the longest lease from before, of `owed_ms`,
    /// has ended.
    pub fn unproved_before(&self, owed_ms: u32, now: BootTime) -> BootTime {
        let may_be_left = now <= self.vouches_from.plus_ms(guard_ms(owed_ms, self.skew_ms));
        if may_be_left { self.vouches_from } else { BootTime::default() }
    }

    /// Whether the node cannot vouch for `lock` as long as it lasts: it came from outside, or from a life that the node
    /// cannot prove to remember.
    pub fn is_suspect(&self, lock: &Lock) -> bool {
        lock.suspect || lock.granted < self.vouches_from
    }
}
