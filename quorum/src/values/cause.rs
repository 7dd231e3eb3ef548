//! The causes why a node may have forgotten grants.

/// The cause of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node started and cannot prove that it remembers every grant.
    Restart,
    /// The node was a replica: its master may have made grants that never reached it.
    Promotion,
    /// Live locks were dropped (FLUSHALL, FLUSHDB, SWAPDB).
    Flush,
    /// The server evicted more live locks than the node remembers individually.
    Eviction,
    /// A slot of the cluster came without its locks, or they were dropped. Within an incarnation this guards that slot
    /// only; after a start, all slots.
    Slot,
    /// An operator armed the guard.
    Operator,
}

impl Cause {
    /// All causes, for parsing one from its word.
    pub const ALL: [Cause; 6] =
        [Cause::Restart, Cause::Promotion, Cause::Flush, Cause::Eviction, Cause::Slot, Cause::Operator];

    /// Returns whether locks that were in memory before the cause stay as certain as they were, because the cause
    /// concerns only other locks.
    pub const fn leaves_locks_sure(self) -> bool {
        matches!(self, Cause::Flush | Cause::Eviction)
    }

    /// Returns the cause's stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Cause::Restart => "restart",
            Cause::Promotion => "promotion",
            Cause::Flush => "flush",
            Cause::Eviction => "eviction",
            Cause::Slot => "slot",
            Cause::Operator => "operator",
        }
    }
}
