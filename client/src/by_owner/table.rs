//! What this process knows of the owners that it speaks for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::Guard;

/// Fewer owners than this are not looked through for those that hold nothing any more.
const SWEPT_LEAST: usize = 1_024;

/// A lock and the name of an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub key: Arc<[u8]>,
    pub owner: Arc<[u8]>,
}

/// Whose connection a lease lasts as long as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keeper(pub u64);

/// What is known of one owner of one lock. Its requests are done one after the other, but for those that wait.
#[derive(Debug, Default)]
pub struct Slot {
    /// What it holds.
    pub held: AsyncMutex<Option<Holding>>,
    /// Those of its requests that wait end.
    pub gives_up: Notify,
}

/// A lock that an owner holds.
#[derive(Debug)]
pub struct Holding {
    pub guard: Guard,
    pub holds: u32,
    /// The number of its note.
    pub sequence: u64,
    /// The tokens that its owner was told, or may have been told by another process: it may have risen since.
    pub told: Vec<u64>,
    pub keeper: Option<Keeper>,
}

impl Holding {
    /// Whether it is the grant with this token, if one is named.
    pub fn is(&self, token: Option<u64>) -> bool {
        token.is_none_or(|token| self.told.contains(&token) || self.guard.token() == token)
    }

    /// Its owner is told its token, which this returns.
    pub fn tell(&mut self) -> u64 {
        let token = self.guard.token();
        self.may_be_told(&[token]);
        token
    }

    /// Its owner may have been told these by another process.
    pub fn may_be_told(&mut self, tokens: &[u64]) {
        self.told.extend(tokens);
        self.told.sort_unstable();
        self.told.dedup();
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Table {
    slots: Mutex<Slots>,
    /// What each keeper keeps, or has kept.
    kept: Mutex<HashMap<Keeper, HashSet<Id>>>,
}

/// By key, then by owner.
#[derive(Debug, Default)]
struct Slots {
    by_id: BTreeMap<Id, Arc<Slot>>,
    /// When there are so many, those that are not used are looked for.
    many: usize,
}

impl Table {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of this owner.
    pub fn slot(&self, id: &Id) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = slots.by_id.get(id) {
            return Arc::clone(slot);
        }
        // Leases end without a word. Not at each one: every time it would look at all of them.
        if slots.by_id.len() >= slots.many {
            slots.by_id.retain(|_, slot| is_used(slot));
            slots.many = slots.by_id.len() * 2 + SWEPT_LEAST;
        }
        Arc::clone(slots.by_id.entry(id.clone()).or_default())
    }

    /// Forgets this owner, if there is nothing to know.
    pub fn forget(&self, id: &Id, slot: Arc<Slot>) {
        let mut slots = self.slots();
        drop(slot);
        if slots.by_id.get(id).is_some_and(|slot| !is_used(slot)) {
            slots.by_id.remove(id);
        }
    }

    /// All owners of `key`.
    pub fn of_key(&self, key: &[u8]) -> Vec<Arc<Slot>> {
        let first = Id { key: key.into(), owner: Arc::default() };
        let slots = self.slots();
        slots.by_id.range(first..).take_while(|(id, _)| *id.key == *key).map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// How many locks are held.
    pub fn held(&self) -> usize {
        // One that is being worked on is most likely held.
        let is_held = |slot: &Arc<Slot>| match slot.held.try_lock() {
            Ok(held) => held.as_ref().is_some_and(|held| !held.guard.is_lost()),
            Err(_) => true,
        };
        self.slots().by_id.values().filter(|slot| is_held(slot)).count()
    }

    /// `keeper` keeps this from now on.
    pub fn keeps(&self, keeper: Keeper, id: &Id) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).entry(keeper).or_default().insert(id.clone());
    }

    /// `keeper` does not keep this any more.
    pub fn keeps_no_more(&self, keeper: Keeper, id: &Id) {
        if let Some(ids) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&keeper) {
            ids.remove(id);
        }
    }

    /// `keeper` has ended; what it kept.
    pub fn keeper_ended(&self, keeper: Keeper) -> HashSet<Id> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&keeper).unwrap_or_default()
    }

    /// Everything, and nothing is known any more.
    pub fn drain(&self) -> Vec<Arc<Slot>> {
        std::mem::take(&mut self.slots().by_id).into_values().collect()
    }
}

/// Somebody is at work with it, or it is held.
fn is_used(slot: &Arc<Slot>) -> bool {
    let is_lost = |held: &Option<Holding>| held.as_ref().is_none_or(|held| held.guard.is_lost());
    Arc::strong_count(slot) > 1 || !slot.held.try_lock().is_ok_and(|held| is_lost(&held))
}
