//! A server in memory: its keys, its clients, its clocks, and the work that becomes due as time passes.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::engine::{Key, Request, Work};
use palisade_core::limits::{LOG_LEN_DEFAULT, RETRY_HAND_OVER_MS};
use palisade_core::{
    Answer, Beginning, BootTime, Counters, Deadlines, Found, GuardPolicy, Lock, LocksDigest, Node, Now, Start, Tokens,
    WaiterId,
};

use crate::choice::Passes;
use crate::clients::{Keeping, Waits, Watcher};
use crate::disk::Disk;
use crate::oracle::{Oracle, Place, grant_of};

/// The boot clock when the world begins.
pub const START: BootTime = BootTime::from_us(1_000_000_000);

/// The wall clock when the world begins, in microseconds.
const WALL_US: u64 = 1_700_000_000_000_000;

/// A time longer than every lease, wait, guard and reservation, in milliseconds.
const LONG_MS: u32 = 4 * 86_400_000;

/// The most steps of background work at one moment. More mean an endless loop, because each due item is handled once
/// and creates few new ones.
const BACKGROUND_STEPS_MAX: usize = 100_000;

/// The time for which the node may have to try queues again one by one after the disk was late, in milliseconds: a
/// moment for each key.
const HINDERED_MS: u32 = 7 * RETRY_HAND_OVER_MS;

/// A lease that ends this many milliseconds or more after the node's next look may still be in an overflow list of the
/// timing wheel. Then the node may look before any lease ends, to move it to the ring.
const FAR_MS: u64 = 60_000;

/// The moment at which work that came due is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Due work is done before the next command.
    Due,
    /// Due work is done that answers no client: this pass of the event loop has answered as many clients as it may.
    AnswersNobody,
    /// Due work is left undone for now: the next command comes first.
    Late,
}

/// The state that a refusal must not change: the key's lock, the largest token of its name, the number of locks, the
/// number of waiters whose time is not over, and the counters.
pub type State = (Option<Lock>, u64, usize, usize, Counters);

/// A node, its keys and its clients.
pub struct World {
    pub node: Node,
    pub locks: BTreeMap<Place, Lock>,
    pub replicas: BTreeMap<Place, Lock>,
    pub oracle: Oracle,
    pub boot: BootTime,
    pub wall_us: u64,
    /// The disk; `None` if nothing has to be written before a promise.
    pub disk: Option<Disk>,
    /// Waiters that have no answer yet, although the node knows that their users lost the permission.
    pub forbidden: BTreeSet<WaiterId>,
    /// True once the server has said that it will never let the node grant again.
    pub was_poisoned: bool,
    pub waits: BTreeMap<u64, Waits>,
    pub watchers: BTreeMap<u64, Watcher>,
    /// The leases that are kept alive while a connection is open.
    pub keeping: Keeping,
    /// Answers that the node has given, and that are not sent yet.
    pub outbox: Vec<(WaiterId, Answer)>,
    /// The server's answers to the engine's next questions: two bits for each.
    doubts: u8,
    /// The time until which a ceiling, an eviction or a refusal of the server may keep the node from handing over.
    pub hindered: BootTime,
    pub clients: u64,
    /// True if the client of the present ACQUIRE can be blocked.
    pub may_block: bool,
    /// The place and time of the last request that waited only for the disk, not for a holder, and did not get the
    /// lock.
    pub told_at_once: Option<(Place, BootTime)>,
}

/// Returns the name of a key in its database.
pub fn name_of((_, name): Place) -> [u8; 1] {
    [b'k' + name]
}

fn place_of(Key { db, name }: Key<'_>) -> Place {
    (db, name[0] - b'k')
}

pub fn key_of(place: Place, name: &[u8]) -> Key<'_> {
    Key { db: place.0, name }
}

impl World {
    /// Creates a node without a state file, or with an empty one.
    pub fn new(token_floor: u64, trusted_since: BootTime, has_file: bool) -> Self {
        let mut node = if has_file { begun(token_floor) } else { Node::new(token_floor) };
        *node.tamper().trusted_since = trusted_since;
        let mut world = Self {
            node,
            locks: BTreeMap::new(),
            replicas: BTreeMap::new(),
            oracle: Oracle::default(),
            boot: START,
            wall_us: WALL_US,
            disk: has_file.then(Disk::default),
            forbidden: BTreeSet::new(),
            was_poisoned: false,
            waits: BTreeMap::new(),
            watchers: BTreeMap::new(),
            keeping: Keeping::default(),
            told_at_once: None,
            outbox: vec![],
            doubts: 0,
            hindered: BootTime::default(),
            clients: 0,
            may_block: true,
        };
        world.save(true);
        world
    }

    pub fn now(&self) -> Now {
        Now::new(self.boot, self.wall_us)
    }

    /// Returns the state that a refusal must not change.
    pub fn state(&self, place: Place) -> State {
        let node = &self.node;
        let last = node.tokens().last(&name_of(place));
        let names = [0, 1].into_iter().flat_map(|db| (0..3).map(move |name| (db, name)));
        let in_time = names.map(|place| self.in_time(place)).sum();
        (self.locks.get(&place).cloned(), last, node.deadlines().len(), in_time, node.counters())
    }

    /// Returns the number of waiters whose time is not over. Those whose time is over may be answered at any moment, so
    /// they are not counted.
    fn in_time(&self, place: Place) -> usize {
        self.node.waiting().of(key_of(place, &name_of(place))).filter(|waiter| self.boot <= waiter.until).count()
    }

    pub fn is_held(&self, place: Place) -> bool {
        self.locks.get(&place).is_some_and(|lock| !lock.is_expired(self.boot))
    }

    pub fn is_held_by(&self, place: Place, owner: &[u8]) -> bool {
        let own = self.locks.get(&place).and_then(|lock| grant_of(lock, owner));
        own.is_some_and(|(_, grant)| !grant.is_expired(self.boot))
    }

    /// Returns true if a request waits for the lock, and the time of its wait is not over.
    pub fn waits_in_time(&self, place: Place) -> bool {
        self.in_time(place) > 0
    }

    /// Begins to write the node's state. If that is `needed`, the node may promise nothing before it is written.
    pub fn save(&mut self, needed: bool) {
        let now = self.now();
        if let Some(disk) = &mut self.disk {
            disk.save(&mut self.node, needed, now);
        }
    }

    pub fn check_disk(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.is_looked_at(&mut self.node);
        }
    }

    /// Sets the server's answers to the engine's next questions, and may complete the write that is under way.
    pub fn wavers(&mut self, doubts: u8, disk_gets_done: bool) {
        let Some(disk) = &mut self.disk else { return };
        self.doubts = doubts;
        if disk_gets_done {
            disk.finish();
        }
    }

    /// Returns the server's answer to the engine's next question: a number from 0 to 3. Questions that can be refused
    /// are refused with 3, some also with 1.
    pub fn doubt(&mut self) -> u8 {
        let doubt = self.doubts & 3;
        self.doubts >>= 2;
        doubt
    }

    pub fn is_hindered_until(&mut self, until: BootTime) {
        self.hindered = self.hindered.max(until);
    }

    /// Notes that the node could not hand over now, so that it may have to try its queues again for some time.
    pub fn is_hindered_for_disk(&mut self) {
        self.is_hindered_until(self.boot.plus_ms(HINDERED_MS));
    }

    /// Returns true if something keeps the node from handing over, or did a moment ago.
    pub fn is_hindered(&self) -> bool {
        // A request that waits for the end of the guard is served up to a millisecond after it.
        let just_now = BootTime::from_us(self.boot.as_us() - 1_000);
        self.boot <= self.hindered || self.node.guard().armed(just_now).is_some()
    }

    pub fn passes(&mut self, time: Passes, paused: bool, timer: Timer) {
        self.boot = match time {
            Passes::Microseconds(us) => self.boot.plus_us(us.into()),
            Passes::Milliseconds(ms) => self.boot.plus_ms(ms.into()),
            Passes::Minutes(minutes) => self.boot.plus_ms(u32::from(minutes) * 60_000),
            Passes::ToNextDue(us) => {
                self.node.next_due().unwrap_or(self.boot).max(self.boot).plus_us(u64::from(us % 4))
            }
        };
        if timer == Timer::Late {
            return;
        }
        // A server asks ten times a second what is on the disk.
        self.check_disk();
        if self.node.is_write_due(self.now()) {
            self.save(false);
        }
        self.background(paused, timer == Timer::Due);
    }

    /// Does the due work. While writes are `paused` it writes nothing; without `may_answer` it hands nothing over.
    fn background(&mut self, paused: bool, may_answer: bool) {
        self.node.sweep(self.boot);
        for step in 0.. {
            assert!(step < BACKGROUND_STEPS_MAX, "the background never gets done");
            if self.node.time_out(self.boot) || self.check_watchers() {
                continue;
            }
            if paused {
                return;
            }
            match self.node.take_due(self.boot, may_answer) {
                Some(Work::Look(db, name)) => {
                    assert!(may_answer, "those who wait are served when they can be answered");
                    let looked = self.perform(place_of(Key { db, name: &name }), &Request::Look);
                    assert!(looked.answer.is_ok(), "nobody asked");
                }
                Some(Work::Renew(renewal)) => self.renew(place_of(renewal.key()), &renewal),
                Some(Work::Break(breaking)) => {
                    let place = place_of(breaking.key());
                    assert!(self.perform(place, &Request::BreakOn(&breaking)).answer.is_ok(), "nobody asked");
                }
                Some(Work::Expire(due)) => {
                    let place = place_of(due.key());
                    let lock = self.locks.get(&place).expect("every entry is of a lock");
                    assert!(due.is_of(lock) && self.boot > lock.next_end());
                    let expired = self.perform(place, &Request::Expire(&due));
                    assert!(expired.ended.is_some() || expired.left > 0, "a lease is over");
                }
                None => break,
            }
            // An answer is judged by the present state, so it is sent before that changes.
            self.deliver();
        }
        self.deliver();
        self.every_kept_lease_lasts();
        if may_answer {
            self.nobody_waits_for_what_is_free();
        }
    }

    /// Checks what a client relies on that gets a token: the lease lasts until sent + waited + ttl.
    pub fn check_lasting(&self, place: Place, owner: &[u8], from: BootTime, ttl_ms: u32) {
        let own = grant_of(&self.locks[&place], owner);
        let deadline = own.expect("who is promised something holds it").1.deadline();
        assert!(deadline >= from.plus_ms(ttl_ms), "promised for {ttl_ms} ms from {from:?}, it ends at {deadline:?}");
    }

    /// Checks the number of callers that wait inside clients, as clients report it with BEHIND. For each key it is the
    /// sum over the owners in the queue, each counted once.
    fn those_behind_are_counted(&self) {
        for (db, name) in [0, 1].into_iter().flat_map(|db| (0..3).map(move |name| (db, name_of((db, name))))) {
            let waiters = self.node.waiting().of(Key { db, name: &name });
            let behind: BTreeMap<_, _> =
                waiters.map(|waiter| (waiter.owner().bytes(), u64::from(waiter.behind.get()))).collect();
            assert_eq!(self.node.waiting().behind(Key { db, name: &name }), behind.values().sum::<u64>());
        }
    }

    /// Checks that the log is bounded, and that no period in it is longer than the time since boot.
    fn log_is_sound(&self) {
        let log = self.node.history().log();
        assert!(log.len() <= LOG_LEN_DEFAULT as usize);
        assert!(log.entries().is_sorted_by(|one, next| one.id > next.id), "the newest first");
        let age_ms = self.boot.ms_since(BootTime::default());
        assert!(log.entries().all(|entry| entry.at <= self.boot && entry.waited_ms.max(entry.held_ms) <= age_ms));
    }

    /// Checks what must be true between any two steps.
    pub fn is_sound(&self) {
        self.log_is_sound();
        self.those_behind_are_counted();
        self.oracle.is_kept_by(&self.locks, self.boot);
        let mut watched: Vec<Place> =
            self.node.deadlines().names().map(|(db, name)| place_of(Key { db, name })).collect();
        watched.sort_unstable();
        assert!(watched.iter().eq(self.locks.keys()), "one entry a lock: {watched:?}");
        self.leases_are_looked_after();
        assert_eq!(self.node.waiting().len(), self.waits.len(), "as many wait as were let wait and not answered");
        if let Some(until) = self.waits.values().map(|waits| waits.until).min() {
            assert!(
                self.node.next_due().is_some_and(|due| due <= until.plus_us(1)),
                "nobody looks after those who wait"
            );
        }
        self.no_watcher_is_forgotten();
        for (place, lock) in &self.locks {
            let last = self.node.tokens().last(&name_of(*place));
            assert!(lock.grants().all(|(_, grant)| grant.token().get() <= last));
        }
    }

    /// Checks the time at which the node next looks for ended leases: never before the first end, and soon after it, or
    /// at once. It may look earlier to move later ends to the ring of the timing wheel. (If a lock is renamed long
    /// after its end, while writes are paused, it is due at once.)
    fn leases_are_looked_after(&self) {
        let first = self.locks.values().map(Lock::next_end).min();
        let earliest = self.node.deadlines().earliest();
        assert_eq!(earliest.is_some(), first.is_some());
        let (Some(first), Some(earliest)) = (first, earliest) else { return };
        let is_in_time = earliest >= first && (earliest.us_since(first) <= Deadlines::LATE_US || earliest <= self.boot);
        let is_far = |lock: &Lock| lock.next_end().ms_since(earliest) >= FAR_MS;
        let is_to_sort = earliest < first && self.locks.values().any(is_far);
        assert!(is_in_time || is_to_sort, "{earliest:?} for what ends at {first:?}");
    }

    /// Ends the run. Checks that nothing is left: every request is answered, every lease is over, and every table is
    /// empty.
    pub fn end(&mut self) {
        self.nothing_hinders();
        self.boot = self.boot.plus_ms(LONG_MS);
        self.background(false, true);
        // If a ceiling is too low, the node tries again a moment later.
        self.boot = self.boot.plus_ms(LONG_MS);
        self.background(false, true);
        self.is_sound();
        self.check_kept();
        assert!(self.node.keepalives().is_empty(), "nothing is kept that nobody has");
        assert!(
            self.waits.is_empty() && self.watchers.is_empty() && self.locks.is_empty(),
            "nobody waits, nothing is held"
        );
        assert!(self.node.waiting().is_empty() && self.node.evicted().is_empty());
        assert_eq!(self.node.next_due(), None);
    }

    /// Removes every obstacle: the disk is up to date from now on, and the server lets the node grant. After this a
    /// request that still waits is waiting for a holder.
    fn nothing_hinders(&mut self) {
        self.doubts = 0;
        if let Some(disk) = &mut self.disk {
            disk.is_taken = false;
        } else {
            self.node.tamper().tokens.set_ceiling(u64::MAX);
        }
        for _ in 0..2 * HINDERED_MS / RETRY_HAND_OVER_MS {
            if let Some(disk) = &mut self.disk {
                disk.finish();
            }
            self.passes(Passes::Milliseconds(RETRY_HAND_OVER_MS as u16 + 1), false, Timer::Due);
        }
        if self.node.evicted().is_empty() {
            self.hindered = BootTime::default();
        }
        self.nobody_waits_for_what_is_free();
        assert!(self.node.ready(self.boot).is_ok() || self.node.guard().armed(self.boot).is_some());
    }
}

/// Creates an incarnation that knows of no earlier one, as the first of a node does.
fn begun(token_floor: u64) -> Node {
    let found = Found::default();
    let node = Node::new(token_floor);
    let beginning = Beginning {
        last: None,
        found: &found,
        has_file: true,
        new_id: 7,
        boot: Disk::BOOT,
        max_ttl_ms: palisade_core::limits::MAX_TTL_DEFAULT_MS,
        skew_ms: node.skew_ms(),
        is_master: true,
    };
    let mut node = Node::begin(&beginning, Tokens::new(token_floor), START);
    let loaded = LocksDigest::default();
    let start = Start { last: None, found: &found, loaded, from_aof: false, boot: Disk::BOOT };
    node.judge(&start, GuardPolicy::Never, START);
    node
}
