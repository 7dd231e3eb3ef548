//! What happened since the module was loaded, for people who watch a node.

/// Totals since load; each only ever grows. The rules count what a client asked for, the node what it did itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Grants in any mode; a repeated request (`RETRY`) is not counted again.
    pub grants: u64,
    /// Those of them that were shared.
    pub shared_grants: u64,
    /// Those of them that were permits.
    pub permit_grants: u64,
    /// ACQUIREs refused because somebody else holds the lock.
    pub contended: u64,
    /// Grants released whole, by their owner.
    pub releases: u64,
    /// Grants whose lease ended and that were deleted in the background or granted anew.
    pub expiries: u64,
    /// Locks broken by an operator with LOCK.BREAK.
    pub breaks: u64,
    /// Successful EXTENDs.
    pub extensions: u64,
    /// Leases that were prolonged because the connection of their holder is open.
    pub renewals: u64,
    /// CONVERTs that changed the mode of a grant.
    pub conversions: u64,
    /// NOTEs that replaced the note of a grant.
    pub notes: u64,
    /// Successful REENTERs.
    pub reentries: u64,
    /// Grants to a request that waited in the queue.
    pub hand_overs: u64,
    /// LOCK.WAITs that waited and were told that the lock is free.
    pub turns: u64,
}
