//! Locks that the server evicted to make room: their keys are free, their holders do not know.

use std::collections::HashMap;

use crate::lock::Lock;
use crate::refusal::Refusal;
use crate::request::Owner;
use crate::values::key::Key;
use crate::values::time::BootTime;

/// What has to be known of a lock that is evicted.
#[derive(Clone, Debug)]
pub struct Evictee {
    /// Its owner; empty: several hold it.
    holder: Box<[u8]>,
    /// When its last lease ends.
    pub(crate) end: BootTime,
}

impl Evictee {
    /// Of `lock`.
    pub fn of(lock: &Lock) -> Self {
        // Of several holders none may take it: the others may still hold it.
        let holder = if lock.len() == 1 { lock.first().owner() } else { &[] };
        Self { holder: holder.into(), end: lock.end() }
    }
}

/// What was evicted and may still be held: by whom, if by one owner alone, and until when.
#[derive(Clone, Debug, Default)]
pub struct Evicted(HashMap<(u32, Box<[u8]>), (Box<[u8]>, BootTime)>);

impl Evicted {
    /// `lock` was evicted from `key`.
    pub fn note(&mut self, Key { db, name }: Key<'_>, lock: Evictee) {
        self.0.insert((db, name.into()), (lock.holder, lock.end));
    }

    /// Until when nobody but its holder may take `key`, if `owner` is not the one.
    fn bars(&self, Key { db, name }: Key<'_>, owner: Owner<'_>, now: BootTime) -> Option<BootTime> {
        let (holder, deadline) = self.0.get(&(db, Box::from(name)))?;
        (**holder != *owner.bytes() && now <= *deadline).then_some(*deadline)
    }

    /// Refuses `owner` the lock of `key` while somebody else's evicted lock bars it.
    #[inline(always)]
    pub fn ensure_open(&self, key: Key<'_>, owner: Owner<'_>, now: BootTime) -> Result<(), Refusal> {
        if self.0.is_empty() { Ok(()) } else { self.ensure_not_barred(key, owner, now) }
    }

    #[inline(never)]
    fn ensure_not_barred(&self, key: Key<'_>, owner: Owner<'_>, now: BootTime) -> Result<(), Refusal> {
        match self.bars(key, owner, now) {
            Some(until) => Err(Refusal::Evicted { left_ms: until.ms_since_rounded_up(now).max(1) }),
            None => Ok(()),
        }
    }

    /// The key was granted anew, or its lease is over: nothing bars it.
    #[inline(always)]
    pub fn forget(&mut self, key: Key<'_>) {
        if !self.0.is_empty() {
            self.remove(key);
        }
    }

    #[inline(never)]
    fn remove(&mut self, Key { db, name }: Key<'_>) {
        self.0.remove(&(db, Box::from(name)));
    }

    /// Drops what has ended.
    pub fn sweep(&mut self, now: BootTime) {
        self.0.retain(|_, (_, deadline)| now <= *deadline);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn bars_that_key_alone_from_others_until_the_lease_would_have_ended() {
        let mut evicted = Evicted::default();
        evicted.note(KEY, Evictee::of(&mine(1)));
        let deadline = at(1_000).boot;
        assert_eq!(evicted.bars(KEY, owner("you"), deadline), Some(deadline));
        let barred = |left_ms| Err(Refusal::Evicted { left_ms });
        assert_eq!(evicted.ensure_open(KEY, owner("you"), at(0).boot), barred(1_000));
        assert_eq!(evicted.ensure_open(KEY, owner("you"), deadline), barred(1));
        assert_eq!(evicted.bars(KEY, owner("you"), deadline.plus_us(1)), None);
        assert_eq!(evicted.bars(KEY, owner("me"), deadline), None);
        assert_eq!(evicted.bars(Key { db: 1, ..KEY }, owner("you"), deadline), None);
        assert_eq!(evicted.bars(key_of(b"l"), owner("you"), deadline), None);
        evicted.sweep(deadline);
        assert_eq!(evicted.len(), 1);
        evicted.sweep(deadline.plus_us(1));
        assert!(evicted.is_empty());
        evicted.note(KEY, Evictee::of(&mine(1)));
        evicted.forget(KEY);
        assert_eq!(evicted.bars(KEY, owner("you"), deadline), None);
    }
}
