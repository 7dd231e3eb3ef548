//! Changes that the server and its commands make to keys. The node learns of each change while it happens.

use palisade_core::record::{Arrival, Here, decode, encode};
use palisade_core::{BootTime, Evictee, Lock};

use crate::oracle::Place;
use crate::record::HERE;
use crate::world::{World, key_of, name_of};

impl World {
    /// Deletes the key, as any client can. The node then serves its queue.
    pub fn unlink(&mut self, place: Place) -> Option<Lock> {
        let lock = self.lose(place)?;
        self.oracle.ended(place);
        self.has_left(place);
        Some(lock)
    }

    /// Removes the lock from the key as the server does, and tells the node.
    fn lose(&mut self, place: Place) -> Option<Lock> {
        self.node.record_deleted(key_of(place, &name_of(place)), self.locks.get(&place)?, self.boot);
        self.take(place)
    }

    /// Removes the lock from the key. In the node only the deadlines change.
    pub fn take(&mut self, place: Place) -> Option<Lock> {
        let mut lock = self.locks.remove(&place)?;
        self.node.cancel_expiry(key_of(place, &name_of(place)), &mut lock);
        self.replicas.remove(&place);
        Some(lock)
    }

    fn has_left(&mut self, place: Place) {
        let name = name_of(place);
        let is_known = self.node.on_lock_gone(key_of(place, &name));
        let (waits, watches) =
            (self.node.waiting().has_queue(key_of(place, &name)), self.node.watching().has(key_of(place, &name)));
        assert_eq!(is_known, waits || watches);
    }

    pub fn rename(&mut self, from: Place, to: Place) {
        if from == to {
            return;
        }
        let Some(lock) = self.unlink(from) else { return };
        self.arrive(to, lock);
    }

    pub fn restore(&mut self, from: Place, to: Place) {
        let (Some(lock), now) = (self.locks.get(&from), self.now()) else { return };
        let mut payload = Vec::new();
        encode(lock, now.boot, HERE, &mut payload);
        let mut lock = decode(&payload, Here { arrival: Arrival::Payload, now: now.boot, boot: HERE })
            .expect("what is written is read");
        let is_plausible = |token| self.node.tokens().plausible(&name_of(to), token, now.wall_us, self.node.skew_ms());
        if lock.grants().all(|(_, grant)| is_plausible(grant.token())) {
            lock.mark_suspect();
            self.arrive(to, lock);
        }
    }

    fn arrive(&mut self, place: Place, mut lock: Lock) {
        self.unlink(place);
        self.keeping.moved(|there| there == place);
        self.oracle.holds(place, &lock);
        self.node.on_lock_arrived(key_of(place, &name_of(place)), &mut lock, self.boot);
        self.locks.insert(place, lock);
        self.is_copied(place);
    }

    pub fn evict(&mut self, place: Place) {
        let Some(lock) = self.lose(place) else { return };
        self.has_left(place);
        let is_live = self.node.evict(key_of(place, &name_of(place)), Evictee::of(&lock), self.now());
        assert_eq!(is_live, self.boot <= lock.end());
        self.oracle.dropped(place);
        if is_live {
            self.is_hindered_until(lock.end().plus_ms(1));
        }
    }

    pub fn flush(&mut self, db: Option<u32>) {
        let detached = self.node.flush(db);
        let flushed: Vec<Place> =
            self.locks.keys().copied().filter(|place| db.is_none_or(|db| db == place.0)).collect();
        assert_eq!(detached.len(), flushed.len());
        let last = flushed.iter().map(|place| self.locks[place].end()).max();
        assert_eq!(detached.last(), last);
        for place in flushed {
            // A flush does not unlink keys one by one, so the entry among the deadlines is gone already.
            if let Some(lock) = self.locks.remove(&place) {
                self.node.record_flushed(key_of(place, &name_of(place)), &lock, self.boot);
            }
            self.replicas.remove(&place);
            self.oracle.dropped(place);
        }
        self.are_dropped(last);
    }

    pub fn swap(&mut self) {
        let locks = std::mem::take(&mut self.locks);
        self.locks = locks.into_iter().map(|((db, name), lock)| ((1 - db, name), lock)).collect();
        let replicas = std::mem::take(&mut self.replicas);
        self.replicas = replicas.into_iter().map(|((db, name), lock)| ((1 - db, name), lock)).collect();
        self.oracle.swapped(0, 1);
        self.keeping.moved(|_| true);
        let last = |db| self.locks.range((db, 0)..(db + 1, 0)).map(|(_, lock)| lock.end()).max();
        let lost = match [last(0), last(1)] {
            [Some(last), None] => Some((0, last)),
            [None, Some(last)] => Some((1, last)),
            _ => None,
        };
        assert_eq!(self.node.swap(0, 1), lost, "who looks for a lock where none came finds none");
        self.are_dropped(lost.map(|(_, last)| last));
    }

    /// Notes that locks were dropped whose last lease would have ended at `last`. The node must grant nothing until
    /// then.
    fn are_dropped(&mut self, last: Option<BootTime>) {
        let Some(last) = last else { return };
        let is_live = self.node.on_dropped(last, self.boot);
        assert_eq!(is_live, self.boot <= last);
        if is_live {
            assert!(self.node.guard().armed(last).is_some(), "somebody may hold one of them until {last:?}");
            self.save(true);
        }
    }
}
