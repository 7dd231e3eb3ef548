//! Passes a lock on when it ends, or when a check of its queue shows that it is free. The first waiting request gets
//! it, and those behind it as long as they are compatible. If nobody gets it, the key is deleted.
//!
//! The stages are in the order of execution.

use super::at::At;
use super::step::{By, Event, Finding, Question, Step};
use crate::history::ending::Ending;
use crate::history::grant_events::Happened;
use crate::lock::Lock;
use crate::lock::modes::Modes;
use crate::queue::leaving::Next;
use crate::queue::of_key::{Waiter, WaiterId};
use crate::refusal::Refusal;
use crate::rules::hand_over::{HandedOver, hand_over};
use crate::values::limits::ANSWERS_A_PASS_MAX;

/// The state while a lock is passed on to waiting requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    by: By,
    stage: Stage,
    /// True if the lock in the key has ended: if nobody gets it, the key is deleted.
    has_ended: bool,
    /// The number of waiting requests that were answered since this `Passing` began, because they got the lock or had
    /// lost their permission.
    served: usize,
    /// True if the driver has already said that the node may grant.
    may_grant: bool,
    /// True if the driver was already asked which state is on the disk.
    asked_disk: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The lock in the key ends, with this event.
    Ends(Event),
    /// The node checks the queue: the lock may be free, or joint (held by readers or permit holders).
    Looked,
    /// The lock is free or joint. The next thing to find out is what the node may grant in the key's slot.
    Free,
    Slot,
    SlotSaid,
    /// The lock is free or joint. The next thing to find out is whether the user of the first request has the
    /// permission.
    First,
    FirstSaid(WaiterId),
    /// The next thing to find out is whether the server lets the node grant to a waiting request.
    Waits,
    MayGrantSaid,
    /// The rule decides who gets the lock.
    Decides,
    /// The lock is stored for the waiting request.
    Stored,
    /// A request was served. The next one may be served too.
    Again,
    /// No further request gets the lock this time.
    Stays,
    Over,
}

impl Passing {
    /// Begins to pass on a lock that ends. The key event is `event`.
    pub(super) fn ended(event: Event, by: By) -> Self {
        Self { by, stage: Stage::Ends(event), has_ended: true, served: 0, may_grant: false, asked_disk: false }
    }

    /// Begins a check of a queue: the key may be free, so that the first waiter can get the lock.
    fn check(by: By) -> Self {
        Self { stage: Stage::Looked, has_ended: false, ..Self::ended(Event::Expired, by) }
    }

    /// Begins a check of a queue. If the lease of the lock in the key is over, the lock ends first.
    pub(super) fn begin(by: By, at: &mut At<'_>) -> Self {
        let Some(lock) = at.held.as_deref().filter(|lock| lock.is_expired(at.now.boot)) else { return Self::check(by) };
        at.node.counters.expiries += lock.len() as u64;
        Self::ended(Event::Expired, by)
    }

    /// Returns the driver's next step, or `None` when the passing is done. A newly granted lock is put into `granted`.
    #[inline(never)]
    pub(super) fn next(&mut self, granted: &mut Option<Box<Lock>>, at: &mut At<'_>) -> Option<Step> {
        while !matches!(self.stage, Stage::Over) {
            let (stage, step) = self.run_stage(granted, at);
            self.stage = stage;
            if step.is_some() {
                return step;
            }
        }
        None
    }

    /// Runs the present stage; returns the next stage, and the step that the driver performs before it.
    fn run_stage(&mut self, granted: &mut Option<Box<Lock>>, at: &mut At<'_>) -> (Stage, Option<Step>) {
        match self.stage {
            Stage::Ends(event) => at.end(event),
            Stage::Looked if matches!(at.held, Some(Lock::Exclusive(_))) => (Stage::Waits, None),
            Stage::Looked => (Stage::Free, None),
            Stage::Free => (Stage::Slot, at.node.slots.must_read_slots(at.key.name).then_some(Step::ReadSlots)),
            Stage::Slot if at.node.slots.is_in_cluster() && at.held.is_none() => {
                (Stage::SlotSaid, Some(Step::Ask(Question::IsServedHere)))
            }
            Stage::SlotSaid if at.said == Finding::No => (Stage::Stays, Some(Step::Redirect)),
            Stage::Slot | Stage::SlotSaid => (Stage::First, None),
            Stage::First => self.find_first(at),
            Stage::FirstSaid(first) => at.first_said(first),
            Stage::Waits if !self.may_grant && at.somebody_waits() => {
                (Stage::MayGrantSaid, Some(Step::Ask(Question::MayGrant(self.by))))
            }
            Stage::Waits => (Stage::Decides, None),
            Stage::MayGrantSaid => self.may_grant_said(at),
            Stage::Decides => self.decide(granted, at),
            Stage::Stored => {
                self.has_ended = false;
                at.schedule_expiry();
                (Stage::Again, None)
            }
            Stage::Again => (self.served_one(at), None),
            Stage::Stays if self.has_ended && at.held.is_some() => (Stage::Over, Some(Step::Delete(None))),
            Stage::Stays | Stage::Over => (Stage::Over, None),
        }
    }

    fn find_first(&self, at: &mut At<'_>) -> (Stage, Option<Step>) {
        let modes = match at.held.as_deref() {
            Some(Lock::Joint(holders)) if !self.has_ended => holders.modes(),
            _ => Modes::free(),
        };
        match at.node.queues().next(at.key, modes, at.now.boot) {
            Next::Request(Waiter { id, .. }, _) => (Stage::FirstSaid(id), Some(Step::Ask(Question::IsPermitted(id)))),
            Next::Blocked => (Stage::Waits, None),
            Next::Nobody => (Stage::Stays, None),
        }
    }

    fn may_grant_said(&mut self, at: &mut At<'_>) -> (Stage, Option<Step>) {
        if let Finding::Refused(refusal) = at.said {
            return (at.postpone(refusal), None);
        }
        self.may_grant = true;
        (Stage::Decides, None)
    }

    /// Calls the rule of the hand-over, and returns the stage and the step that follow from its outcome.
    fn decide(&mut self, granted: &mut Option<Box<Lock>>, at: &mut At<'_>) -> (Stage, Option<Step>) {
        match at.hand_over(self.has_ended) {
            Ok(HandedOver::Granted(lock)) => {
                at.node.notice(at.key, &lock, lock.first_id(), Happened::HandedOver, at.now.boot);
                *granted = Some(lock);
                (Stage::Stored, Some(Step::Store(Event::HandedOver)))
            }
            Ok(HandedOver::Joined(id)) => {
                at.notice(id, Happened::HandedOver);
                at.schedule_expiry();
                (Stage::Again, Some(Step::Changed(Some(Event::HandedOver), id)))
            }
            Ok(HandedOver::Prolonged(id)) => {
                at.schedule_expiry();
                (Stage::Again, Some(Step::Changed(Some(Event::Extended), id)))
            }
            Ok(HandedOver::Told | HandedOver::Answered) => (Stage::Again, None),
            Ok(HandedOver::Stays) => (Stage::Stays, None),
            Err(Refusal::NotYet) if !self.asked_disk => {
                self.asked_disk = true;
                (Stage::Decides, Some(Step::Ask(Question::OnDisk)))
            }
            Err(refusal) => {
                let stage = at.postpone(refusal);
                let is_write_needed = refusal == Refusal::NotYet && at.node.is_write_needed(at.now);
                (stage, is_write_needed.then_some(Step::Write))
            }
        }
    }

    /// Counts a request that was served, and returns the next stage: the next request, or the end.
    fn served_one(&mut self, at: &mut At<'_>) -> Stage {
        self.served += 1;
        let is_exclusive = matches!(at.held, Some(Lock::Exclusive(_))) && !self.has_ended;
        if is_exclusive || !at.has_queue() {
            Stage::Stays
        } else if self.served == ANSWERS_A_PASS_MAX {
            at.node.waiting.wake_at(at.key, at.now.boot);
            Stage::Stays
        } else {
            Stage::First
        }
    }
}

impl At<'_> {
    fn end(&mut self, event: Event) -> (Stage, Option<Step>) {
        self.node.record_lock_end(self.key, self.held.as_deref(), ending(event), self.now.boot);
        if !self.has_queue() {
            return (Stage::Over, Some(Step::Delete(Some(event))));
        }
        // In a cluster the key is deleted first: only for an absent key does the server say whether its slot has moved
        // away.
        let is_in_cluster = self.node.slots.is_in_cluster();
        (Stage::Free, Some(if is_in_cluster { Step::Delete(Some(event)) } else { Step::Publish(event) }))
    }

    /// Refuses the first request if its user has lost the permission since it arrived.
    fn first_said(&mut self, first: WaiterId) -> (Stage, Option<Step>) {
        let Finding::Refused(refusal) = self.said else { return (Stage::Waits, None) };
        self.node.queues().refuse(first, refusal, self.now.boot);
        (Stage::Again, None)
    }

    fn hand_over(&mut self, has_ended: bool) -> Result<HandedOver, Refusal> {
        if self.somebody_waits() {
            self.node.ready(self.now.boot)?;
        }
        let in_key = self.held.as_deref_mut().filter(|_| !has_ended);
        let handed_over = hand_over(self.key, in_key, self.node, self.now)?;
        self.node.waiting.on_handed_over();
        Ok(handed_over)
    }

    fn somebody_waits(&self) -> bool {
        self.node.waiting.len_of(self.key) > 0
    }

    /// Postpones the next check of the queue: no request can be granted the lock now, because of `refusal`.
    fn postpone(&mut self, refusal: Refusal) -> Stage {
        self.node.queues().postpone(self.key, refusal, self.now.boot);
        Stage::Stays
    }
}

/// Returns why the grants of a lock ended, as the log has it, for the key event `event`.
pub(super) fn ending(event: Event) -> Ending {
    match event {
        Event::Released => Ending::Released,
        Event::Broken => Ending::Broken,
        _ => Ending::Expired,
    }
}
