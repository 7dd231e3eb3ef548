//! The causes for which a guard is armed.

/// The reason why a guard was armed: what may have made the node forget grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node started and cannot prove that it remembers every grant.
    Restart,
    /// The node was a replica and became a master. Its former master may have made grants that never reached it.
    Promotion,
    /// Live locks were dropped (FLUSHALL, FLUSHDB, SWAPDB).
    Flush,
    /// The server evicted more live locks than the node remembers by key.
    Eviction,
    /// A cluster's slot came without its locks, or its locks were dropped. In this incarnation only that slot is
    /// guarded; after a start, all slots.
    Slot,
    /// An operator armed the guard.
    Operator,
}

impl Cause {
    /// All causes, to find one by its word.
    pub const ALL: [Cause; 6] =
        [Cause::Restart, Cause::Promotion, Cause::Flush, Cause::Eviction, Cause::Slot, Cause::Operator];

    /// Returns whether the node is still sure of the locks that are left in memory, because the cause concerns other
    /// locks only.
    pub const fn leaves_locks_sure(self) -> bool {
        matches!(self, Cause::Flush | Cause::Eviction)
    }

    /// Returns the word that stands for the cause in the state file and in INFO.
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
