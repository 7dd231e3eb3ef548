//! Clients that watch locks: each is told once, when the lock is not what it knows.
//!
//! They stand in no queue and keep nobody from anything. Those who know the same of a lock are looked at together, so that many who
//! watch one lock cost its holder no more than one. None is forgotten: a watcher has a moment at which its time is up, and its lock is
//! looked at after every change, and when the lease ends that it knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::lock::Lock;
use crate::lock::known::is_true_until;
use crate::queue::of_key::WaiterId;
use crate::queue::planned::Planned;
use crate::queue::shares::{Load, Loads, UserId};
use crate::request::Known;
use crate::values::key::Key;
use crate::values::time::BootTime;

/// A client that watches.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    db: u32,
    name: Arc<[u8]>,
    known: Known,
    until: BootTime,
    user: UserId,
}

impl Watcher {
    /// Returns the load of one that watches the lock `name`.
    pub(crate) fn load(name: &[u8]) -> Load {
        Load::of_entry(true, &[name]).plus(Load::of_blocked(name))
    }
}

/// The watchers of a node.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// Who watches each lock, by what they know of it; none is empty.
    locks: Planned<BTreeMap<Known, BTreeSet<WaiterId>>>,
    watchers: BTreeMap<WaiterId, Watcher>,
    timeouts: BTreeSet<(BootTime, WaiterId)>,
    loads: Loads,
}

impl Watching {
    /// Returns the load of the watchers.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// How many watch.
    pub fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Nobody does.
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Whether anybody watches the lock of `key`.
    #[inline]
    pub fn has(&self, key: Key<'_>) -> bool {
        !self.watchers.is_empty() && self.locks.get(key).is_some()
    }

    /// The client `id` of `user` watches the lock of `key` until `until`; what it knows is true until `look`, if nothing happens before.
    pub(crate) fn join(
        &mut self,
        key: Key<'_>,
        (id, user): (WaiterId, UserId),
        known: Known,
        until: BootTime,
        look: BootTime,
    ) {
        debug_assert!(!self.watchers.contains_key(&id), "every request has an id of its own");
        self.loads.add(user, Watcher::load(key.name));
        let (name, watched) = self.locks.reach(key);
        watched.entry(known).or_default().insert(id);
        self.plan(key, look);
        self.timeouts.insert((until, id));
        self.watchers.insert(id, Watcher { db: key.db, name, known, until, user });
    }

    /// The client `id` watches no longer; whether it did.
    pub(crate) fn leave(&mut self, id: WaiterId) -> bool {
        let Some(Watcher { db, name, known, until, user }) = self.watchers.remove(&id) else { return false };
        self.loads.remove(user, Watcher::load(&name));
        self.timeouts.remove(&(until, id));
        if let Some(watched) = self.locks.get_mut(Key { db, name: &name })
            && let Some(alike) = watched.get_mut(&known)
        {
            alike.remove(&id);
            if alike.is_empty() {
                watched.remove(&known);
            }
        }
        self.locks.remove_if(Key { db, name: &name }, BTreeMap::is_empty);
        true
    }

    /// Those who know something else of the lock of `key` than is `held` at `now`, `count` at most: they watch no longer, and are to be
    /// told. If others are left, it is looked at again, and soon.
    pub(crate) fn take_told(
        &mut self,
        key: Key<'_>,
        held: Option<&Lock>,
        count: usize,
        now: BootTime,
    ) -> Vec<WaiterId> {
        let Some(watched) = self.locks.get(key) else { return vec![] };
        let mut next_look = BootTime::MAX;
        let (mut told, mut are_all) = (vec![], true);
        for (known, alike) in watched {
            match is_true_until(*known, held, now) {
                Some(until) => next_look = next_look.min(until),
                None => {
                    let room = count - told.len();
                    are_all &= alike.len() <= room;
                    told.extend(alike.iter().take(room));
                }
            }
        }
        if are_all {
            self.plan(key, next_look);
        } else {
            self.wake(key);
        }
        for &id in &told {
            self.leave(id);
        }
        told
    }

    /// Who watches the lock of `key`, `count` at most: somebody else knows what to tell them. If others are left, it is looked at again,
    /// and soon.
    pub(crate) fn dismiss(&mut self, key: Key<'_>, count: usize) -> Vec<WaiterId> {
        let watched = self.locks.get(key);
        let gone: Vec<_> = watched.into_iter().flat_map(BTreeMap::values).flatten().take(count).copied().collect();
        for &id in &gone {
            self.leave(id);
        }
        self.wake(key);
        gone
    }

    /// Takes out the one whose time has been up longest at `now`.
    pub(crate) fn take_timed_out(&mut self, now: BootTime) -> Option<WaiterId> {
        let &(_, id) = self.timeouts.first().filter(|(until, _)| now > *until)?;
        self.leave(id);
        Some(id)
    }

    /// Something may have happened to the lock of `key`.
    #[inline]
    pub(crate) fn wake(&mut self, key: Key<'_>) {
        // Mostly nobody watches anything.
        if !self.is_empty() {
            self.locks.wake_at(key, BootTime::default());
        }
    }

    /// Something may have happened to every lock.
    pub(crate) fn wake_all(&mut self) {
        self.locks.wake_all();
    }

    /// Takes out the lock to be looked at that has been due longest at `now`.
    pub(crate) fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        self.locks.pop_due(now)
    }

    /// When the next lock is to be looked at, or somebody's time is up.
    pub fn next_due(&self) -> Option<BootTime> {
        if self.is_empty() {
            return None;
        }
        let timeout = self.timeouts.first().map(|(until, _)| until.plus_us(1));
        self.locks.next_due().into_iter().chain(timeout).min()
    }

    /// A lease that is known ends then: the lock is looked at right after.
    fn plan(&mut self, key: Key<'_>, end: BootTime) {
        if end < BootTime::MAX {
            self.locks.wake_at(key, end.plus_us(1));
        }
    }
}
