//! What a node has promised so far, kept apart from the node: grants and told turns, by the plainest reading of the
//! contract. Each call says what the node did and panics if it must not have.

use std::collections::BTreeMap;

use palisade_core::{BootTime, Lock, Token};

/// A database and one of the few names of keys.
pub type Place = (u32, u8);

/// A grant that somebody may rely on.
#[derive(Clone, Debug)]
struct Grant {
    owner: Vec<u8>,
    token: Token,
    holds: u32,
    deadline: BootTime,
    /// It is in no key any more, without its holder's knowing.
    dropped: bool,
}

/// A free lock that is kept for one who was told.
#[derive(Debug)]
struct Told {
    owner: Vec<u8>,
    until: BootTime,
}

/// The promises of a node.
#[derive(Debug, Default)]
pub struct Oracle {
    grants: BTreeMap<Place, Grant>,
    told: BTreeMap<Place, Told>,
    /// By name, in whatever database: the largest token that it ever had.
    largest: BTreeMap<u8, Token>,
}

impl Oracle {
    /// `lock` was granted at `now`, by a node that is not `guarded`.
    pub fn granted(&mut self, place: Place, lock: &Lock, now: BootTime, guarded: bool) {
        assert!(!guarded, "granted while guarded");
        if let Some(grant) = self.grants.get(&place).filter(|grant| now <= grant.deadline) {
            assert!(
                grant.dropped && *grant.owner == *lock.first().owner(),
                "{place:?} is still held: {grant:?}, then {lock:?}"
            );
        }
        if let Some(told) = self.told.remove(&place).filter(|told| now <= told.until) {
            assert_eq!(*told.owner, *lock.first().owner(), "{place:?} is kept for another");
        }
        let largest = self.largest.get(&place.1);
        assert!(largest.is_none_or(|largest| lock.first().token() > *largest), "{lock:?} after {largest:?}");
        assert_eq!((lock.first().holds(), lock.first().deadline()), (1, now.plus_ms(lock.first().ttl_ms())));
        self.holds(place, lock);
    }

    /// The key holds `lock` now, by grant or from elsewhere.
    pub fn holds(&mut self, place: Place, lock: &Lock) {
        let largest = self.largest.entry(place.1).or_insert(lock.first().token());
        *largest = lock.first().token().max(*largest);
        let (owner, token, holds, deadline) =
            (lock.first().owner().to_vec(), lock.first().token(), lock.first().holds(), lock.first().deadline());
        self.grants.insert(place, Grant { owner, token, holds, deadline, dropped: false });
    }

    /// Its owner had `lock` changed in place: prolonged, re-entered, fenced, or some holds given back.
    pub fn changed(&mut self, place: Place, lock: &Lock) {
        let grant = self.grants.get_mut(&place).expect("only what is held is changed");
        assert_eq!(*grant.owner, *lock.first().owner());
        assert!(lock.first().deadline() >= grant.deadline, "{grant:?} got shorter: {lock:?}");
        assert!(lock.first().token() >= grant.token, "{grant:?} got a smaller token: {lock:?}");
        self.holds(place, lock);
    }

    /// The lock ended by somebody's word.
    pub fn ended(&mut self, place: Place) {
        self.grants.remove(&place);
    }

    /// The lock is in its key no more, and its holder does not know.
    pub fn dropped(&mut self, place: Place) {
        if let Some(grant) = self.grants.get_mut(&place) {
            grant.dropped = true;
        }
    }

    /// An operator's word that nobody relies on what was dropped.
    pub fn nothing_was_dropped(&mut self) {
        self.grants.retain(|_, grant| !grant.dropped);
    }

    /// Two databases changed places, and their locks with them. What was dropped stays where it was missed.
    pub fn swapped(&mut self, one: u32, other: u32) {
        let (stay, go): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.grants).into_iter().partition(|(_, grant)| grant.dropped);
        let of = |db| match db {
            db if db == one => other,
            db if db == other => one,
            db => db,
        };
        let moved = go.into_iter().map(|((db, name), grant)| ((of(db), name), grant));
        self.grants = stay.into_iter().chain(moved).collect();
    }

    /// `owner` was told that the lock is free, and kept so until `until`.
    pub fn told(&mut self, place: Place, owner: &[u8], until: BootTime) {
        self.told.insert(place, Told { owner: owner.to_vec(), until });
    }

    /// `owner` takes back what it waits for.
    pub fn took_back(&mut self, place: Place, owner: &[u8]) {
        if self.told.get(&place).is_some_and(|told| told.owner == owner) {
            self.told.remove(&place);
        }
    }

    /// The lock is kept for nobody any more.
    pub fn nobody_is_told(&mut self, place: Place) {
        self.told.remove(&place);
    }

    /// Whether the lock is kept for somebody at `now`.
    pub fn is_kept(&self, place: Place, now: BootTime) -> bool {
        self.told.get(&place).is_some_and(|told| now <= told.until)
    }

    /// What a resource that asks about `token` must hear of a lock that the node vouches for.
    pub fn left_ms(&self, place: Place, token: Token, now: BootTime) -> Option<u64> {
        let grant = self.grants.get(&place).filter(|grant| !grant.dropped && now <= grant.deadline)?;
        (grant.token == token).then(|| grant.deadline.ms_since(now))
    }

    /// The keys hold exactly what was granted and has not ended.
    pub fn is_kept_by(&self, locks: &BTreeMap<Place, Lock>, now: BootTime) {
        for (place, lock) in locks.iter().filter(|(_, lock)| !lock.is_expired(now)) {
            let grant = &self.grants[place];
            let promised = (&*grant.owner, grant.token, grant.holds, grant.deadline, grant.dropped);
            assert_eq!(
                (lock.first().owner(), lock.first().token(), lock.first().holds(), lock.first().deadline(), false),
                promised,
                "{place:?}"
            );
        }
        for (place, grant) in self.grants.iter().filter(|(_, grant)| !grant.dropped && now <= grant.deadline) {
            assert!(locks.contains_key(place), "{place:?} lost {grant:?}");
        }
    }
}
