//! A caller: the lock that it is taking, and its time limit.

use palisade_core::BootTime;
use palisade_core::quorum::{Conduct, Taker};

use crate::history::TimeUs;

/// The time limit, in microseconds, within which a client must get a free lock if nothing else goes wrong.
pub(super) const PATIENCE_US: u64 = 15_000_000;

/// A lock that a client is taking.
pub(super) struct Taking {
    pub(super) taker: Taker,
    pub(super) key: u32,
    pub(super) since: TimeUs,
    /// The version of the set whose nodes are asked.
    pub(super) version: u64,
    /// True if the caller's limit is at least [`PATIENCE_US`].
    pub(super) is_patient: bool,
    /// True if the caller must get the lock: it is patient and not barred, and no client has held the lock since it
    /// came.
    pub(super) must_get_it: bool,
    /// The judge of the caller's conduct.
    pub(super) conduct: Conduct,
    /// The ticket that the caller got when it came.
    pub(super) ticket: u64,
    /// The number of refusals after which the caller is refused for good, for example because it lost a permission.
    pub(super) barred_after: Option<u32>,
    /// True while the caller pauses between two attempts.
    pub(super) pauses: bool,
    /// The end of the caller's wait in the line of its process.
    pub(super) lines_until: Option<BootTime>,
    /// The moment at which the caller stops waiting for a majority of the nodes to answer.
    pub(super) for_nodes: Option<BootTime>,
}
