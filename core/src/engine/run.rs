//! Runs one request for one key: a command of a client, or due work.
//!
//! The stages are in the order of execution.

use super::at::At;
use super::passing::Passing;
use super::preconditions::{Precondition, unmet};
use super::step::{By, Event, Finding, Question, Reply, Request, Step};
use crate::history::ending::Ending;
use crate::lock::Lock;
use crate::lock::deadlines::Due;
use crate::lock::grant::{Grant, GrantId};
use crate::node::Node;
use crate::queue::shares::UserId;
use crate::refusal::Refusal;
use crate::rules::renew::live_grant;
use crate::values::key::Key;
use crate::values::limits::ENDED_A_STEP_MAX;
use crate::values::time::Now;
use crate::values::token::Token;

/// A request, from its arrival to the end of all its consequences.
#[derive(Debug)]
pub struct Run<'a> {
    pub(super) key: Key<'a>,
    pub(super) request: &'a Request<'a>,
    pub(super) stage: Stage,
    pub(super) granted: Option<Box<Lock>>,
    /// The grant that left a lock which others still hold. In a box, because most requests have none and need no room
    /// for one.
    pub(super) ended: Option<Box<Grant>>,
    /// The number of grants that this run has removed because their leases are over.
    over: usize,
    /// True if the driver was already asked which state is on the disk.
    pub(super) asked_disk: bool,
    pub(super) touches_queue: bool,
    /// True if the lock has watchers that must still receive this change.
    is_watched: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Arrived,
    /// Grants whose leases are over are being removed from a lock that others hold.
    EndsOver,
    /// Waiting requests are served before the present request.
    Serves(Passing),
    /// Next, the driver reads which slots of the cluster the node serves.
    Slot,
    /// Next, the disk must have everything that a later incarnation has to know.
    Ready,
    /// Next, the rule of the request decides.
    Decides,
    /// The lock has ended and passes to a waiting request, or its queue is served. Then the present request gets this
    /// answer.
    Passes(Passing, Reply),
    /// Next, the driver has to say whether the connection that is to keep the lease alive is open.
    Connection,
    ConnectionSaid,
    /// The grants with this token are removed one after the other. A slice of a BREAK of many grants removes `left`
    /// more, and the next slice continues.
    Breaks {
        token: Token,
        left: usize,
    },
    /// More grants have the token than one step may end, so the client is blocked until slices have ended them all.
    BreaksLater(Token),
    /// The lock was stored in place of one whose lease was over. It takes over the old lock's entry in the deadlines.
    Stored(Token, u16),
    /// The client is to wait in the queue, or for the disk alone. Next, the queue must have room for it.
    Blocks {
        for_disk: bool,
    },
    AskerSaid {
        for_disk: bool,
    },
    Blocked {
        for_disk: bool,
        user: UserId,
    },
    Answers(Result<Reply, Refusal>),
}

impl<'a> Run<'a> {
    /// Creates the run of `request` for `key`; nothing happens before [`Run::next`].
    pub fn new(key: Key<'a>, request: &'a Request<'a>) -> Self {
        Self {
            key,
            request,
            stage: Stage::Arrived,
            granted: None,
            ended: None,
            over: 0,
            asked_disk: false,
            touches_queue: false,
            is_watched: false,
        }
    }

    /// Returns the lock that [`Step::Store`] or [`Step::Replace`] stores.
    pub fn take_granted(&mut self) -> Option<Box<Lock>> {
        self.granted.take()
    }

    /// Returns the grant that left a lock which others still hold, for [`Step::Left`].
    pub fn take_ended(&mut self) -> Option<Box<Grant>> {
        self.ended.take()
    }

    /// Returns the command's answer if nothing else is left to do. Then the driver need not call [`Run::next`] again.
    pub fn final_answer(&self) -> Option<&Result<Reply, Refusal>> {
        match &self.stage {
            Stage::Answers(answer) if !self.is_watched => Some(answer),
            _ => None,
        }
    }

    /// Returns whether this run may have made answers for waiting requests ready, or work due earlier than before.
    pub fn touches_queue(&self) -> bool {
        self.touches_queue
    }

    /// Returns the next step. `held` is the key's present content, and `said` is the driver's answer to the step before
    /// ([`Finding::Yes`] at first). The run ends with [`Step::Done`].
    // Inlined into the server's driver, its only caller there. The usual case runs straight through it; the stages,
    // which are much code, are a function of their own. In one function, every command would run a tenth more
    // instructions for code that few commands need (`make instructions`).
    #[inline(always)]
    pub fn next(&mut self, mut held: Option<&mut Lock>, said: Finding, node: &mut Node, now: Now) -> Step {
        if let Stage::Arrived = self.stage
            && self.is_plain(held.as_deref(), node, now)
        {
            let step = match self.request {
                Request::Acquire(ask) => self.decide_acquire(held.as_deref_mut(), ask, node, now),
                Request::Release(ask) => self.decide_release(held.as_deref_mut(), ask, node, now),
                Request::Extend(ask) => self.decide_extension(held.as_deref_mut(), ask, node, now),
                _ => None,
            };
            if let Some(step) = step {
                return step;
            }
            if let Stage::Answers(answer) = self.stage {
                return Step::Done(answer);
            }
        }
        self.run_stages(At { key: self.key, held, said, node, now })
    }

    /// Returns whether this is the usual case: nothing has to happen before the rule of an ACQUIRE, RELEASE or EXTEND,
    /// and nobody waits for the lock, watches it or holds it together with others.
    #[inline(always)]
    fn is_plain(&self, held: Option<&Lock>, node: &Node, now: Now) -> bool {
        matches!(self.request, Request::Acquire(_) | Request::Release(_) | Request::Extend(_))
            && !matches!(held, Some(Lock::Joint(_)))
            && !node.waiting.has_queue(self.key)
            && !node.watching.has(self.key)
            && unmet(Precondition::NoneIsOver, (self.request, self.key), held, node, now).is_none()
            && self.ensure_vouched(node, now).is_ok()
    }

    /// Runs from stage to stage until the driver has something to do.
    #[inline(never)]
    fn run_stages(&mut self, mut at: At<'_>) -> Step {
        loop {
            if let Some(step) = self.run_stage(&mut at) {
                return step;
            }
        }
    }

    #[inline(always)]
    fn run_stage(&mut self, at: &mut At<'_>) -> Option<Step> {
        match self.stage {
            Stage::Arrived => self.begin(at),
            Stage::EndsOver => match self.end_over(at) {
                None => self.prepare(Precondition::QueueServed, at),
                step => step,
            },
            Stage::Serves(_) => match self.pass(at) {
                None => self.prepare(Precondition::SlotKnown, at),
                step => step,
            },
            Stage::Slot => self.then(Stage::Ready, Step::ReadSlots),
            Stage::Ready => match at.node.ready(at.now.boot) {
                Ok(()) => self.continue_at(Stage::Decides),
                Err(refusal) => self.refuse(refusal, at),
            },
            Stage::Decides => self.decide(at),
            Stage::Passes(_, reply) => match self.pass(at) {
                None => self.answer(Ok(reply)),
                step => step,
            },
            Stage::Connection => self.ask_for_connection(),
            Stage::ConnectionSaid => self.connection_said(at),
            Stage::Breaks { token, left } => self.break_one(token, left, at),
            Stage::BreaksLater(token) => self.break_later(token, at),
            Stage::Stored(token, number) => {
                at.schedule_expiry();
                self.answer(Ok(Reply::Granted(token, number)))
            }
            Stage::Blocks { for_disk } => self.then(Stage::AskerSaid { for_disk }, Step::Ask(Question::WhoAsks)),
            Stage::AskerSaid { for_disk } => self.asker_said(for_disk, at),
            Stage::Blocked { for_disk, user } => self.blocked(user, for_disk, at),
            Stage::Answers(_) if self.is_watched => {
                self.is_watched = false;
                if at.node.watching.checks_later(self.key) {
                    // So the driver sees that work is due.
                    self.touches_queue = true;
                    return None;
                }
                Some(Step::AnswerWatchers)
            }
            Stage::Answers(answer) => Some(Step::Done(answer)),
        }
    }

    /// Begins the request: returns its first step.
    fn begin(&mut self, at: &mut At<'_>) -> Option<Step> {
        if let Request::Renew(renewal) = self.request {
            // Watchers do not receive renewals, so a lock whose lease is renewed counts as unwatched.
            let is_kept = live_grant(at.held.as_deref_mut(), renewal, at.now).is_some();
            return self.continue_at(if is_kept { Stage::Connection } else { Stage::Decides });
        }
        self.is_watched = at.node.watching.has(self.key);
        self.touches_queue =
            matches!(self.request, Request::Convert(_) | Request::Release(_) | Request::Break(_)) && at.has_queue();
        self.prepare(Precondition::NoneIsOver, at)
    }

    /// Continues with the first precondition from `from` on that is not met, or with the rule if all are.
    fn prepare(&mut self, from: Precondition, at: &mut At<'_>) -> Option<Step> {
        self.stage = match unmet(from, (self.request, self.key), at.held.as_deref(), at.node, at.now) {
            Some(Precondition::NoneIsOver) => Stage::EndsOver,
            Some(Precondition::QueueServed) => {
                self.touches_queue = true;
                Stage::Serves(Passing::begin(By::Command, at))
            }
            Some(Precondition::SlotKnown) => Stage::Slot,
            Some(Precondition::OnDisk) => Stage::Ready,
            None => Stage::Decides,
        };
        None
    }

    /// Passes the lock on to waiting requests, one step at a time.
    fn pass(&mut self, at: &mut At<'_>) -> Option<Step> {
        let (Stage::Serves(passing) | Stage::Passes(passing, _)) = &mut self.stage else { return None };
        passing.next(&mut self.granted, at)
    }

    /// Serves the queue of the lock, if it has one, then answers with `reply`.
    pub(super) fn serve_queue(&mut self, by: By, reply: Reply, at: &mut At<'_>) -> Option<Step> {
        if !at.has_queue() {
            return self.answer(Ok(reply));
        }
        self.continue_at(Stage::Passes(Passing::begin(by, at), reply))
    }

    /// Removes a grant whose lease is over from a lock that others hold, and reports it. `None` if no such grant is
    /// left, or this run has removed [`ENDED_A_STEP_MAX`].
    #[inline(never)]
    fn end_over(&mut self, at: &mut At<'_>) -> Option<Step> {
        self.touches_queue |= at.has_queue();
        let lock = at.held.as_deref()?;
        let ended = lock.ended(at.now.boot).filter(|_| self.over < ENDED_A_STEP_MAX);
        // The requester's own grant must be reported as ended before its next grant, however many other grants are
        // over.
        let own = || if let Request::Acquire(ask) = self.request { lock.find(ask.owner) } else { None };
        let ended = ended.or_else(|| own().filter(|&own| lock.grant(own).is_expired(at.now.boot)));
        self.ended = Some(at.take(ended?, Ending::Expired)?);
        self.over += 1;
        at.node.counters.expiries += 1;
        Some(Step::Left(Event::Expired))
    }

    #[inline(never)]
    fn ask_for_connection(&mut self) -> Option<Step> {
        let Request::Renew(renewal) = self.request else { return self.answer(Ok(Reply::Null)) };
        self.then(Stage::ConnectionSaid, Step::Ask(Question::MayRenew(renewal.client())))
    }

    #[inline(never)]
    fn connection_said(&mut self, at: &mut At<'_>) -> Option<Step> {
        match at.said {
            Finding::No => {
                if let Request::Renew(renewal) = self.request {
                    at.node.keepalives.end(renewal);
                    if let Some((lock, own)) = live_grant(at.held.as_deref_mut(), renewal, at.now) {
                        lock.grant_mut(own).mark_unconnected();
                    }
                }
                self.answer(Ok(Reply::Null))
            }
            Finding::Refused(refusal) => self.answer(Err(refusal)),
            _ => match at.node.slots.ensure_vouched(self.key.name, at.now.boot) {
                Ok(()) => self.prepare(Precondition::OnDisk, at),
                Err(refusal) => self.answer(Err(refusal)),
            },
        }
    }

    /// Ends the lock to which the entry `due` belongs, if all its leases are over.
    #[inline(never)]
    pub(super) fn expire(&mut self, due: &Due, at: &mut At<'_>) -> Option<Step> {
        match at.held.as_deref() {
            Some(lock) if due.is_of(lock) && lock.is_expired(at.now.boot) => {
                at.node.counters.expiries += lock.len() as u64;
                return self.continue_at(Stage::Passes(Passing::ended(Event::Expired, By::Itself), Reply::Null));
            }
            // Others still hold the lock. A waiting request may be able to join them, now that grants have ended.
            Some(_) if self.over > 0 => return self.serve_queue(By::Itself, Reply::Null, at),
            // The lease of this lock was extended.
            Some(lock) if due.is_of(lock) => at.schedule_expiry(),
            // The entry belongs to an earlier lock of this name, although it should have been removed with that lock.
            _ => at.node.forget_due(due),
        }
        self.answer(Ok(Reply::Null))
    }

    /// Reports that the grant `id` of the lock in the key changed in place, by `event`.
    pub(super) fn changed(&mut self, id: GrantId, event: Option<Event>, reply: Reply, at: &mut At<'_>) -> Option<Step> {
        at.schedule_expiry();
        self.then(Stage::Answers(Ok(reply)), Step::Changed(event, id))
    }

    pub(super) fn block(&mut self, for_disk: bool) -> Option<Step> {
        self.continue_at(Stage::Blocks { for_disk })
    }

    pub(super) fn answer(&mut self, answer: Result<Reply, Refusal>) -> Option<Step> {
        self.continue_at(Stage::Answers(answer))
    }

    /// Returns `step` for the driver, and continues with `stage` after it.
    pub(super) fn then(&mut self, stage: Stage, step: Step) -> Option<Step> {
        self.stage = stage;
        Some(step)
    }

    pub(super) fn continue_at(&mut self, stage: Stage) -> Option<Step> {
        self.stage = stage;
        None
    }
}
