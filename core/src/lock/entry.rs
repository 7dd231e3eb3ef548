//! A lock's entry among the deadlines, kept in the lock itself.

/// A lock's entry in [`crate::Deadlines`]: a place in one set of entries. Only the lock has it, so the place is reused
/// only after the lock has given it up. A detached set has a unique number, so the entries that its locks kept belong
/// to nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineEntry {
    pub(super) place: u32,
    /// The number of the set; 0 without an entry.
    pub(super) set: u32,
}
