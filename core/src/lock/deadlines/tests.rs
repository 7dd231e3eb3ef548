//! Every lock has one entry, which comes due when it should: a comparison with a plain tree.

use std::collections::BTreeMap;

use super::*;
use crate::fixture::{KEY, at, exclusive, key_of, owner, token, ttl};
use crate::lock::grant::{Grant, GrantId};
use crate::lock::phase::Past;
use crate::request::Note;
use crate::values::mode::Mode;
use proptest::prelude::*;

/// Returns a lock whose deadline is `ms` milliseconds after boot.
fn until(ms: u64) -> Lock {
    exclusive(owner("me"), Note::default(), token(1), BootTime::default(), ttl(ms))
}

fn us(ms: u64, more: u64) -> BootTime {
    at(ms).boot.plus_us(more)
}

fn pop(deadlines: &mut Deadlines, now: BootTime) -> Option<(u32, Vec<u8>)> {
    deadlines.pop_due(now).map(|due| (due.db, due.name.to_vec()))
}

#[test]
fn comes_due_after_the_deadline_in_order_over_all_databases() {
    let mut deadlines = Deadlines::default();
    for (db, name, ms) in [(0, "a", 30), (3, "b", 10), (0, "c", 20)] {
        deadlines.schedule(Key { db, name: name.as_bytes() }, &mut until(ms));
    }
    let earliest = deadlines.earliest().unwrap();
    assert_eq!((deadlines.len(), earliest.us_since(us(10, 0))), (3, 239), "at the end of tick 9");
    assert_eq!(pop(&mut deadlines, us(10, 0)), None, "held through the deadline");
    assert_eq!(pop(&mut deadlines, earliest), None, "and a tick at the most");
    assert_eq!(pop(&mut deadlines, earliest.plus_us(1)), Some((3, b"b".to_vec())));
    assert_eq!(pop(&mut deadlines, us(100, 0)), Some((0, b"c".to_vec())));
    assert_eq!(pop(&mut deadlines, us(100, 0)), Some((0, b"a".to_vec())));
    assert_eq!((pop(&mut deadlines, us(100, 0)), deadlines.earliest()), (None, None));
}

#[test]
fn the_entry_moves_with_the_deadline() {
    let mut deadlines = Deadlines::default();
    let is_next = |deadlines: &Deadlines, ms| {
        let late_us = deadlines.earliest().unwrap().as_us() - us(ms, 0).as_us();
        assert!(deadlines.len() == 1 && late_us <= Deadlines::LATE_US);
    };
    let mut lock = until(10);
    deadlines.schedule(KEY, &mut lock);
    lock.prolong(GrantId::default(), us(5, 0), ttl(20));
    deadlines.schedule(KEY, &mut lock);
    is_next(&deadlines, 25);
    lock.replace(until(20));
    deadlines.schedule(KEY, &mut lock);
    is_next(&deadlines, 20);
    let due = deadlines.pop_due(us(22, 0)).unwrap();
    assert!(due.is_of(&lock) && due.key() == KEY);
}

/// An entry comes due, and before its lock ends other locks come and go. None of them may get that entry.
#[test]
fn an_entry_that_came_due_is_nobody_elses() {
    let mut deadlines = Deadlines::default();
    let (mut first, mut second, mut third) = (until(10), until(10), until(30));
    deadlines.schedule(KEY, &mut first);
    let due = deadlines.pop_due(us(12, 0)).unwrap();
    deadlines.schedule(key_of(b"l"), &mut second);
    deadlines.schedule(key_of(b"m"), &mut third);
    assert!(due.is_of(&first) && !due.is_of(&second) && !due.is_of(&third));
    deadlines.forget(&due);
    assert_eq!((deadlines.len(), deadlines.database_of(0, first.entry())), (2, Some(0)));
    deadlines.cancel(0, &mut first);
    deadlines.forget(&due);
    assert_eq!(deadlines.len(), 2);
    let due = deadlines.pop_due(us(12, 0)).unwrap();
    assert!(due.is_of(&second));
    second.replace(until(50));
    deadlines.schedule(key_of(b"l"), &mut second);
    deadlines.forget(&due);
    assert_eq!(deadlines.len(), 2, "it was scheduled again");
    assert_eq!(pop(&mut deadlines, us(100, 0)), Some((0, b"m".to_vec())));
    assert_eq!(pop(&mut deadlines, us(100, 0)), Some((0, b"l".to_vec())));
}

/// Locks that outlive a flush still refer to their removed entries, and a server may name a wrong database. Cancelling
/// such an entry changes no entry of another lock.
#[test]
fn what_a_lock_keeps_of_an_entry_that_was_detached_is_nobodys() {
    let mut deadlines = Deadlines::default();
    let mut stale: Vec<_> = (0..4).map(|n| until(10 + n)).collect();
    stale.iter_mut().for_each(|lock| deadlines.schedule(Key { db: 3, name: b"old" }, lock));
    deadlines.detach(Some(3));
    let mut fresh: Vec<_> = (0..4).map(|n| until(20 + n)).collect();
    fresh.iter_mut().for_each(|lock| deadlines.schedule(Key { db: 3, name: b"new" }, lock));
    deadlines.cancel(3, &mut stale[0]);
    deadlines.cancel(0, &mut stale[1]);
    assert_eq!(deadlines.len(), 4);
    stale[2].prolong(GrantId::default(), us(5, 0), ttl(40));
    deadlines.schedule(Key { db: 3, name: b"old" }, &mut stale[2]);
    assert_eq!(deadlines.len(), 5, "it has an entry again");
    deadlines.cancel(0, &mut fresh[0]);
    assert_eq!((deadlines.len(), fresh[0].entry()), (4, DeadlineEntry::default()));
    deadlines.schedule(Key { db: 7, name: b"moved" }, &mut fresh[1]);
    assert_eq!((deadlines.len(), deadlines.others.len()), (4, 2));
}

#[test]
fn databases_swap_and_detach() {
    let mut deadlines = Deadlines::default();
    let mut locks: Vec<_> = (0..4).map(|n| until(10 + n)).collect();
    for (db, lock) in locks.iter_mut().enumerate() {
        deadlines.schedule(Key { db: db as u32, ..KEY }, lock);
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

/// A database whose locks are gone takes no memory, however many databases had locks.
#[test]
fn only_databases_with_locks_are_known() {
    let mut deadlines = Deadlines::default();
    let mut last = until(30);
    deadlines.schedule(Key { db: u32::MAX, ..KEY }, &mut last);
    let mut moves = until(10);
    for db in 1..1_000 {
        deadlines.schedule(Key { db, ..KEY }, &mut moves);
        assert!(deadlines.earliest().unwrap() < us(12, 0) && deadlines.others.len() == 2);
        if db % 2 == 0 {
            deadlines.cancel(db, &mut moves);
        } else {
            deadlines.swap(db, 1_000_000);
            deadlines.cancel(1_000_000, &mut moves);
        }
        assert_eq!((deadlines.others.len(), deadlines.firsts.len(), deadlines.len()), (1, 1, 1));
    }
    assert!(deadlines.numbers < 10 && deadlines.free_numbers.len() < 10, "sets are used again");
    deadlines.schedule(Key { db: 7, ..KEY }, &mut moves);
    assert_eq!(deadlines.pop_due(us(12, 0)).map(|due| due.db), Some(7));
    assert_eq!(deadlines.detach(Some(u32::MAX)).len(), 1);
    deadlines.cancel(7, &mut moves);
    assert!(deadlines.others.is_empty() && deadlines.firsts.is_empty() && deadlines.is_empty());
}

/// Many entries that are an hour away move to the ring in steps, however many there are, and in time. While they move,
/// no lock is reported as due.
#[test]
fn many_far_deadlines_come_near_in_steps() {
    const LOCKS: u64 = 10_000;
    const HOUR_MS: u64 = 3_600_000;
    let mut deadlines = Deadlines::default();
    let mut locks: Vec<_> = (0..LOCKS).map(|n| until(HOUR_MS + n)).collect();
    locks.iter_mut().for_each(|lock| deadlines.schedule(KEY, lock));
    let (mut looks, mut now) = (0, BootTime::default());
    while let Some(next) = deadlines.earliest().filter(|next| *next < us(HOUR_MS, 0)) {
        now = now.max(next.plus_us(1));
        assert_eq!(deadlines.pop_due(now), None);
        looks += 1;
    }
    assert!(looks > 20 && looks < 100, "{looks} looks in an hour");
    assert!(us(HOUR_MS, 0).ms_since(now) > 60_000, "a minute before");
    assert_eq!(deadlines.last(0), Some(us(HOUR_MS + LOCKS - 1, 0)));
}

/// The locks that the comparison keeps itself, by the database and name under which they are stored.
type Stored = BTreeMap<(u32, Vec<u8>), Lock>;

/// Returns a short name, or one that is too long to be stored in an entry.
fn name(number: u8) -> Vec<u8> {
    vec![b'k' + number; [1, 15, 16, 100][usize::from(number % 4)]]
}

/// Generates lengths of time in milliseconds: near, at the ends of ticks and overflow lists, and far.
fn times() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1_u64..100, 2 => 60_000_u64..140_000, 1 => 140_000_u64..86_400_000]
}

fn is_as_it_should_be(deadlines: &Deadlines, locks: &Stored) -> Result<(), TestCaseError> {
    let mut names: Vec<_> = deadlines.names().map(|(db, name)| (db, name.to_vec())).collect();
    names.sort_unstable();
    prop_assert!(names.iter().eq(locks.keys()), "one entry a lock");
    prop_assert_eq!(deadlines.len(), locks.len());
    for db in 0..4 {
        let ends = || locks.iter().filter(|((of, _), _)| *of == db).map(|((_, name), lock)| (name, lock.end()));
        prop_assert_eq!(deadlines.last(db), ends().map(|(_, end)| end).max());
        let copy = deadlines.copy(db);
        let mut told: Vec<_> = copy.locks().map(|(_, name, end)| (name.to_vec(), end)).collect();
        told.sort_unstable();
        prop_assert!(told.iter().map(|(name, end)| (name, *end)).eq(ends()), "{:?}", told);
    }
    let first = locks.values().map(Lock::next_end).min();
    prop_assert_eq!(deadlines.earliest().is_some(), first.is_some());
    if let (Some(first), Some(earliest)) = (first, deadlines.earliest()) {
        let is_near = earliest >= first && earliest.us_since(first) <= Deadlines::LATE_US;
        // Work before the first deadline is only right if far entries have to move to the ring of the timing wheel.
        let is_to_sort = earliest < first && locks.values().any(|lock| lock.next_end().ms_since(earliest) >= 60_000);
        prop_assert!(is_near || is_to_sort, "{:?} for {:?}", earliest, first);
    }
    Ok(())
}

/// The deadlines under test, and the locks with which they are compared.
struct Both {
    deadlines: Deadlines,
    locks: Stored,
    now: BootTime,
}

impl Both {
    fn step(&mut self, what: u8, number: u8, ms: u64, flag: bool) -> Result<(), TestCaseError> {
        let place = (u32::from(number % 4), name(number / 2));
        let grant = |name: &str| Grant::new(owner(name), Note::default(), token(1), self.now, ttl(ms));
        let (deadlines, locks) = (&mut self.deadlines, &mut self.locks);
        match what {
            0..=3 => {
                let mode = if flag { Mode::Shared } else { Mode::Exclusive };
                let mut lock = Lock::of(mode, grant("me"), Past::default());
                if let Some(mut old) = locks.remove(&place) {
                    old.replace(lock);
                    lock = old;
                }
                deadlines.schedule(Key { db: place.0, name: &place.1 }, &mut lock);
                locks.insert(place, lock);
            }
            4 | 5 => {
                let Some(lock) = locks.get_mut(&place) else { return Ok(()) };
                match lock {
                    Lock::Joint(holders) if what == 4 => drop(holders.put(Mode::Shared, grant("you"))),
                    Lock::Exclusive(_) if what == 4 => {
                        lock.convert(GrantId::default(), Mode::Shared, Past::default());
                    }
                    _ => drop(lock.prolong(lock.first_id(), self.now, ttl(ms))),
                }
                if what == 5 && lock.len() == 1 && flag {
                    lock.convert(lock.first_id(), Mode::Exclusive, Past::default());
                }
                deadlines.schedule(Key { db: place.0, name: &place.1 }, lock);
            }
            6 => {
                let Some(mut lock) = locks.remove(&place) else { return Ok(()) };
                deadlines.cancel(place.0, &mut lock);
                if flag {
                    let elsewhere = ((place.0 + 1) % 4, name(7));
                    if let Some(mut old) = locks.remove(&elsewhere) {
                        deadlines.cancel(elsewhere.0, &mut old);
                    }
                    deadlines.schedule(Key { db: elsewhere.0, name: &elsewhere.1 }, &mut lock);
                    locks.insert(elsewhere, lock);
                }
            }
            7 => {
                let (one, other) = (place.0, u32::from(number / 4));
                deadlines.swap(one, other);
                let swapped = |db| {
                    if db == one {
                        other
                    } else if db == other {
                        one
                    } else {
                        db
                    }
                };
                let before = std::mem::take(locks).into_iter();
                *locks = before.map(|((db, name), lock)| ((swapped(db), name), lock)).collect();
            }
            8 if number < 2 => self.detach(flag.then_some(place.0))?,
            _ => self.pass(ms * 1_000 + u64::from(number))?,
        }
        Ok(())
    }

    /// Empties the database `db`, or all databases (`None`): in the deadlines, and in the plain tree that they are
    /// compared with.
    fn detach(&mut self, db: Option<u32>) -> Result<(), TestCaseError> {
        let detached = self.deadlines.detach(db);
        let is_gone = |of: u32| db.is_none_or(|db| db == of);
        let gone: Vec<_> = self.locks.iter().filter(|((db, _), _)| is_gone(*db)).collect();
        prop_assert_eq!(detached.last(), gone.iter().map(|(_, lock)| lock.end()).max());
        prop_assert_eq!(detached.len(), gone.len());
        // The server reports these locks later than the flush, or never.
        for ((db, _), lock) in gone {
            self.deadlines.cancel(*db, &mut lock.clone());
        }
        self.locks.retain(|(db, _), _| !is_gone(*db));
        Ok(())
    }

    /// Lets `us` microseconds pass, and checks which locks come due.
    fn pass(&mut self, us: u64) -> Result<(), TestCaseError> {
        self.now = self.now.plus_us(us);
        let (deadlines, locks, now) = (&mut self.deadlines, &mut self.locks, self.now);
        while deadlines.earliest().is_some_and(|earliest| now > earliest) {
            let Some(due) = deadlines.pop_due(now) else { continue };
            let place = (due.db, due.name.to_vec());
            let lock = locks.get_mut(&place).expect("no entry without a lock");
            prop_assert!(due.is_of(lock) && now > lock.next_end());
            let ended = lock.ended(now);
            if ended.and_then(|id| lock.take(id)).is_some() {
                deadlines.schedule(Key { db: place.0, name: &place.1 }, lock);
            } else {
                deadlines.cancel(place.0, &mut locks.remove(&place).unwrap());
            }
        }
        let tick_ago = BootTime::from_us(now.as_us() - Deadlines::LATE_US - 1);
        prop_assert!(locks.values().all(|lock| tick_ago <= lock.next_end()));
        Ok(())
    }
}

proptest! {
    /// Compares the deadlines with a plain tree of locks: one entry a lock, none lost, early or late, whatever happens.
    /// There are locks with one holder and with several, in four databases that are swapped and emptied; leases of a
    /// millisecond and of a day; a clock that jumps.
    #[test]
    fn exactly_one_entry_a_lock(steps in prop::collection::vec((0u8..12, 0u8..8, times(), any::<bool>()), 1..200)) {
        let mut both = Both { deadlines: Deadlines::default(), locks: Stored::new(), now: us(1_000, 7) };
        for (what, number, ms, flag) in steps {
            both.step(what, number, ms, flag)?;
            is_as_it_should_be(&both.deadlines, &both.locks)?;
        }
    }
}

/// The lock of several readers is overdue, and its next end is later in the present tick.
#[test]
fn a_further_end_does_not_come_due_early() {
    const TICK_US: u64 = 1 << 10;
    let mut entries = Entries::new(1);
    let now = us(0, 100 * TICK_US);
    let place = entries.insert(b"k", us(0, 50 * TICK_US), now);
    let later = now.plus_us(TICK_US - 1);
    assert_eq!(entries.pop_due(now.plus_us(1)).map(|(place, _)| place), Some(place));
    entries.set_due(place, later, BootTime::default());
    assert!(entries.next().unwrap() >= later);
    assert!(entries.pop_due(now.plus_us(2)).is_none(), "it lasts until {later:?}");
}
