//! Sums over the leases that a node keeps alive: for each lock and each database, so that a lock or a whole database
//! leaves in one step.
//!
//! A lock *leaves* its key by DEL, RENAME and the like, and all locks of a database by FLUSHDB. Locks and
//! databases count their departures. A lease remembers the count at which its lock was last found in its key: it *is
//! here* as long as the count is the same.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{Holder, KeptLease};
use crate::values::key::Key;
use crate::values::limits::KEEPALIVES_LEFT_BYTES_MAX;

/// The most leases that one step looks at in search of one whose lock has left its key.
const LOOKS: usize = 64;

/// The renewals and the memory that a lease takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// The part of the node's maximum of renewals, in renewals in a thousand seconds.
    pub renewals: u64,
    /// An upper bound of the memory, in bytes.
    pub bytes: usize,
}

impl Share {
    fn add(&mut self, other: Self) {
        self.renewals += other.renewals;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Self) {
        self.renewals -= other.renewals;
        self.bytes -= other.bytes;
    }
}

/// The kept leases of one lock.
#[derive(Clone, Debug, Default)]
struct Leases {
    count: usize,
    departures: u64,
    /// The sum of the leases that are here: their lock has not left its key. It is outdated if all locks of the
    /// database have left since `summed_at`.
    here: Share,
    /// The departures of the database at the last change of the sum.
    summed_at: u64,
    /// The lock's number in the list of departures.
    listed: Option<u64>,
}

/// The kept leases of one database.
#[derive(Clone, Debug, Default)]
struct Database {
    locks: BTreeMap<Arc<[u8]>, Leases>,
    departures: u64,
    /// The sum of the leases that are here.
    here: Share,
    /// The database's number in the list of departures.
    listed: Option<u64>,
}

impl Database {
    /// Returns the leases of a lock, with a valid sum, and the count of departures that each of them remembers if the
    /// lock has not left since.
    fn leases(&mut self, lock: &[u8]) -> Option<(&mut Leases, u64)> {
        let leases = self.locks.get_mut(lock)?;
        if leases.summed_at != self.departures {
            (leases.here, leases.summed_at) = (Share::default(), self.departures);
        }
        let count = self.departures + leases.departures;
        Some((leases, count))
    }
}

/// A lock that left its key, or all locks of a database that did.
#[derive(Clone, Debug)]
struct Departed {
    db: u32,
    lock: Option<Arc<[u8]>>,
    /// The holder whose lease was looked at last.
    after: Option<Arc<Holder>>,
}

impl Departed {
    /// Returns the next lease to look at.
    fn next<'a>(&self, kept: &'a BTreeMap<Arc<Holder>, KeptLease>) -> Option<(&'a Arc<Holder>, &'a KeptLease)> {
        let first = Holder { db: self.db, name: self.lock.clone().unwrap_or_default(), owner: Box::default() };
        let from = self.after.as_deref().map_or(Bound::Included(&first), Bound::Excluded);
        let is_of = |holder: &Holder| holder.db == self.db && self.lock.as_ref().is_none_or(|lock| holder.is_of(lock));
        kept.range::<Holder, _>((from, Bound::Unbounded)).next().filter(|(holder, _)| is_of(holder))
    }
}

/// The sums over all kept leases.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    databases: BTreeMap<u32, Database>,
    /// The sum of the leases that are here.
    here: Share,
    /// The memory of the leases whose lock has left its key, in bytes.
    left_bytes: usize,
    /// The locks and databases that have left while leases of them were kept, by number, the earliest first.
    departed: BTreeMap<u64, Departed>,
    last_number: u64,
}

impl Places {
    /// Returns the renewals in a thousand seconds of all leases whose lock has not left its key.
    pub fn renewals(&self) -> u64 {
        self.here.renewals
    }

    /// Returns whether the leases whose lock has left its key take too much memory.
    pub fn has_too_many_left(&self) -> bool {
        self.left_bytes > KEEPALIVES_LEFT_BYTES_MAX && !self.departed.is_empty()
    }

    /// Returns the name that the leases of this lock share; `None` if it has none.
    pub fn name(&self, Key { db, name }: Key<'_>) -> Option<Arc<[u8]>> {
        self.databases.get(&db)?.locks.get_key_value(name).map(|(name, _)| Arc::clone(name))
    }

    /// Returns whether the lock of this holder has not left its key since its departures were counted as `seen`.
    pub fn is_here(&self, holder: &Holder, seen: u64) -> bool {
        let database = self.databases.get(&holder.db);
        let leases = database.and_then(|database| Some((database, database.locks.get(&holder.name)?)));
        leases.is_some_and(|(database, leases)| seen == database.departures + leases.departures)
    }

    /// Adds a lease of this holder, whose lock is in its key. Returns the count of departures that the lease remembers.
    pub fn add(&mut self, holder: &Holder, share: Share) -> u64 {
        let database = self.databases.entry(holder.db).or_default();
        database.locks.entry(Arc::clone(&holder.name)).or_default().count += 1;
        let Some((leases, count)) = database.leases(&holder.name) else { return 0 };
        leases.here.add(share);
        database.here.add(share);
        self.here.add(share);
        count
    }

    /// Removes the lease of this holder, which remembers `seen`.
    pub fn remove(&mut self, holder: &Holder, seen: u64, share: Share) {
        let Some(database) = self.databases.get_mut(&holder.db) else { return };
        let Some((leases, count)) = database.leases(&holder.name) else { return };
        leases.count -= 1;
        let is_here = seen == count;
        if is_here {
            leases.here.remove(share);
        }
        let (is_last, listed) = (leases.count == 0, leases.listed);
        if is_here {
            database.here.remove(share);
            self.here.remove(share);
        } else {
            self.left_bytes -= share.bytes;
        }
        if is_last {
            listed.map(|number| self.departed.remove(&number));
            database.locks.remove(&*holder.name);
        }
        if database.locks.is_empty() {
            database.listed.map(|number| self.departed.remove(&number));
            self.databases.remove(&holder.db);
        }
    }

    /// Notes that the lock of this holder's lease, which remembers `seen`, was found in its key.
    pub fn on_found(&mut self, holder: &Holder, seen: &mut u64, share: Share) {
        let Some(database) = self.databases.get_mut(&holder.db) else { return };
        let Some((leases, count)) = database.leases(&holder.name) else { return };
        if std::mem::replace(seen, count) != count {
            leases.here.add(share);
            database.here.add(share);
            self.here.add(share);
            self.left_bytes -= share.bytes;
        }
    }

    /// Notes that the lock of `key` left it.
    pub fn on_lock_gone(&mut self, key: Key<'_>) {
        let Some(database) = self.databases.get_mut(&key.db) else { return };
        let Some((leases, _)) = database.leases(key.name) else { return };
        let here = std::mem::take(&mut leases.here);
        if here.bytes == 0 {
            return;
        }
        leases.departures += 1;
        let number = leases.listed.unwrap_or(self.last_number + 1);
        leases.listed = Some(number);
        database.here.remove(here);
        let lock = self.name(key);
        self.depart(here, number, Departed { db: key.db, lock, after: None });
    }

    /// Notes that all locks of this database left their keys; `None` stands for all databases.
    pub fn on_flushed(&mut self, db: Option<u32>) {
        let of: Vec<u32> = db.map_or_else(|| self.databases.keys().copied().collect(), |db| vec![db]);
        for db in of {
            let Some(database) = self.databases.get_mut(&db) else { continue };
            let here = std::mem::take(&mut database.here);
            if here.bytes > 0 {
                database.departures += 1;
                let number = database.listed.unwrap_or(self.last_number + 1);
                database.listed = Some(number);
                self.depart(here, number, Departed { db, lock: None, after: None });
            }
        }
    }

    fn depart(&mut self, here: Share, number: u64, departed: Departed) {
        self.here.remove(here);
        self.left_bytes += here.bytes;
        self.last_number = self.last_number.max(number);
        self.departed.insert(number, departed);
    }

    /// Returns a lease whose lock has left its key, if such leases take too much memory and this step finds one.
    pub fn take_left(&mut self, kept: &BTreeMap<Arc<Holder>, KeptLease>) -> Option<Arc<Holder>> {
        for _ in 0..LOOKS {
            if !self.has_too_many_left() {
                return None;
            }
            let (&number, departed) = self.departed.iter_mut().next()?;
            let Some((holder, lease)) = departed.next(kept) else {
                self.unlist(number);
                continue;
            };
            departed.after = Some(Arc::clone(holder));
            let database = self.databases.get_mut(&holder.db)?;
            if database.leases(&holder.name).is_some_and(|(_, count)| count != lease.seen) {
                return Some(Arc::clone(holder));
            }
        }
        None
    }

    fn unlist(&mut self, number: u64) {
        let Some(Departed { db, lock, .. }) = self.departed.remove(&number) else { return };
        let Some(database) = self.databases.get_mut(&db) else { return };
        match lock {
            Some(lock) => drop(database.locks.get_mut(&lock).map(|leases| leases.listed = None)),
            None => database.listed = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{KeepAlive, KeepAlives, Renewal};
    use super::*;
    use crate::fixture::{at, owner, ttl};
    use crate::keepalive::ClientId;

    #[derive(Clone, Debug)]
    enum Step {
        Keep { db: u32, lock: usize, owner: usize },
        End { db: u32, lock: usize, owner: usize },
        Leave { db: u32, lock: usize },
        Flush { db: Option<u32> },
        Find { db: u32, lock: usize, owner: usize },
        TakeLeft,
    }

    /// Two of the names are long, so that a few leases of locks that left take too much memory.
    const NAMES: [usize; 3] = [1, KEEPALIVES_LEFT_BYTES_MAX / 2, KEEPALIVES_LEFT_BYTES_MAX / 3];
    const OWNERS: [&str; 3] = ["a", "b", "c"];

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let of = || (0..2_u32, 0..NAMES.len(), 0..OWNERS.len());
        let step = prop_oneof![
            4 => of().prop_map(|(db, lock, owner)| Step::Keep { db, lock, owner }),
            1 => of().prop_map(|(db, lock, owner)| Step::End { db, lock, owner }),
            2 => of().prop_map(|(db, lock, _)| Step::Leave { db, lock }),
            1 => prop::option::of(0..2_u32).prop_map(|db| Step::Flush { db }),
            1 => of().prop_map(|(db, lock, owner)| Step::Find { db, lock, owner }),
            2 => Just(Step::TakeLeft),
        ];
        prop::collection::vec(step, 1..60)
    }

    /// The leases as a list, each with true if its lock has not left its key.
    type Expected = BTreeMap<(u32, usize, usize), bool>;

    fn renewal(keeps: &KeepAlives, (db, lock, name): (u32, usize, usize), names: &[Vec<u8>]) -> Option<Renewal> {
        let holder = keeps.holder(Key { db, name: &names[lock] }, OWNERS[name].as_bytes())?;
        let (holder, kept) = keeps.kept.get_key_value(&holder)?;
        Some(Renewal { holder: Arc::clone(holder), kept: *kept })
    }

    proptest! {
        /// After any steps the sums are those of a list of all leases, and nothing is left of locks without leases.
        #[test]
        fn sums_are_those_of_a_list(steps in steps()) {
            let names = NAMES.map(|bytes| vec![b'k'; bytes]);
            let keep = KeepAlive::new(ClientId(1), Some(60_000), ttl(60_000)).unwrap();
            let (mut keeps, mut expected) = (KeepAlives::default(), Expected::new());
            for step in steps {
                match step {
                    Step::Keep { db, lock, owner: name } => {
                        let key = Key { db, name: &names[lock] };
                        keeps.keep(key, owner(OWNERS[name]), at(0).boot, ttl(60_000), keep, at(0).boot);
                        expected.insert((db, lock, name), true);
                    }
                    Step::End { db, lock, owner: name } => {
                        keeps.on_grant_ended(Key { db, name: &names[lock] }, OWNERS[name].as_bytes());
                        expected.remove(&(db, lock, name));
                    }
                    Step::Leave { db, lock } => {
                        keeps.on_lock_gone(Key { db, name: &names[lock] });
                        let of = expected.iter_mut().filter(|(place, _)| (place.0, place.1) == (db, lock));
                        of.for_each(|(_, is_here)| *is_here = false);
                    }
                    Step::Flush { db } => {
                        keeps.on_flushed(db);
                        let of = expected.iter_mut().filter(|(place, _)| db.is_none_or(|db| place.0 == db));
                        of.for_each(|(_, is_here)| *is_here = false);
                    }
                    Step::Find { db, lock, owner: name } => {
                        if let Some(renewal) = renewal(&keeps, (db, lock, name), &names) {
                            prop_assert!(keeps.found(&renewal));
                            expected.insert((db, lock, name), true);
                        }
                    }
                    Step::TakeLeft => {
                        let has_too_many = keeps.places.has_too_many_left();
                        let taken = keeps.places.take_left(&keeps.kept);
                        prop_assert_eq!(taken.is_some(), has_too_many);
                        if let Some(holder) = taken {
                            let is_of = |(db, lock, name): &(u32, usize, usize)| {
                                (*db, NAMES[*lock], OWNERS[*name].as_bytes()) == (holder.db, holder.name.len(), &*holder.owner)
                            };
                            let (place, is_here) = expected.iter().find(|(place, _)| is_of(place)).unwrap();
                            prop_assert!(!is_here);
                            let renewal = renewal(&keeps, *place, &names).unwrap();
                            keeps.end(&renewal);
                            expected.remove(&place.clone());
                        }
                    }
                }
                let share = |place: &(u32, usize, usize)| renewal(&keeps, *place, &names).unwrap().kept.share;
                let here = expected.iter().filter(|(_, is_here)| **is_here).map(|(place, _)| share(place));
                let left = expected.iter().filter(|(_, is_here)| !**is_here).map(|(place, _)| share(place));
                prop_assert_eq!(keeps.places.renewals(), here.map(|share| share.renewals).sum::<u64>());
                prop_assert_eq!(keeps.places.left_bytes, left.map(|share| share.bytes).sum::<usize>());
                prop_assert_eq!(keeps.len(), expected.len());
            }
            while let Some((holder, kept)) = keeps.kept.iter().next().map(|(holder, kept)| (Arc::clone(holder), *kept)) {
                keeps.end(&Renewal { holder, kept });
            }
            prop_assert!(keeps.places.databases.is_empty() && keeps.places.departed.is_empty());
            prop_assert_eq!((keeps.places.here, keeps.places.left_bytes), (Share::default(), 0));
        }
    }
}
