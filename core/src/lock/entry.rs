//! A lock's entry among the deadlines, kept in the lock itself.

/// A lock's entry in [`crate::Deadlines`]: a place in one set of entries. The lock alone has it, so the place is another's only after
/// the lock has given it up; and a set that was detached has a number that no other has, so what its locks kept is nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineEntry {
    pub(super) place: u32,
    /// The number of the set; 0: no entry.
    pub(super) set: u32,
}
