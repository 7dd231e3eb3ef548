//! A flush that may turn out to be the start of a reload (DEBUG RELOAD, a replica that loads its master's data).

use crate::guard::Guard;
use crate::lock::deadlines::Detached;
use crate::values::time::BootTime;

/// Live locks that were dropped, until it is clear whether they are loaded again.
#[derive(Clone, Debug)]
pub struct Flush {
    /// The guard as it was before the flush.
    pub(crate) guard: Guard,
    pub(crate) dropped: Vec<Detached>,
}

impl Flush {
    /// Returns database, name and end of every dropped lock. The flush was a reload if all of them are back and end no
    /// earlier.
    pub fn locks(&self) -> impl Iterator<Item = (u32, &[u8], BootTime)> {
        self.dropped.iter().flat_map(Detached::locks)
    }

    /// Returns the entries of the dropped locks: a million of them take a while to free.
    pub fn into_dropped(self) -> Vec<Detached> {
        self.dropped
    }
}
