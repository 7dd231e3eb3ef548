//! Values for many names, each with a scheduled check.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::values::key::Key;
use crate::values::time::BootTime;

/// The progress of a check of all names, one by one.
#[derive(Clone, Debug, Default)]
enum ToLook {
    #[default]
    None,
    All,
    /// Names up to this one have been checked.
    Behind(u32, Arc<[u8]>),
}

/// A Bloom filter of one hash over the names (Bloom, "Space/time trade-offs in hash coding with allowable errors",
/// 1970), since most lookups are of absent names.
///
/// Names with the same hash are of one kind, which has one bit. A client that forges colliding names costs one tree
/// lookup each; nothing else.
#[derive(Clone, Debug, Default)]
struct Kinds {
    seen: [u64; KIND_WORDS],
    /// The number of names removed since the filter was built; their bits are still set.
    gone: usize,
}

/// The number of words of the filter. If more names than bits exist at a time, most bits are set, so more words would
/// be of no use.
const KIND_WORDS: usize = 16;

/// The largest number of names for which the filter is built anew.
const NAMES_OF_KINDS_MAX: usize = KIND_WORDS * 64 / 2;

impl Kinds {
    /// Returns the place of a name's bit. The hash is over the end of the name, where names with counters differ.
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

#[derive(Clone, Debug, Default)]
struct Entry<T> {
    value: T,
    alarm: Option<BootTime>,
}

/// A `T` for each name of a database, with the time of its next check.
#[derive(Clone, Debug, Default)]
pub(super) struct Planned<T> {
    names: BTreeMap<u32, BTreeMap<Arc<[u8]>, Entry<T>>>,
    kinds: Kinds,
    alarms: BTreeSet<(BootTime, u32, Arc<[u8]>)>,
    /// Names to check as soon as possible, whatever else is scheduled.
    to_look: ToLook,
}

impl<T: Default> Planned<T> {
    #[inline(always)]
    pub fn get(&self, key: Key<'_>) -> Option<&T> {
        if self.is_empty() { None } else { self.find(key) }
    }

    #[inline(never)]
    fn find(&self, Key { db, name }: Key<'_>) -> Option<&T> {
        if self.kinds.may_have(name) { Some(&self.names.get(&db)?.get(name)?.value) } else { None }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, key: Key<'_>) -> Option<&mut T> {
        if self.is_empty() { None } else { self.find_mut(key) }
    }

    #[inline(never)]
    fn find_mut(&mut self, Key { db, name }: Key<'_>) -> Option<&mut T> {
        if self.kinds.may_have(name) { Some(&mut self.names.get_mut(&db)?.get_mut(name)?.value) } else { None }
    }

    /// Returns the value for `name`, a new one if there was none, and the shared name.
    pub fn reach(&mut self, Key { db, name }: Key<'_>) -> (Arc<[u8]>, &mut T) {
        self.kinds.add(name);
        let names = self.names.entry(db).or_default();
        let name = names.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        (Arc::clone(&name), &mut names.entry(name).or_default().value)
    }

    /// Removes `name` and its schedule if its value is empty. Returns whether it did.
    pub fn remove_if(&mut self, Key { db, name }: Key<'_>, is_empty: impl FnOnce(&T) -> bool) -> bool {
        let Some(names) = self.names.get_mut(&db) else { return false };
        if !names.get(name).is_some_and(|entry| is_empty(&entry.value)) {
            return false;
        }
        let removed = names.remove_entry(name);
        if names.is_empty() {
            self.names.remove(&db);
        }
        if let Some((name, Entry { alarm: Some(when), .. })) = removed {
            self.alarms.remove(&(when, db, name));
        }
        self.forget_kinds();
        true
    }

    /// Counts a removed name. After a number of them the filter is built anew for the remaining names, if these are
    /// few.
    fn forget_kinds(&mut self) {
        self.kinds.gone += 1;
        if !self.is_empty() && self.kinds.gone <= NAMES_OF_KINDS_MAX {
            return;
        }
        self.kinds.gone = 0;
        let is_few = || self.names.values().map(BTreeMap::len).sum::<usize>() <= NAMES_OF_KINDS_MAX;
        if self.names.len() <= NAMES_OF_KINDS_MAX && is_few() {
            self.kinds = Kinds::default();
            self.names.values().flat_map(BTreeMap::keys).for_each(|name| self.kinds.add(name));
        }
    }

    /// Returns whether no name has a value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Iterates over the names of `db`.
    pub fn names(&self, db: u32) -> impl Iterator<Item = &[u8]> {
        self.names.get(&db).into_iter().flat_map(|names| names.keys().map(|name| &**name))
    }

    /// Schedules a check of `name`, if it has a value, by `when`; a check that is scheduled earlier stays.
    #[inline]
    pub fn wake_at(&mut self, key: Key<'_>, when: BootTime) {
        if !self.is_empty() && self.kinds.may_have(key.name) {
            self.plan(key, when);
        }
    }

    #[inline(never)]
    fn plan(&mut self, Key { db, name }: Key<'_>, when: BootTime) {
        let Some(names) = self.names.get_mut(&db) else { return };
        let Some((name, _)) = names.get_key_value(name) else { return };
        let name = Arc::clone(name);
        let Some(entry) = names.get_mut(&name) else { return };
        match entry.alarm {
            Some(planned) if planned <= when => return,
            Some(planned) => {
                self.alarms.remove(&(planned, db, Arc::clone(&name)));
            }
            None => {}
        }
        entry.alarm = Some(when);
        self.alarms.insert((when, db, name));
    }

    /// Schedules a check of every name now.
    pub fn wake_all(&mut self) {
        self.to_look = if self.names.is_empty() { ToLook::None } else { ToLook::All };
    }

    /// Returns the name after this one, in the order of databases and names (`None`: the first).
    fn behind(&self, last: Option<&(u32, Arc<[u8]>)>) -> Option<(u32, Arc<[u8]>)> {
        let mut databases = self.names.range(last.map_or(0, |(db, _)| *db)..);
        let here = last.and_then(|(db, name)| {
            let rest = self.names.get(db)?.range::<[u8], _>((Excluded(&**name), Unbounded)).next()?;
            Some((*db, Arc::clone(rest.0)))
        });
        here.or_else(|| {
            let (db, names) = databases.find(|(db, _)| last.is_none_or(|(last, _)| *db > last))?;
            Some((*db, Arc::clone(names.first_key_value()?.0)))
        })
    }

    /// Removes and returns the name whose check has been due longest at `now`.
    pub fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        let next = match std::mem::take(&mut self.to_look) {
            ToLook::None => None,
            ToLook::All => self.behind(None),
            ToLook::Behind(db, name) => self.behind(Some(&(db, name))),
        };
        if let Some((db, name)) = next {
            self.to_look = ToLook::Behind(db, Arc::clone(&name));
            return Some((db, name));
        }
        let (when, ..) = self.alarms.first()?;
        if *when > now {
            return None;
        }
        let (_, db, name) = self.alarms.pop_first()?;
        if let Some(entry) = self.names.get_mut(&db).and_then(|names| names.get_mut(&name)) {
            entry.alarm = None;
        }
        Some((db, name))
    }

    /// Returns the time of the next check.
    pub fn next_due(&self) -> Option<BootTime> {
        let soon = (!matches!(self.to_look, ToLook::None)).then(BootTime::default);
        soon.or_else(|| self.alarms.first().map(|(when, ..)| *when))
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

        /// Names of all lengths come and go, few and many at a time: each is found, however long ago its bit was set.
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

    /// Once all names of one kind are gone, they cause no lookups any more.
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
