//! Totals since the module was loaded, for people who monitor a node.

/// Totals since the module was loaded, for INFO; each only grows. The rules count the requests of clients, and the node
/// counts its own actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Grants in any mode; a repeated request (`RETRY`) is not counted again.
    pub grants: u64,
    /// Shared grants, which are also in `grants`.
    pub shared_grants: u64,
    /// Permits granted, which are also in `grants`.
    pub permit_grants: u64,
    /// ACQUIREs refused because another owner holds the lock.
    pub contended: u64,
    /// Grants of which the owner gave back the last hold.
    pub releases: u64,
    /// Grants whose lease ended, and that were deleted in the background or replaced by a new grant.
    pub expiries: u64,
    /// Locks broken by an operator with LOCK.BREAK.
    pub breaks: u64,
    /// Successful LOCK.EXTENDs, even if the lease already lasted longer.
    pub extensions: u64,
    /// Extensions by the node itself, of leases that are kept alive.
    pub renewals: u64,
    /// CONVERTs that changed the mode of a grant.
    pub conversions: u64,
    /// NOTEs that replaced the note of a grant.
    pub notes: u64,
    /// REENTERs by holders, even if the level left the holds as they were.
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
