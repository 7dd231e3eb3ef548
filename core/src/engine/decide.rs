//! Calls the rule of a command (a function in `rules`), and turns its outcome into steps for the driver.

use super::at::At;
use super::passing::Passing;
use super::run::{Run, Stage};
use super::step::{By, Event, Finding, Reply, Request, Step};
use crate::history::ending::Ending;
use crate::history::grant_events::Happened;
use crate::lock::Lock;
use crate::lock::grant::GrantId;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::{Acquire, Convert, Extend, Release};
use crate::rules::acquire::{Acquired, acquire};
use crate::rules::break_lock::{break_lock, is_sliced};
use crate::rules::convert::convert;
use crate::rules::extend::extend;
use crate::rules::fence::fence;
use crate::rules::note::annotate;
use crate::rules::on_grant::OnGrant;
use crate::rules::reenter::reenter;
use crate::rules::release::{Released, release};
use crate::rules::renew::renew;
use crate::rules::wait::{Waited, wait};
use crate::values::limits::ENDED_A_STEP_MAX;
use crate::values::time::Now;
use crate::values::token::Token;

impl Run<'_> {
    /// Calls the rule of the request, and returns the first step that follows from its outcome.
    pub(super) fn decide(&mut self, at: &mut At<'_>) -> Option<Step> {
        let now = at.now;
        if let Err(refusal) = self.ensure_vouched(at.node, now) {
            return self.refuse(refusal, at);
        }
        match self.request {
            Request::Acquire(ask) => self.decide_acquire(at.held.as_deref_mut(), ask, at.node, now),
            Request::Release(ask) => self.decide_release(at.held.as_deref_mut(), ask, at.node, now),
            Request::Extend(ask) => self.decide_extension(at.held.as_deref_mut(), ask, at.node, now),
            Request::Renew(renewal) => {
                let done = renew(at.held.as_deref_mut(), renewal, at.node, now);
                self.on_grant(done, None, |()| Reply::Null, at)
            }
            Request::Reenter(ask) => {
                let done = reenter(at.held.as_deref_mut(), ask, at.node, now);
                self.on_grant(done, None, Reply::Holds, at)
            }
            Request::Fence(owner, token) => {
                let done = fence(self.key.name, at.held.as_deref_mut(), *owner, *token, at.node, now);
                if let Ok(OnGrant::Changed(own, _)) = done {
                    at.notice(own, Happened::Raised);
                }
                self.on_grant(done, None, Reply::Token, at)
            }
            Request::Note(ask) => {
                let done = annotate(at.held.as_deref_mut(), ask, at.node, now);
                self.on_grant(done, Some(Event::Noted), Reply::Noted, at)
            }
            Request::Wait(ask) => {
                self.touches_queue = true;
                match wait(self.key, at.held.as_deref(), ask, at.node, now) {
                    Ok(Waited::Turn(number)) => self.answer(Ok(Reply::Turn(number))),
                    Ok(Waited::TimedOut) => self.answer(Ok(Reply::Turn(0))),
                    Ok(Waited::Queues) => self.block(false),
                    Err(refusal) => self.refuse(refusal, at),
                }
            }
            Request::Convert(ask) => self.decide_conversion(ask, at),
            Request::Break(asked) => self.decide_break(*asked, at),
            Request::BreakOn(breaking) => self.begin_slice(breaking, at),
            Request::Expire(due) => self.expire(due, at),
            Request::Look => self.serve_queue(By::Itself, Reply::Null, at),
        }
    }

    /// Refuses a request that relies on a present grant, if the node cannot vouch for grants in the lock's slot.
    #[inline(always)]
    pub(super) fn ensure_vouched(&self, node: &Node, now: Now) -> Result<(), Refusal> {
        match self.request.is_about_own_grant() || matches!(self.request, Request::Convert(_)) {
            true => node.slots.ensure_vouched(self.key.name, now.boot),
            false => Ok(()),
        }
    }

    /// Returns the step that follows from the outcome of a command about one grant.
    #[inline(always)]
    fn on_grant<T>(
        &mut self,
        done: Result<OnGrant<T>, Refusal>,
        event: Option<Event>,
        reply: fn(T) -> Reply,
        at: &mut At<'_>,
    ) -> Option<Step> {
        match done {
            Ok(OnGrant::Changed(own, told)) => self.changed(own, event, reply(told), at),
            Ok(OnGrant::Unchanged(told)) => self.answer(Ok(reply(told))),
            Ok(OnGrant::NotHeld) => self.answer(Ok(Reply::Null)),
            Err(refusal) => self.refuse(refusal, at),
        }
    }

    /// Calls the rule of BREAK. If one slice cannot end all grants with the token, the client is blocked first.
    fn decide_break(&mut self, asked: Option<Token>, at: &mut At<'_>) -> Option<Step> {
        if let Some(token) = asked.filter(|&token| is_sliced(at.held.as_deref(), token, at.now)) {
            return self.then(Stage::BreaksLater(token), Step::Block);
        }
        match break_lock(self.key, at.held.as_deref_mut(), asked, at.node, at.now) {
            Some(token) if asked.is_some() => self.continue_at(Stage::Breaks { token, left: ENDED_A_STEP_MAX }),
            Some(token) => self.end_broken(By::Command, token, at.node),
            None => self.answer(Ok(Reply::Null)),
        }
    }

    /// Calls the rule of ACQUIRE, and returns the first step that follows from its outcome.
    #[inline(always)]
    pub(super) fn decide_acquire(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Acquire<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        match acquire(self.key, held.as_deref_mut(), ask, node, now) {
            Ok(Acquired::Granted(mut lock)) => {
                let (mode, grant) = lock.oldest();
                let (token, number) = (grant.token(), mode.number());
                let step = if held.is_some() {
                    node.record_lock_end(self.key, held.as_deref(), Ending::Expired, now.boot);
                    self.stage = Stage::Stored(token, number);
                    Step::Replace
                } else {
                    // Nothing else runs before the lock is in the key, so its deadline may be in the table already.
                    node.schedule_expiry(self.key, Some(&mut lock));
                    self.stage = Stage::Answers(Ok(Reply::Granted(token, number)));
                    Step::Store(Event::Acquired)
                };
                node.notice(self.key, &lock, lock.first_id(), Happened::Granted, now.boot);
                self.granted = Some(lock);
                Some(step)
            }
            Ok(Acquired::Contended) => self.answer(Ok(Reply::Null)),
            Ok(Acquired::Queues) => self.block(false),
            Ok(Acquired::WaitsForDisk) => self.block(true),
            Ok(Acquired::Joined(id)) => {
                let at = &mut At { key: self.key, held, said: Finding::Yes, node, now };
                at.notice(id, Happened::Granted);
                self.changed(id, Some(Event::Acquired), granted(at.held.as_deref(), id), at)
            }
            Ok(Acquired::Prolonged(id)) => {
                let reply = granted(held.as_deref(), id);
                let at = &mut At { key: self.key, held, said: Finding::Yes, node, now };
                self.changed(id, Some(Event::Extended), reply, at)
            }
            Ok(Acquired::Unchanged(id)) => self.answer(Ok(granted(held.as_deref(), id))),
            Err(refusal) => self.refuse(refusal, &mut At { key: self.key, held, said: Finding::Yes, node, now }),
        }
    }

    /// Calls the rule of RELEASE, and returns the first step that follows from its outcome.
    #[inline(always)]
    pub(super) fn decide_release(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Release<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        let released = release(self.key, held.as_deref_mut(), ask, node, now);
        // The usual case: nobody waits.
        if released == Released::Freed && !self.touches_queue {
            node.record_lock_end(self.key, held.as_deref(), Ending::Released, now.boot);
            self.stage = Stage::Answers(Ok(Reply::Holds(0)));
            return Some(Step::Delete(Some(Event::Released)));
        }
        let at = &mut At { key: self.key, held, said: Finding::Yes, node, now };
        match released {
            Released::Freed => {
                self.continue_at(Stage::Passes(Passing::ended(Event::Released, By::Command), Reply::Holds(0)))
            }
            Released::Left(own) => self.leave(own, at),
            Released::Lowered(own, left) => self.changed(own, None, Reply::Holds(left), at),
            Released::Unchanged(left) => self.answer(Ok(Reply::Holds(left))),
            // The owner may have had a reservation instead of a grant. It has ended now, so the next request may be
            // served.
            Released::NotHeld => self.serve_queue(By::Command, Reply::Null, at),
        }
    }

    /// Calls the rule of EXTEND, and returns the first step that follows from its outcome.
    // A function of its own: in one function with ACQUIRE and RELEASE it would slow these down.
    #[inline(never)]
    pub(super) fn decide_extension(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Extend<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        let done = extend(held.as_deref_mut(), ask, node, now);
        let at = &mut At { key: self.key, held, said: Finding::Yes, node, now };
        self.on_grant(done, Some(Event::Extended), Reply::Token, at)
    }

    /// Calls the rule of CONVERT, and returns the first step that follows from its outcome.
    #[inline(never)]
    fn decide_conversion(&mut self, ask: &Convert<'_>, at: &mut At<'_>) -> Option<Step> {
        let done = convert(self.key, at.held.as_deref_mut(), ask, at.node, at.now);
        let Ok(OnGrant::Changed(own, token)) = done else {
            return self.on_grant(done, None, Reply::Token, at);
        };
        at.notice(own, Happened::Converted);
        at.schedule_expiry();
        // Waiting requests may get the lock in its new mode.
        self.serve_queue(By::Command, Reply::Token(token), at);
        Some(Step::Changed(Some(Event::Converted), own))
    }

    /// Removes the grant of an owner that gave back its last hold, while others hold the lock too.
    #[inline(never)]
    fn leave(&mut self, own: GrantId, at: &mut At<'_>) -> Option<Step> {
        self.ended = at.take(own, Ending::Released);
        self.serve_queue(By::Command, Reply::Holds(0), at);
        Some(Step::Left(Event::Released))
    }
}

/// Returns the reply to an ACQUIRE that has the grant `id`.
fn granted(held: Option<&Lock>, id: GrantId) -> Reply {
    held.map_or(Reply::Null, |lock| Reply::Granted(lock.grant(id).token(), lock.mode(id).number()))
}
