//! What a quorum asks its nodes, what they answer, and what follows from numbers alone: majorities and validity.

use crate::values::limits::DRIFT_PERCENT;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// What rounding to milliseconds can cost, on both sides, in microseconds.
const ROUNDING_US: u64 = 2_000;

/// Which server a node is, whatever its name: its LOCK.NODE `id`, read on the connection that carries its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

/// How many of `nodes` are a majority.
pub const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// How much earlier than a lease the holder's validity ends, in microseconds.
pub const fn margin_us(ttl_ms: u32) -> u64 {
    ttl_ms as u64 * 1_000 * DRIFT_PERCENT / 100 + ROUNDING_US
}

/// Until when a holder may rely on leases of `ttl_ms` that were asked for at `start`. Before `start` if they are shorter
/// than the margin: then never.
pub const fn valid_until(start: BootTime, ttl_ms: u32) -> BootTime {
    BootTime::from_us((start.as_us() + ttl_ms as u64 * 1_000).saturating_sub(margin_us(ttl_ms)))
}

/// When a lease began at the earliest that a node says was granted `waited_ms` after it was asked for at `start`. The node's clock
/// counted that wait, and it may be faster than the holder's.
pub const fn granted_after(start: BootTime, waited_ms: u64) -> BootTime {
    let waited_us = waited_ms.saturating_mul(1_000);
    start.plus_us(waited_us - waited_us / 100 * DRIFT_PERCENT - (waited_us % 100 * DRIFT_PERCENT).div_ceil(100))
}

/// What a node is asked about the machine's key and owner, in the mode in which that owner asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask {
    /// LOCK.ACQUIRE with this proposal; `retry`: the owner may have it there already.
    Acquire {
        /// Length of the lease.
        ttl_ms: u32,
        /// The token that is proposed.
        proposal: Token,
        /// An existing grant of this owner is as good.
        retry: bool,
    },
    /// LOCK.FENCE to this token.
    Fence {
        /// The token.
        token: Token,
    },
    /// LOCK.EXTEND of the grant with this token.
    Extend {
        /// Length of the lease from then on.
        ttl_ms: u32,
        /// What the node last acknowledged.
        token: Token,
    },
    /// LOCK.CONVERT to shared: whoever held it alone goes on as a reader, with the token it has.
    Share,
}

/// A question to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Which node, by its place in the list.
    pub node: usize,
    /// What.
    pub ask: Ask,
    /// How long to wait before asking, in milliseconds: it said that it is not ready yet.
    pub after_ms: u32,
}

/// What a node answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The token that this owner's grant has there.
    Token(Token),
    /// Null: somebody else holds it, or this owner does not.
    No,
    /// It is guarded, or cannot vouch for this lock, for so long.
    Guarded {
        /// Milliseconds.
        ms: u64,
    },
    /// It will be ready in a moment: ask again.
    NotYet {
        /// Milliseconds.
        ms: u32,
    },
    /// No answer in time, or another error.
    Failed,
}

/// Why a node does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Out {
    /// Somebody else holds the lock there.
    Contended,
    /// It is guarded for so long.
    Guarded {
        /// Milliseconds.
        ms: u64,
    },
    /// No answer in time, or another error.
    Failed,
    /// It is the same server as another node of the list.
    Duplicate,
}

impl Call {
    pub(super) fn now(node: usize, ask: Ask) -> Self {
        Self { node, ask, after_ms: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a wait that a node counted, its clock may have counted some too much.
    #[test]
    fn a_wait_counts_less_what_clocks_drift() {
        for (waited_ms, began_us) in [(0, 0), (1, 990), (100, 99_000), (3_600_000, 3_564_000_000)] {
            assert_eq!(granted_after(BootTime::from_us(7), waited_ms).as_us(), 7 + began_us, "{waited_ms}");
        }
        granted_after(BootTime::from_us(u64::MAX), u64::MAX);
    }

    #[test]
    fn majorities_meet() {
        for (nodes, expected) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
            assert_eq!(majority(nodes), expected);
            assert!(2 * majority(nodes) > nodes);
        }
    }

    #[test]
    fn validity_ends_before_the_lease_and_never_wraps() {
        let at = BootTime::from_us;
        assert_eq!(valid_until(at(1_000_000), 10_000), at(11_000_000 - 100_000 - 2_000));
        assert!(valid_until(at(5_000), 1) < at(5_000), "shorter than the margin: never valid");
        assert_eq!(valid_until(at(0), 1), at(0));
        assert!(valid_until(at(0), u32::MAX) > at(0));
    }
}
