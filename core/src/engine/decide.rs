//! What the rule of a request decides, and what follows from its outcome.

use super::passing::Passing;
use super::run::{Run, Stage, take};
use super::step::{By, Event, Reply, Request, Step};
use crate::history::ending::Ending;
use crate::history::grant_events::Happened;
use crate::lock::Lock;
use crate::lock::grant::GrantId;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::{Acquire, Convert, Release};
use crate::rules::acquire::{Acquired, acquire};
use crate::rules::break_lock::{break_lock, takes_slices};
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
    /// The rule of the request, and what follows from its outcome.
    pub(super) fn decide(&mut self, mut held: Option<&mut Lock>, node: &mut Node, now: Now) -> Option<Step> {
        match self.request {
            Request::Acquire(ask) => self.decide_acquire(held, ask, node, now),
            Request::Release(ask) => self.decide_release(held, ask, node, now),
            Request::Extend(ask) => {
                let done = extend(held.as_deref_mut(), ask, node, now);
                self.on_grant(held, done, Some(Event::Extended), Reply::Token, node, now)
            }
            Request::Renew(renewal) => {
                let done = renew(held.as_deref_mut(), renewal, node, now);
                self.on_grant(held, done, None, |()| Reply::Null, node, now)
            }
            Request::Reenter(ask) => {
                let done = reenter(held.as_deref_mut(), ask, node, now);
                self.on_grant(held, done, None, Reply::Holds, node, now)
            }
            Request::Fence(owner, token) => {
                let done = fence(self.key.name, held.as_deref_mut(), *owner, *token, node, now);
                if let Ok(OnGrant::Changed(own, _)) = done {
                    self.notice(held.as_deref(), own, Happened::Raised, node, now);
                }
                self.on_grant(held, done, None, Reply::Token, node, now)
            }
            Request::Note(ask) => {
                let done = annotate(held.as_deref_mut(), ask, node, now);
                self.on_grant(held, done, Some(Event::Noted), Reply::Noted, node, now)
            }
            Request::Wait(ask) => {
                self.touches_queue = true;
                match wait(self.key, held.as_deref(), ask, node, now) {
                    Ok(Waited::Turn(number)) => self.answer(Ok(Reply::Turn(number))),
                    Ok(Waited::TimedOut) => self.answer(Ok(Reply::Turn(0))),
                    Ok(Waited::Queues) => self.block(false),
                    Err(refusal) => self.refuse(refusal, node, now),
                }
            }
            Request::Convert(ask) => self.decide_conversion(held, ask, node, now),
            Request::Break(asked) => self.decide_break(held, *asked, node, now),
            Request::BreakOn(breaking) => self.begin_slice(held.as_deref(), breaking, node, now),
            Request::Expire(due) => self.expire(held, due, node, now),
            Request::Look => self.serve_queue(held.as_deref(), By::Itself, Reply::Null, node, now),
        }
    }

    /// What follows from the outcome of a command about a grant.
    fn on_grant<T>(
        &mut self,
        held: Option<&mut Lock>,
        done: Result<OnGrant<T>, Refusal>,
        event: Option<Event>,
        reply: fn(T) -> Reply,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        match done {
            Ok(OnGrant::Changed(own, told)) => self.changed(held, own, event, reply(told), node),
            Ok(OnGrant::Unchanged(told)) => self.answer(Ok(reply(told))),
            Ok(OnGrant::NotHeld) => self.answer(Ok(Reply::Null)),
            Err(refusal) => self.refuse(refusal, node, now),
        }
    }

    /// The rule of BREAK. Where it takes several steps the client has to be blocked first.
    pub(super) fn decide_break(
        &mut self,
        held: Option<&mut Lock>,
        asked: Option<Token>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        if let Some(token) = asked.filter(|&token| takes_slices(held.as_deref(), token, now)) {
            self.stage = Stage::BreaksLater(token);
            return Some(Step::Block);
        }
        match break_lock(self.key, held, asked, node, now) {
            Some(token) if asked.is_some() => self.go_on(Stage::Breaks { token, left: ENDED_A_STEP_MAX }),
            Some(token) => self.end_broken(By::Command, token, node),
            None => self.answer(Ok(Reply::Null)),
        }
    }

    /// The rule of ACQUIRE, and what follows from its outcome.
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
                    node.lock_ends(self.key, held.as_deref(), Ending::Expired, now.boot);
                    self.stage = Stage::Stored(token, number);
                    Step::Replace
                } else {
                    // Nothing comes between this and its being in the key.
                    node.schedule_expiry(self.key, Some(&mut lock));
                    self.stage = Stage::Answers(Ok(Reply::Granted(token, number)));
                    Step::Store(Event::Acquired)
                };
                node.notice(self.key, &lock, lock.first_id(), Happened::Granted, now.boot);
                self.granted = Some(lock);
                Some(step)
            }
            Ok(Acquired::Joined(id)) => {
                self.notice(held.as_deref(), id, Happened::Granted, node, now);
                let reply = granted(held.as_deref(), id);
                self.changed(held, id, Some(Event::Acquired), reply, node)
            }
            Ok(Acquired::Prolonged(id)) => {
                let reply = granted(held.as_deref(), id);
                self.changed(held, id, Some(Event::Extended), reply, node)
            }
            Ok(Acquired::Unchanged(id)) => self.answer(Ok(granted(held.as_deref(), id))),
            Ok(Acquired::Contended) => self.answer(Ok(Reply::Null)),
            Ok(Acquired::Queues) => self.block(false),
            Ok(Acquired::WaitsForDisk) => self.block(true),
            Err(refusal) => self.refuse(refusal, node, now),
        }
    }

    /// The rule of RELEASE, and what follows from its outcome.
    #[inline(always)]
    pub(super) fn decide_release(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Release<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        match release(self.key, held.as_deref_mut(), ask, node, now) {
            // The usual case: nobody waits.
            Released::Freed if !self.touches_queue => {
                node.lock_ends(self.key, held.as_deref(), Ending::Released, now.boot);
                self.stage = Stage::Answers(Ok(Reply::Holds(0)));
                Some(Step::Delete(Some(Event::Released)))
            }
            Released::Freed => self.go_on(Stage::Passes(Passing::ended(Event::Released, By::Command), Reply::Holds(0))),
            Released::Left(own) => self.leave(own, held, node, now),
            Released::Lowered(own, left) => self.changed(held, own, None, Reply::Holds(left), node),
            Released::Unchanged(left) => self.answer(Ok(Reply::Holds(left))),
            Released::NotHeld => {
                // It may have been its turn.
                self.serve_queue(held.as_deref(), By::Command, Reply::Null, node, now)
            }
        }
    }

    /// The rule of CONVERT, and what follows from its outcome.
    #[inline(never)]
    pub(super) fn decide_conversion(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Convert<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        let done = convert(self.key, held.as_deref_mut(), ask, node, now);
        let Ok(OnGrant::Changed(own, token)) = done else {
            return self.on_grant(held, done, None, Reply::Token, node, now);
        };
        self.notice(held.as_deref(), own, Happened::Converted, node, now);
        node.schedule_expiry(self.key, held.as_deref_mut());
        // Those who wait may join it now.
        self.serve_queue(held.as_deref(), By::Command, Reply::Token(token), node, now);
        Some(Step::Changed(Some(Event::Converted), own))
    }

    /// One of several holders gave its last hold back.
    #[inline(never)]
    pub(super) fn leave(
        &mut self,
        own: GrantId,
        mut held: Option<&mut Lock>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        if let Some(ended) = held.as_deref_mut().and_then(|lock| take(lock, own)) {
            self.note_end(ended, Ending::Released, node, now);
        }
        node.schedule_expiry(self.key, held.as_deref_mut());
        self.serve_queue(held.as_deref(), By::Command, Reply::Holds(0), node, now);
        Some(Step::Left(Event::Released))
    }
}

/// How the grant `id`, which was asked for, is told.
fn granted(held: Option<&Lock>, id: GrantId) -> Reply {
    held.map_or(Reply::Null, |lock| Reply::Granted(lock.grant(id).token(), lock.mode(id).number()))
}
