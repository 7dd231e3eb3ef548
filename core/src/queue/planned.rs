//! A table with a value for each of many names, and a time at which the value is to be checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use crate::values::key::Key;
use crate::values::time::BootTime;

/// A Bloom filter of one hash over the names (Bloom, "Space/time trade-offs in hash coding with allowable errors",
/// 1970). Most names that are searched for are absent, and the filter shows that without a search.
///
/// Names with the same hash share a bit. A client that forges colliding names costs one tree lookup each; nothing else.
#[derive(Clone, Debug, Default)]
struct Kinds {
    seen: [u64; KIND_WORDS],
    /// The number of names removed since the filter was built; their bits are still set.
    gone: usize,
}

/// The size of the filter, in words of 64 bits. With more names than bits, most bits are set, and the filter is of
/// little use. A larger one is not worth its memory.
const KIND_WORDS: usize = 16;

/// After more removals than this, the filter is built anew, provided that at most this many names are left. These set
/// at most half of its bits.
const NAMES_OF_KINDS_MAX: usize = KIND_WORDS * 64 / 2;

impl Kinds {
    /// Returns the word and the bit of the filter for a name. The hash is of the end of the name, since names that
    /// contain a counter differ there.
    #[inline]
    fn bit(name: &[u8]) -> (usize, u64) {
        let end = match name.last_chunk::<8>() {
            Some(end) => u64::from_le_bytes(*end),
            None => name.iter().fold(0, |end, byte| end << 8 | u64::from(*byte)),
        };
        // Fibonacci hashing: the upper bits of the product depend on all bits of the factor.
        let kind = (end ^ name.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - KIND_WORDS.ilog2() - 6);
        (kind as usize / 64, 1 << (kind % 64))
    }

    #[inline]
    fn may_have(&self, name: &[u8]) -> bool {
        let (word, bit) = Self::bit(name);
        self.seen[word] & bit != 0
    }

    fn add(&mut self, name: &[u8]) {
        let (word, bit) = Self::bit(name);
        self.seen[word] |= bit;
    }
}

#[derive(Clone, Debug)]
struct Entry<T> {
    db: u32,
    name: Arc<[u8]>,
    value: T,
    alarm: Option<BootTime>,
}

/// A `T` for each name of a database, with the time of its next check.
///
/// A client may choose names of a megabyte that differ at their ends, so names are compared as rarely as possible: only
/// to find the entry of a name that a client sent. A name that [`Planned::share`] returned is recognised by its
/// address.
#[derive(Clone, Debug, Default)]
pub(super) struct Planned<T> {
    /// The entries by their ids, which are in the order in which the entries came.
    entries: BTreeMap<u64, Entry<T>>,
    ids: BTreeMap<u32, BTreeMap<Arc<[u8]>, u64>>,
    kinds: Kinds,
    alarms: BTreeSet<(BootTime, u64)>,
    /// The ids of entries to check as soon as possible, whatever time they are planned for.
    to_look: Range<u64>,
    last_id: u64,
    /// The id of the entry that was used last. The next search tries it first.
    recent: u64,
    #[cfg(test)]
    searches: Searches,
}

/// The number of times that a name was searched for by its bytes, which tests check.
#[cfg(test)]
pub(super) type Searches = std::cell::Cell<usize>;

impl<T: Default> Planned<T> {
    #[inline(always)]
    pub fn get(&self, key: Key<'_>) -> Option<&T> {
        if self.is_empty() { None } else { self.find(key) }
    }

    #[inline(never)]
    fn find(&self, key: Key<'_>) -> Option<&T> {
        Some(&self.entries[&self.id_of(key)?].value)
    }

    #[inline(always)]
    pub fn get_mut(&mut self, key: Key<'_>) -> Option<&mut T> {
        if self.is_empty() { None } else { Some(&mut self.find_mut(key)?.value) }
    }

    #[inline(never)]
    fn find_mut(&mut self, key: Key<'_>) -> Option<&mut Entry<T>> {
        self.recent = self.id_of(key)?;
        self.entries.get_mut(&self.recent)
    }

    /// Returns the name of the entry of `key`, if there is one. A caller that asks with this name later saves the
    /// comparison of the bytes.
    #[inline(always)]
    pub fn share(&mut self, key: Key<'_>) -> Option<Arc<[u8]>> {
        if self.is_empty() { None } else { Some(Arc::clone(&self.find_mut(key)?.name)) }
    }

    fn id_of(&self, key: Key<'_>) -> Option<u64> {
        if !self.kinds.may_have(key.name) {
            return None;
        }
        let recent = self.entries.get(&self.recent);
        if recent.is_some_and(|entry| entry.db == key.db && ptr::eq(&*entry.name, key.name)) {
            return Some(self.recent);
        }
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.ids.get(&key.db)?.get(key.name).copied()
    }

    /// Returns the stored copy of the name of `key`, which the caller may share, and the name's value. If there was
    /// none, the value is new.
    pub fn reach(&mut self, key: Key<'_>) -> (Arc<[u8]>, &mut T) {
        self.recent = self.id_of(key).unwrap_or(self.last_id + 1);
        let entry = self.entries.entry(self.recent).or_insert_with(|| {
            let (Key { db, name }, shared) = (key, Arc::from(key.name));
            self.last_id = self.recent;
            self.kinds.add(name);
            self.ids.entry(db).or_default().insert(Arc::clone(&shared), self.recent);
            Entry { db, name: shared, value: T::default(), alarm: None }
        });
        (Arc::clone(&entry.name), &mut entry.value)
    }

    /// Removes the name of `key` and its planned check, if `is_empty` returns true for its value. Returns whether it
    /// removed them.
    pub fn remove_if(&mut self, key: Key<'_>, is_empty: impl FnOnce(&T) -> bool) -> bool {
        let Some(id) = self.id_of(key).filter(|id| is_empty(&self.entries[id].value)) else { return false };
        let Some(Entry { db, name, alarm, .. }) = self.entries.remove(&id) else { return false };
        if let Some(ids) = self.ids.get_mut(&db) {
            #[cfg(test)]
            self.searches.set(self.searches.get() + 1);
            ids.remove(&name);
            if ids.is_empty() {
                self.ids.remove(&db);
            }
        }
        if let Some(when) = alarm {
            self.alarms.remove(&(when, id));
        }
        self.forget_kinds();
        true
    }

    /// Counts a removed name. The filter cannot clear the name's bit, so after a number of removals, or when no name is
    /// left, it is built anew from the remaining names, if they are few.
    fn forget_kinds(&mut self) {
        self.kinds.gone += 1;
        if !self.is_empty() && self.kinds.gone <= NAMES_OF_KINDS_MAX {
            return;
        }
        self.kinds.gone = 0;
        if self.entries.len() <= NAMES_OF_KINDS_MAX {
            self.kinds = Kinds::default();
            self.entries.values().for_each(|entry| self.kinds.add(&entry.name));
        }
    }

    /// Returns whether no name has a value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Iterates over the names of the database `db` that have a value.
    pub fn names(&self, db: u32) -> impl Iterator<Item = &[u8]> {
        self.ids.get(&db).into_iter().flat_map(|ids| ids.keys().map(|name| &**name))
    }

    /// Plans a check of `key` for `when` at the latest, if it has a value. A check that is planned earlier stays.
    #[inline]
    pub fn wake_at(&mut self, key: Key<'_>, when: BootTime) {
        if !self.is_empty() && self.kinds.may_have(key.name) {
            self.plan(key, when);
        }
    }

    #[inline(never)]
    fn plan(&mut self, key: Key<'_>, when: BootTime) {
        let Some(entry) = self.find_mut(key) else { return };
        let planned = entry.alarm.replace(entry.alarm.map_or(when, |planned| planned.min(when)));
        if planned.is_some_and(|planned| planned <= when) {
            return;
        }
        if let Some(planned) = planned {
            self.alarms.remove(&(planned, self.recent));
        }
        self.alarms.insert((when, self.recent));
    }

    /// Makes a check of every name due at once.
    pub fn wake_all(&mut self) {
        self.to_look = if self.is_empty() { 0..0 } else { 0..self.last_id + 1 };
    }

    /// Removes the planned check that has been due longest at `now`, and returns the database and the name.
    pub fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        let next = self.entries.range(self.to_look.clone()).next();
        if let Some((&id, Entry { db, name, .. })) = next {
            (self.to_look.start, self.recent) = (id + 1, id);
            return Some((*db, Arc::clone(name)));
        }
        self.to_look = 0..0;
        let &(_, id) = self.alarms.first().filter(|(when, _)| *when <= now)?;
        self.alarms.pop_first();
        let entry = self.entries.get_mut(&id)?;
        (entry.alarm, self.recent) = (None, id);
        Some((entry.db, Arc::clone(&entry.name)))
    }

    /// Returns the time of the next planned check.
    pub fn next_due(&self) -> Option<BootTime> {
        let soon = (!self.to_look.is_empty()).then(BootTime::default);
        soon.or_else(|| self.alarms.first().map(|(when, ..)| *when))
    }

    /// Returns the number of times that a name was searched for by its bytes.
    #[cfg(test)]
    pub fn searches(&self) -> usize {
        self.searches.get()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::fixture::key_of;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Names of all lengths come and go, few and many at a time. Each that is there is found, however long ago its
        /// bit in the filter was set.
        #[test]
        fn what_is_there_is_found(steps in prop::collection::vec((0u16..700, 0u16..200, any::<bool>()), 0..40)) {
            let name = |n: u16| format!("{n:0width$}", width = usize::from(n % 12)).into_bytes();
            let (mut planned, mut names) = (Planned::<u32>::default(), BTreeSet::new());
            for (from, count, come) in steps {
                for n in from..from + count {
                    if come {
                        planned.reach(key_of(&name(n)));
                        names.insert(n);
                    } else {
                        prop_assert_eq!(planned.remove_if(key_of(&name(n)), |_| true), names.remove(&n));
                    }
                }
                for n in 0..900 {
                    prop_assert_eq!(planned.get(key_of(&name(n))).is_some(), names.contains(&n), "{}", n);
                    prop_assert_eq!(planned.get_mut(key_of(&name(n))).is_some(), names.contains(&n), "{}", n);
                }
            }
        }
    }

    /// Once all names with a certain bit are removed and the filter is built anew, names with that bit cause no search any
    /// more.
    #[test]
    fn kinds_are_forgotten() {
        let mut planned = Planned::<u32>::default();
        planned.reach(key_of(b"stays"));
        for n in 0..=NAMES_OF_KINDS_MAX {
            let name = format!("goes{n}");
            planned.reach(key_of(name.as_bytes()));
            planned.remove_if(key_of(name.as_bytes()), |_| true);
        }
        assert_eq!(planned.kinds.seen.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
        planned.remove_if(key_of(b"stays"), |_| true);
        assert!(planned.is_empty() && planned.kinds.seen == [0; KIND_WORDS]);
    }
}
