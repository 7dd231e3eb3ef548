//! Lower bounds for the token of a grant, from all earlier grants of its lock. Judges of histories use this plainest
//! form of the rule.
//!
//! A writer's token is above all earlier ones. A reader's is above those of writers and permits. A permit's is above
//! those of its number, of writers and of readers.

use std::collections::BTreeMap;

use crate::values::mode::Mode;

/// The largest tokens of a lock, by mode; zero if there was no grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Floors {
    /// The largest token of a writer.
    pub exclusive: u64,
    shared: u64,
    permits: BTreeMap<u16, u64>,
}

impl Floors {
    /// Returns the token that a later grant of `mode` must exceed, and that a repeated grant must reach.
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
