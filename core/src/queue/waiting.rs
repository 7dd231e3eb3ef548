//! All requests that wait on a node: one queue a key, bounded together.
//!
//! A queue belongs to a database and a name, whatever the key holds: it never moves. What happens to a request in the
//! end is an [`Answer`], kept until the one who can send it takes it. No request is forgotten: it has a place in one
//! queue and a moment at which its wait ends, and as long as a queue's lock is free there is a moment at which that
//! queue is looked at.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::history::times::Times;
use crate::lock::modes::Modes;
use crate::queue::of_key::{Place, Queue, Waiter, WaiterId, Want};
use crate::queue::planned::Planned;
use crate::queue::shares::{Load, Loads};
use crate::refusal::Refusal;
use crate::request::{Owner, Ticket, Ttl};
use crate::values::key::Key;
use crate::values::limits::{HANDOFF_WINDOW_DEFAULT_MS, OWNER_REQUESTS_MAX, UNUSED_TURNS_MAX};
use crate::values::mode::{Mode, Wanted};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// Entries that a list keeps room for when it is empty.
const SPARE_ENTRIES: usize = 1_024;

/// What a request that waited is told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is its owner's.
    Granted {
        /// The grant's token.
        token: Token,
        /// The number of its permit.
        number: u16,
        /// How long it waited, in milliseconds, rounded down: the lease began this long after the request came.
        waited_ms: u64,
    },
    /// The lock is free for its owner, and kept so for a moment: the number of the permit.
    Turn(u16),
    /// The grants with this token are broken.
    Broken(Token),
    /// It waited in vain: its time is up, or its owner took it back.
    TimedOut(Want),
    /// It cannot be served.
    Refused(Refusal),
}

/// The queues of a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// None is empty.
    pub(super) queues: Planned<Queue>,
    pub(super) places: BTreeMap<WaiterId, (u32, Arc<[u8]>, Place)>,
    pub(super) timeouts: BTreeSet<(BootTime, WaiterId)>,
    /// The node could not hand over: no queue is looked at before.
    pub(super) not_before: BootTime,
    /// The load of the requests, and of the turns for which locks are kept free.
    pub(super) loads: Loads,
    pub(super) turns: Load,
    pub(super) arrivals: u64,
    /// The last arrival that is sent away, and the entry of the timeouts up to which that is done.
    pub(super) to_send_away: Option<(u64, (BootTime, WaiterId))>,
    pub(super) answers: BTreeMap<WaiterId, Answer>,
    /// Whose answers are to be sent, in order; who is gone has none any more.
    pub(super) answered: VecDeque<WaiterId>,
    /// `lock.handoff-window`, in milliseconds.
    pub handoff_window_ms: u32,
    /// See [`UNUSED_TURNS_MAX`].
    pub(crate) unused_turns_max: u32,
    /// The most that ever waited at a time.
    most: usize,
    pub(super) timeouts_ever: u64,
    /// How long those waited who were served.
    pub waits: Times,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            queues: Planned::default(),
            places: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            not_before: BootTime::default(),
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
    /// Returns the load of the requests.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Returns the load of the turns for which locks are kept free.
    pub(crate) fn turns(&self) -> Load {
        self.turns
    }

    /// Refuses one request more than `owner` may have in the queue of `key`.
    pub fn room_for(&self, key: Key<'_>, owner: Owner<'_>) -> Result<(), Refusal> {
        let own = self.queue(key).map_or(0, |queue| queue.count_of(owner, OWNER_REQUESTS_MAX));
        if own < OWNER_REQUESTS_MAX { Ok(()) } else { Err(Refusal::OwnerQueueFull) }
    }

    /// `waiter` waits for the lock of `key`. Whether its owner is the first who does.
    pub fn join(&mut self, key: Key<'_>, waiter: Waiter, ticket: Option<Ticket>) -> bool {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let (id, until) = (waiter.id, waiter.until);
        debug_assert!(!self.places.contains_key(&id), "every request has an id of its own");
        self.loads.add(waiter.user, waiter.load(key.name));
        let (name, queue) = self.queues.reach(key);
        let place = queue.join(waiter, ticket.map(Ticket::get), arrival);
        let is_first = queue.is_owner_first(place);
        self.places.insert(id, (key.db, name, place));
        self.timeouts.insert((until, id));
        self.most = self.most.max(self.places.len());
        is_first
    }

    /// Begins to send away all who wait now.
    pub(crate) fn send_all_away(&mut self) {
        self.to_send_away = (!self.places.is_empty()).then(|| (self.arrivals, (BootTime::default(), WaiterId(0))));
    }

    /// Returns true while some may be left who are sent away.
    pub fn sends_away(&self) -> bool {
        self.to_send_away.is_some()
    }

    /// Answers a client that stands in no queue: of a BREAK that is done in slices.
    pub(crate) fn tell(&mut self, client: WaiterId, answer: Answer) {
        self.push(client, answer);
    }

    /// What is to be sent, to whom; each once, `count` at most at a time.
    pub fn take_answers(&mut self, count: usize) -> Vec<(WaiterId, Answer)> {
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(id) = self.answered.pop_front()
        {
            taken.extend(self.answers.remove(&id).map(|answer| (id, answer)));
        }
        taken
    }

    /// What the request `id` is to be told, if that is to be sent: who asks sends it.
    pub fn take_answer_of(&mut self, id: WaiterId) -> Option<Answer> {
        self.answers.remove(&id)
    }

    /// Whether there is something to be sent.
    pub fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// The queue of `key`, if there is one, is to be looked at by `when`, or earlier if that is planned.
    pub fn wake_at(&mut self, key: Key<'_>, when: BootTime) {
        self.queues.wake_at(key, when);
    }

    /// Every queue is to be looked at now: the guard was armed or lifted, or databases were emptied or swapped.
    pub fn wake_all(&mut self) {
        self.queues.wake_all();
    }

    /// Takes out the queue to be looked at that has been due longest at `now`.
    pub fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        if now < self.not_before { None } else { self.queues.pop_due(now) }
    }

    /// When the next queue is to be looked at, or somebody's time is up.
    pub fn next_due(&self) -> Option<BootTime> {
        if self.sends_away() {
            return Some(BootTime::default());
        }
        let look = self.queues.next_due().map(|when| when.max(self.not_before));
        let timeout = self.timeouts.first().map(|(until, _)| until.plus_us(1));
        look.into_iter().chain(timeout).min()
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// No queue has anybody, and no lock is kept free.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The most that ever waited at a time.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Requests that waited until their time was up, since load.
    pub fn timeouts(&self) -> u64 {
        self.timeouts_ever
    }

    /// How many wait for the lock of `key`.
    pub fn len_of(&self, key: Key<'_>) -> usize {
        self.queue(key).map_or(0, Queue::len)
    }

    /// How many wait for the lock of `key` behind those in the queue, in their clients, as those say.
    pub fn behind(&self, key: Key<'_>) -> u64 {
        self.queue(key).map_or(0, Queue::behind)
    }

    /// Who waits for the lock of `key`, in order.
    pub fn of(&self, key: Key<'_>) -> impl Iterator<Item = &Waiter> {
        self.queue(key).into_iter().flat_map(Queue::iter)
    }

    /// The locks of `db` that have a queue.
    pub fn names(&self, db: u32) -> impl Iterator<Item = &[u8]> {
        self.queues.names(db)
    }

    /// For whom the lock of `key` is kept, or was until a moment ago: owner, mode and until when.
    pub fn kept(&self, key: Key<'_>) -> impl Iterator<Item = (&[u8], Mode, BootTime)> {
        self.queue(key).into_iter().flat_map(|queue| queue.kept.iter())
    }

    /// Whether the lock of `key` has a queue: when it gets free, [`crate::hand_over()`] says whose it is.
    pub fn has_queue(&self, key: Key<'_>) -> bool {
        self.queue(key).is_some()
    }

    /// The longest lease that `owner` asks for in this mode in the queue of `key`.
    pub(crate) fn longest_ttl(&self, key: Key<'_>, owner: Owner<'_>, mode: Mode) -> Option<Ttl> {
        self.queue(key)?.longest_ttl(owner, mode, false)
    }

    /// The mode in which `owner` may have the lock of `key` if it asks at `now`, beside those who hold it in the modes `held`;
    /// `None`: others hold it, or are before it.
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

    /// The turn of the lock of `key` that is over first at `now`: whose it is, and until when it is kept.
    pub fn reservation(&self, key: Key<'_>, now: BootTime) -> Option<(Owner<'_>, BootTime)> {
        self.queue(key)?.kept.first().filter(|(_, until)| now <= *until)
    }

    /// The mode in which the lock of `key` is kept for `owner`, or was until a moment ago.
    pub(crate) fn turn_of(&self, key: Key<'_>, owner: Owner<'_>) -> Option<Mode> {
        self.queue(key)?.kept.mode_of(owner)
    }

    /// Whether the lock of `key` is kept for anybody but `owner`.
    pub(crate) fn is_kept_for_others(&self, key: Key<'_>, owner: Owner<'_>) -> bool {
        self.kept(key).any(|(kept_for, ..)| *kept_for != *owner.bytes())
    }

    /// The lock of `key` is kept for `owner` no longer: it has what it was told of.
    pub(crate) fn withdraw_turn(&mut self, key: Key<'_>, owner: Owner<'_>) {
        self.end_turn(key, owner);
        self.tidy(key);
    }

    /// The owners of requests that need not wait for those before them: it held the lock together with others when it asked, or it
    /// was its turn. And the owner of the one that is next: a lock that it holds may have come to the key since.
    pub(crate) fn owners_at_hand(&self, key: Key<'_>) -> impl Iterator<Item = Owner<'_>> {
        let queue = self.queue(key);
        let next = queue.and_then(|queue| queue.first(self.unused_turns_max)).map(Waiter::owner);
        queue.into_iter().flat_map(Queue::owners_at_hand).chain(next)
    }

    /// Drops what is left of a queue that nobody stands in.
    pub(crate) fn tidy(&mut self, key: Key<'_>) {
        if !self.queues.remove_if(key, Queue::is_empty) {
            return;
        }
        // After a storm the list is as large as it was.
        if self.answered.is_empty() {
            self.answered.shrink_to(SPARE_ENTRIES);
        }
    }

    /// The lock is kept no longer for those who were told and did not acquire it in time.
    pub(super) fn end_turns_over(&mut self, key: Key<'_>, now: BootTime) {
        if self.queue(key).is_none_or(|queue| queue.kept.is_empty()) {
            return;
        }
        self.change_turns(key, |queue| {
            while queue.kept.end_one_over(now) {
                queue.turn_was_not_used();
            }
        });
        self.tidy(key);
    }

    /// The first in the queue left it. If the one behind it may join those who hold the lock together, or it is its own turn alone
    /// that keeps it from the lock, the queue is looked at.
    pub(super) fn first_left(&mut self, key: Key<'_>) {
        let unused_max = self.unused_turns_max;
        let may_have_it = |queue: &Queue| {
            !queue.kept.is_empty() || queue.first(unused_max).is_some_and(|first| first.wanted != Wanted::Exclusive)
        };
        if self.queue(key).is_some_and(may_have_it) {
            self.wake_at(key, BootTime::default());
        }
    }

    /// It is kept for `owner` no longer; whether it was.
    pub(super) fn end_turn(&mut self, key: Key<'_>, owner: Owner<'_>) -> bool {
        self.change_turns(key, |queue| queue.kept.end(owner.bytes())).unwrap_or(false)
    }

    /// It is kept for nobody any more.
    pub(super) fn end_turns(&mut self, key: Key<'_>) {
        self.change_turns(key, |queue| queue.kept.end_all());
    }

    /// Changes for whom the lock of `key` is kept, if it has a queue, and counts what that takes.
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

    /// `waiter` left the queue of `key`.
    pub(super) fn unlist(&mut self, name: &[u8], waiter: &Waiter) {
        self.loads.remove(waiter.user, waiter.load(name));
        self.places.remove(&waiter.id);
        self.timeouts.remove(&(waiter.until, waiter.id));
    }

    // Inlined: nearly always nobody waits for any lock, which is one comparison.
    #[inline(always)]
    pub(super) fn queue(&self, key: Key<'_>) -> Option<&Queue> {
        self.queues.get(key)
    }

    #[inline(always)]
    pub(super) fn queue_mut(&mut self, key: Key<'_>) -> Option<&mut Queue> {
        self.queues.get_mut(key)
    }
}
