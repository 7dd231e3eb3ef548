//! What a server does around the rules, in memory: it stores and deletes locks, lets requests wait, and looks after what
//! is due.

use std::collections::BTreeMap;

use palisade_core::record::{Arrival, decode, encode};
use palisade_core::request::{Note, Owner, Patience, Ticket};
use palisade_core::{
    Answer, BootTime, Cause, Counters, HandedOver, Lock, Node, Now, Refusal, Waiter, WaiterId, Want, hand_over,
};

use crate::choice::Passes;
use crate::oracle::{Oracle, Place};
use crate::record::HERE;

/// When it begins.
pub const START: BootTime = BootTime::from_us(1_000_000_000);

/// What the wall clock shows then, in microseconds.
const WALL_US: u64 = 1_700_000_000_000_000;

/// Longer than every lease, wait, guard and kept-free moment, in milliseconds.
const LONG_MS: u32 = 4 * 86_400_000;

/// Most steps of the background at one moment: each thing that is due is dealt with once, and brings few new ones.
const BACKGROUND_STEPS_MAX: usize = 100_000;

/// A request that waits.
pub struct Waits {
    place: Place,
    owner: Vec<u8>,
    until: BootTime,
    /// Its owner took it back.
    taken_back: bool,
}

/// A node, its keys and those who wait.
pub struct World {
    pub node: Node,
    pub locks: BTreeMap<Place, Lock>,
    pub oracle: Oracle,
    pub boot: BootTime,
    pub wall_us: u64,
    /// A ceiling or an eviction may have stood in the way of a hand-over.
    pub hindered: bool,
    waits: BTreeMap<u64, Waits>,
    requests: u64,
}

/// The name of a key in its database.
pub fn name_of((_, name): Place) -> [u8; 1] {
    [b'k' + name]
}

fn place_of(db: u32, name: &[u8]) -> Place {
    (db, name[0] - b'k')
}

impl World {
    pub fn new(token_floor: u64, vouches_from: BootTime) -> Self {
        let mut node = Node::new(token_floor);
        node.vouches_from = vouches_from;
        Self {
            node,
            locks: BTreeMap::new(),
            oracle: Oracle::default(),
            boot: START,
            wall_us: WALL_US,
            hindered: false,
            waits: BTreeMap::new(),
            requests: 0,
        }
    }

    pub fn now(&self) -> Now {
        Now::new(self.boot, self.wall_us)
    }

    /// What a refusal must not change.
    pub fn state(&self, place: Place) -> (Option<Lock>, u64, usize, usize, Counters) {
        let node = &self.node;
        let last = node.tokens.last(&name_of(place));
        (self.locks.get(&place).cloned(), last, node.deadlines.len(), node.waiting.len(), node.counters)
    }

    pub fn is_held(&self, place: Place) -> bool {
        self.locks.get(&place).is_some_and(|lock| !lock.is_expired(self.boot))
    }

    pub fn is_held_by(&self, place: Place, owner: &[u8]) -> bool {
        self.is_held(place) && self.locks[&place].owner() == owner
    }

    /// Whether somebody waits whose time is not up.
    pub fn waits_in_time(&self, place: Place) -> bool {
        self.node.waiting.of(place.0, &name_of(place)).any(|waiter| self.boot <= waiter.until)
    }

    /// The lock was granted.
    pub fn store(&mut self, place: Place, lock: Lock) {
        let guarded = self.node.guard.armed(self.boot).is_some();
        self.oracle.granted(place, &lock, self.boot, guarded);
        assert!(lock.token().get() <= self.node.tokens.ceiling_of(&name_of(place)), "above what the disk has");
        self.put(place, lock);
    }

    fn put(&mut self, place: Place, lock: Lock) {
        let kept = self.locks.entry(place).or_insert_with(|| lock.clone());
        kept.replace(lock);
        self.node.deadlines.watch(place.0, &name_of(place), kept);
    }

    /// The lock ends by a command or by time: it passes on, or goes.
    pub fn end(&mut self, place: Place) {
        self.oracle.ended(place);
        if !self.pass(place, true) {
            self.take(place);
        }
    }

    /// Somebody deletes the key: its queue is looked at afterwards.
    pub fn unlink(&mut self, place: Place) -> Option<Lock> {
        let lock = self.take(place)?;
        self.oracle.ended(place);
        self.node.waiting.look_at(place.0, &name_of(place), BootTime::default());
        Some(lock)
    }

    fn take(&mut self, place: Place) -> Option<Lock> {
        let mut lock = self.locks.remove(&place)?;
        self.node.deadlines.forget(place.0, &mut lock);
        Some(lock)
    }

    pub fn rename(&mut self, from: Place, to: Place) {
        if from == to {
            return;
        }
        let Some(lock) = self.unlink(from) else { return };
        self.arrives(to, lock);
    }

    pub fn restore(&mut self, from: Place, to: Place) {
        let (Some(lock), now) = (self.locks.get(&from), self.now()) else { return };
        let mut payload = Vec::new();
        encode(lock, now.boot, HERE, &mut payload);
        let mut lock = decode(&payload, Arrival::Payload, now.boot, HERE).expect("what is written is read");
        if self.node.tokens.plausible(&name_of(to), lock.token(), now.wall_us, self.node.skew_ms) {
            lock.mark_suspect();
            self.arrives(to, lock);
        }
    }

    fn arrives(&mut self, place: Place, lock: Lock) {
        self.unlink(place);
        self.node.tokens.learn(&name_of(place), lock.token());
        self.oracle.holds(place, &lock);
        self.put(place, lock);
    }

    pub fn evict(&mut self, place: Place) {
        let Some(lock) = self.take(place) else { return };
        self.node.waiting.look_at(place.0, &name_of(place), BootTime::default());
        self.node.evicted.note(place.0, &name_of(place), &lock);
        self.oracle.dropped(place);
        self.hindered = true;
    }

    pub fn flush(&mut self, db: Option<u32>) {
        let detached = self.node.deadlines.detach(db);
        let flushed: Vec<Place> =
            self.locks.keys().copied().filter(|place| db.is_none_or(|db| db == place.0)).collect();
        assert_eq!(detached.len(), flushed.len());
        for place in flushed {
            // A server empties databases without unlinking: the entry is gone already.
            self.locks.remove(&place);
            self.oracle.dropped(place);
        }
        if let Some(last) = detached.last().filter(|last| self.boot <= *last) {
            self.node.guard.arm(Cause::Flush, self.boot, last);
        }
        self.node.waiting.look_at_all();
    }

    pub fn swap(&mut self) {
        self.node.deadlines.swap(0, 1);
        let locks = std::mem::take(&mut self.locks);
        self.locks = locks.into_iter().map(|((db, name), lock)| ((1 - db, name), lock)).collect();
        self.oracle.swapped(0, 1);
        self.node.waiting.look_at_all();
        // What was evicted stays barred under its old database.
        self.hindered |= !self.node.evicted.is_empty();
    }

    pub fn join(
        &mut self,
        place: Place,
        owner: Owner<'_>,
        note: Note<'_>,
        want: Want,
        patience: Patience,
        ticket: Option<Ticket>,
    ) {
        self.requests += 1;
        let waiter = Waiter::new(WaiterId(self.requests), owner, note, want, self.boot, patience.ms());
        assert!(patience.ms() > 0 && self.node.waiting.len() < self.node.waiting.max as usize);
        let (until, taken_back) = (waiter.until, false);
        self.waits.insert(self.requests, Waits { place, owner: owner.bytes().to_vec(), until, taken_back });
        self.node.waiting.join(place.0, &name_of(place), waiter, ticket);
        if !self.is_held(place) || self.is_held_by(place, owner.bytes()) {
            self.node.waiting.look_at(place.0, &name_of(place), self.boot);
        }
    }

    pub fn leave(&mut self, which: u8) {
        let Some(&id) = self.waits.keys().nth(usize::from(which) % self.waits.len().max(1)) else { return };
        self.waits.remove(&id);
        assert!(self.node.waiting.leave(WaiterId(id)).is_some());
        assert!(self.node.waiting.leave(WaiterId(id)).is_none());
    }

    pub fn take_back(&mut self, place: Place, owner: &[u8]) {
        self.oracle.took_back(place, owner);
        let own = self.waits.values_mut().filter(|waits| waits.place == place && waits.owner == owner);
        own.for_each(|waits| waits.taken_back = true);
    }

    pub fn tell(&mut self, place: Place, owner: &[u8]) {
        self.oracle.told(place, owner, self.boot.plus_ms(self.node.waiting.handoff_window_ms));
    }

    /// If the lock is free and somebody waits for it, it passes on.
    pub fn serve(&mut self, place: Place) {
        if self.node.waiting.has_queue(place.0, &name_of(place)) {
            if self.locks.get(&place).is_some_and(|lock| lock.is_expired(self.boot)) {
                self.end(place);
            } else {
                self.pass(place, false);
            }
        }
    }

    fn pass(&mut self, place: Place, ended: bool) -> bool {
        let (db, name) = (place.0, name_of(place));
        let held = if ended { None } else { self.locks.get_mut(&place) };
        match hand_over(db, &name, held, &mut self.node, Now::new(self.boot, self.wall_us)) {
            Ok(HandedOver::Granted(lock)) => {
                self.store(place, lock);
                true
            }
            Ok(HandedOver::Free | HandedOver::Held) => false,
            Err(refusal) => {
                self.hindered |= refusal == Refusal::NotYet;
                self.node.waiting.put_off(db, &name, refusal, self.boot);
                false
            }
        }
    }

    pub fn passes(&mut self, time: Passes, paused: bool) {
        self.boot = match time {
            Passes::Microseconds(us) => self.boot.plus_us(us.into()),
            Passes::Milliseconds(ms) => self.boot.plus_ms(ms.into()),
            Passes::Minutes(minutes) => self.boot.plus_ms(u32::from(minutes) * 60_000),
            Passes::ToNextDue(us) => {
                self.node.next_due().unwrap_or(self.boot).max(self.boot).plus_us(u64::from(us % 4))
            }
        };
        self.background(paused);
    }

    /// Does what is due; writes nothing while writes are paused.
    fn background(&mut self, paused: bool) {
        self.node.evicted.sweep(self.boot);
        for step in 0.. {
            assert!(step < BACKGROUND_STEPS_MAX, "the background never gets done");
            if self.node.waiting.time_out(self.boot) {
                continue;
            }
            if paused {
                return;
            }
            if let Some((db, name)) = self.node.waiting.pop_due(self.boot) {
                self.serve(place_of(db, &name));
            } else if let Some(due) = self.node.deadlines.pop_due(self.boot) {
                let place = place_of(due.db, &due.name);
                let lock = self.locks.get(&place).expect("every entry is of a lock");
                assert!(due.is_of(lock) && lock.is_expired(self.boot));
                self.end(place);
            } else {
                break;
            }
        }
        self.deliver();
        self.nobody_waits_for_what_is_free();
    }

    /// Sends the answers; each request gets one.
    pub fn deliver(&mut self) {
        for (WaiterId(id), answer) in self.node.waiting.take_answers() {
            let waits = self.waits.remove(&id).expect("one answer to a request that waits");
            let Waits { place, owner, until, taken_back } = waits;
            match answer {
                Answer::Granted { token, .. } => {
                    assert!(self.is_held_by(place, &owner) && self.locks[&place].token() == token);
                }
                Answer::Turn if !self.is_held_by(place, &owner) => {
                    assert!(!self.is_held(place) && self.boot <= until);
                    self.tell(place, &owner);
                }
                Answer::Turn => {}
                Answer::InVain(_) => assert!(self.boot > until || taken_back, "{owner:?} was to wait until {until:?}"),
                Answer::Refused(refusal) => assert!(!refusal.to_string().is_empty()),
            }
        }
    }

    fn nobody_waits_for_what_is_free(&self) {
        // Who waits for the end of the guard is served up to a millisecond after it.
        let just_now = BootTime::from_us(self.boot.as_us() - 1_000);
        if self.hindered || self.node.guard.armed(just_now).is_some() {
            return;
        }
        for waits in self.waits.values() {
            let place = waits.place;
            let kept = self.oracle.is_kept(place, self.boot);
            assert!(self.is_held(place) || kept, "{:?} waits for {place:?}, which is free", waits.owner);
        }
    }

    /// The invariants that hold between two steps.
    pub fn is_sound(&self) {
        self.oracle.is_kept_by(&self.locks, self.boot);
        let mut watched: Vec<Place> = self.node.deadlines.names().map(|(db, name)| place_of(db, name)).collect();
        watched.sort_unstable();
        assert!(watched.iter().eq(self.locks.keys()), "one entry a lock: {watched:?}");
        assert_eq!(self.node.deadlines.earliest(), self.locks.values().map(Lock::deadline).min());
        assert_eq!(self.node.waiting.len(), self.waits.len(), "as many wait as were let wait and not answered");
        if let Some(until) = self.waits.values().map(|waits| waits.until).min() {
            assert!(
                self.node.next_due().is_some_and(|due| due <= until.plus_us(1)),
                "nobody looks after those who wait"
            );
        }
        for (place, lock) in &self.locks {
            assert!(lock.token().get() <= self.node.tokens.last(&name_of(*place)));
        }
    }

    /// In the end nothing is left: every request is answered, every lease over, every table empty.
    pub fn ends(&mut self) {
        self.boot = self.boot.plus_ms(LONG_MS);
        self.background(false);
        // A ceiling that is too low is tried again a moment later.
        self.boot = self.boot.plus_ms(LONG_MS);
        self.background(false);
        self.is_sound();
        assert!(self.waits.is_empty() && self.locks.is_empty(), "nobody waits, nothing is held");
        assert!(self.node.waiting.is_empty() && self.node.evicted.is_empty());
        assert_eq!(self.node.next_due(), None);
    }
}
