//! Clients that watch locks: each is answered once, as soon as the lock is not in the state that the client knows.
//!
//! Watchers are in no queue and delay nobody. Watchers that know the same state of a lock are checked together, so a
//! thousand watchers of one lock cost its holder as little as one. None is forgotten: a watcher has a moment at which
//! its time is over. Its lock is checked after every change, and when the known lease ends.

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

/// The most states of one lock that its watchers may know if a command is to check them itself. For more, a client that
/// sends many commands at once would keep the server from serving others.
const CHECKED_AT_ONCE_MAX: usize = 64;

/// A client that waits for a change of a lock (LOCK.WATCH).
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    db: u32,
    name: Arc<[u8]>,
    known: Known,
    until: BootTime,
    user: UserId,
}

impl Watcher {
    /// Returns the load of a watcher of the lock `name`, in places and bytes.
    pub(crate) fn load(name: &[u8]) -> Load {
        Load::of_entry(true, &[name]).plus(Load::of_blocked(name))
    }
}

/// The watchers of a node, by lock.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// The watchers of each lock, by the state that they know. No set is empty.
    locks: Planned<BTreeMap<Known, BTreeSet<WaiterId>>>,
    watchers: BTreeMap<WaiterId, Watcher>,
    timeouts: BTreeSet<(BootTime, WaiterId)>,
    loads: Loads,
}

impl Watching {
    /// Returns the load (places and bytes) of the watchers, by user.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Returns the number of watchers.
    pub fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Returns whether the node has no watchers.
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Returns whether the lock of `key` has watchers.
    #[inline]
    pub fn has(&self, key: Key<'_>) -> bool {
        !self.watchers.is_empty() && self.locks.get(key).is_some()
    }

    /// Returns whether the watchers of the lock of `key` know more states than one command may check. Then plans one
    /// check for all commands of the present pass of the event loop.
    pub(crate) fn checks_later(&mut self, key: Key<'_>) -> bool {
        let is_later = self.locks.get(key).is_some_and(|watched| watched.len() > CHECKED_AT_ONCE_MAX);
        if is_later {
            self.wake(key);
        }
        is_later
    }

    /// Returns the name of `key` as its watchers share it, if it has any.
    #[inline(always)]
    pub(crate) fn share_name(&mut self, key: Key<'_>) -> Option<Arc<[u8]>> {
        self.locks.share(key)
    }

    /// Returns the number of times that watchers were searched for by the bytes of a name, for tests.
    #[cfg(test)]
    pub(crate) fn searches(&self) -> usize {
        self.locks.searches()
    }

    /// Adds the client `id` of `user` as a watcher of the lock of `key` until `until`. If no command changes the lock,
    /// it stays in the state that the client knows until `look`, so it is checked then.
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
        self.plan(Key { db: key.db, name: &name }, look);
        self.timeouts.insert((until, id));
        self.watchers.insert(id, Watcher { db: key.db, name, known, until, user });
    }

    /// Removes the watcher `id`; returns whether there was one.
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

    /// Removes and returns at most `count` watchers of the lock of `key`, for the caller to answer: those that do not
    /// know its state at `now` yet, which `held` shows. If others are left, the lock is checked again soon.
    pub(crate) fn take_outdated(
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
                    if !are_all {
                        break;
                    }
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

    /// Removes and returns at most `count` watchers of the lock of `key`; the caller answers them. If others are left,
    /// the lock is checked again soon.
    pub(crate) fn dismiss(&mut self, key: Key<'_>, count: usize) -> Vec<WaiterId> {
        let watched = self.locks.get(key);
        let gone: Vec<_> = watched.into_iter().flat_map(BTreeMap::values).flatten().take(count).copied().collect();
        for &id in &gone {
            self.leave(id);
        }
        self.wake(key);
        gone
    }

    /// Removes and returns the watcher whose time ended first, if it is over at `now`.
    pub(crate) fn take_timed_out(&mut self, now: BootTime) -> Option<WaiterId> {
        let &(_, id) = self.timeouts.first().filter(|(until, _)| now > *until)?;
        self.leave(id);
        Some(id)
    }

    /// Notes that the lock of `key` may have changed, so that its watchers are checked.
    #[inline]
    pub(crate) fn wake(&mut self, key: Key<'_>) {
        // This comes first because mostly nobody watches anything.
        if !self.is_empty() {
            self.locks.wake_at(key, BootTime::default());
        }
    }

    /// Notes that every lock may have changed, so that all watchers are checked.
    pub(crate) fn wake_all(&mut self) {
        self.locks.wake_all();
    }

    /// Removes the planned check that has been due longest at `now`, and returns the database and the name of its lock.
    pub(crate) fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        self.locks.pop_due(now)
    }

    /// Returns the time of the next check of a lock, or of the end of a watcher's time if that is earlier.
    pub fn next_due(&self) -> Option<BootTime> {
        if self.is_empty() {
            return None;
        }
        let timeout = self.timeouts.first().map(|(until, _)| until.plus_us(1));
        self.locks.next_due().into_iter().chain(timeout).min()
    }

    /// Plans a check of the lock of `key` right after `end`, when the lease that watchers know ends.
    fn plan(&mut self, key: Key<'_>, end: BootTime) {
        if end < BootTime::MAX {
            self.locks.wake_at(key, end.plus_us(1));
        }
    }
}
