//! A caller: what it is about to take, and for how long it is ready to wait.

use palisade_core::BootTime;
use palisade_core::quorum::{Conduct, Taker};

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
    /// What it did is judged.
    pub(super) conduct: Conduct,
    /// Its ticket when it came.
    pub(super) ticket: u64,
    /// So many refusals from now on it is refused for good: its caller lost a permission, say.
    pub(super) barred_after: Option<u32>,
    /// It pauses.
    pub(super) pauses: bool,
    /// Until when it stands in the line of its process.
    pub(super) lines_until: Option<BootTime>,
    /// When to stop waiting for a majority of nodes.
    pub(super) for_nodes: Option<BootTime>,
}
