//! The largest tokens of a key, with the times at which they became known.

use palisade_core::Mode;
use palisade_core::quorum::floors::Floors;

use crate::history::{HeldAs, TimeUs};

/// The largest tokens, with the times at which they became known, oldest first. Later entries are never smaller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Highest(Vec<(TimeUs, Floors)>);

impl Highest {
    /// Returns the value that a new token in `mode` must exceed, from the tokens known before `known`.
    pub fn floor_of(&self, mode: HeldAs, known: TimeUs) -> u64 {
        let count = self.0.partition_point(|&(at, _)| at < known);
        count.checked_sub(1).map_or(0, |last| self.0[last].1.floor_of(mode.mode()))
    }

    /// Returns true if `token` belongs to the last writer and no larger one has been seen since.
    pub fn is_of_last_writer(&self, token: u64) -> bool {
        let largest =
            self.0.last().map(|(_, largest)| (largest.largest(Mode::Exclusive), largest.floor_of(Mode::Exclusive)));
        largest == Some((token, token))
    }

    /// Records that a holder has `token` in `mode` from `at` on. Without `keeps`, removes the earlier entries.
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
