//! The most contended keys, by a sketch of bounded size: Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
//!
//! There are [`TOP_KEYS`] counters. A key without one takes over the smallest counter, with its count as the key's
//! *error*: that many events may have been of other keys. So with *N* events in all, a count is never too small, and
//! too large by at most its error. No error is above *N* / [`TOP_KEYS`], and every key with more events than that has a
//! counter.

use std::cmp::Reverse;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::history::shortened::shortened;
use crate::values::key::Key;
use crate::values::limits::{LOG_KEY_BYTES_MAX, TOP_KEYS};

/// A key with its approximate number of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The number of the key's database.
    pub db: u32,
    /// The key's name. If it is longer than [`LOG_KEY_BYTES_MAX`], its beginning and the number of omitted bytes.
    pub name: Box<[u8]>,
    /// The upper bound of the number of events.
    pub count: u64,
    /// The amount by which the count may be too large.
    pub error: u64,
}

impl Counted {
    fn is_of(&self, key: Key<'_>) -> bool {
        self.db == key.db && *self.name == *key.name
    }
}

/// The keys with the most events: requests that waited for the lock, or were refused it.
#[derive(Clone, Debug, Default)]
pub struct Top {
    counters: Vec<Counted>,
    /// The index of each key's counter in `keys`.
    places: HashTable<usize>,
    hasher: RandomState,
    total: u64,
}

impl Top {
    /// Counts an event of `key`.
    pub(super) fn count(&mut self, Key { db, name }: Key<'_>) {
        let short;
        let name = if name.len() > LOG_KEY_BYTES_MAX {
            short = shortened(name, LOG_KEY_BYTES_MAX);
            &short
        } else {
            name
        };
        self.total += 1;
        let (key, hash) = (Key { db, name }, self.hasher.hash_one((db, name)));
        let known = self.places.find(hash, |&place| self.counters[place].is_of(key)).copied();
        let place = known.unwrap_or_else(|| self.begin(key, hash));
        self.counters[place].count += 1;
    }

    /// Returns a counter for a key without one: a new one, or the smallest. To find the smallest, all counters are
    /// scanned: they are few, and keeping them in order would cost each event more.
    fn begin(&mut self, Key { db, name }: Key<'_>, hash: u64) -> usize {
        let places = 0..self.counters.len();
        let least = places.min_by_key(|&place| self.counters[place].count).filter(|_| self.counters.len() == TOP_KEYS);
        let error = least.map_or(0, |place| self.counters[place].count);
        let counter = Counted { db, name: name.into(), count: error, error };
        let place = match least {
            Some(place) => {
                let taken = std::mem::replace(&mut self.counters[place], counter);
                let hash = self.hasher.hash_one((taken.db, &*taken.name));
                if let Ok(entry) = self.places.find_entry(hash, |&other| other == place) {
                    entry.remove();
                }
                place
            }
            None => {
                self.counters.push(counter);
                self.counters.len() - 1
            }
        };
        let (counters, hasher) = (&self.counters, &self.hasher);
        let hash_of = |&place: &usize| hasher.hash_one((counters[place].db, &*counters[place].name));
        self.places.insert_unique(hash, place, hash_of);
        place
    }

    /// Iterates over the keys with the largest counts, in descending order.
    pub fn keys(&self) -> impl Iterator<Item = &Counted> {
        let mut counters: Vec<&Counted> = self.counters.iter().collect();
        counters.sort_by_key(|counted| Reverse(counted.count));
        counters.into_iter()
    }

    /// Returns the number of events of all keys.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// A few keys have many events, many keys have one. Each count is compared with the exact number: it is within
        /// its error, and no frequent key is missing.
        #[test]
        fn counts_are_within_their_errors_and_no_frequent_key_is_missing(
            events in proptest::collection::vec((0_u8..4, any::<u16>()), 0..6_000)
        ) {
            let (mut top, mut exact) = (Top::default(), BTreeMap::<Vec<u8>, u64>::new());
            for (kind, number) in events {
                let name = match kind {
                    0 => vec![b'o'],
                    1 => vec![b'f', (number % 50) as u8],
                    _ => number.to_le_bytes().to_vec(),
                };
                top.count(Key { db: 0, name: &name });
                *exact.entry(name).or_default() += 1;
            }
            let bound = top.total() / TOP_KEYS as u64;
            let rows: Vec<&Counted> = top.keys().collect();
            prop_assert_eq!(top.total(), exact.values().sum::<u64>());
            prop_assert!(rows.len() <= TOP_KEYS && rows.is_sorted_by(|one, next| one.count >= next.count));
            for row in rows.iter().copied() {
                let count = exact[&*row.name];
                prop_assert!(count <= row.count && row.count - row.error <= count, "{row:?} {count}");
                prop_assert!(row.error <= bound, "{row:?} {bound}");
            }
            for (name, count) in exact.iter().filter(|(_, count)| **count > bound) {
                prop_assert!(rows.iter().any(|row| *row.name == **name), "{name:?} {count}");
            }
        }
    }
}
