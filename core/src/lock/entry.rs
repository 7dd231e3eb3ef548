//! A lock's entry among the deadlines, kept in the lock itself.

/// A lock's entry in [`crate::Deadlines`]: the number of a set of entries, and an index in it. Only the lock refers to
/// the entry, so the index is reused only after the lock has given it up. After a flush the old set's number is not
/// used again, so a lock that still refers to it has no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineEntry {
    pub(super) place: u32,
    /// The number of the set of entries that has the entry; 0 if the lock has no entry.
    pub(super) set: u32,
}
