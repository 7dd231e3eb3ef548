//! Pending releases of locks, on nodes that do not answer now.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use palisade_quorum::{BootTime, majority};
use redis::{Cmd, Value};

use crate::Why;
use crate::net::lease::Lease;
use crate::values::clock;

/// The time for which a node may hang, in milliseconds: so long after the leases have ended, it may still perform a
/// request for the lock that it received before.
const HANGS_MS: u32 = 60_000;

/// A pending release of a lock on nodes that did not answer at first.
#[derive(Debug)]
pub struct Debt {
    pub lease: Arc<Lease>,
    /// The command that releases the lock.
    pub command: Cmd,
    /// The time by which the leases have ended on all nodes that do not hang.
    until: BootTime,
    /// Number of nodes that no longer have the lock.
    freed: AtomicUsize,
}

impl Debt {
    /// Creates a pending release by `command`; the leases have ended by `until`.
    pub fn new(lease: &Arc<Lease>, command: Cmd, until: BootTime) -> Arc<Self> {
        Arc::new(Self { lease: Arc::clone(lease), command, until, freed: AtomicUsize::new(0) })
    }

    /// Returns the time after which the release is no longer tried.
    pub fn ends(&self) -> BootTime {
        self.until.plus_ms(HANGS_MS)
    }

    /// Counts another node that does not have the lock.
    pub fn is_freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether others can acquire the lock: a majority of `nodes` nodes does not have it, or the leases have
    /// ended.
    pub fn is_paid(&self, nodes: usize) -> bool {
        self.freed.load(Ordering::Relaxed) >= majority(nodes) || clock::boot_now() >= self.until
    }
}

/// Returns whether this reply to a release is final: repeating the release would get the same one.
pub fn is_final(reply: &Result<Value, Why>) -> bool {
    reply.as_ref().err().is_none_or(Why::is_lasting)
}
