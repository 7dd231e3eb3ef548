//! Totals since the module was loaded, for people who monitor a node.

/// Totals since load; each only ever grows. The rules count the requests of clients, the node its own actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Grants in any mode; a repeated request (`RETRY`) is not counted again.
    pub grants: u64,
    /// Shared grants among them.
    pub shared_grants: u64,
    /// Permits among them.
    pub permit_grants: u64,
    /// ACQUIREs refused because another owner holds the lock.
    pub contended: u64,
    /// Grants released completely by their owner.
    pub releases: u64,
    /// Grants whose lease ended, and that were deleted in the background or replaced by a new grant.
    pub expiries: u64,
    /// Locks broken by an operator with LOCK.BREAK.
    pub breaks: u64,
    /// Successful EXTENDs.
    pub extensions: u64,
    /// Leases renewed because the connection of their holder is open.
    pub renewals: u64,
    /// CONVERTs that changed the mode of a grant.
    pub conversions: u64,
    /// NOTEs that replaced the note of a grant.
    pub notes: u64,
    /// Successful REENTERs.
    pub reentries: u64,
    /// Grants to requests that waited in the queue.
    pub hand_overs: u64,
    /// Tokens that a gate let pass.
    pub gate_passes: u64,
    /// Tokens that a gate refused: FENCED, or NOTHELD.
    pub gate_refusals: u64,
    /// LOCK.WAITs that waited and were answered that the lock is free.
    pub turns: u64,
}
