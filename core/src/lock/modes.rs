//! The modes in which a lock is held now, counted so that a new grant is checked without a scan of all holders.

use std::collections::BTreeMap;

use crate::values::mode::{Mode, Permit, Wanted};

/// The modes of all grants of one lock: how many of each. They are compatible with each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes {
    is_exclusive: bool,
    shared: usize,
    permits: usize,
    numbers: Numbers,
    /// For each limit that permit holders asked for, the number of holders that asked for it.
    limits: BTreeMap<u16, usize>,
}

/// The held permit numbers: a bit each, from number 1 on; the last word is not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Numbers(Vec<u64>);

/// The modes of a lock that nobody holds.
static FREE: Modes =
    Modes { is_exclusive: false, shared: 0, permits: 0, numbers: Numbers(Vec::new()), limits: BTreeMap::new() };

impl Modes {
    /// Returns the modes of a lock that nobody holds.
    pub fn free() -> &'static Self {
        &FREE
    }

    /// Returns the number of grants.
    pub fn len(&self) -> usize {
        usize::from(self.is_exclusive) + self.shared + self.permits
    }

    /// Returns whether the lock has no grant.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a new grant of `mode` is compatible with all present ones.
    pub fn admits(&self, mode: Mode) -> bool {
        match mode {
            _ if self.is_empty() => true,
            Mode::Exclusive => false,
            Mode::Shared => self.shared > 0,
            Mode::Permit(permit) => {
                self.permits > 0
                    && !self.numbers.has(permit.number())
                    && permit.number() <= self.least_limit()
                    && self.numbers.highest() <= permit.limit()
            }
        }
    }

    /// Returns the mode in which a request can be granted; `None` if there is none. The mode is compatible with all
    /// present grants, and with `others`. For permits it has the lowest free number, unless the request names one.
    pub fn admitted(&self, wanted: Wanted, others: &Modes) -> Option<Mode> {
        let mode = match wanted {
            Wanted::Exclusive => Mode::Exclusive,
            Wanted::Shared => Mode::Shared,
            Wanted::Permit { limit, number } => {
                let free = || self.numbers.lowest_free(&others.numbers);
                Mode::Permit(Permit::new(number.or_else(free)?, limit)?)
            }
        };
        (self.admits(mode) && others.admits(mode)).then_some(mode)
    }

    /// Counts a new grant of `mode`. The caller has checked that it is compatible with the present ones.
    pub fn add(&mut self, mode: Mode) {
        debug_assert!(self.admits(mode));
        match mode {
            Mode::Exclusive => self.is_exclusive = true,
            Mode::Shared => self.shared += 1,
            Mode::Permit(permit) => {
                self.permits += 1;
                self.numbers.add(permit.number());
                *self.limits.entry(permit.limit()).or_default() += 1;
            }
        }
    }

    /// Removes one grant of `mode` from the counts.
    pub fn remove(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.is_exclusive = false,
            Mode::Shared => self.shared -= 1,
            Mode::Permit(permit) => {
                self.permits -= 1;
                self.numbers.remove(permit.number());
                if let Some(count) = self.limits.get_mut(&permit.limit()) {
                    *count -= 1;
                    if *count == 0 {
                        self.limits.remove(&permit.limit());
                    }
                }
            }
        }
    }

    /// Returns the smallest limit that a permit holder asked for: it counts for all.
    fn least_limit(&self) -> u16 {
        self.limits.first_key_value().map_or(u16::MAX, |(&limit, _)| limit)
    }
}

impl Numbers {
    /// Returns the index of the word that has the bit of the permit `number`, and the mask of that bit.
    fn bit(number: u16) -> (usize, u64) {
        let place = u32::from(number) - 1;
        ((place / u64::BITS) as usize, 1 << (place % u64::BITS))
    }

    fn has(&self, number: u16) -> bool {
        let (word, bit) = Self::bit(number);
        self.0.get(word).is_some_and(|held| held & bit != 0)
    }

    fn add(&mut self, number: u16) {
        let (word, bit) = Self::bit(number);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    fn remove(&mut self, number: u16) {
        let (word, bit) = Self::bit(number);
        self.0[word] &= !bit;
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Returns the highest held permit number; 0 if there is none.
    fn highest(&self) -> u16 {
        let highest = |last: &u64| self.0.len() as u32 * u64::BITS - last.leading_zeros();
        self.0.last().map_or(0, |last| highest(last) as u16)
    }

    /// Returns the lowest permit number that is held in neither set, if there is one.
    fn lowest_free(&self, other: &Self) -> Option<u16> {
        let word = |of: &Self, n: usize| of.0.get(n).copied().unwrap_or(0);
        let free = (0..).map(|n| !(word(self, n) | word(other, n))).enumerate().find(|(_, free)| *free != 0)?;
        u16::try_from(free.0 as u32 * u64::BITS + free.1.trailing_zeros() + 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::fixture::permit;

    /// Returns every mode with a limit of up to `limit_max`.
    fn all(limit_max: u16) -> Vec<Mode> {
        let permits = (1..=limit_max).flat_map(|limit| (1..=limit).filter_map(move |n| Permit::new(n, limit)));
        [Mode::Exclusive, Mode::Shared].into_iter().chain(permits.map(Mode::Permit)).collect()
    }

    proptest! {
        /// Compares `admits` with the rule for two grants, after any sequence of grants and ends.
        #[test]
        fn who_may_join_is_what_the_pairs_say(steps in proptest::collection::vec((select(all(4)), any::<Option<Index>>()), 0..60)) {
            let (mut modes, mut plain) = (Modes::default(), Vec::<Mode>::new());
            for (mode, ends) in steps {
                match ends.filter(|_| !plain.is_empty()) {
                    Some(ends) => modes.remove(plain.swap_remove(ends.index(plain.len()))),
                    None if modes.admits(mode) => {
                        modes.add(mode);
                        plain.push(mode);
                    }
                    None => {}
                }
                prop_assert_eq!(modes.len(), plain.len());
                for mode in all(4) {
                    let together = plain.iter().all(|held| held.is_compatible(mode));
                    prop_assert_eq!(modes.admits(mode), together, "{:?} beside {:?}", mode, &plain);
                }
            }
        }
    }

    #[test]
    fn the_lowest_number_that_is_free_on_both_sides_is_taken() {
        let (mut modes, mut others) = (Modes::default(), Modes::default());
        let wanted = |limit, number| Wanted::Permit { limit, number };
        modes.add(permit(2, 5));
        others.add(permit(1, 5));
        assert_eq!(modes.admitted(wanted(5, None), &others), Some(permit(3, 5)));
        assert_eq!(modes.admitted(wanted(5, Some(4)), &others), Some(permit(4, 5)));
        assert_eq!(modes.admitted(wanted(5, Some(1)), &others), None);
        assert_eq!(modes.admitted(wanted(2, None), &others), None, "both are taken");
        modes.add(permit(5, 5));
        assert_eq!(modes.admitted(wanted(4, None), &others), None, "number 5 is above a limit of 4");
        assert_eq!(modes.admitted(Wanted::Shared, &Modes::default()), None);
        assert_eq!(Modes::default().admitted(Wanted::Exclusive, &Modes::default()), Some(Mode::Exclusive));
    }

    #[test]
    fn every_number_there_is_can_be_held_at_once() {
        let mut modes = Modes::default();
        for number in 1..=u16::MAX {
            let wanted = Wanted::Permit { limit: u16::MAX, number: None };
            let mode = modes.admitted(wanted, &Modes::default()).unwrap();
            assert_eq!(mode.number(), number);
            modes.add(mode);
        }
        assert_eq!(modes.admitted(Wanted::Permit { limit: u16::MAX, number: None }, &Modes::default()), None);
        modes.remove(permit(u16::MAX, u16::MAX));
        assert_eq!(modes.numbers.highest(), u16::MAX - 1);
    }
}
