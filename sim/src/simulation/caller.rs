//! A caller: what it is about to take, and for how long it is ready to wait.

use palisade_core::BootTime;
use palisade_core::quorum::Taker;

use crate::history::TimeUs;

/// For how long a client asks that must get a free lock if nothing else goes wrong, in microseconds.
pub(super) const PATIENCE_US: u64 = 15_000_000;

/// What a client is about to take.
pub(super) struct Taking {
    pub(super) taker: Taker,
    pub(super) key: u32,
    pub(super) since: TimeUs,
    /// The version of the set that is asked.
    pub(super) version: u64,
    /// Its limit is as long as it takes.
    pub(super) is_patient: bool,
    /// So it is, and nobody held it since.
    pub(super) must_get_it: bool,
    /// When to stop waiting for a majority of nodes.
    pub(super) for_nodes: Option<BootTime>,
}
