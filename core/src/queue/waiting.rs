//! All requests that wait on a node: one queue a key, bounded together.
//!
//! A queue belongs to a database and a name, whatever the key holds: it never moves. What happens to a request in the
//! end is an [`Answer`], kept until the one who can send it takes it. No request is forgotten: it has a place in one
//! queue and a moment at which its wait ends, and as long as a queue's lock is free there is a moment at which that
//! queue is looked at.
//!
//! No step takes long, however many wait: whatever concerns a whole queue, or all queues, is done in slices of
//! [`ANSWERS_A_PASS_MAX`], each at a look of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::history::History;
use crate::history::ending::Ending;
use crate::history::times::Times;
use crate::lock::modes::Modes;
use crate::queue::of_key::{Place, Queue, Waiter, WaiterId, Want};
use crate::queue::planned::Planned;
use crate::queue::shares::{Load, Loads};
use crate::refusal::Refusal;
use crate::request::{Owner, Ticket, Ttl};
use crate::values::key::Key;
use crate::values::limits::{
    ANSWERS_A_PASS_MAX, HANDOFF_WINDOW_DEFAULT_MS, OWNER_REQUESTS_MAX, RETRY_HAND_OVER_MS, UNUSED_TURNS_MAX,
};
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

/// Who is next when a lock may be free.
pub(crate) enum Next {
    /// Nobody, or it is not known yet: many are before it whose time is up.
    Nobody,
    /// Somebody, but what is held or kept for others is not compatible with it.
    Blocked,
    /// This request, in this mode.
    Request(Waiter, Mode),
}

/// The queues of a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// None is empty.
    queues: Planned<Queue>,
    places: BTreeMap<WaiterId, (u32, Arc<[u8]>, Place)>,
    timeouts: BTreeSet<(BootTime, WaiterId)>,
    /// The node could not hand over: no queue is looked at before.
    not_before: BootTime,
    /// The load of the requests, and of the turns for which locks are kept free.
    loads: Loads,
    turns: Load,
    arrivals: u64,
    /// The last arrival that is sent away, and the entry of the timeouts up to which that is done.
    to_send_away: Option<(u64, (BootTime, WaiterId))>,
    answers: BTreeMap<WaiterId, Answer>,
    /// Whose answers are to be sent, in order; who is gone has none any more.
    answered: VecDeque<WaiterId>,
    /// `lock.handoff-window`, in milliseconds.
    pub handoff_window_ms: u32,
    /// See [`UNUSED_TURNS_MAX`].
    pub(crate) unused_turns_max: u32,
    /// The most that ever waited at a time.
    most: usize,
    timeouts_ever: u64,
    /// How long those waited who were served.
    pub waits: Times,
    /// What is remembered of what is over.
    pub(crate) history: History,
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
            history: History::default(),
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
        if !waiter.at_once {
            self.history.waits(key);
        }
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

    /// The request `id` waits no longer at `now`, unanswered: its client is gone, or answered by somebody else. What it was to be told
    /// is dropped.
    pub fn leave_in_vain(&mut self, id: WaiterId, now: BootTime) -> Option<Waiter> {
        self.leave(id, Ending::Left, now)
    }

    fn leave(&mut self, id: WaiterId, ending: Ending, now: BootTime) -> Option<Waiter> {
        let Some((db, name, place)) = self.places.remove(&id) else {
            self.answers.remove(&id);
            return None;
        };
        let unused_max = self.unused_turns_max;
        let key = Key { db, name: &name };
        let queue = self.queue_mut(key)?;
        let was_first = queue.first(unused_max).is_some_and(|first| first.id == id);
        let waiter = queue.leave(place)?;
        self.unlist(&name, &waiter);
        if was_first {
            self.first_left(key);
        }
        self.tidy(key);
        self.in_vain(key, &waiter, ending, now);
        Some(waiter)
    }

    /// Begins to send away all who wait now.
    pub(crate) fn send_all_away(&mut self) {
        self.to_send_away = (!self.places.is_empty()).then(|| (self.arrivals, (BootTime::default(), WaiterId(0))));
    }

    /// Returns true while some may be left who are sent away.
    pub fn sends_away(&self) -> bool {
        self.to_send_away.is_some()
    }

    /// Takes out the next of those who are sent away, unanswered: the driver has an answer. `None`: none is left; `Some(None)`: the next
    /// one came later and stays.
    pub(crate) fn send_one_away(&mut self, now: BootTime) -> Option<Option<WaiterId>> {
        let (last_arrival, behind) = self.to_send_away?;
        let next = self.timeouts.range((Excluded(behind), Unbounded)).next().copied();
        self.to_send_away = next.map(|next| (last_arrival, next));
        let (_, id) = next?;
        let is_to_leave = self.places.get(&id).is_some_and(|(.., place)| place.arrived() <= last_arrival);
        Some(is_to_leave.then(|| self.leave(id, Ending::Left, now)).flatten().map(|waiter| waiter.id))
    }

    /// The owner takes its requests back; what is kept free for it is not any more.
    #[inline]
    pub fn withdraw(&mut self, key: Key<'_>, owner: Owner<'_>, now: BootTime) {
        // Mostly nobody waits.
        if self.has_queue(key) {
            self.withdraw_all(key, owner, now);
        }
    }

    #[inline(never)]
    fn withdraw_all(&mut self, key: Key<'_>, owner: Owner<'_>, now: BootTime) {
        let unreserved = self.end_turn(key, owner);
        let Some(queue) = self.queue_mut(key) else { return };
        let gone = queue.leave_all_of(owner, |_| true);
        if unreserved {
            queue.turn_was_not_used();
        }
        self.answer(key, gone, now, |waiter| (Answer::TimedOut(waiter.want), Some(Ending::Withdrawn)));
        if unreserved {
            self.wake_at(key, now);
        }
        self.tidy(key);
    }

    /// The requests of `owner` that `which` picks wait no longer for the lock of `key`; what is kept free for it is. How many they were.
    pub(crate) fn stop(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        which: impl Fn(WaiterId) -> bool,
        now: BootTime,
    ) -> usize {
        let unused_max = self.unused_turns_max;
        let Some(queue) = self.queue_mut(key) else { return 0 };
        let was_first = queue.first(unused_max).map(|first| first.id);
        let gone = queue.leave_all_of(owner, |waiter| which(waiter.id));
        let (count, first_left) = (gone.len(), gone.iter().any(|waiter| Some(waiter.id) == was_first));
        self.answer(key, gone, now, |waiter| (Answer::TimedOut(waiter.want), Some(Ending::Withdrawn)));
        if first_left {
            self.first_left(key);
        }
        self.tidy(key);
        count
    }

    /// Answers the one whose time has been up longest at `now`; `false` if there is none.
    pub fn time_out(&mut self, now: BootTime) -> bool {
        let Some(&(_, id)) = self.timeouts.first().filter(|(until, _)| now > *until) else { return false };
        self.give_up(id, now);
        true
    }

    /// The request `id` is refused: whatever it waits for, it cannot have.
    pub(crate) fn refuse(&mut self, id: WaiterId, refusal: Refusal, now: BootTime) {
        if self.leave(id, Ending::Refused(refusal), now).is_some() {
            self.push(id, Answer::Refused(refusal));
        }
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

    /// The first in the queue of `key`, `count` at most, wait no longer, unanswered: somebody else knows what to say. If others
    /// are left, it is looked at again, and soon.
    pub fn dismiss(&mut self, key: Key<'_>, count: usize, now: BootTime) -> Vec<WaiterId> {
        self.end_turns(key);
        let Some(queue) = self.queue_mut(key) else { return vec![] };
        let gone = queue.leave_first(count);
        let ids = gone.iter().map(|waiter| waiter.id).collect();
        for waiter in &gone {
            self.unlist(key.name, waiter);
            self.in_vain(key, waiter, Ending::Redirected, now);
        }
        self.wake_at(key, BootTime::default());
        self.tidy(key);
        ids
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

    /// The hand-over of a free lock did not come about for this reason. Where it is a matter of time, it is tried again
    /// then, and who waits less long than that is refused now; else everybody is. What the whole node cannot do yet is tried
    /// with one queue at a time.
    pub fn postpone(&mut self, key: Key<'_>, refusal: Refusal, now: BootTime) {
        if refusal == Refusal::NotYet {
            self.not_before = now.plus_ms(RETRY_HAND_OVER_MS);
            return self.wake_at(key, self.not_before);
        }
        let Some(queue) = self.queue_mut(key) else { return };
        let Some(ms) = refusal.passes_in_ms() else {
            let gone = queue.leave_first(ANSWERS_A_PASS_MAX);
            self.end_turns(key);
            self.answer(key, gone, now, |_| refused(refusal));
            self.wake_at(key, now);
            return self.tidy(key);
        };
        let then = now.plus_ms(u32::try_from(ms).unwrap_or(u32::MAX));
        // Who joined later can wait as long: it was asked. (A moment more is only the rounding of the time left.)
        if then > queue.postpone.plus_ms(1) {
            queue.postpone = then;
            queue.not_told = Some(Place::default());
        }
        let until = then.min(queue.postpone);
        if let Some(from) = queue.not_told {
            let cannot_wait = |waiter: &Waiter| waiter.at_once || waiter.until < until;
            let (gone, rest) = queue.leave_if(from, ANSWERS_A_PASS_MAX, cannot_wait);
            queue.not_told = rest;
            self.answer(key, gone, now, |_| refused(refusal));
            self.wake_at(key, if rest.is_some() { now } else { then });
        } else {
            self.wake_at(key, then);
        }
        self.tidy(key);
    }

    /// Somebody else has the lock of `key`, or is before them: those are told who want their answer at once. How many
    /// were; if others are left, the queue is looked at again.
    pub(crate) fn answer_at_once(&mut self, key: Key<'_>, now: BootTime) -> u64 {
        let Some(queue) = self.queue_mut(key).filter(|queue| queue.has_at_once()) else { return 0 };
        let gone = queue.leave_at_once(ANSWERS_A_PASS_MAX);
        let (count, more) = (gone.len() as u64, queue.has_at_once());
        // Nobody kept it waiting.
        self.answer(key, gone, now, |waiter| (Answer::TimedOut(waiter.want), None));
        if more {
            self.wake_at(key, now);
        }
        self.first_left(key);
        self.tidy(key);
        count
    }

    /// The lock of `key` is held, by `owner` in `mode` with `token`: its own requests need not wait. One that says that it may
    /// be a repetition gets the grant there is, if the node `vouches` for it. Answers the longest lease that those ask for.
    pub(crate) fn held_by(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        (mode, token): (Mode, Token),
        vouched: Result<(), Refusal>,
        now: BootTime,
    ) -> Option<Ttl> {
        let queue = self.queue_mut(key)?;
        let repeated = queue.longest_ttl(owner, mode, true).filter(|_| vouched.is_ok());
        let own = queue.leave_all_of(owner, |_| true);
        if own.is_empty() {
            return None;
        }
        let number = mode.number();
        self.answer(key, own, now, |waiter| match (waiter.want, vouched) {
            (_, _) if !waiter.wanted.is(mode) => refused(Refusal::Owned),
            (Want::Turn, _) => (Answer::Turn(number), None),
            (Want::Lock { retry: false, .. }, _) => refused(Refusal::Owned),
            // Its lease lasts as long from now on as the request asks for.
            (Want::Lock { .. }, Ok(())) => {
                (Answer::Granted { token, number, waited_ms: now.ms_since(waiter.since) }, None)
            }
            (Want::Lock { .. }, Err(refusal)) => refused(refusal),
        });
        self.first_left(key);
        self.tidy(key);
        repeated
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

    /// `owner` was granted the lock in `mode` with `token`: that answers all its requests. Since when it had waited.
    pub(crate) fn granted(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        (mode, token): (Mode, Token),
        now: BootTime,
    ) -> BootTime {
        let told = self.queue(key).and_then(|queue| queue.kept.since(owner));
        self.end_turn(key, owner);
        let unused_max = self.unused_turns_max;
        let Some(queue) = self.queue_mut(key) else { return told.unwrap_or(now) };
        let first = |queue: &Queue| queue.first(unused_max).map(|first| first.id);
        let was_first = first(queue);
        queue.was_acquired();
        let is_first_again = first(queue) != was_first;
        let (served, others): (Vec<_>, Vec<_>) =
            queue.leave_all_of(owner, |_| true).into_iter().partition(|waiter| waiter.wanted.is(mode));
        let number = mode.number();
        let since = served.iter().map(|waiter| waiter.since).chain(told).min().unwrap_or(now);
        self.serve(key, served, now, |waiter| match waiter.want {
            Want::Lock { .. } => Answer::Granted { token, number, waited_ms: now.ms_since(waiter.since) },
            Want::Turn => Answer::Turn(number),
        });
        let leaves = !others.is_empty();
        if leaves {
            self.answer(key, others, now, |_| refused(Refusal::Owned));
        }
        // The count of unused turns begins anew, so the first in the queue may be before the one who waited longest again.
        if leaves || is_first_again {
            self.first_left(key);
        }
        self.tidy(key);
        since
    }

    /// The lock is kept for `owner` in `mode` from now on, and everybody who waits for that owner's turn is told.
    pub(crate) fn reserve(&mut self, key: Key<'_>, owner: Owner<'_>, mode: Mode, now: BootTime) {
        let until = now.plus_ms(self.handoff_window_ms);
        let before = self.queue(key).and_then(|queue| queue.kept.since(owner));
        self.end_turn(key, owner);
        let (_, queue) = self.queues.reach(key);
        let told = queue.leave_all_of(owner, |waiter| waiter.want == Want::Turn && waiter.wanted.is(mode));
        let since = told.iter().map(|waiter| waiter.since).chain(before).min().unwrap_or(now);
        self.change_turns(key, |queue| queue.keep(owner, mode, until, since));
        self.serve(key, told, now, |_| Answer::Turn(mode.number()));
        self.wake_at(key, until.plus_us(1));
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
    fn end_turns_over(&mut self, key: Key<'_>, now: BootTime) {
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

    /// Who is next for the lock of `key`, which is held in the modes `held`; those before it whose time is up at `now` are
    /// answered. Who asks for the lock itself is granted it where it is that owner's turn.
    pub(crate) fn next(&mut self, key: Key<'_>, held: &Modes, now: BootTime) -> Next {
        self.end_turns_over(key, now);
        let unused_max = self.unused_turns_max;
        for _ in 0..ANSWERS_A_PASS_MAX {
            let Some(queue) = self.queue(key) else { return Next::Nobody };
            if let Some(own) = queue.of_turn(now)
                && let Some(mode) = queue.kept.mode_of(own.owner()).filter(|&mode| held.admits(mode))
            {
                return Next::Request(own.clone(), mode);
            }
            let Some(first) = queue.first(unused_max) else { return self.kept_until(key) };
            if now <= first.until {
                let request = queue.request_for_lock(first.owner(), first.wanted, now).unwrap_or(first);
                // A turn is kept no longer than until its end, whoever asks for it again.
                let has_turn = request.want == Want::Turn && queue.kept.mode_of(request.owner()).is_some();
                return match queue.kept.admitted(request.owner(), request.wanted, held).filter(|_| !has_turn) {
                    Some(mode) => Next::Request(request.clone(), mode),
                    None => self.kept_until(key),
                };
            }
            let id = first.id;
            self.give_up(id, now);
        }
        self.wake_at(key, now);
        Next::Nobody
    }

    /// Nobody gets it before something ends. Of what is kept it is known when that is.
    fn kept_until(&mut self, key: Key<'_>) -> Next {
        if let Some(until) = self.queue(key).and_then(|queue| queue.kept.first()).map(|(_, until)| until) {
            self.wake_at(key, until.plus_us(1));
        }
        Next::Blocked
    }

    /// The first in the queue left it. If the one behind it may join those who hold the lock together, or it is its own turn alone
    /// that keeps it from the lock, the queue is looked at.
    fn first_left(&mut self, key: Key<'_>) {
        let unused_max = self.unused_turns_max;
        let may_have_it = |queue: &Queue| {
            !queue.kept.is_empty() || queue.first(unused_max).is_some_and(|first| first.wanted != Wanted::Exclusive)
        };
        if self.queue(key).is_some_and(may_have_it) {
            self.wake_at(key, BootTime::default());
        }
    }

    fn give_up(&mut self, id: WaiterId, now: BootTime) {
        if let Some(waiter) = self.leave(id, Ending::TimedOut, now) {
            // Who waited for the disk alone was kept waiting by nobody else.
            let answer = if waiter.at_once { Answer::Refused(Refusal::NotYet) } else { Answer::TimedOut(waiter.want) };
            self.timeouts_ever += u64::from(!waiter.at_once);
            self.push(id, answer);
        }
    }

    /// It is kept for `owner` no longer; whether it was.
    fn end_turn(&mut self, key: Key<'_>, owner: Owner<'_>) -> bool {
        self.change_turns(key, |queue| queue.kept.end(owner.bytes())).unwrap_or(false)
    }

    /// It is kept for nobody any more.
    fn end_turns(&mut self, key: Key<'_>) {
        self.change_turns(key, |queue| queue.kept.end_all());
    }

    /// Changes for whom the lock of `key` is kept, if it has a queue, and counts what that takes.
    fn change_turns<T>(&mut self, key: Key<'_>, change: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let queue = self.queues.get_mut(key)?;
        let before = queue.kept.load(key.name);
        let changed = change(queue);
        self.turns = self.turns.minus(before).plus(queue.kept.load(key.name));
        Some(changed)
    }

    /// Answers those who waited to the end.
    fn serve(&mut self, key: Key<'_>, served: Vec<Waiter>, now: BootTime, answer: impl Fn(&Waiter) -> Answer) {
        for waiter in &served {
            let us = now.us_since(waiter.since);
            self.waits.record(us);
            self.history.served(key, us);
        }
        self.answer(key, served, now, |waiter| (answer(waiter), None));
    }

    /// Answers those who left the queue of `key`, and remembers of each that waited in vain how that ended.
    fn answer(
        &mut self,
        key: Key<'_>,
        gone: Vec<Waiter>,
        now: BootTime,
        answer: impl Fn(&Waiter) -> (Answer, Option<Ending>),
    ) {
        for waiter in gone {
            self.unlist(key.name, &waiter);
            let (answer, in_vain) = answer(&waiter);
            if let Some(ending) = in_vain {
                self.in_vain(key, &waiter, ending, now);
            }
            self.push(waiter.id, answer);
        }
    }

    /// A request that left the queue of `key` had waited in vain.
    fn in_vain(&mut self, key: Key<'_>, waiter: &Waiter, ending: Ending, now: BootTime) {
        if !waiter.at_once {
            let left = self.len_of(key);
            self.history.wait_ended(key, waiter.in_vain(), ending, left, now);
        }
    }

    fn push(&mut self, id: WaiterId, answer: Answer) {
        self.answers.insert(id, answer);
        self.answered.push_back(id);
    }

    /// `waiter` left the queue of `key`.
    fn unlist(&mut self, name: &[u8], waiter: &Waiter) {
        self.loads.remove(waiter.user, waiter.load(name));
        self.places.remove(&waiter.id);
        self.timeouts.remove(&(waiter.until, waiter.id));
    }

    // Inlined: nearly always nobody waits for any lock, which is one comparison.
    #[inline(always)]
    fn queue(&self, key: Key<'_>) -> Option<&Queue> {
        self.queues.get(key)
    }

    #[inline(always)]
    fn queue_mut(&mut self, key: Key<'_>) -> Option<&mut Queue> {
        self.queues.get_mut(key)
    }
}

fn refused(refusal: Refusal) -> (Answer, Option<Ending>) {
    (Answer::Refused(refusal), Some(Ending::Refused(refusal)))
}
