//! The modes in which a lock is held at a moment, kept so that who may join is known without a walk over its holders.

use std::collections::{BTreeMap, BTreeSet};

use crate::values::mode::{Mode, Permit};

/// The modes of all grants of one lock. They go together in pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes {
    is_exclusive: bool,
    shared: usize,
    /// The numbers of permits that are held.
    numbers: BTreeSet<u16>,
    /// How many holders of permits let there be so many.
    limits: BTreeMap<u16, usize>,
}

impl Modes {
    /// How many grants there are.
    pub fn len(&self) -> usize {
        usize::from(self.is_exclusive) + self.shared + self.numbers.len()
    }

    /// Whether the lock is free.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a grant of `mode` is compatible with all there are.
    pub fn admits(&self, mode: Mode) -> bool {
        match mode {
            _ if self.is_empty() => true,
            Mode::Exclusive => false,
            Mode::Shared => self.shared > 0,
            Mode::Permit(permit) => {
                !self.numbers.is_empty()
                    && !self.numbers.contains(&permit.number())
                    && self.limits.first_key_value().is_none_or(|(&least, _)| permit.number() <= least)
                    && self.numbers.last().is_none_or(|&highest| highest <= permit.limit())
            }
        }
    }

    /// The permits of `limit` that could be granted now, the lowest number first.
    pub fn free(&self, limit: u16) -> impl Iterator<Item = Permit> {
        let permits = (1..=limit).filter_map(move |number| Permit::new(number, limit));
        permits.filter(|&permit| self.admits(Mode::Permit(permit)))
    }

    /// A grant of `mode` is added, which is compatible with all there are.
    pub fn add(&mut self, mode: Mode) {
        debug_assert!(self.admits(mode));
        match mode {
            Mode::Exclusive => self.is_exclusive = true,
            Mode::Shared => self.shared += 1,
            Mode::Permit(permit) => {
                self.numbers.insert(permit.number());
                *self.limits.entry(permit.limit()).or_default() += 1;
            }
        }
    }

    /// A grant of `mode`, which there was, ends.
    pub fn remove(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.is_exclusive = false,
            Mode::Shared => self.shared -= 1,
            Mode::Permit(permit) => {
                self.numbers.remove(&permit.number());
                if let Some(count) = self.limits.get_mut(&permit.limit()) {
                    *count -= 1;
                    if *count == 0 {
                        self.limits.remove(&permit.limit());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::values::mode::tests::all;

    proptest! {
        /// Against the rule itself, pair by pair, over any sequence of grants and ends.
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
    fn free_numbers_are_those_that_are_admitted() {
        let mut modes = Modes::default();
        for number in [2, 4] {
            modes.add(Mode::Permit(Permit::new(number, 5).unwrap()));
        }
        let free = |limit| modes.free(limit).map(Permit::number).collect::<Vec<_>>();
        assert_eq!((free(5), free(4), free(3)), (vec![1, 3, 5], vec![1, 3], vec![]), "number 4 is above a limit of 3");
    }
}
