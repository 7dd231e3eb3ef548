//! Locks that the server evicted to make room: their keys are free, but their holders do not know it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::guard::slot_set::slot_of;
use crate::lock::Lock;
use crate::refusal::Refusal;
use crate::request::Owner;
use crate::values::key::Key;
use crate::values::limits::{EVICTED_MAX, EVICTED_NAME_BYTES_MAX};
use crate::values::time::BootTime;

/// The part of an evicted lock that the node remembers.
#[derive(Clone, Debug)]
pub struct Evictee {
    /// The owner, if it was the only one; empty if several held the lock.
    holder: Box<[u8]>,
    /// The time at which the lock's last lease ends.
    pub(crate) end: BootTime,
}

impl Evictee {
    /// Returns the part of `lock` that the node remembers.
    pub fn of(lock: &Lock) -> Self {
        // If several owners held it, no owner may acquire it: another may still hold it.
        let holder = if lock.len() == 1 { lock.first().owner() } else { &[] };
        Self { holder: holder.into(), end: lock.end() }
    }
}

/// Evicted locks that may still be held, by database and name. Each has its slot, so that nobody has to compute the slots
/// of all.
#[derive(Clone, Debug, Default)]
pub struct Evicted {
    locks: HashMap<(u32, Box<[u8]>), (Evictee, u16)>,
    /// The bytes of the names.
    name_bytes: usize,
}

impl Evicted {
    /// Notes that `lock` was evicted from `key`. If an earlier evicted lock of that key may still be held, the later
    /// end of both counts, and no owner may acquire the key unless both had the same.
    pub fn note(&mut self, Key { db, name }: Key<'_>, lock: Evictee, now: BootTime) {
        let (earlier, _) = self.locks.entry((db, name.into())).or_insert_with(|| {
            self.name_bytes += name.len();
            (lock.clone(), slot_of(name))
        });
        if now > earlier.end {
            *earlier = lock;
        } else {
            earlier.end = lock.end.max(earlier.end);
            if earlier.holder != lock.holder {
                earlier.holder = Box::default();
            }
        }
    }

    /// Returns until when `owner` may not acquire `key`, because another owner may hold the evicted lock; `None` if it
    /// may.
    fn barred_until(&self, Key { db, name }: Key<'_>, owner: Owner<'_>, now: BootTime) -> Option<BootTime> {
        let (Evictee { holder, end }, _) = self.locks.get(&(db, Box::from(name)))?;
        (**holder != *owner.bytes() && now <= *end).then_some(*end)
    }

    /// Refuses to grant the lock of `key` to `owner` while another owner may hold the evicted lock.
    #[inline(always)]
    pub fn ensure_open(&self, key: Key<'_>, owner: Owner<'_>, now: BootTime) -> Result<(), Refusal> {
        if self.locks.is_empty() { Ok(()) } else { self.ensure_not_barred(key, owner, now) }
    }

    #[inline(never)]
    fn ensure_not_barred(&self, key: Key<'_>, owner: Owner<'_>, now: BootTime) -> Result<(), Refusal> {
        match self.barred_until(key, owner, now) {
            Some(until) => Err(Refusal::Evicted { left_ms: until.ms_since_rounded_up(now).max(1) }),
            None => Ok(()),
        }
    }

    /// Notes that the lock of `key` was released or broken. If `is_owner` returns true for the owner of the evicted
    /// lock of that key, the evicted lock is not held any longer either.
    #[inline(always)]
    pub fn given_up(&mut self, key: Key<'_>, is_owner: impl FnOnce(&[u8]) -> bool) {
        if !self.locks.is_empty() {
            self.remove(key, is_owner);
        }
    }

    #[inline(never)]
    fn remove(&mut self, Key { db, name }: Key<'_>, is_owner: impl FnOnce(&[u8]) -> bool) {
        if let Entry::Occupied(entry) = self.locks.entry((db, name.into()))
            && is_owner(&entry.get().0.holder)
        {
            entry.remove();
            self.name_bytes -= name.len();
        }
    }

    /// Removes the evicted locks whose leases are over at `now`.
    pub fn sweep(&mut self, now: BootTime) {
        self.locks.retain(|(_, name), (lock, _)| {
            let is_held = now <= lock.end;
            self.name_bytes -= if is_held { 0 } else { name.len() };
            is_held
        });
    }

    /// Iterates over the evicted locks: the slot of each, and the end of its last lease.
    pub fn ends(&self) -> impl Iterator<Item = (u16, BootTime)> {
        self.locks.values().map(|(lock, slot)| (*slot, lock.end))
    }

    /// Returns whether a lock with the key `name` can be noted in addition.
    pub fn has_room(&self, name: &[u8]) -> bool {
        self.locks.len() < EVICTED_MAX && self.name_bytes + name.len() <= EVICTED_NAME_BYTES_MAX
    }

    /// Returns the number of evicted locks that may still be held.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Returns whether no evicted lock may still be held.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn bars_that_key_alone_from_others_until_the_lease_would_have_ended() {
        let mut evicted = Evicted::default();
        evicted.note(KEY, Evictee::of(&mine(1)), at(0).boot);
        let deadline = at(1_000).boot;
        assert_eq!(evicted.barred_until(KEY, owner("you"), deadline), Some(deadline));
        let barred = |left_ms| Err(Refusal::Evicted { left_ms });
        assert_eq!(evicted.ensure_open(KEY, owner("you"), at(0).boot), barred(1_000));
        assert_eq!(evicted.ensure_open(KEY, owner("you"), deadline), barred(1));
        assert_eq!(evicted.barred_until(KEY, owner("you"), deadline.plus_us(1)), None);
        assert_eq!(evicted.barred_until(KEY, owner("me"), deadline), None);
        assert_eq!(evicted.barred_until(Key { db: 1, ..KEY }, owner("you"), deadline), None);
        assert_eq!(evicted.barred_until(key_of(b"l"), owner("you"), deadline), None);
        evicted.sweep(deadline);
        assert_eq!(evicted.len(), 1);
        evicted.sweep(deadline.plus_us(1));
        assert!(evicted.is_empty());
    }

    #[test]
    fn ends_when_its_holder_gives_the_lock_up() {
        let mut evicted = Evicted::default();
        evicted.note(KEY, Evictee::of(&mine(1)), at(0).boot);
        evicted.given_up(KEY, |holder| holder == b"you");
        evicted.given_up(Key { db: 1, ..KEY }, |holder| holder == b"me");
        assert_eq!(evicted.len(), 1);
        evicted.given_up(KEY, |holder| holder == b"me");
        assert!(evicted.is_empty());
    }

    #[test]
    fn the_names_of_evicted_locks_have_a_bound_in_bytes() {
        let mut evicted = Evicted::default();
        let name = vec![b'n'; EVICTED_NAME_BYTES_MAX];
        assert!(!evicted.has_room(&[&name[..], b"n"].concat()));
        for _ in 0..2 {
            let key = key_of(&name);
            assert!(evicted.has_room(&name));
            evicted.note(key, Evictee::of(&mine(1)), at(0).boot);
            evicted.note(key, Evictee::of(&mine(1)), at(0).boot);
            assert!(!evicted.has_room(b"n"));
            evicted.given_up(key, |_| true);
            assert!(evicted.has_room(&name));
            evicted.note(key, Evictee::of(&mine(1)), at(0).boot);
            evicted.sweep(at(1_000_000).boot);
        }
    }

    /// A lock is evicted, acquired again by its holder, and evicted again. Others are kept out until the later of both
    /// ends.
    #[test]
    fn the_later_end_of_two_that_were_evicted_counts() {
        let evictee = |holder: &str, end| Evictee { holder: holder.as_bytes().into(), end: at(end).boot };
        for (first, second, until) in [(1_000, 500, 1_000), (450, 500, 500), (300, 500, 500)] {
            let mut evicted = Evicted::default();
            evicted.note(KEY, evictee("me", first), at(0).boot);
            evicted.note(KEY, evictee("me", second), at(400).boot);
            assert_eq!(evicted.barred_until(KEY, owner("me"), at(400).boot), None);
            assert_eq!(evicted.barred_until(KEY, owner("you"), at(400).boot), Some(at(until).boot));
        }
        let mut evicted = Evicted::default();
        evicted.note(KEY, evictee("you", 1_000), at(0).boot);
        evicted.note(KEY, evictee("me", 1_000), at(0).boot);
        assert!(evicted.barred_until(KEY, owner("me"), at(0).boot).is_some(), "neither of two holders may take it");
        evicted.note(KEY, evictee("me", 2_000), at(1_001).boot);
        assert_eq!(evicted.barred_until(KEY, owner("me"), at(1_001).boot), None, "the other lease is over");
    }
}
