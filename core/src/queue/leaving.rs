//! Removes requests from their queues. Each is answered here, or by the caller, and its end is reported to the history.
//!
//! No step takes long, however many requests wait: work on a whole queue, or on all queues, is done in slices of
//! [`ANSWERS_A_PASS_MAX`], each in its own check of a queue.

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

/// The outcome of a search for the next request that can get a lock.
pub(crate) enum Next {
    /// No request is left in the queue. Or the search has removed as many overdue requests as one step may, and
    /// continues at the next check.
    Nobody,
    /// The next request is incompatible with the holders, or with reservations of others.
    Blocked,
    /// This request can get the lock, in this mode.
    Request(Waiter, Mode),
}

/// The queues of a node, and the history to which ends of their requests are reported.
pub(crate) struct Queues<'a> {
    pub waiting: &'a mut Waiting,
    pub history: &'a mut History,
}

impl Queues<'_> {
    /// Adds `waiter` to the queue of `key`, at the place of its `ticket`. Returns whether its owner is the first in the
    /// queue.
    pub fn join(&mut self, key: Key<'_>, waiter: Waiter, ticket: Option<Ticket>) -> bool {
        if !waiter.at_once {
            self.history.count_wait(key);
        }
        self.waiting.join(key, waiter, ticket)
    }

    /// Removes the request `id` at `now` without an answer, because its client is gone or is answered in another way.
    /// An answer that is not yet sent is dropped.
    pub fn leave_without_lock(&mut self, id: WaiterId, now: BootTime) -> Option<Waiter> {
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
        self.record_failed_wait(key, &waiter, ending, now);
        Some(waiter)
    }

    /// While all requests are being dismissed, removes the next one, which the driver then answers. Returns `None` if
    /// none is left, and `Some(None)` if the next one stays because it arrived after the dismissal began.
    pub fn dismiss_next(&mut self, now: BootTime) -> Option<Option<WaiterId>> {
        let (last_arrival, behind) = self.waiting.to_send_away?;
        let next = self.waiting.timeouts.range((Excluded(behind), Unbounded)).next().copied();
        self.waiting.to_send_away = next.map(|next| (last_arrival, next));
        let (_, id) = next?;
        let is_to_leave = self.waiting.places.get(&id).is_some_and(|(.., place)| place.arrived() <= last_arrival);
        Some(is_to_leave.then(|| self.leave(id, Ending::Left, now)).flatten().map(|waiter| waiter.id))
    }

    /// Removes all requests of `owner` for the lock of `key`, and its reservation.
    #[inline]
    pub fn withdraw(&mut self, key: Key<'_>, owner: Owner<'_>, now: BootTime) {
        // This comes first because mostly nobody waits.
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

    /// Removes the requests of `owner` for the lock of `key` for which `which` returns true. Its reservation stays.
    /// Returns their number.
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

    /// Removes at most `count` requests from the front of the queue of `key`; the caller answers them. If others are
    /// left, the node checks the queue again soon.
    pub fn dismiss(&mut self, key: Key<'_>, count: usize, now: BootTime) -> Vec<WaiterId> {
        self.waiting.end_turns(key);
        let Some(queue) = self.waiting.queue_mut(key) else { return vec![] };
        let gone = queue.leave_first(count);
        let ids = gone.iter().map(|waiter| waiter.id).collect();
        for waiter in &gone {
            self.waiting.unlist(key.name, waiter);
            self.record_failed_wait(key, waiter, Ending::Redirected, now);
        }
        self.waiting.wake_at(key, BootTime::default());
        self.waiting.tidy(key);
        ids
    }

    /// Answers the request whose time ended first, if it is over at `now`; returns false if there is none.
    pub fn time_out(&mut self, now: BootTime) -> bool {
        let Some(&(_, id)) = self.waiting.timeouts.first().filter(|(until, _)| now > *until) else { return false };
        self.give_up(id, now);
        true
    }

    fn give_up(&mut self, id: WaiterId, now: BootTime) {
        let awaits_disk = self.waiting.awaits_disk(id);
        if let Some(waiter) = self.leave(id, Ending::TimedOut, now) {
            // A request for a lock that only the disk keeps from being handed over is answered that the disk is the reason.
            let is_for_disk = waiter.at_once || awaits_disk && waiter.want != Want::Turn;
            let answer = if is_for_disk { Answer::Refused(Refusal::NotYet) } else { Answer::TimedOut(waiter.want) };
            self.waiting.timeouts_ever += u64::from(!waiter.at_once);
            self.waiting.push(id, answer);
        }
    }

    /// Removes the waiting request `id` and answers it with `refusal`.
    pub fn refuse(&mut self, id: WaiterId, refusal: Refusal, now: BootTime) {
        if self.leave(id, Ending::Refused(refusal), now).is_some() {
            self.waiting.push(id, Answer::Refused(refusal));
        }
    }

    /// Postpones the hand-over of a free lock, because of `refusal`. If that reason passes with time, the hand-over is
    /// tried again then, and requests that cannot wait until then are refused now. Otherwise all requests are refused.
    /// For [`Refusal::NotYet`], which concerns the whole node, nobody is refused: the node checks no queue for a
    /// moment, and then this one again.
    pub fn postpone(&mut self, key: Key<'_>, refusal: Refusal, now: BootTime) {
        if refusal == Refusal::NotYet {
            self.waiting.not_before = now.plus_ms(RETRY_HAND_OVER_MS);
            self.waiting.wait_for_disk(key);
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
        // Requests that arrive after this can all wait until then, which is checked when they arrive. An earlier end is
        // that of another guard, and the first one was lifted: requests that arrived between them were not checked. (A
        // difference of one millisecond is only the rounding of the time left.)
        if then > queue.postpone.plus_ms(1) || then.plus_ms(1) < queue.postpone {
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

    /// Answers the requests that were to wait for the disk only, not for other requests. Another owner has the lock of
    /// `key`, or is ahead of them, so they do not get it. Returns their number. If some are left, the node checks the
    /// queue again.
    pub fn answer_at_once(&mut self, key: Key<'_>, now: BootTime) -> u64 {
        let Some(queue) = self.waiting.queue_mut(key).filter(|queue| queue.has_at_once()) else { return 0 };
        let gone = queue.leave_at_once(ANSWERS_A_PASS_MAX);
        let (count, more) = (gone.len() as u64, queue.has_at_once());
        // The answer is as if the time to wait was over: such a request was not to wait for other requests.
        self.answer(key, gone, now, |waiter| (Answer::TimedOut(waiter.want), None));
        if more {
            self.waiting.wake_at(key, now);
        }
        self.waiting.first_left(key);
        self.waiting.tidy(key);
        count
    }

    /// Returns the next request that can get the lock of `key`, which is held in the modes `held`. Requests before it
    /// whose time is over at `now` are answered. If an owner has a reservation and an ACQUIRE in the queue, that
    /// ACQUIRE is next.
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
            let Some(first) = queue.first(unused_max) else { return self.plan_reservation_check(key) };
            if now <= first.until {
                let request = queue.request_for_lock(first.owner(), first.wanted, now).unwrap_or(first);
                // If its owner already has a reservation, the request for a turn has to wait: another turn would make
                // the reservation longer.
                let has_turn = request.want == Want::Turn && queue.kept.mode_of(request.owner()).is_some();
                return match queue.kept.admitted(request.owner(), request.wanted, held).filter(|_| !has_turn) {
                    Some(mode) => Next::Request(request.clone(), mode),
                    None => self.plan_reservation_check(key),
                };
            }
            let id = first.id;
            self.give_up(id, now);
        }
        self.waiting.wake_at(key, now);
        Next::Nobody
    }

    /// Plans a check of the queue for the end of the next reservation. A grant whose end frees the lock causes a check
    /// by itself.
    fn plan_reservation_check(&mut self, key: Key<'_>) -> Next {
        if let Some(until) = self.waiting.queue(key).and_then(|queue| queue.kept.first()).map(|(_, until)| until) {
            self.waiting.wake_at(key, until.plus_us(1));
        }
        Next::Blocked
    }

    /// Answers all requests of `owner`, which was granted the lock in `mode` with `token`. Returns the time since which
    /// the owner had waited.
    pub fn answer_granted(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        (mode, token): (Mode, Token),
        now: BootTime,
    ) -> BootTime {
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
            Want::Lock { .. } => Answer::Granted { token, number, waited_ms: now.ms_since(waiter.since), granted: now },
            Want::Turn => Answer::Turn(number),
        });
        let leaves = !others.is_empty();
        if leaves {
            self.answer(key, others, now, |_| refused(Refusal::Owned));
        }
        // The count of unused turns starts again at zero. So the request that has waited longest may no longer be next,
        // and another one may be able to get the lock.
        if leaves || is_first_again {
            self.waiting.first_left(key);
        }
        self.waiting.tidy(key);
        since
    }

    /// Answers all requests of `owner`, which holds the lock of `key` in `mode` with `token`, since `granted`. A LOCK.WAIT
    /// in this mode gets a turn. An ACQUIRE with RETRY in this mode gets the existing grant; if the node cannot be sure of that
    /// grant, `vouched` is the refusal to answer instead. All other requests are refused (`OWNED`). Returns the longest
    /// lease that requests with RETRY ask for, if the node is sure of the grant.
    pub fn held_by(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        (mode, token, granted): (Mode, Token, BootTime),
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
            // The caller extends the lease to what the request asks for, counted from now.
            (Want::Lock { .. }, Ok(())) => {
                (Answer::Granted { token, number, waited_ms: now.ms_since(waiter.since), granted }, None)
            }
            (Want::Lock { .. }, Err(refusal)) => refused(refusal),
        });
        self.waiting.first_left(key);
        self.waiting.tidy(key);
        repeated
    }

    /// Reserves the lock of `key` for `owner` in `mode`, and answers all its LOCK.WAITs.
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

    /// Answers the requests `served`, which left the queue of `key` with success, and records how long they waited.
    fn serve(&mut self, key: Key<'_>, served: Vec<Waiter>, now: BootTime, answer: impl Fn(&Waiter) -> Answer) {
        for waiter in &served {
            let us = now.us_since(waiter.since);
            self.waiting.waits.record(us);
            self.history.record_wait(key, us);
        }
        self.answer(key, served, now, |waiter| (answer(waiter), None));
    }

    /// Answers requests that left the queue of `key`. For each failed wait, records in the history why it ended.
    fn answer(
        &mut self,
        key: Key<'_>,
        gone: Vec<Waiter>,
        now: BootTime,
        answer: impl Fn(&Waiter) -> (Answer, Option<Ending>),
    ) {
        for waiter in gone {
            self.waiting.unlist(key.name, &waiter);
            let (answer, failed) = answer(&waiter);
            if let Some(ending) = failed {
                self.record_failed_wait(key, &waiter, ending, now);
            }
            self.waiting.push(waiter.id, answer);
        }
    }

    /// Records in the history that a request left the queue of `key` without the lock, and the reason `ending`.
    fn record_failed_wait(&mut self, key: Key<'_>, waiter: &Waiter, ending: Ending, now: BootTime) {
        if !waiter.at_once {
            let left = self.waiting.len_of(key);
            self.history.record_failed_wait(key, waiter.failed_wait(), ending, left, now);
        }
    }
}

fn refused(refusal: Refusal) -> (Answer, Option<Ending>) {
    (Answer::Refused(refusal), Some(Ending::Refused(refusal)))
}
