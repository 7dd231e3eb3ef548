//! The state of the owners that this process acts for.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify};

use super::delivery::Delivery;
use super::told::Told;
use crate::Guard;

/// Least number of slots, the states of owners, that are added before unused ones are removed again.
const SWEPT_LEAST: usize = 1_024;

/// Most grants of one owner of a lock whose tokens are remembered beside the one that is held. An owner has several at once
/// only if it reads by several processes.
const FORMER_MOST: usize = 8;

/// A lock and the name of an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub key: Arc<[u8]>,
    pub owner: Arc<[u8]>,
}

/// The number of a connection that keeps leases extended while it lasts (KEEPALIVE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keeper(pub u64);

/// The state of one owner of one lock. The owner's requests run one after the other, except those that wait.
#[derive(Debug, Default)]
pub struct Slot {
    /// The lock that the owner holds; `None` if it holds none, as far as this process knows.
    pub held: AsyncMutex<Option<Holding>>,
    /// Notified to end the waiting requests of this owner.
    pub gives_up: Notify,
    /// The last grants that ended as far as this process knows, that made room for another one of this owner, or that a
    /// request did not name. The owner may go on with them at another process.
    former: Mutex<VecDeque<Former>>,
}

/// A grant whose tokens are remembered.
#[derive(Debug)]
struct Former {
    attempt: Arc<[u8]>,
    told: Told,
}

impl Slot {
    /// Returns the lock that the owner holds, once no other request of this owner uses the slot. A lost one is none.
    pub async fn held(&self) -> AsyncMutexGuard<'_, Option<Holding>> {
        let mut held = self.held.lock().await;
        if let Some(lost) = held.take_if(|held| held.guard.is_lost()) {
            self.remember(&lost);
        }
        held
    }

    /// Remembers the tokens of a grant that may go on, until the grant is found again.
    pub fn remember(&self, lost: &Holding) {
        let attempt = Arc::clone(&lost.guard.lease().owner);
        let mut former = self.former();
        former.retain(|former| former.attempt != attempt);
        former.truncate(FORMER_MOST - 1);
        former.push_front(Former { attempt, told: lost.told.clone() });
    }

    /// Returns the remembered grant that the owner knows by this token.
    pub fn known_by(&self, token: u64) -> Option<Arc<[u8]>> {
        let former = self.former();
        former.iter().find(|former| former.told.has(token)).map(|former| Arc::clone(&former.attempt))
    }

    /// Returns whether `token` is certainly not of the grant of this attempt.
    pub fn rules_out(&self, attempt: &[u8], token: u64) -> bool {
        self.former().iter().any(|former| *former.attempt == *attempt && former.told.rules_out(token))
    }

    /// Adds the remembered tokens to the grant that was found. If the owner holds none, forgets them all.
    pub fn recall(&self, found: Option<&mut Holding>) {
        let mut former = self.former();
        let Some(found) = found else { return former.clear() };
        let attempt = Arc::clone(&found.guard.lease().owner);
        former.iter().filter(|former| former.attempt == attempt).for_each(|former| found.told.merge(&former.told));
        former.retain(|former| former.attempt != attempt);
    }

    fn former(&self) -> MutexGuard<'_, VecDeque<Former>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that an owner holds.
#[derive(Debug)]
pub struct Holding {
    pub guard: Guard,
    pub holds: u32,
    /// The sequence number of the lock's note.
    pub sequence: u64,
    pub told: Told,
    pub keeper: Option<Keeper>,
    /// True once a request of the owner has changed the lock, or found it on the nodes. Then the lock stays even if no
    /// caller has received the grant.
    pub is_used: bool,
    /// The lock's delivery, as long as no caller has received the lock.
    pub delivery: Weak<Delivery>,
}

impl Holding {
    /// Returns the lock's delivery, for one more request that is granted the lock. `None` if a caller has received the
    /// lock, or the delivery has just failed: then the lock is not released either, because it is used.
    pub fn delivery_under_way(&mut self) -> Option<Arc<Delivery>> {
        let under_way = self.delivery.upgrade();
        self.is_used |= under_way.is_none();
        under_way
    }

    /// Returns whether this is the grant with this token; true if no token is named.
    pub fn is(&self, token: Option<u64>) -> bool {
        token.is_none_or(|token| self.told.has(token) || self.guard.token() == token)
    }

    /// Records that the owner receives the current token, and returns that token.
    pub fn give_token(&mut self) -> u64 {
        let token = self.guard.token();
        self.told.add(&[token]);
        token
    }
}

/// The owners that this process acts for.
#[derive(Debug, Default)]
pub struct Table {
    slots: Mutex<Slots>,
    /// For each connection that keeps leases extended: the locks that it keeps, or has kept.
    kept: Mutex<HashMap<Keeper, HashSet<Id>>>,
}

/// The slots: one for each owner of a lock, with that owner's state. They are sorted by key, then by owner.
#[derive(Debug, Default)]
struct Slots {
    by_id: BTreeMap<Id, Arc<Slot>>,
    /// Once there are this many slots, unused ones are removed.
    many: usize,
}

impl Table {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slot, the state of this owner of a lock; creates it if there is none.
    pub fn slot(&self, id: &Id) -> Arc<Slot> {
        let mut slots = self.slots();
        // Leases end without notice, so unused slots are removed now and then. Doing so on every call would scan all
        // slots each time.
        if slots.by_id.len() >= slots.many {
            slots.by_id.retain(|_, slot| is_used(slot));
            slots.many = slots.by_id.len() * 2 + SWEPT_LEAST;
        }
        Arc::clone(slots.by_id.entry(id.clone()).or_default())
    }

    /// Forgets this owner if nothing uses its slot any longer. A slot with tokens of a grant that may go on stays until
    /// unused slots are removed.
    pub fn forget(&self, id: &Id, slot: Arc<Slot>) {
        let mut slots = self.slots();
        drop(slot);
        if let Entry::Occupied(slot) = slots.by_id.entry(id.clone())
            && !is_used(slot.get())
            && slot.get().former().is_empty()
        {
            slot.remove();
        }
    }

    /// Returns the slot, the state, of each owner of `key`.
    pub fn of_key(&self, key: &[u8]) -> Vec<Arc<Slot>> {
        let first = Id { key: key.into(), owner: Arc::default() };
        let slots = self.slots();
        slots.by_id.range(first..).take_while(|(id, _)| *id.key == *key).map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Returns the number of locks that this process holds for owners.
    pub fn held(&self) -> usize {
        // A slot that a request is using counts as held, which it most likely is.
        let is_held = |slot: &Arc<Slot>| match slot.held.try_lock() {
            Ok(held) => held.as_ref().is_some_and(|held| !held.guard.is_lost()),
            Err(_) => true,
        };
        self.slots().by_id.values().filter(|slot| is_held(slot)).count()
    }

    /// Records that `keeper` keeps this lock.
    pub fn keep(&self, keeper: Keeper, id: &Id) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = kept.entry(keeper).or_default();
        // Locks are lost without notice, so those without a slot are removed before the set grows.
        if ids.len() == ids.capacity() {
            let slots = self.slots();
            ids.retain(|id| slots.by_id.contains_key(id));
            ids.reserve(ids.len() + 1);
        }
        ids.insert(id.clone());
    }

    /// Records that `keeper` no longer keeps this lock.
    pub fn stop_keeping(&self, keeper: Keeper, id: &Id) {
        if let Some(ids) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&keeper) {
            ids.remove(id);
        }
    }

    /// Removes a keeper that has ended, and returns the locks it kept.
    pub fn keeper_ended(&self, keeper: Keeper) -> HashSet<Id> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&keeper).unwrap_or_default()
    }

    /// Removes and returns all slots, at the end of the program.
    pub fn drain(&self) -> BTreeMap<Id, Arc<Slot>> {
        std::mem::take(&mut self.slots().by_id)
    }
}

/// Returns whether a request is using the slot, or its lock is held.
fn is_used(slot: &Arc<Slot>) -> bool {
    let is_lost = |held: &Option<Holding>| held.as_ref().is_none_or(|held| held.guard.is_lost());
    Arc::strong_count(slot) > 1 || !slot.held.try_lock().is_ok_and(|held| is_lost(&held))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection acquires one lock after the other with KEEPALIVE, and each is taken away.
    #[test]
    fn locks_that_were_lost_are_not_kept_forever() {
        let (table, keeper) = (Table::default(), Keeper(1));
        let id = |n: u32| Id { key: (*n.to_string().as_bytes()).into(), owner: (*b"me").into() };
        let held: Vec<_> = (0..10).map(|n| table.slot(&id(n))).collect();
        (0..10).for_each(|n| table.keep(keeper, &id(n)));
        for n in 10..10_000 {
            let slot = table.slot(&id(n));
            table.keep(keeper, &id(n));
            table.forget(&id(n), slot);
        }
        assert_eq!(held.len(), 10);
        let kept = table.keeper_ended(keeper);
        assert!(kept.len() < 100 && (0..10).all(|n| kept.contains(&id(n))), "{}", kept.len());
    }
}
