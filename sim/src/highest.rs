//! The largest tokens of a key, by the moments at which they were known.

use palisade_core::Mode;
use palisade_core::quorum::floors::Floors;

use crate::history::{HeldAs, TimeUs};

/// The largest tokens, by the moments at which they were known; the last are the largest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Highest(Vec<(TimeUs, Floors)>);

impl Highest {
    /// What the token of somebody who comes in `mode` must be above, of what was known before `known`.
    pub fn floor_of(&self, mode: HeldAs, known: TimeUs) -> u64 {
        let count = self.0.partition_point(|&(at, _)| at < known);
        count.checked_sub(1).map_or(0, |last| self.0[last].1.floor_of(mode.mode()))
    }

    /// The last writer had `token`, and nobody since had a larger one.
    pub fn is_of_last_writer(&self, token: u64) -> bool {
        let largest = self.0.last().map(|(_, largest)| (largest.exclusive, largest.floor_of(Mode::Exclusive)));
        largest == Some((token, token))
    }

    /// From `at` on it is known that somebody has `token` in `mode`. What was known before is kept if that is wanted.
    pub fn raise(&mut self, at: TimeUs, mode: HeldAs, token: u64, keeps: bool) {
        let mut largest = self.0.last().map(|(_, largest)| largest.clone()).unwrap_or_default();
        let before = largest.clone();
        largest.add(mode.mode(), token);
        if largest == before {
            return;
        }
        if !keeps {
            self.0.clear();
        }
        self.0.push((at, largest));
    }
}
