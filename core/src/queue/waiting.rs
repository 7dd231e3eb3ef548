//! All waiting requests of a node: one queue for each key, bounded together.
//!
//! A queue belongs to a database and a name, whatever the key holds: it never moves. The outcome of a request is an
//! [`Answer`], kept until the driver takes and sends it. No request is forgotten: it has a place in one queue, and a
//! moment at which its wait ends. As long as a lock is free and has a queue, a check of that queue is planned.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::history::times::Times;
use crate::lock::modes::Modes;
use crate::queue::of_key::{Place, Queue, Search, Waiter, WaiterId, Want};
use crate::queue::planned::Planned;
use crate::queue::shares::{Load, Loads};
use crate::refusal::Refusal;
use crate::request::{Owner, Ticket, Ttl};
use crate::values::key::Key;
use crate::values::limits::{HANDOFF_WINDOW_DEFAULT_MS, OWNER_REQUESTS_MAX, UNUSED_TURNS_MAX};
use crate::values::mode::{Mode, Wanted};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The number of entries up to which an emptied list keeps its memory.
const SPARE_ENTRIES: usize = 1_024;

/// The outcome of a waiting request, as its client receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The owner was granted the lock.
    Granted {
        /// The token of the grant.
        token: Token,
        /// The number of the permit; 0 for another mode.
        number: u16,
        /// The time waited, in milliseconds, rounded down: the lease began this long after the request arrived.
        waited_ms: u64,
        /// The time at which the grant began: before this lease, if the owner had the lock already.
        granted: BootTime,
    },
    /// The owner's turn has come: the lock is free, and reserved for the owner for a short time. The number is that of
    /// the permit; 0 for another mode.
    Turn(u16),
    /// For a BREAK that takes several slices: all grants with this token have ended.
    Broken(Token),
    /// The wait failed, because its time is over or its owner withdrew it.
    TimedOut(Want),
    /// The request was refused, for this reason.
    Refused(Refusal),
}

/// The queues of a node, and the answers that are still to be sent.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The queue of each lock that has one; none is empty.
    pub(super) queues: Planned<Queue>,
    pub(super) places: BTreeMap<WaiterId, (u32, Arc<[u8]>, Place)>,
    pub(super) timeouts: BTreeSet<(BootTime, WaiterId)>,
    /// The time before which the node checks no queue: at the last check it could not grant.
    pub(super) not_before: BootTime,
    /// While the disk keeps the node from granting: the number of this period. 0 if it does not.
    pub(super) disk_wait: u64,
    disk_waits: u64,
    /// The load (places and bytes) of the waiting requests and of the turns that have a reservation, by user.
    pub(super) loads: Loads,
    pub(super) turns: Load,
    pub(super) arrivals: u64,
    /// While all requests are being dismissed: the number of the last arrival to dismiss, and the entry in `timeouts`
    /// up to which requests were dismissed.
    pub(super) to_send_away: Option<(u64, (BootTime, WaiterId))>,
    pub(super) answers: BTreeMap<WaiterId, Answer>,
    /// The requests whose answers are to be sent, in order. An entry without an answer belongs to a client that is
    /// gone.
    pub(super) answered: VecDeque<WaiterId>,
    /// The length of a reservation: `lock.handoff-window`, in milliseconds.
    pub handoff_window_ms: u32,
    /// After this number of unused turns in a row, the request that has waited longest is next: see
    /// [`UNUSED_TURNS_MAX`].
    pub(crate) unused_turns_max: u32,
    /// The largest number of requests that have waited at one time, for INFO.
    most: usize,
    pub(super) timeouts_ever: u64,
    /// The times that served requests had waited, for INFO.
    pub waits: Times,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            queues: Planned::default(),
            places: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            not_before: BootTime::default(),
            disk_wait: 0,
            disk_waits: 0,
            loads: Loads::default(),
            turns: Load::NONE,
            arrivals: 0,
            to_send_away: None,
            answers: BTreeMap::new(),
            answered: VecDeque::new(),
            handoff_window_ms: HANDOFF_WINDOW_DEFAULT_MS,
            unused_turns_max: UNUSED_TURNS_MAX,
            most: 0,
            timeouts_ever: 0,
            waits: Times::default(),
        }
    }
}

impl Waiting {
    /// Notes that the disk keeps the node from handing over the lock `key`.
    pub(super) fn wait_for_disk(&mut self, key: Key<'_>) {
        if self.disk_wait == 0 {
            self.disk_waits += 1;
            self.disk_wait = self.disk_waits;
        }
        let number = self.disk_wait;
        if let Some(queue) = self.queue_mut(key) {
            queue.disk_wait = number;
        }
    }

    /// Notes that the node could hand over a lock: the disk does not keep it from that.
    pub(crate) fn on_handed_over(&mut self) {
        self.disk_wait = 0;
    }

    /// Returns whether the disk keeps the node from handing over the lock for which the request `id` waits.
    pub(super) fn awaits_disk(&self, id: WaiterId) -> bool {
        let queue = || self.places.get(&id).and_then(|(db, name, _)| self.queue(Key { db: *db, name }));
        self.disk_wait > 0 && queue().is_some_and(|queue| queue.disk_wait == self.disk_wait)
    }

    /// Returns the load (places and bytes) of the waiting requests, by user.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Returns the places and bytes that the reservations of all turns take.
    pub(crate) fn turns(&self) -> Load {
        self.turns
    }

    /// Refuses a request of `owner` if it already has the largest number of requests in the queue of `key`.
    pub fn room_for(&self, key: Key<'_>, owner: Owner<'_>) -> Result<(), Refusal> {
        let own = self.queue(key).map_or(0, |queue| queue.count_of(owner, OWNER_REQUESTS_MAX));
        if own < OWNER_REQUESTS_MAX { Ok(()) } else { Err(Refusal::OwnerQueueFull) }
    }

    /// Adds `waiter` to the queue of `key`, at the place of its `ticket`. Returns whether its owner is the first in the
    /// queue.
    pub fn join(&mut self, key: Key<'_>, waiter: Waiter, ticket: Option<Ticket>) -> bool {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let (id, until) = (waiter.id, waiter.until);
        debug_assert!(!self.places.contains_key(&id), "every request has an id of its own");
        self.loads.add(waiter.user, waiter.load(key.name));
        let (name, queue) = self.queues.reach(key);
        let place = queue.join(waiter, ticket.map(Ticket::get), arrival, &mut self.loads);
        let is_first = queue.is_owner_first(place);
        self.places.insert(id, (key.db, name, place));
        self.timeouts.insert((until, id));
        self.most = self.most.max(self.places.len());
        is_first
    }

    /// Begins to dismiss all requests that wait now, one after the other.
    pub(crate) fn dismiss_all(&mut self) {
        self.to_send_away = (!self.places.is_empty()).then(|| (self.arrivals, (BootTime::default(), WaiterId(0))));
    }

    /// Returns whether some requests may still have to be dismissed.
    pub fn is_dismissing(&self) -> bool {
        self.to_send_away.is_some()
    }

    /// Answers a client that is in no queue, but waits for the end of a BREAK that is done in slices.
    pub(crate) fn answer(&mut self, client: WaiterId, answer: Answer) {
        self.push(client, answer);
    }

    /// Removes and returns at most `count` answers, each with the id of its client; the caller sends them.
    pub fn take_answers(&mut self, count: usize) -> Vec<(WaiterId, Answer)> {
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(id) = self.answered.pop_front()
        {
            taken.extend(self.answers.remove(&id).map(|answer| (id, answer)));
        }
        taken
    }

    /// Removes and returns the answer of the request `id`, if there is one; the caller sends it.
    pub fn take_answer_of(&mut self, id: WaiterId) -> Option<Answer> {
        self.answers.remove(&id)
    }

    /// Returns whether there are answers to send.
    pub fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Plans a check of the queue of `key`, if there is one, for `when` at the latest. A check that is planned earlier
    /// stays.
    pub fn wake_at(&mut self, key: Key<'_>, when: BootTime) {
        self.queues.wake_at(key, when);
    }

    /// Makes a check of every queue due at once, because the guard was armed or lifted, or databases were emptied or
    /// swapped.
    pub fn wake_all(&mut self) {
        self.queues.wake_all();
    }

    /// Removes the planned check that has been due longest at `now`, and returns the database and the name of its
    /// queue.
    pub fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        if now < self.not_before { None } else { self.queues.pop_due(now) }
    }

    /// Returns the time of the next check of a queue, or of the end of a request's wait if that is earlier.
    pub fn next_due(&self) -> Option<BootTime> {
        if self.is_dismissing() {
            return Some(BootTime::default());
        }
        let look = self.queues.next_due().map(|when| when.max(self.not_before));
        let timeout = self.timeouts.first().map(|(until, _)| until.plus_us(1));
        look.into_iter().chain(timeout).min()
    }

    /// Returns the number of waiting requests.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether the node has neither waiting requests nor reservations.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the largest number of requests that have waited at one time.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the number of requests whose time was over before they were served, since the module was loaded.
    pub fn timeouts(&self) -> u64 {
        self.timeouts_ever
    }

    /// Returns the number of requests that wait for the lock of `key`.
    pub fn len_of(&self, key: Key<'_>) -> usize {
        self.queue(key).map_or(0, Queue::len)
    }

    /// Returns the number of callers that wait in clients, behind the requests for the lock of `key`. The clients
    /// report these numbers.
    pub fn behind(&self, key: Key<'_>) -> u64 {
        self.queue(key).map_or(0, Queue::behind)
    }

    /// Iterates over the requests that wait for the lock of `key`, in order.
    pub fn of(&self, key: Key<'_>) -> impl Iterator<Item = &Waiter> {
        self.queue(key).into_iter().flat_map(Queue::iter)
    }

    /// Returns the shared copy of the name of `key` that its queue has; `None` if the key has no queue.
    #[inline(always)]
    pub(crate) fn share_name(&mut self, key: Key<'_>) -> Option<Arc<[u8]>> {
        self.queues.share(key)
    }

    /// Returns the number of times that a queue was searched for by the bytes of a name, for tests.
    #[cfg(test)]
    pub(crate) fn searches(&self) -> usize {
        self.queues.searches()
    }

    /// Iterates over the names of the database `db` whose locks have a queue.
    pub fn names(&self, db: u32) -> impl Iterator<Item = &[u8]> {
        self.queues.names(db)
    }

    /// Iterates over the reservations of the lock of `key`: owner, mode and end. Some may have just ended.
    pub fn reservations(&self, key: Key<'_>) -> impl Iterator<Item = (&[u8], Mode, BootTime)> {
        self.queue(key).into_iter().flat_map(|queue| queue.kept.iter())
    }

    /// Returns whether the lock of `key` has a queue: when it becomes free, [`crate::hand_over()`] decides its owner.
    pub fn has_queue(&self, key: Key<'_>) -> bool {
        self.queue(key).is_some()
    }

    /// Returns the longest lease that `owner` asks for in `mode`, among its requests in the queue of `key`.
    pub(crate) fn longest_ttl(&self, key: Key<'_>, owner: Owner<'_>, mode: Mode) -> Option<Ttl> {
        self.queue(key)?.longest_ttl(owner, mode, false)
    }

    /// Returns the mode in which `owner` may have the lock of `key` if it asks at `now`. It is compatible with `held`,
    /// the modes of the holders. `None` if others hold it, or come before it.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        wanted: Wanted,
        held: &Modes,
        now: BootTime,
    ) -> Option<Mode> {
        if self.has_queue(key) {
            self.end_turns_over(key, now);
        }
        match self.queue(key) {
            Some(queue) => queue.claim(owner, wanted, held),
            None if wanted == Wanted::Exclusive => held.is_empty().then_some(Mode::Exclusive),
            None => held.admitted(wanted, Modes::free()),
        }
    }

    /// Returns the owner and the end of the reservation of the lock of `key` that is the first to end after `now`.
    pub fn reservation(&self, key: Key<'_>, now: BootTime) -> Option<(Owner<'_>, BootTime)> {
        self.queue(key)?.kept.first().filter(|(_, until)| now <= *until)
    }

    /// Returns the mode in which the lock of `key` is reserved for `owner`, if it is. The reservation may have just
    /// ended.
    pub(crate) fn turn_of(&self, key: Key<'_>, owner: Owner<'_>) -> Option<Mode> {
        self.queue(key)?.kept.mode_of(owner)
    }

    /// Returns whether the lock of `key` is reserved at `now` for another owner than `owner`.
    pub(crate) fn is_kept_for_others(&self, key: Key<'_>, owner: Owner<'_>, now: BootTime) -> bool {
        self.reservations(key).any(|(kept_for, _, until)| now <= until && *kept_for != *owner.bytes())
    }

    /// Ends the reservation of the lock of `key` for `owner`, which has the lock now.
    pub(crate) fn withdraw_turn(&mut self, key: Key<'_>, owner: Owner<'_>) {
        self.end_turn(key, owner);
        self.tidy(key);
    }

    /// Searches for a request whose owner already holds the lock of `key`, by `holds`: among those whose owner held it,
    /// together with others, when they arrived, and those that may be served next at `now`. Their owners may hold a lock
    /// that came to the key later.
    pub(crate) fn find_holder<T>(
        &mut self,
        key: Key<'_>,
        now: BootTime,
        holds: impl Fn(Owner<'_>) -> Option<T>,
    ) -> Search<T> {
        let unused_max = self.unused_turns_max;
        let Some(queue) = self.queue_mut(key) else { return Search::Nobody };
        match queue.find_holder(&holds) {
            Search::Nobody => {
                let next = queue.of_turn(now).into_iter().chain(queue.first(unused_max));
                next.map(Waiter::owner).find_map(holds).map_or(Search::Nobody, Search::Found)
            }
            found => found,
        }
    }

    /// Removes the queue of `key` if it is empty.
    pub(crate) fn tidy(&mut self, key: Key<'_>) {
        if !self.queues.remove_if(key, Queue::is_empty) {
            return;
        }
        // Many answers at once make the list large, so its memory is freed here.
        if self.answered.is_empty() {
            self.answered.shrink_to(SPARE_ENTRIES);
        }
    }

    /// Ends the reservations of the lock of `key` that were not used in time.
    pub(crate) fn end_turns_over(&mut self, key: Key<'_>, now: BootTime) {
        if self.queue(key).is_none_or(|queue| queue.kept.is_empty()) {
            return;
        }
        self.change_turns(key, |queue| {
            while queue.end_turn_over(now) {
                queue.turn_was_not_used();
            }
        });
        self.tidy(key);
    }

    /// Notes that the first request of a queue left it. Plans a check of the queue if the next request may be able to
    /// get the lock: because it can join the holders of a joint lock, or because only a reservation for its own owner
    /// blocks it.
    pub(super) fn first_left(&mut self, key: Key<'_>) {
        let unused_max = self.unused_turns_max;
        let may_have_it = |queue: &Queue| {
            !queue.kept.is_empty() || queue.first(unused_max).is_some_and(|first| first.wanted != Wanted::Exclusive)
        };
        if self.queue(key).is_some_and(may_have_it) {
            self.wake_at(key, BootTime::default());
        }
    }

    /// Ends the reservation of the lock of `key` for `owner`; returns whether there was one.
    pub(super) fn end_turn(&mut self, key: Key<'_>, owner: Owner<'_>) -> bool {
        self.change_turns(key, |queue| queue.end_turn(owner.bytes())).unwrap_or(false)
    }

    /// Ends all reservations of the lock of `key`.
    pub(super) fn end_turns(&mut self, key: Key<'_>) {
        self.change_turns(key, |queue| queue.kept.end_all());
    }

    /// Changes the reservations of the lock of `key`, if it has a queue. Counts anew the places and bytes that they take.
    pub(super) fn change_turns<T>(&mut self, key: Key<'_>, change: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let queue = self.queues.get_mut(key)?;
        let before = queue.kept.load(key.name);
        let changed = change(queue);
        self.turns = self.turns.minus(before).plus(queue.kept.load(key.name));
        Some(changed)
    }

    pub(super) fn push(&mut self, id: WaiterId, answer: Answer) {
        self.answers.insert(id, answer);
        self.answered.push_back(id);
    }

    /// Removes `waiter`, which left the queue of the lock `name`, from the tables of all requests.
    pub(super) fn unlist(&mut self, name: &[u8], waiter: &Waiter) {
        self.loads.remove(waiter.user, waiter.load(name));
        self.places.remove(&waiter.id);
        self.timeouts.remove(&(waiter.until, waiter.id));
    }

    // Inlined because nearly always nobody waits for any lock, and then this is one comparison.
    #[inline(always)]
    pub(super) fn queue(&self, key: Key<'_>) -> Option<&Queue> {
        self.queues.get(key)
    }

    #[inline(always)]
    pub(super) fn queue_mut(&mut self, key: Key<'_>) -> Option<&mut Queue> {
        self.queues.get_mut(key)
    }
}
