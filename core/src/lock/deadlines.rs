//! When which lock's lease may have ended: what the background needs to delete expired locks.
//!
//! One entry a lock, at the first deadline of its grants, exactly: a released or deleted lock's entry goes with it, so the bookkeeping is
//! as large as the number of locks in memory and never larger.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::lock::Lock;
use crate::lock::entry::DeadlineEntry;
use crate::values::time::BootTime;

/// The database that nearly all locks are in.
const MAIN: u32 = 0;

/// An entry that came due.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The database of the lock's key.
    pub db: u32,
    /// The name of its key.
    pub name: Box<[u8]>,
    entry: DeadlineEntry,
}

impl Due {
    /// Whether this entry is the one of `lock`, and not of an earlier lock under the same name.
    pub fn is_of(&self, lock: &Lock) -> bool {
        lock.entry() == self.entry
    }

    /// `lock`, whose entry this is, has none any more: it came due.
    pub(crate) fn taken_from(&self, lock: &mut Lock) {
        lock.set_entry(DeadlineEntry::default());
    }
}

/// The entries of one database.
#[derive(Clone, Debug, Default)]
struct Entries {
    /// By due time: when the first lease of a lock ends.
    due: BTreeMap<DeadlineEntry, Box<[u8]>>,
    /// When the last lease ends, of locks with several holders.
    ends: BTreeSet<DeadlineEntry>,
    /// The same by ticket.
    end_of: BTreeMap<u32, BootTime>,
}

impl Entries {
    /// When the last of them ends.
    fn last(&self) -> Option<BootTime> {
        let due = self.due.last_key_value().map(|(entry, _)| entry.due);
        due.into_iter().chain(self.ends.last().map(|entry| entry.due)).max()
    }

    /// When the lock of `entry` ends.
    fn end_of(&self, entry: DeadlineEntry) -> BootTime {
        self.end_of.get(&{ entry.ticket }).copied().unwrap_or(entry.due)
    }

    fn first(&self) -> Option<DeadlineEntry> {
        self.due.first_key_value().map(|(entry, _)| *entry)
    }

    fn remove(&mut self, entry: DeadlineEntry) -> Option<Box<[u8]>> {
        self.forget_end(entry.ticket);
        self.due.remove(&entry)
    }

    /// The lock with this ticket has holders until `end`.
    fn set_end(&mut self, ticket: u32, end: BootTime) {
        if self.end_of.get(&ticket) != Some(&end) {
            self.forget_end(ticket);
            self.end_of.insert(ticket, end);
            self.ends.insert(DeadlineEntry { due: end, ticket });
        }
    }

    fn forget_end(&mut self, ticket: u32) {
        if !self.ends.is_empty()
            && let Some(due) = self.end_of.remove(&ticket)
        {
            self.ends.remove(&DeadlineEntry { due, ticket });
        }
    }
}

/// What was watched in one or all databases until they were emptied, or a copy. Dropping it takes a while when it is large.
#[derive(Clone, Debug, Default)]
pub struct Detached(Vec<(u32, Entries)>);

impl Detached {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, entries)| entries.due.len()).sum()
    }

    /// Database and name of every lock.
    pub fn names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.locks().map(|(db, name, _)| (db, name))
    }

    /// Database, name and end of every lock.
    pub fn locks(&self) -> impl Iterator<Item = (u32, &[u8], BootTime)> {
        self.0
            .iter()
            .flat_map(|(db, entries)| entries.due.iter().map(|(entry, name)| (*db, &**name, entries.end_of(*entry))))
    }

    /// When the last of the locks would have ended.
    pub fn last(&self) -> Option<BootTime> {
        self.0.iter().filter_map(|(_, entries)| entries.last()).max()
    }

    /// Whether nothing was watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The entries of all locks in memory.
///
/// A server may have a million databases: only those with locks take memory, and which entry comes due first is known
/// without a walk over them. Nearly all locks are in database 0, which is not in that index, so they cost nothing more.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    /// The entries of database 0.
    main: Entries,
    /// The entries of the others that have any.
    others: BTreeMap<u32, Entries>,
    /// The first entry of each of the others.
    firsts: BTreeSet<(DeadlineEntry, u32)>,
    len: usize,
    ticket: u32,
}

impl Deadlines {
    /// Sees to it that `lock`, now stored under `name` in `db`, has its entry at its first deadline.
    pub fn schedule(&mut self, db: u32, name: &[u8], lock: &mut Lock) {
        let (entry, due) = (lock.entry(), lock.next_end());
        let end = matches!(lock, Lock::Joint(_)).then(|| lock.end());
        if entry.ticket != 0 && { entry.due } == due {
            if let Some(end) = end {
                self.change(db, |entries| entries.set_end(entry.ticket, end));
            }
            return;
        }
        let mut ticket = self.ticket;
        let entry = self.change(db, |entries| {
            let known = if entry.ticket == 0 { None } else { entries.remove(entry) };
            let entry = loop {
                ticket = ticket.checked_add(1).unwrap_or(1);
                let entry = DeadlineEntry { due, ticket };
                // After 2^32 entries tickets start over; two entries of one microsecond must still differ.
                if let Entry::Vacant(place) = entries.due.entry(entry)
                    && !entries.end_of.contains_key(&ticket)
                {
                    place.insert(known.unwrap_or_else(|| name.into()));
                    break entry;
                }
            };
            if let Some(end) = end {
                entries.set_end(ticket, end);
            }
            entry
        });
        lock.set_entry(entry);
        self.ticket = ticket;
    }

    /// `lock` is about to leave `db`, or the name it had there: its entry goes.
    pub fn cancel(&mut self, db: u32, lock: &mut Lock) {
        let entry = lock.entry();
        lock.set_entry(DeadlineEntry::default());
        if entry.ticket != 0 {
            self.change(db, |entries| entries.remove(entry));
        }
    }

    /// Takes out the entry that has been due longest at `now`, if any is due.
    pub fn pop_due(&mut self, now: BootTime) -> Option<Due> {
        let (entry, db) = self.first().filter(|(entry, _)| now > { entry.due })?;
        let name = self.change(db, |entries| entries.remove(entry))?;
        Some(Due { db, name, entry })
    }

    /// When the next entry comes due.
    pub fn earliest(&self) -> Option<BootTime> {
        self.first().map(|(entry, _)| entry.due)
    }

    /// The number of entries: of locks in memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no lock is in memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When the last lock of `db` ends.
    pub fn last(&self, db: u32) -> Option<BootTime> {
        if db == MAIN { self.main.last() } else { self.others.get(&db)?.last() }
    }

    /// Database and name of every lock.
    pub fn names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let databases = [(&MAIN, &self.main)].into_iter().chain(&self.others);
        databases.flat_map(|(db, entries)| entries.due.values().map(|name| (*db, &**name)))
    }

    /// A copy of what is watched in `db`.
    pub fn copy(&self, db: u32) -> Detached {
        let entries = if db == MAIN { Some(&self.main) } else { self.others.get(&db) };
        Detached(entries.map(|entries| (db, entries.clone())).into_iter().collect())
    }

    /// Two databases change places.
    pub fn swap(&mut self, one: u32, other: u32) {
        let (first, second) = (self.take(one), self.take(other));
        self.change(one, |entries| *entries = second);
        self.change(other, |entries| *entries = first);
    }

    /// A database, or all of them (`None`), is about to be emptied.
    pub fn detach(&mut self, db: Option<u32>) -> Detached {
        let Some(db) = db else {
            let all = std::mem::replace(self, Self { ticket: self.ticket, ..Self::default() });
            let databases = [(MAIN, all.main)].into_iter().chain(all.others);
            return Detached(databases.filter(|(_, entries)| !entries.due.is_empty()).collect());
        };
        let entries = self.take(db);
        Detached(if entries.due.is_empty() { vec![] } else { vec![(db, entries)] })
    }

    fn take(&mut self, db: u32) -> Entries {
        self.change(db, std::mem::take)
    }

    /// Changes the entries of `db`, and with them what is known of all.
    fn change<T>(&mut self, db: u32, body: impl FnOnce(&mut Entries) -> T) -> T {
        if db == MAIN {
            let before = self.main.due.len();
            let done = body(&mut self.main);
            self.len = self.len + self.main.due.len() - before;
            return done;
        }
        let first = |entries: &Entries| entries.first().map(|entry| (entry, db));
        let entries = self.others.entry(db).or_default();
        let before = (entries.due.len(), first(entries));
        let done = body(entries);
        let after = (entries.due.len(), first(entries));
        self.len = self.len + after.0 - before.0;
        if before.1 != after.1 {
            before.1.map(|first| self.firsts.remove(&first));
            self.firsts.extend(after.1);
        }
        if after.0 == 0 {
            self.others.remove(&db);
        }
        done
    }

    /// The entry that comes due first, and its database.
    fn first(&self) -> Option<(DeadlineEntry, u32)> {
        let main = self.main.first().map(|entry| (entry, MAIN));
        main.into_iter().chain(self.firsts.first().copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::lock::grant::GrantId;
    use crate::request::Note;
    use proptest::prelude::*;

    /// A lock whose deadline is `ms` milliseconds after boot.
    fn until(ms: u64) -> Lock {
        exclusive(owner("me"), Note::default(), token(1), BootTime::default(), ttl(ms))
    }

    fn us(ms: u64, more: u64) -> BootTime {
        at(ms).boot.plus_us(more)
    }

    #[test]
    fn comes_due_after_the_deadline_in_order_over_all_databases() {
        let mut deadlines = Deadlines::default();
        for (db, name, ms) in [(0, "a", 30), (3, "b", 10), (0, "c", 20)] {
            deadlines.schedule(db, name.as_bytes(), &mut until(ms));
        }
        assert_eq!((deadlines.len(), deadlines.earliest()), (3, Some(us(10, 0))));
        assert_eq!(deadlines.pop_due(us(10, 0)), None, "held through the deadline");
        let due = deadlines.pop_due(us(100, 0)).unwrap();
        assert_eq!((due.db, &*due.name), (3, &b"b"[..]));
        assert_eq!(&*deadlines.pop_due(us(100, 0)).unwrap().name, b"c");
        assert_eq!(&*deadlines.pop_due(us(100, 0)).unwrap().name, b"a");
        assert_eq!(deadlines.pop_due(us(100, 0)), None);
        assert!(deadlines.is_empty());
    }

    #[test]
    fn the_entry_moves_with_the_deadline() {
        let mut deadlines = Deadlines::default();
        let mut lock = until(10);
        deadlines.schedule(0, b"k", &mut lock);
        lock.prolong(GrantId::default(), us(5, 0), ttl(20));
        deadlines.schedule(0, b"k", &mut lock);
        assert_eq!((deadlines.len(), deadlines.earliest()), (1, Some(us(25, 0))));
        lock.replace(until(20));
        deadlines.schedule(0, b"k", &mut lock);
        assert_eq!((deadlines.len(), deadlines.earliest()), (1, Some(us(20, 0))));
        let due = deadlines.pop_due(us(20, 1)).unwrap();
        assert!(due.is_of(&lock) && &*due.name == b"k");
    }

    #[test]
    fn an_entry_of_an_earlier_lock_is_recognised() {
        let mut deadlines = Deadlines::default();
        let mut first = until(10);
        deadlines.schedule(0, b"k", &mut first);
        let due = deadlines.pop_due(us(11, 0)).unwrap();
        let mut second = until(10);
        deadlines.schedule(0, b"k", &mut second);
        assert!(!due.is_of(&second));
    }

    #[test]
    fn databases_swap_and_detach() {
        let mut deadlines = Deadlines::default();
        let mut locks: Vec<_> = (0..4).map(|n| until(10 + n)).collect();
        for (db, lock) in locks.iter_mut().enumerate() {
            deadlines.schedule(db as u32, b"k", lock);
        }
        deadlines.swap(1, 9);
        deadlines.cancel(9, &mut locks[1]);
        assert_eq!(deadlines.len(), 3);
        assert_eq!((deadlines.last(9), deadlines.last(3)), (None, Some(us(13, 0))));
        assert_eq!(deadlines.names().collect::<Vec<_>>(), [(0, &b"k"[..]), (2, b"k"), (3, b"k")]);
        for db in [0, 2, 3, 77] {
            let names = deadlines.names().filter(|(of, _)| *of == db).collect::<Vec<_>>();
            assert_eq!(deadlines.copy(db).names().collect::<Vec<_>>(), names);
        }
        let detached = deadlines.detach(Some(2));
        assert_eq!(detached.last(), Some(us(12, 0)));
        assert_eq!(detached.locks().collect::<Vec<_>>(), [(2, &b"k"[..], us(12, 0))]);
        deadlines.detach(Some(77));
        assert_eq!(deadlines.len(), 2);
        deadlines.cancel(2, &mut locks[2]);
        deadlines.detach(None);
        assert!(deadlines.is_empty());
    }

    /// Databases without locks leave nothing behind, whatever their number: no step depends on how many there are.
    #[test]
    fn only_databases_with_locks_are_known() {
        let mut deadlines = Deadlines::default();
        let mut last = until(30);
        deadlines.schedule(u32::MAX, b"k", &mut last);
        let mut moves = until(10);
        for db in 1..1_000 {
            deadlines.schedule(db, b"k", &mut moves);
            assert_eq!((deadlines.earliest(), deadlines.others.len()), (Some(us(10, 0)), 2));
            if db % 2 == 0 {
                deadlines.cancel(db, &mut moves);
            } else {
                deadlines.swap(db, 1_000_000);
                deadlines.cancel(1_000_000, &mut moves);
            }
            assert_eq!((deadlines.others.len(), deadlines.firsts.len(), deadlines.len()), (1, 1, 1));
        }
        deadlines.schedule(7, b"k", &mut moves);
        assert_eq!(deadlines.pop_due(us(11, 0)).map(|due| due.db), Some(7));
        assert_eq!(deadlines.detach(Some(u32::MAX)).len(), 1);
        assert!(deadlines.others.is_empty() && deadlines.firsts.is_empty() && deadlines.is_empty());
    }

    #[test]
    fn tickets_start_over_without_losing_an_entry() {
        let mut deadlines = Deadlines { ticket: u32::MAX - 1, ..Default::default() };
        let (mut a, mut b, mut c) = (until(10), until(10), until(10));
        deadlines.schedule(0, b"a", &mut a);
        deadlines.schedule(0, b"b", &mut b);
        deadlines.ticket = u32::MAX - 1;
        deadlines.schedule(0, b"c", &mut c);
        assert_eq!(deadlines.len(), 3);
        assert!(a.entry() != b.entry() && b.entry() != c.entry() && a.entry() != c.entry() && c.entry().ticket != 0);
    }

    proptest! {
        /// Against a plain list: one entry a lock, none lost, none early, whatever is done. Eight keys in four databases.
        #[test]
        fn exactly_one_entry_a_lock(steps in prop::collection::vec((0u8..4, 0u8..8, 1u64..100), 1..300)) {
            let mut deadlines = Deadlines::default();
            let mut locks: std::collections::HashMap<u8, Lock> = Default::default();
            let mut now = BootTime::default();
            for (what, name, ms) in steps {
                let db = u32::from(name % 4);
                match what {
                    0 => {
                        let mut lock = exclusive(owner("me"), Note::default(), token(1), now, ttl(ms));
                        if let Some(old) = locks.get_mut(&name) {
                            old.replace(lock);
                            deadlines.schedule(db, &[name], old);
                        } else {
                            deadlines.schedule(db, &[name], &mut lock);
                            locks.insert(name, lock);
                        }
                    }
                    1 => if let Some(lock) = locks.get_mut(&name) {
                        lock.prolong(GrantId::default(), now, ttl(ms));
                        deadlines.schedule(db, &[name], lock);
                    },
                    2 => if let Some(mut lock) = locks.remove(&name) {
                        deadlines.cancel(db, &mut lock);
                    },
                    _ => {
                        now = now.plus_ms(ms as u32);
                        while let Some(due) = deadlines.pop_due(now) {
                            let name = due.name[0];
                            let lock = locks.get_mut(&name).expect("no entry without a lock");
                            prop_assert!(due.is_of(lock) && due.db == u32::from(name % 4));
                            prop_assert!(lock.is_expired(now));
                            locks.remove(&name);
                        }
                        prop_assert!(locks.values().all(|lock| !lock.is_expired(now)));
                    }
                }
                prop_assert_eq!(deadlines.len(), locks.len());
                prop_assert_eq!(deadlines.earliest(), locks.values().map(Lock::end).min());
            }
        }
    }
}
