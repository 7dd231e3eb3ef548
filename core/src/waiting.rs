//! All requests that wait on a node: one queue a key, bounded together.
//!
//! A queue belongs to a database and a name, whatever the key holds: it never moves. What happens to a request in the
//! end is an [`Answer`], kept until the one who can send it takes it. No request is forgotten: it has a place in one
//! queue and a moment at which its wait ends, and as long as a queue's lock is free there is a moment at which that
//! queue is looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::limits::{HANDOFF_WINDOW_DEFAULT_MS, MAX_WAITERS_DEFAULT, RETRY_HAND_OVER_MS};
use crate::queue::{Claim, Place, Queue};
use crate::request::{Owner, Ticket, Ttl};
use crate::waits::Waits;
use crate::{BootTime, Refusal, Token, Waiter, WaiterId, Want};

/// Entries that a table keeps room for when it is empty.
const SPARE_ENTRIES: usize = 1_024;

/// What a request that waited is told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is its owner's.
    Granted {
        /// The grant's token.
        token: Token,
        /// How long it waited, in milliseconds, rounded down: the lease began this long after the request came.
        waited_ms: u64,
    },
    /// The lock is free, and kept so for a moment.
    Turn,
    /// It waited in vain: its time is up, or its owner took it back.
    InVain(Want),
    /// It cannot be served.
    Refused(Refusal),
}

/// The queues of a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// By database number.
    queues: Vec<HashMap<Arc<[u8]>, Queue>>,
    places: HashMap<WaiterId, (u32, Arc<[u8]>, Place)>,
    timeouts: BTreeSet<(BootTime, WaiterId)>,
    alarms: BTreeSet<(BootTime, u32, Arc<[u8]>)>,
    /// Queues to be looked at as soon as can be: a few at a time, since they may be all there are.
    to_look: Vec<(u32, Arc<[u8]>)>,
    /// The node could not hand over: no queue is looked at before.
    not_before: BootTime,
    /// Locks that are kept free.
    reservations: usize,
    arrivals: u64,
    answers: Vec<(WaiterId, Answer)>,
    /// `lock.max-waiters`.
    pub max: u32,
    /// `lock.handoff-window`, in milliseconds.
    pub handoff_window_ms: u32,
    /// The most that ever waited at a time.
    most: usize,
    timeouts_ever: u64,
    /// How long those waited who were served.
    pub waits: Waits,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            places: HashMap::new(),
            timeouts: BTreeSet::new(),
            alarms: BTreeSet::new(),
            to_look: Vec::new(),
            not_before: BootTime::default(),
            reservations: 0,
            arrivals: 0,
            answers: Vec::new(),
            max: MAX_WAITERS_DEFAULT,
            handoff_window_ms: HANDOFF_WINDOW_DEFAULT_MS,
            most: 0,
            timeouts_ever: 0,
            waits: Waits::default(),
        }
    }
}

impl Waiting {
    /// Refuses one request more than may wait, or one more lock that is kept free.
    pub fn room(&self) -> Result<(), Refusal> {
        if self.len() + self.reservations < self.max as usize {
            Ok(())
        } else {
            Err(Refusal::QueueFull { max: self.max })
        }
    }

    /// `waiter` waits for the lock `name` of `db`.
    pub fn join(&mut self, db: u32, name: &[u8], waiter: Waiter, ticket: Option<Ticket>) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let (id, until) = (waiter.id, waiter.until);
        debug_assert!(!self.places.contains_key(&id), "every request has an id of its own");
        let name = self.reach(db, name);
        let queue = self.queues[db as usize].entry(Arc::clone(&name)).or_default();
        let place = queue.join(waiter, ticket.map(Ticket::get), arrival);
        self.places.insert(id, (db, name, place));
        self.timeouts.insert((until, id));
        self.most = self.most.max(self.places.len());
    }

    /// The request `id` waits no longer, unanswered: its client is gone, or answered by somebody else.
    pub fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let (db, name, place) = self.places.remove(&id)?;
        let waiter = self.queue_mut(db, &name)?.leave(place)?;
        self.timeouts.remove(&(waiter.until, id));
        self.tidy(db, &name);
        Some(waiter)
    }

    /// The owner takes its requests back; what is kept free for it is not any more.
    pub fn withdraw(&mut self, db: u32, name: &[u8], owner: Owner<'_>, now: BootTime) {
        let unreserved = self.unreserve(db, name, Some(owner));
        let Some(queue) = self.queue_mut(db, name) else { return };
        let gone = queue.leave_all_of(owner, |_| true);
        self.answer(gone, |waiter| Answer::InVain(waiter.want));
        if unreserved {
            self.look_at(db, name, now);
        }
        self.tidy(db, name);
    }

    /// Answers the one whose time has been up longest at `now`; `false` if there is none.
    pub fn time_out(&mut self, now: BootTime) -> bool {
        let Some(&(_, id)) = self.timeouts.first().filter(|(until, _)| now > *until) else { return false };
        self.give_up(id);
        true
    }

    /// What is to be sent, to whom; each once.
    pub fn take_answers(&mut self) -> Vec<(WaiterId, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// Everybody in the queue of `name` waits no longer, unanswered: somebody else knows what to say.
    pub fn dismiss(&mut self, db: u32, name: &[u8]) -> Vec<WaiterId> {
        self.unreserve(db, name, None);
        let Some(queue) = self.queue_mut(db, name) else { return vec![] };
        let gone = queue.leave_if(|_| true);
        let ids = gone.iter().map(|waiter| waiter.id).collect();
        gone.iter().for_each(|waiter| self.unlist(waiter));
        self.tidy(db, name);
        ids
    }

    /// The queue of `name`, if there is one, is to be looked at by `when`, or earlier if that is planned.
    pub fn look_at(&mut self, db: u32, name: &[u8], when: BootTime) {
        let Some(queues) = self.queues.get_mut(db as usize) else { return };
        let Some((name, _)) = queues.get_key_value(name) else { return };
        let name = Arc::clone(name);
        let Some(queue) = queues.get_mut(&name) else { return };
        match queue.alarm {
            Some(planned) if planned <= when => return,
            Some(planned) => {
                self.alarms.remove(&(planned, db, Arc::clone(&name)));
            }
            None => {}
        }
        queue.alarm = Some(when);
        self.alarms.insert((when, db, name));
    }

    /// Every queue is to be looked at now: the guard was armed or lifted, or databases were emptied or swapped.
    pub fn look_at_all(&mut self) {
        self.to_look.clear();
        for (db, queues) in self.queues.iter().enumerate() {
            self.to_look.extend(queues.keys().map(|name| (db as u32, Arc::clone(name))));
        }
    }

    /// Takes out the queue to be looked at that has been due longest at `now`.
    pub fn pop_due(&mut self, now: BootTime) -> Option<(u32, Arc<[u8]>)> {
        if now < self.not_before {
            return None;
        }
        if let Some(due) = self.to_look.pop() {
            return Some(due);
        }
        let (when, ..) = self.alarms.first()?;
        if *when > now {
            return None;
        }
        let (_, db, name) = self.alarms.pop_first()?;
        if let Some(queue) = self.queue_mut(db, &name) {
            queue.alarm = None;
        }
        Some((db, name))
    }

    /// When the next queue is to be looked at, or somebody's time is up.
    pub fn next_due(&self) -> Option<BootTime> {
        let soon = (!self.to_look.is_empty()).then(BootTime::default);
        let look = soon.or_else(|| self.alarms.first().map(|(when, ..)| *when)).map(|when| when.max(self.not_before));
        let timeout = self.timeouts.first().map(|(until, _)| until.plus_us(1));
        look.into_iter().chain(timeout).min()
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// No queue has anybody, and no lock is kept free.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(HashMap::is_empty)
    }

    /// The most that ever waited at a time.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Requests that waited until their time was up, since load.
    pub fn timeouts(&self) -> u64 {
        self.timeouts_ever
    }

    /// How many wait for the lock `name` of `db`.
    pub fn len_of(&self, db: u32, name: &[u8]) -> usize {
        self.queue(db, name).map_or(0, Queue::len)
    }

    /// Who waits for the lock `name` of `db`, in order.
    pub fn of(&self, db: u32, name: &[u8]) -> impl Iterator<Item = &Waiter> {
        self.queue(db, name).into_iter().flat_map(Queue::iter)
    }

    /// The locks of `db` that have a queue.
    pub fn names(&self, db: u32) -> impl Iterator<Item = &[u8]> {
        self.queues.get(db as usize).into_iter().flat_map(|queues| queues.keys().map(|name| &**name))
    }

    /// For whom the free lock `name` of `db` is kept, or was until a moment ago.
    pub fn reserved_for(&self, db: u32, name: &[u8]) -> Option<&[u8]> {
        self.queue(db, name)?.reserved_for()
    }

    /// Whether the lock `name` of `db` has a queue: when it gets free, [`crate::hand_over()`] says whose it is.
    pub fn has_queue(&self, db: u32, name: &[u8]) -> bool {
        self.queue(db, name).is_some()
    }

    /// The hand-over of a free lock did not come about for this reason. Where it is a matter of time, it is tried again
    /// then, and who waits less long than that is refused now; else everybody is. What the whole node cannot do yet is tried
    /// with one queue at a time.
    pub fn put_off(&mut self, db: u32, name: &[u8], refusal: Refusal, now: BootTime) {
        if refusal == Refusal::NotYet {
            self.not_before = now.plus_ms(RETRY_HAND_OVER_MS);
            return self.look_at(db, name, self.not_before);
        }
        let Some(queue) = self.queue_mut(db, name) else { return };
        let Some(ms) = refusal.passes_in_ms() else {
            let gone = queue.leave_if(|_| true);
            self.unreserve(db, name, None);
            self.answer(gone, |_| Answer::Refused(refusal));
            return self.tidy(db, name);
        };
        let then = now.plus_ms(u32::try_from(ms).unwrap_or(u32::MAX));
        // Who joined later can wait as long: it was asked. (A moment more is only the rounding of the time left.)
        if then > queue.put_off.plus_ms(1) {
            queue.put_off = then;
            let gone = queue.leave_if(|waiter| waiter.until < then);
            self.answer(gone, |_| Answer::Refused(refusal));
        }
        self.look_at(db, name, then);
        self.tidy(db, name);
    }

    /// The lock `name` of `db` is held, by `owner` with `token`: its own requests need not wait. One that says that it may be
    /// a repetition gets the grant there is, if the node `vouches` for it. Answers the longest lease that those ask for.
    pub(crate) fn held_by(
        &mut self,
        db: u32,
        name: &[u8],
        owner: Owner<'_>,
        token: Token,
        vouched: Result<(), Refusal>,
        now: BootTime,
    ) -> Option<Ttl> {
        let queue = self.queue_mut(db, name)?;
        let repeated = queue.longest_ttl(owner, true).filter(|_| vouched.is_ok());
        let own = queue.leave_all_of(owner, |_| true);
        self.answer(own, |waiter| match (waiter.want, vouched) {
            (Want::Turn, _) => Answer::Turn,
            (Want::Lock { retry: false, .. }, _) => Answer::Refused(Refusal::Owned),
            // Its lease lasts as long from now on as the request asks for.
            (Want::Lock { .. }, Ok(())) => Answer::Granted { token, waited_ms: now.ms_since(waiter.since) },
            (Want::Lock { .. }, Err(refusal)) => Answer::Refused(refusal),
        });
        self.tidy(db, name);
        repeated
    }

    /// The longest lease that `owner` asks for in the queue of `name`.
    pub(crate) fn longest_ttl(&self, db: u32, name: &[u8], owner: Owner<'_>) -> Option<Ttl> {
        self.queue(db, name)?.longest_ttl(owner, false)
    }

    /// Who may take the lock `name` of `db` if it is free and `owner` asks.
    pub(crate) fn claim(&self, db: u32, name: &[u8], owner: Owner<'_>, now: BootTime) -> Claim {
        self.queue(db, name).map_or(Claim::Nobody, |queue| queue.claim(owner, now))
    }

    /// Until when the free lock `name` of `db` is kept for somebody.
    pub(crate) fn reserved_until(&self, db: u32, name: &[u8], now: BootTime) -> Option<BootTime> {
        self.queue(db, name)?.reserved_until(now)
    }

    /// `owner` was granted the lock with `token`: that answers all its requests.
    pub(crate) fn granted(&mut self, db: u32, name: &[u8], owner: Owner<'_>, token: Token, now: BootTime) {
        self.unreserve(db, name, None);
        let Some(queue) = self.queue_mut(db, name) else { return };
        let served = queue.leave_all_of(owner, |_| true);
        self.serve(served, now, |waiter| match waiter.want {
            Want::Lock { .. } => Answer::Granted { token, waited_ms: now.ms_since(waiter.since) },
            Want::Turn => Answer::Turn,
        });
        self.tidy(db, name);
    }

    /// The free lock is kept for `owner` from now on, and everybody who waits for that owner's turn is told.
    pub(crate) fn reserve(&mut self, db: u32, name: &[u8], owner: Owner<'_>, now: BootTime) {
        let until = now.plus_ms(self.handoff_window_ms);
        self.unreserve(db, name, None);
        let name = self.reach(db, name);
        let queue = self.queues[db as usize].entry(Arc::clone(&name)).or_default();
        queue.reserve(owner, until);
        let told = queue.leave_all_of(owner, |waiter| waiter.want == Want::Turn);
        self.reservations += 1;
        self.serve(told, now, |_| Answer::Turn);
        self.look_at(db, &name, until.plus_us(1));
    }

    /// Drops what is left of a queue that nobody stands in.
    pub(crate) fn tidy(&mut self, db: u32, name: &[u8]) {
        let Some(queue) = self.queue(db, name).filter(|queue| queue.is_empty()) else { return };
        let alarm = queue.alarm;
        if let Some((name, _)) = self.queues[db as usize].remove_entry(name)
            && let Some(when) = alarm
        {
            self.alarms.remove(&(when, db, name));
        }
        // After a storm the tables are as large as it was.
        if self.queues[db as usize].is_empty() {
            self.queues[db as usize].shrink_to(SPARE_ENTRIES);
            if self.places.is_empty() {
                self.places.shrink_to(SPARE_ENTRIES);
            }
        }
    }

    /// What was kept free until before `now` is so no longer.
    pub(crate) fn end_reservation(&mut self, db: u32, name: &[u8], now: BootTime) {
        if self.reserved_until(db, name, now).is_none() {
            self.unreserve(db, name, None);
        }
        self.tidy(db, name);
    }

    /// The first in the queue of `name` whose time is not up at `now`; those before it are answered.
    pub(crate) fn first_in_time(&mut self, db: u32, name: &[u8], now: BootTime) -> Option<&Waiter> {
        while let Some(late) = self.queue(db, name)?.first().filter(|first| now > first.until) {
            let id = late.id;
            self.give_up(id);
        }
        self.queue(db, name)?.first()
    }

    fn give_up(&mut self, id: WaiterId) {
        if let Some(waiter) = self.leave(id) {
            self.answers.push((id, Answer::InVain(waiter.want)));
            self.timeouts_ever += 1;
        }
    }

    /// It is kept free no longer, if it was for `owner` (`None`: for whomever); whether it was.
    fn unreserve(&mut self, db: u32, name: &[u8], owner: Option<Owner<'_>>) -> bool {
        let unreserved = self.queue_mut(db, name).is_some_and(|queue| queue.unreserve(owner));
        self.reservations -= usize::from(unreserved);
        unreserved
    }

    /// Answers those who waited to the end.
    fn serve(&mut self, served: Vec<Waiter>, now: BootTime, answer: impl Fn(&Waiter) -> Answer) {
        for waiter in &served {
            self.waits.record(now.us_since(waiter.since));
        }
        self.answer(served, answer);
    }

    fn answer(&mut self, gone: Vec<Waiter>, answer: impl Fn(&Waiter) -> Answer) {
        for waiter in gone {
            self.unlist(&waiter);
            self.answers.push((waiter.id, answer(&waiter)));
        }
    }

    fn unlist(&mut self, waiter: &Waiter) {
        self.places.remove(&waiter.id);
        self.timeouts.remove(&(waiter.until, waiter.id));
    }

    fn queue(&self, db: u32, name: &[u8]) -> Option<&Queue> {
        self.queues.get(db as usize)?.get(name)
    }

    fn queue_mut(&mut self, db: u32, name: &[u8]) -> Option<&mut Queue> {
        self.queues.get_mut(db as usize)?.get_mut(name)
    }

    /// The name under which the queue of `name` in `db` is, or will be, kept.
    fn reach(&mut self, db: u32, name: &[u8]) -> Arc<[u8]> {
        if self.queues.len() <= db as usize {
            self.queues.resize_with(db as usize + 1, HashMap::new);
        }
        self.queues[db as usize].get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }
}
