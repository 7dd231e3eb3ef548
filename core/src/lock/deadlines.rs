//! The deadlines of all locks, by which the node finds expired locks without a command.
//!
//! Each lock has one entry, at the first deadline of its grants. The entry is removed together with a released or
//! deleted lock, so the memory is proportional to the number of locks.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::lock::Lock;
use crate::lock::entries::{self, Entries, Name};
use crate::lock::entry::DeadlineEntry;
use crate::values::key::Key;
use crate::values::time::BootTime;

/// The database in which nearly all locks are.
const MAIN: u32 = 0;

/// The largest number of databases in which one step looks for due entries.
const DATABASES_A_STEP: usize = 16;

/// An entry of [`Deadlines`] that came due: its time has passed. Its lock still refers to the entry, which has to be
/// scheduled again, cancelled or forgotten.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The database that has the lock's key.
    pub db: u32,
    name: Name,
    entry: DeadlineEntry,
}

impl Due {
    /// Returns the key of the lock whose entry came due.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }

    /// Returns whether this is the entry of `lock`, and not of an earlier lock under the same name.
    pub fn is_of(&self, lock: &Lock) -> bool {
        lock.entry() == self.entry
    }
}

/// The entries of one database or of all, taken out before a flush, or copied. Dropping a long list takes a while, so a
/// thread in the background may do that.
#[derive(Clone, Debug, Default)]
pub struct Detached(Vec<(u32, Box<Entries>)>);

impl Detached {
    /// Returns the number of entries, which is the number of locks.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, entries)| entries.len()).sum()
    }

    /// Iterates over database and name of every lock.
    pub fn names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.locks().map(|(db, name, _)| (db, name))
    }

    /// Iterates over database, name and end of every lock.
    pub fn locks(&self) -> impl Iterator<Item = (u32, &[u8], BootTime)> {
        self.0.iter().flat_map(|(db, entries)| entries.iter().map(|(name, end)| (*db, name, end)))
    }

    /// Returns the time at which the last of the locks would have ended.
    pub fn last(&self) -> Option<BootTime> {
        self.0.iter().filter_map(|(_, entries)| entries.last()).max()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The entries of all locks in memory.
///
/// A server may have a million databases. Only those with locks take memory, and the first entry to come due is found
/// without a scan of them. Nearly all locks are in database 0. It is not in the index of databases, so its locks cost
/// nothing extra.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// The entries of database 0.
    main: Entries,
    /// For each database but 0 that has locks: their entries.
    others: BTreeMap<u32, Box<Entries>>,
    /// For each database but 0: the time at which its entries next need work. Sorted by time.
    firsts: BTreeSet<(BootTime, u32)>,
    len: usize,
    /// A set without entries, kept for the next database that gets a lock: it saves an allocation.
    spare: Option<Box<Entries>>,
    /// The numbers of sets that became empty. No lock refers to an entry of such a set, so its number can be used
    /// again.
    free_numbers: Vec<u32>,
    /// The highest number that a set of entries has had. The number of a set that became empty is used again. That of a
    /// [`Detached`] set is not, because locks may still refer to its entries.
    numbers: u32,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            main: Entries::new(1),
            others: BTreeMap::new(),
            firsts: BTreeSet::new(),
            len: 0,
            spare: None,
            free_numbers: vec![],
            numbers: 1,
        }
    }
}

impl Deadlines {
    /// The largest delay with which an entry comes due, in microseconds. Commands check the lock itself, which ends at
    /// its deadline.
    pub const LATE_US: u64 = entries::LATE_US;

    /// Adds the entry of `lock`, now stored in `key`, for the first deadline of its grants; or moves the entry there.
    #[inline]
    pub fn schedule(&mut self, Key { db, name }: Key<'_>, lock: &mut Lock) {
        let entry = lock.entry();
        let (due, since, end) = match lock {
            Lock::Exclusive(grant) => (grant.deadline, grant.renewed(), None),
            Lock::Joint(holders) => (holders.next_end(), BootTime::default(), Some(holders.end())),
        };
        let is_new = entry == DeadlineEntry::default();
        let known = !is_new && self.database_of(db, entry) == Some(db);
        if known && end.is_none() && self.entries(db).is_some_and(|entries| entries.is_at(entry.place, due)) {
            return;
        }
        if !known && !is_new {
            self.cancel(db, lock);
        }
        let entry = self.change(db, |entries| {
            let place = if known { entry.place } else { entries.insert(name, due, since) };
            if known && entries.due(place) != Some(due) {
                entries.set_due(place, due, since);
            }
            match end {
                Some(end) => entries.set_end(place, end),
                None => entries.forget_end(place),
            }
            DeadlineEntry { place, set: entries.number }
        });
        lock.set_entry(entry);
    }

    /// Removes the entry of `lock`, which is about to leave its key in the database `db`.
    #[inline]
    pub fn cancel(&mut self, db: u32, lock: &mut Lock) {
        let entry = lock.entry();
        lock.set_entry(DeadlineEntry::default());
        if let Some(db) = self.database_of(db, entry) {
            self.change(db, |entries| entries.remove(entry.place));
        }
    }

    /// Removes the entry that has been due longest at `now`, or one of the same moment, if any is due. The lock's entry
    /// comes due again only if it is scheduled again.
    pub fn pop_due(&mut self, now: BootTime) -> Option<Due> {
        let main = self.main.next().map(|first| (first, MAIN));
        let others = self.firsts.iter().copied().take(DATABASES_A_STEP);
        let is_due = |(first, _): &(BootTime, u32)| now > *first;
        let mut due: SmallVec<[_; DATABASES_A_STEP + 1]> = main.into_iter().chain(others).filter(is_due).collect();
        due.sort_unstable();
        // The first of these databases has a due entry, unless it has to sort its far entries first.
        due.into_iter().find_map(|(_, db)| {
            let (place, name, set) = self.change(db, |entries| {
                let (place, name) = entries.pop_due(now)?;
                Some((place, name, entries.number))
            })?;
            Some(Due { db, name, entry: DeadlineEntry { place, set } })
        })
    }

    /// Has the entry that came due come due again after `until`, whatever its lock says.
    pub fn put_off(&mut self, due: &Due, until: BootTime) {
        if let Some(db) = self.database_of(due.db, due.entry) {
            self.change(db, |entries| entries.set_due(due.entry.place, until, BootTime::default()));
        }
    }

    /// Removes an entry that came due and that no lock refers to.
    pub fn forget(&mut self, due: &Due) {
        if let Some(db) = self.database_of(due.db, due.entry) {
            self.change(db, |entries| entries.remove_due(due.entry.place));
        }
    }

    /// Returns the time after which to look for due entries: up to [`Self::LATE_US`] after the first deadline. It is
    /// earlier if entries that are minutes away first have to move to the ring of the timing wheel.
    #[inline]
    pub fn earliest(&self) -> Option<BootTime> {
        self.main.next().into_iter().chain(self.firsts.first().map(|(first, _)| *first)).min()
    }

    /// Returns the number of entries, which is the number of locks in memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no lock is in memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the time at which the last lock of `db` ends; `None` if it has no lock.
    pub fn last(&self, db: u32) -> Option<BootTime> {
        self.entries(db)?.last()
    }

    /// Iterates over database and name of every lock.
    pub fn names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let others = self.others.iter().map(|(db, entries)| (*db, &**entries));
        let databases = [(MAIN, &self.main)].into_iter().chain(others);
        databases.flat_map(|(db, entries)| entries.iter().map(move |(name, _)| (db, name)))
    }

    /// Returns a copy of the entries of `db`.
    pub fn copy(&self, db: u32) -> Detached {
        Detached(self.entries(db).map(|entries| (db, Box::new(entries.clone()))).into_iter().collect())
    }

    /// Swaps the entries of two databases.
    pub fn swap(&mut self, one: u32, other: u32) {
        let (first, second) = (self.take(one), self.take(other));
        self.put(one, second);
        self.put(other, first);
    }

    /// Removes the entries of a database, or of all (`None`), which is about to be emptied. Locks that outlive the
    /// flush have no entry from now on, although they still refer to one.
    pub fn detach(&mut self, db: Option<u32>) -> Detached {
        let databases: Vec<u32> = match db {
            Some(db) => vec![db],
            None => [MAIN].into_iter().chain(self.others.keys().copied()).collect(),
        };
        let mut detached = vec![];
        for db in databases {
            match self.take(db) {
                entries if entries.len() > 0 => detached.push((db, entries)),
                empty => self.is_spare(empty),
            }
        }
        Detached(detached)
    }

    /// Returns the memory that the entry of a lock takes, in bytes, if the key's name has `name_bytes` bytes.
    pub const fn entry_bytes(name_bytes: usize) -> usize {
        entries::entry_bytes(name_bytes)
    }

    #[inline]
    fn entries(&self, db: u32) -> Option<&Entries> {
        if db == MAIN { Some(&self.main) } else { self.others.get(&db).map(|entries| &**entries) }
    }

    /// Returns the database that has this entry. It is `db`, unless the server named a wrong one.
    #[inline]
    fn database_of(&self, db: u32, entry: DeadlineEntry) -> Option<u32> {
        let is_its = |entries: &Entries| entries.number == entry.set;
        if entry == DeadlineEntry::default() {
            return None;
        }
        if self.entries(db).is_some_and(is_its) {
            return Some(db);
        }
        let others = || self.others.iter().find(|(_, entries)| is_its(entries)).map(|(db, _)| *db);
        if is_its(&self.main) { Some(MAIN) } else { others() }
    }

    /// Takes the entries of `db` out, and leaves it without any.
    fn take(&mut self, db: u32) -> Box<Entries> {
        let empty = self.empty();
        let entries = if db == MAIN {
            Box::new(std::mem::replace(&mut self.main, *empty))
        } else {
            let entries = self.others.remove(&db);
            let entries = match entries {
                Some(entries) => {
                    self.is_spare(empty);
                    entries
                }
                None => empty,
            };
            entries.next().map(|first| self.firsts.remove(&(first, db)));
            entries
        };
        self.len -= entries.len();
        entries
    }

    /// Gives `entries` to the database `db`, which had none.
    fn put(&mut self, db: u32, entries: Box<Entries>) {
        self.len += entries.len();
        if db == MAIN {
            let empty = std::mem::replace(&mut self.main, *entries);
            self.is_spare(Box::new(empty));
        } else if entries.len() == 0 {
            self.is_spare(entries);
        } else {
            self.firsts.extend(entries.next().map(|first| (first, db)));
            self.others.insert(db, entries);
        }
    }

    /// Returns a set without entries, with a number that no other set has.
    fn empty(&mut self) -> Box<Entries> {
        self.spare.take().unwrap_or_else(|| {
            let number = self.free_numbers.pop().unwrap_or_else(|| {
                self.numbers = self.numbers.checked_add(1).unwrap_or(1);
                self.numbers
            });
            Box::new(Entries::new(number))
        })
    }

    /// Keeps a set without entries for the next database that gets a lock. If a set is kept already, keeps only the
    /// number of this one.
    fn is_spare(&mut self, empty: Box<Entries>) {
        match self.spare {
            None => self.spare = Some(empty),
            Some(_) => self.free_numbers.push(empty.number),
        }
    }

    /// Lets `body` change the entries of `db`, and updates the index of all databases.
    #[inline]
    fn change<T>(&mut self, db: u32, body: impl FnOnce(&mut Entries) -> T) -> T {
        if db == MAIN {
            let before = self.main.len();
            let done = body(&mut self.main);
            self.len = self.len + self.main.len() - before;
            return done;
        }
        let mut entries = match self.others.remove(&db) {
            Some(entries) => entries,
            None => self.empty(),
        };
        let before = (entries.len(), entries.next());
        let done = body(&mut entries);
        let after = (entries.len(), entries.next());
        self.len = self.len + after.0 - before.0;
        if before.1 != after.1 {
            before.1.map(|first| self.firsts.remove(&(first, db)));
            self.firsts.extend(after.1.map(|first| (first, db)));
        }
        match after.0 {
            0 => self.is_spare(entries),
            _ => drop(self.others.insert(db, entries)),
        }
        done
    }
}

#[cfg(test)]
mod tests;
