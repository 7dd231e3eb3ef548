//! A lock's entry among the deadlines, kept in the lock itself.

use crate::values::time::BootTime;

/// A lock's entry in [`crate::Deadlines`]: when it comes due, and a ticket that tells entries of one moment apart. Packed: there
/// are two of it a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
pub struct DeadlineEntry {
    pub(super) due: BootTime,
    /// 0: no entry.
    pub(super) ticket: u32,
}
