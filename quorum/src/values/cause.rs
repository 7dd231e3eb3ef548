//! Why a node may have forgotten grants.

/// Why the guard is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node started and cannot prove that it remembers every grant.
    Restart,
    /// It was a replica: its master may have granted what never reached it.
    Promotion,
    /// Live locks were dropped (FLUSHALL, FLUSHDB, SWAPDB).
    Flush,
    /// The server evicted live locks, more than the node remembers one by one.
    Eviction,
    /// A slot of the cluster came without its locks, or they were dropped. In an incarnation: that slot alone; after a start: all.
    Slot,
    /// An operator's word.
    Operator,
}

impl Cause {
    /// Every cause, for reading one from its word.
    pub const ALL: [Cause; 6] =
        [Cause::Restart, Cause::Promotion, Cause::Flush, Cause::Eviction, Cause::Slot, Cause::Operator];

    /// Whether locks that are in memory since before it are as sure as they were: it is about those alone that are not.
    pub const fn leaves_locks_sure(self) -> bool {
        matches!(self, Cause::Flush | Cause::Eviction)
    }

    /// Its stable word.
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
