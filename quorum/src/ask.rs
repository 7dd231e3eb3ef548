//! The questions to nodes and their answers, and the calculations of majorities and validity.

use crate::values::limits::DRIFT_PERCENT;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The most time that rounding to milliseconds can take from a lease, at the client and at the node together, in
/// microseconds.
const ROUNDING_US: u64 = 2_000;

/// A server's identity, which does not depend on its name: the `id` of LOCK.NODE, read on the connection that carries
/// its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

/// Returns the smallest majority of `nodes`.
pub const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Returns by how much a holder's validity is shorter than the lease, in microseconds.
pub const fn margin_us(ttl_ms: u32) -> u64 {
    ttl_ms as u64 * 1_000 * DRIFT_PERCENT / 100 + ROUNDING_US
}

/// Returns the end of validity for leases of `ttl_ms` that were requested at `start`. It lies before `start` if the
/// lease is shorter than the margin.
pub const fn valid_until(start: BootTime, ttl_ms: u32) -> BootTime {
    BootTime::from_us((start.as_us() + ttl_ms as u64 * 1_000).saturating_sub(margin_us(ttl_ms)))
}

/// Returns the earliest moment at which a lease can have begun, if the request was sent at `start` and the node says
/// that it waited `waited_ms`. The node's clock may run faster than the holder's, so slightly less than `waited_ms` is
/// counted.
pub const fn granted_after(start: BootTime, waited_ms: u64) -> BootTime {
    let waited_us = waited_ms.saturating_mul(1_000);
    start.plus_us(waited_us - waited_us / 100 * DRIFT_PERCENT - (waited_us % 100 * DRIFT_PERCENT).div_ceil(100))
}

/// A question to a node. The key, owner and mode are those of the state machine that asks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask {
    /// LOCK.ACQUIRE with this proposal.
    Acquire {
        /// The length of the lease, in milliseconds.
        ttl_ms: u32,
        /// The token that the client proposes.
        proposal: Token,
        /// True if a grant that this owner already has is accepted (RETRY).
        retry: bool,
    },
    /// LOCK.FENCE: asks the node to raise the grant's token to this one. The answer is the token that the grant has
    /// then.
    Fence {
        /// The token to raise to.
        token: Token,
    },
    /// LOCK.EXTEND of the grant with this token.
    Extend {
        /// The length of the extended lease, in milliseconds.
        ttl_ms: u32,
        /// The token that the node acknowledged last.
        token: Token,
    },
    /// LOCK.CONVERT to shared: the writer continues as a reader, under its token.
    Share,
}

/// A question to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// The index of the node in the client's list of nodes.
    pub node: usize,
    /// The question to send.
    pub ask: Ask,
    /// The pause before the question is sent, in milliseconds; 0 if it is sent at once.
    pub after_ms: u32,
}

/// The answer of a node to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The node has a grant of this owner, with this token.
    Token(Token),
    /// Null: another owner holds the lock, or this owner does not hold it.
    No,
    /// The node is guarded, or is not sure of this lock.
    Guarded {
        /// The time until the guard ends, in milliseconds.
        ms: u64,
    },
    /// The node will be ready soon, so the caller asks again.
    NotYet {
        /// The pause before asking again, in milliseconds.
        ms: u32,
    },
    /// No answer in time, or another error.
    Failed,
}

/// The reason why a node does not count for the majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Out {
    /// Another owner holds the lock there.
    Contended,
    /// The node is guarded, or is not sure of this lock.
    Guarded {
        /// The time until the guard ends, in milliseconds.
        ms: u64,
    },
    /// No answer in time, or another error.
    Failed,
    /// The node is a second name of a server that already counts, or it is not known which server answered.
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

    /// A node says that a request waited for a time. As its clock may run fast, the lease counts as having begun
    /// somewhat earlier.
    #[test]
    fn a_wait_counts_less_what_clocks_drift() {
        for (waited_ms, began_us) in [(0, 0), (1, 990), (100, 99_000), (3_600_000, 3_564_000_000)] {
            assert_eq!(granted_after(BootTime::from_us(7), waited_ms).as_us(), 7 + began_us, "{waited_ms}");
        }
        granted_after(BootTime::from_us(u64::MAX), u64::MAX);
    }

    #[test]
    fn two_majorities_always_meet() {
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
