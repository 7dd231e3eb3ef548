//! A lock that is to be given back to a node that does not answer now.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use palisade_quorum::{BootTime, majority};
use redis::{Cmd, Value};

use crate::Why;
use crate::net::lease::Lease;
use crate::values::clock;

/// A lock that is being given back to nodes that did not answer at first.
#[derive(Debug)]
pub struct Debt {
    pub lease: Arc<Lease>,
    /// What gives it back.
    pub command: Cmd,
    /// Its leases have ended by then, wherever they are.
    pub until: BootTime,
    /// How many nodes do not have it any more.
    freed: AtomicUsize,
}

impl Debt {
    /// Notes what `command` gives back; its leases have ended by `until`.
    pub fn new(lease: &Arc<Lease>, command: Cmd, until: BootTime) -> Arc<Self> {
        Arc::new(Self { lease: Arc::clone(lease), command, until, freed: AtomicUsize::new(0) })
    }

    /// One node more does not have it.
    pub fn is_freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether others can have the lock: a majority of so many nodes does not have it.
    pub fn is_paid(&self, nodes: usize) -> bool {
        self.freed.load(Ordering::Relaxed) >= majority(nodes) || clock::boot_now() >= self.until
    }
}

/// Whether the node will not say more than that, asked again.
pub fn is_final(reply: &Result<Value, Why>) -> bool {
    reply.as_ref().err().is_none_or(Why::is_lasting)
}
