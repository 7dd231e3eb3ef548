//! A flush that may turn out to be the start of a reload (DEBUG RELOAD, a replica that loads its master's data).

use crate::guard::Guard;
use crate::lock::deadlines::Detached;
use crate::values::time::BootTime;

/// Live locks that a flush dropped, until it is clear whether they are loaded again.
#[derive(Clone, Debug)]
pub struct Flush {
    /// The guard as it was before the flush, to return to it if the flush was part of a reload.
    pub(crate) guard: Guard,
    pub(crate) dropped: Vec<Detached>,
}

impl Flush {
    /// Returns database, name and end of every dropped lock. If all of them are back and end no earlier, the flush was
    /// a reload.
    pub fn locks(&self) -> impl Iterator<Item = (u32, &[u8], BootTime)> {
        self.dropped.iter().flat_map(Detached::locks)
    }

    /// Returns the deadlines of the dropped locks. To free a million of them takes a while, so the caller may do it in
    /// another thread.
    pub fn into_dropped(self) -> Vec<Detached> {
        self.dropped
    }
}
