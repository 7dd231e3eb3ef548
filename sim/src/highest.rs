//! The largest tokens of a key, as far as somebody who comes later has to be above them.
//!
//! A writer's token is above all earlier ones; a reader's above those of writers and permits; that of a permit above those of its
//! number, of writers and of readers.

use std::collections::BTreeMap;

use crate::history::{HeldAs, TimeUs};

/// The largest token of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Largest {
    exclusive: u64,
    shared: u64,
    permits: BTreeMap<u16, u64>,
}

impl Largest {
    /// What comes in `mode` must be above this, or, if it comes again, at least this.
    pub fn floor_of(&self, mode: HeldAs) -> u64 {
        let permits = || self.permits.values().copied().max().unwrap_or(0);
        match mode {
            HeldAs::Exclusive => self.exclusive.max(self.shared).max(permits()),
            HeldAs::Shared => self.exclusive.max(permits()),
            HeldAs::Permit { number, .. } => {
                self.exclusive.max(self.shared).max(self.permits.get(&number).copied().unwrap_or(0))
            }
        }
    }

    /// Somebody had `token` in `mode`.
    pub fn add(&mut self, mode: HeldAs, token: u64) {
        let largest = match mode {
            HeldAs::Exclusive => &mut self.exclusive,
            HeldAs::Shared => &mut self.shared,
            HeldAs::Permit { number, .. } => self.permits.entry(number).or_default(),
        };
        *largest = token.max(*largest);
    }
}

/// The largest tokens, by the moments at which they were known; the last are the largest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Highest(Vec<(TimeUs, Largest)>);

impl Highest {
    /// What the token of somebody who comes in `mode` must be above, of what was known before `known`.
    pub fn floor_of(&self, mode: HeldAs, known: TimeUs) -> u64 {
        let count = self.0.partition_point(|&(at, _)| at < known);
        count.checked_sub(1).map_or(0, |last| self.0[last].1.floor_of(mode))
    }

    /// The last writer had `token`, and nobody since had a larger one.
    pub fn is_of_last_writer(&self, token: u64) -> bool {
        let largest = self.0.last().map(|(_, largest)| (largest.exclusive, largest.floor_of(HeldAs::Exclusive)));
        largest == Some((token, token))
    }

    /// From `at` on it is known that somebody has `token` in `mode`. What was known before is kept if that is wanted.
    pub fn raise(&mut self, at: TimeUs, mode: HeldAs, token: u64, keeps: bool) {
        let mut largest = self.0.last().map(|(_, largest)| largest.clone()).unwrap_or_default();
        let before = largest.clone();
        largest.add(mode, token);
        if largest == before {
            return;
        }
        if !keeps {
            self.0.clear();
        }
        self.0.push((at, largest));
    }
}
