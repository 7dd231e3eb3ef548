//! What the token of a grant must be above, by all that a lock was ever held with: for those who judge histories, by the plainest reading.
//!
//! A writer's token is above all earlier ones; a reader's above those of writers and permits; that of a permit above those of its
//! number, of writers and of readers.

use std::collections::BTreeMap;

use crate::values::mode::Mode;

/// The largest tokens of a lock; zero: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Floors {
    /// The largest of a writer.
    pub exclusive: u64,
    shared: u64,
    permits: BTreeMap<u16, u64>,
}

impl Floors {
    /// Returns what a later grant of `mode` must be above, or, if it comes again, at least.
    pub fn floor_of(&self, mode: Mode) -> u64 {
        let permits = || self.permits.values().copied().max().unwrap_or(0);
        match mode {
            Mode::Exclusive => self.exclusive.max(self.shared).max(permits()),
            Mode::Shared => self.exclusive.max(permits()),
            Mode::Permit(permit) => {
                self.exclusive.max(self.shared).max(self.permits.get(&permit.number()).copied().unwrap_or(0))
            }
        }
    }

    /// Adds a grant of `mode` with `token`.
    pub fn add(&mut self, mode: Mode, token: u64) {
        let largest = match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
            Mode::Permit(permit) => self.permits.entry(permit.number()).or_default(),
        };
        *largest = token.max(*largest);
    }
}
