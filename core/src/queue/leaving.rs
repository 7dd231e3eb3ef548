//! How requests leave their queues: each is answered, or taken out by one who has the answer, and the history is told of its end.
//!
//! No step takes long, however many wait: whatever concerns a whole queue, or all queues, is done in slices of
//! [`ANSWERS_A_PASS_MAX`], each at a look of its own.

use std::ops::Bound::{Excluded, Unbounded};

use crate::history::History;
use crate::history::ending::Ending;
use crate::lock::modes::Modes;
use crate::queue::of_key::{Place, Queue, Waiter, WaiterId, Want};
use crate::queue::waiting::{Answer, Waiting};
use crate::refusal::Refusal;
use crate::request::{Owner, Ticket, Ttl};
use crate::values::key::Key;
use crate::values::limits::{ANSWERS_A_PASS_MAX, RETRY_HAND_OVER_MS};
use crate::values::mode::Mode;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// Who is next when a lock may be free.
pub(crate) enum Next {
    /// Nobody, or it is not known yet: many are before it whose time is up.
    Nobody,
    /// Somebody, but what is held or kept for others is not compatible with it.
    Blocked,
    /// This request, in this mode.
    Request(Waiter, Mode),
}

/// The queues of a node, and the history that is told what became of their requests.
pub(crate) struct Queues<'a> {
    pub waiting: &'a mut Waiting,
    pub history: &'a mut History,
}

impl Queues<'_> {
    /// `waiter` waits for the lock of `key`. Whether its owner is the first who does.
    pub fn join(&mut self, key: Key<'_>, waiter: Waiter, ticket: Option<Ticket>) -> bool {
        if !waiter.at_once {
            self.history.waits(key);
        }
        self.waiting.join(key, waiter, ticket)
    }

    /// The request `id` waits no longer at `now`, unanswered: its client is gone, or answered by somebody else. What it was to be told
    /// is dropped.
    pub fn leave_in_vain(&mut self, id: WaiterId, now: BootTime) -> Option<Waiter> {
        self.leave(id, Ending::Left, now)
    }

    fn leave(&mut self, id: WaiterId, ending: Ending, now: BootTime) -> Option<Waiter> {
        let Some((db, name, place)) = self.waiting.places.remove(&id) else {
            self.waiting.answers.remove(&id);
            return None;
        };
        let unused_max = self.waiting.unused_turns_max;
        let key = Key { db, name: &name };
        let queue = self.waiting.queue_mut(key)?;
        let was_first = queue.first(unused_max).is_some_and(|first| first.id == id);
        let waiter = queue.leave(place)?;
        self.waiting.unlist(&name, &waiter);
        if was_first {
            self.waiting.first_left(key);
        }
        self.waiting.tidy(key);
        self.in_vain(key, &waiter, ending, now);
        Some(waiter)
    }

    /// Takes out the next of those who are sent away, unanswered: the driver has an answer. `None`: none is left; `Some(None)`: the next
    /// one came later and stays.
    pub fn send_one_away(&mut self, now: BootTime) -> Option<Option<WaiterId>> {
        let (last_arrival, behind) = self.waiting.to_send_away?;
        let next = self.waiting.timeouts.range((Excluded(behind), Unbounded)).next().copied();
        self.waiting.to_send_away = next.map(|next| (last_arrival, next));
        let (_, id) = next?;
        let is_to_leave = self.waiting.places.get(&id).is_some_and(|(.., place)| place.arrived() <= last_arrival);
        Some(is_to_leave.then(|| self.leave(id, Ending::Left, now)).flatten().map(|waiter| waiter.id))
    }

    /// The owner takes its requests back; what is kept free for it is not any more.
    #[inline]
    pub fn withdraw(&mut self, key: Key<'_>, owner: Owner<'_>, now: BootTime) {
        // Mostly nobody waits.
        if self.waiting.has_queue(key) {
            self.withdraw_all(key, owner, now);
        }
    }

    #[inline(never)]
    fn withdraw_all(&mut self, key: Key<'_>, owner: Owner<'_>, now: BootTime) {
        let unreserved = self.waiting.end_turn(key, owner);
        let Some(queue) = self.waiting.queue_mut(key) else { return };
        let gone = queue.leave_all_of(owner, |_| true);
        if unreserved {
            queue.turn_was_not_used();
        }
        self.answer(key, gone, now, |waiter| (Answer::TimedOut(waiter.want), Some(Ending::Withdrawn)));
        if unreserved {
            self.waiting.wake_at(key, now);
        }
        self.waiting.tidy(key);
    }

    /// The requests of `owner` that `which` picks wait no longer for the lock of `key`; what is kept free for it is. How many they were.
    pub fn stop(&mut self, key: Key<'_>, owner: Owner<'_>, which: impl Fn(WaiterId) -> bool, now: BootTime) -> usize {
        let unused_max = self.waiting.unused_turns_max;
        let Some(queue) = self.waiting.queue_mut(key) else { return 0 };
        let was_first = queue.first(unused_max).map(|first| first.id);
        let gone = queue.leave_all_of(owner, |waiter| which(waiter.id));
        let (count, first_left) = (gone.len(), gone.iter().any(|waiter| Some(waiter.id) == was_first));
        self.answer(key, gone, now, |waiter| (Answer::TimedOut(waiter.want), Some(Ending::Withdrawn)));
        if first_left {
            self.waiting.first_left(key);
        }
        self.waiting.tidy(key);
        count
    }

    /// The first in the queue of `key`, `count` at most, wait no longer, unanswered: somebody else knows what to say. If others
    /// are left, it is looked at again, and soon.
    pub fn dismiss(&mut self, key: Key<'_>, count: usize, now: BootTime) -> Vec<WaiterId> {
        self.waiting.end_turns(key);
        let Some(queue) = self.waiting.queue_mut(key) else { return vec![] };
        let gone = queue.leave_first(count);
        let ids = gone.iter().map(|waiter| waiter.id).collect();
        for waiter in &gone {
            self.waiting.unlist(key.name, waiter);
            self.in_vain(key, waiter, Ending::Redirected, now);
        }
        self.waiting.wake_at(key, BootTime::default());
        self.waiting.tidy(key);
        ids
    }

    /// Answers the one whose time has been up longest at `now`; `false` if there is none.
    pub fn time_out(&mut self, now: BootTime) -> bool {
        let Some(&(_, id)) = self.waiting.timeouts.first().filter(|(until, _)| now > *until) else { return false };
        self.give_up(id, now);
        true
    }

    fn give_up(&mut self, id: WaiterId, now: BootTime) {
        if let Some(waiter) = self.leave(id, Ending::TimedOut, now) {
            // Who waited for the disk alone was kept waiting by nobody else.
            let answer = if waiter.at_once { Answer::Refused(Refusal::NotYet) } else { Answer::TimedOut(waiter.want) };
            self.waiting.timeouts_ever += u64::from(!waiter.at_once);
            self.waiting.push(id, answer);
        }
    }

    /// The request `id` is refused: whatever it waits for, it cannot have.
    pub fn refuse(&mut self, id: WaiterId, refusal: Refusal, now: BootTime) {
        if self.leave(id, Ending::Refused(refusal), now).is_some() {
            self.waiting.push(id, Answer::Refused(refusal));
        }
    }

    /// The hand-over of a free lock did not come about for this reason. Where it is a matter of time, it is tried again
    /// then, and who waits less long than that is refused now; else everybody is. What the whole node cannot do yet is tried
    /// with one queue at a time.
    pub fn postpone(&mut self, key: Key<'_>, refusal: Refusal, now: BootTime) {
        if refusal == Refusal::NotYet {
            self.waiting.not_before = now.plus_ms(RETRY_HAND_OVER_MS);
            return self.waiting.wake_at(key, self.waiting.not_before);
        }
        let Some(queue) = self.waiting.queue_mut(key) else { return };
        let Some(ms) = refusal.passes_in_ms() else {
            let gone = queue.leave_first(ANSWERS_A_PASS_MAX);
            self.waiting.end_turns(key);
            self.answer(key, gone, now, |_| refused(refusal));
            self.waiting.wake_at(key, now);
            return self.waiting.tidy(key);
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
            self.waiting.wake_at(key, if rest.is_some() { now } else { then });
        } else {
            self.waiting.wake_at(key, then);
        }
        self.waiting.tidy(key);
    }

    /// Somebody else has the lock of `key`, or is before them: those are told who want their answer at once. How many
    /// were; if others are left, the queue is looked at again.
    pub fn answer_at_once(&mut self, key: Key<'_>, now: BootTime) -> u64 {
        let Some(queue) = self.waiting.queue_mut(key).filter(|queue| queue.has_at_once()) else { return 0 };
        let gone = queue.leave_at_once(ANSWERS_A_PASS_MAX);
        let (count, more) = (gone.len() as u64, queue.has_at_once());
        // Nobody kept it waiting.
        self.answer(key, gone, now, |waiter| (Answer::TimedOut(waiter.want), None));
        if more {
            self.waiting.wake_at(key, now);
        }
        self.waiting.first_left(key);
        self.waiting.tidy(key);
        count
    }

    /// Who is next for the lock of `key`, which is held in the modes `held`; those before it whose time is up at `now` are
    /// answered. Who asks for the lock itself is granted it where it is that owner's turn.
    pub fn next(&mut self, key: Key<'_>, held: &Modes, now: BootTime) -> Next {
        self.waiting.end_turns_over(key, now);
        let unused_max = self.waiting.unused_turns_max;
        for _ in 0..ANSWERS_A_PASS_MAX {
            let Some(queue) = self.waiting.queue(key) else { return Next::Nobody };
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
        self.waiting.wake_at(key, now);
        Next::Nobody
    }

    /// Blocked until a grant or a reservation ends. A reservation's end is known.
    fn kept_until(&mut self, key: Key<'_>) -> Next {
        if let Some(until) = self.waiting.queue(key).and_then(|queue| queue.kept.first()).map(|(_, until)| until) {
            self.waiting.wake_at(key, until.plus_us(1));
        }
        Next::Blocked
    }

    /// `owner` was granted the lock in `mode` with `token`: that answers all its requests. Since when it had waited.
    pub fn granted(&mut self, key: Key<'_>, owner: Owner<'_>, (mode, token): (Mode, Token), now: BootTime) -> BootTime {
        let told = self.waiting.queue(key).and_then(|queue| queue.kept.since(owner));
        self.waiting.end_turn(key, owner);
        let unused_max = self.waiting.unused_turns_max;
        let Some(queue) = self.waiting.queue_mut(key) else { return told.unwrap_or(now) };
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
            self.waiting.first_left(key);
        }
        self.waiting.tidy(key);
        since
    }

    /// The lock of `key` is held, by `owner` in `mode` with `token`: its own requests need not wait. One that says that it may
    /// be a repetition gets the grant there is, if the node `vouches` for it. Answers the longest lease that those ask for.
    pub fn held_by(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        (mode, token): (Mode, Token),
        vouched: Result<(), Refusal>,
        now: BootTime,
    ) -> Option<Ttl> {
        let queue = self.waiting.queue_mut(key)?;
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
        self.waiting.first_left(key);
        self.waiting.tidy(key);
        repeated
    }

    /// The lock is kept for `owner` in `mode` from now on, and everybody who waits for that owner's turn is told.
    pub fn reserve(&mut self, key: Key<'_>, owner: Owner<'_>, mode: Mode, now: BootTime) {
        let until = now.plus_ms(self.waiting.handoff_window_ms);
        let before = self.waiting.queue(key).and_then(|queue| queue.kept.since(owner));
        self.waiting.end_turn(key, owner);
        let (_, queue) = self.waiting.queues.reach(key);
        let told = queue.leave_all_of(owner, |waiter| waiter.want == Want::Turn && waiter.wanted.is(mode));
        let since = told.iter().map(|waiter| waiter.since).chain(before).min().unwrap_or(now);
        self.waiting.change_turns(key, |queue| queue.keep(owner, mode, until, since));
        self.serve(key, told, now, |_| Answer::Turn(mode.number()));
        self.waiting.wake_at(key, until.plus_us(1));
    }

    /// Answers those who waited to the end.
    fn serve(&mut self, key: Key<'_>, served: Vec<Waiter>, now: BootTime, answer: impl Fn(&Waiter) -> Answer) {
        for waiter in &served {
            let us = now.us_since(waiter.since);
            self.waiting.waits.record(us);
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
            self.waiting.unlist(key.name, &waiter);
            let (answer, in_vain) = answer(&waiter);
            if let Some(ending) = in_vain {
                self.in_vain(key, &waiter, ending, now);
            }
            self.waiting.push(waiter.id, answer);
        }
    }

    /// A request that left the queue of `key` had waited in vain.
    fn in_vain(&mut self, key: Key<'_>, waiter: &Waiter, ending: Ending, now: BootTime) {
        if !waiter.at_once {
            let left = self.waiting.len_of(key);
            self.history.wait_ended(key, waiter.in_vain(), ending, left, now);
        }
    }
}

fn refused(refusal: Refusal) -> (Answer, Option<Ending>) {
    (Answer::Refused(refusal), Some(Ending::Refused(refusal)))
}
