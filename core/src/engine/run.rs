//! What happens when a command arrives, or something comes due, for one key.
//!
//! The stages stand in the order in which they come.

use super::passing::Passing;
use super::step::{By, Event, Question, Reply, Said, Step};
use crate::history::ending::Ending;
use crate::history::grant_events::Happened;
use crate::keepalive::Renewal;
use crate::lock::Lock;
use crate::lock::deadlines::Due;
use crate::lock::grant::{Grant, GrantId};
use crate::node::Node;
use crate::queue::breaking::Breaking;
use crate::queue::of_key::{Waiter, WaiterId, Want};
use crate::queue::shares::{Asker, UserId};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{Acquire, Annotate, Convert, Extend, Owner, Reenter, Release, Ticket, Wait};
use crate::rules::acquire::{Acquired, acquire, acquire_later};
use crate::rules::break_lock::{break_lock, takes_slices};
use crate::rules::convert::{Converted, convert};
use crate::rules::extend::{Extended, extend};
use crate::rules::fence::{Fenced, fence};
use crate::rules::note::{Noted, annotate};
use crate::rules::reenter::{Reentered, reenter};
use crate::rules::release::{Released, release};
use crate::rules::renew::{Renewed, kept, renew};
use crate::rules::wait::{Waited, wait};
use crate::values::key::Key;
use crate::values::limits::{DISK_WAIT_MS, ENDED_A_STEP_MAX};
use crate::values::mode::Mode;
use crate::values::time::Now;
use crate::values::token::Token;

/// What is to be done about one key.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// `LOCK.ACQUIRE`.
    Acquire(Acquire<'a>),
    /// `LOCK.RELEASE`.
    Release(Release<'a>),
    /// `LOCK.EXTEND`.
    Extend(Extend<'a>),
    /// `LOCK.REENTER`.
    Reenter(Reenter<'a>),
    /// `LOCK.FENCE`.
    Fence(Owner<'a>, Token),
    /// `LOCK.WAIT`.
    Wait(Wait<'a>),
    /// `LOCK.CONVERT`.
    Convert(Convert<'a>),
    /// `LOCK.NOTE`.
    Note(Annotate<'a>),
    /// `LOCK.BREAK`, of the grants with this token or of all.
    Break(Option<Token>),
    /// The next slice of a BREAK.
    BreakOn(&'a Breaking),
    /// A lease that is kept alive.
    Renew(&'a Renewal),
    /// The lease of the lock has ended.
    Expire(&'a Due),
    /// Its queue is looked at.
    Look,
}

/// One request, from its arrival until all that it brings about is done.
#[derive(Debug)]
pub struct Run<'a> {
    key: Key<'a>,
    request: &'a Request<'a>,
    stage: Stage,
    granted: Option<Box<Lock>>,
    /// Boxed: most requests have none, and should not carry room for one.
    ended: Option<Box<Grant>>,
    /// So many grants whose lease is over were taken out of the lock.
    over: usize,
    /// It was asked what is on the disk.
    asked_disk: bool,
    touches_queue: bool,
    /// Somebody watches the lock, and was not told yet what became of it.
    is_watched: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Arrived,
    /// Grants whose lease is over are taken out of a lock that others hold.
    EndsOver,
    /// Whoever waits is served first.
    Serves(Passing),
    /// The node has to know what it may promise: in this slot of the cluster, and of what is on the disk.
    Slot,
    Ready,
    /// The rule decides.
    Decides,
    /// The lock ended, or it may be somebody's turn; then this is answered.
    Passes(Passing, Reply),
    /// The connection of a lease that is kept alive has to be open.
    Connection,
    ConnectionSaid,
    /// The grants with this token are taken out one after the other; after `left` of them the next slice follows.
    Breaks {
        token: Token,
        left: usize,
    },
    /// More have it than one step may end: the client has to wait while slices of them are ended.
    BreaksLater(Token),
    /// The lock is stored for the one who asked, in place of one whose lease is over: it has that one's entry in the deadlines.
    Stored(Token, u16),
    /// The client has to wait: until it is its turn, or for the disk alone. There has to be room for it.
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
    /// Does `request` for `key`.
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

    /// The lock to be stored.
    pub fn granted(&mut self) -> Option<Box<Lock>> {
        self.granted.take()
    }

    /// The grant that left a lock which others hold.
    pub fn ended(&mut self) -> Option<Box<Grant>> {
        self.ended.take()
    }

    /// How the command is answered, if nothing else is left to be done: then [`Run::next`] need not be asked.
    pub fn answered(&self) -> Option<&Result<Reply, Refusal>> {
        match &self.stage {
            Stage::Answers(answer) if !self.is_watched => Some(answer),
            _ => None,
        }
    }

    /// Whether somebody may have an answer now, or something be due earlier than before.
    pub fn touches_queue(&self) -> bool {
        self.touches_queue
    }

    /// What is done next. `held` is what the key holds now; `said` answers the step before (the first time: [`Said::Yes`]).
    /// After [`Step::Done`] it is over.
    // Inlined into the driver of the server, which has one: the usual case goes straight through, and the stages, which are much code,
    // stand apart. In one piece with them every command pays for what hardly any needs: a tenth of its own instructions
    // (`make instructions`).
    #[inline(always)]
    pub fn next(&mut self, mut held: Option<&mut Lock>, said: Said, node: &mut Node, now: Now) -> Step {
        if let Stage::Arrived = self.stage
            && self.goes_straight(held.as_deref(), node)
        {
            let step = match self.request {
                Request::Acquire(ask) => self.decides_acquire(held.as_deref_mut(), ask, node, now),
                Request::Release(ask) => self.decides_release(held.as_deref_mut(), ask, node, now),
                _ => None,
            };
            if let Some(step) = step {
                return step;
            }
            if let Stage::Answers(answer) = self.stage {
                return Step::Done(answer);
            }
        }
        self.goes_through(held, said, node, now)
    }

    /// The usual case: nobody waits for the lock or watches it, it is not held by several, and the node knows that it may promise. Then
    /// the rule decides at once.
    #[inline(always)]
    fn goes_straight(&self, held: Option<&Lock>, node: &Node) -> bool {
        let may_promise = match self.request {
            Request::Acquire(_) => node.ledger.is_ready() && !node.slots.is_in_cluster(),
            Request::Release(_) => true,
            _ => false,
        };
        may_promise
            && !matches!(held, Some(Lock::Joint(_)))
            && !node.waiting.has_queue(self.key.db, self.key.name)
            && !node.watching.has(self.key)
    }

    /// From stage to stage.
    #[inline(never)]
    fn goes_through(&mut self, mut held: Option<&mut Lock>, said: Said, node: &mut Node, now: Now) -> Step {
        loop {
            match &mut self.stage {
                Stage::Arrived if has_over(self.request, held.as_deref(), now) => self.stage = Stage::EndsOver,
                Stage::Arrived => self.begins(held.as_deref_mut(), node, now),
                Stage::EndsOver => match self.end_over(held.as_deref_mut(), node, now) {
                    Some(step) => return step,
                    None => self.begins(held.as_deref_mut(), node, now),
                },
                Stage::Serves(passing) => {
                    self.touches_queue = true;
                    match passing.next(self.key, held.as_deref_mut(), said, &mut self.granted, node, now) {
                        Some(step) => return step,
                        None => self.promises(node),
                    }
                }
                Stage::Slot => {
                    self.stage = Stage::Ready;
                    if node.slots.needs_look(self.key.name) {
                        return Step::LookAtSlots;
                    }
                }
                Stage::Ready => match node.ready(now.boot) {
                    Ok(()) => self.stage = Stage::Decides,
                    Err(refusal) => {
                        if let Some(step) = self.is_refused(refusal, node, now) {
                            return step;
                        }
                    }
                },
                Stage::Decides => {
                    if let Some(step) = self.decide(held.as_deref_mut(), node, now) {
                        return step;
                    }
                }
                Stage::Passes(passing, reply) => {
                    match passing.next(self.key, held.as_deref_mut(), said, &mut self.granted, node, now) {
                        Some(step) => return step,
                        None => self.stage = Stage::Answers(Ok(*reply)),
                    }
                }
                Stage::Connection => {
                    if let Some(step) = self.asks_for_connection() {
                        return step;
                    }
                }
                Stage::ConnectionSaid => self.connection_said(held.as_deref_mut(), said, node, now),
                Stage::Breaks { token, left } => {
                    let (token, left) = (*token, *left);
                    if let Some(step) = self.break_one(held.as_deref_mut(), token, left, node, now) {
                        return step;
                    }
                }
                Stage::BreaksLater(token) => {
                    let token = *token;
                    self.break_later(held.as_deref_mut(), token, said, node, now);
                }
                Stage::Stored(token, number) => {
                    let reply = Reply::Granted(*token, *number);
                    node.schedule_expiry(self.key, held.as_deref_mut());
                    self.stage = Stage::Answers(Ok(reply));
                }
                Stage::Blocks { for_disk } => {
                    self.stage = Stage::AskerSaid { for_disk: *for_disk };
                    return Step::Ask(Question::WhoAsks);
                }
                Stage::AskerSaid { for_disk } => {
                    let for_disk = *for_disk;
                    if let Some(step) = self.asker_said(said, for_disk, node) {
                        return step;
                    }
                }
                Stage::Blocked { for_disk, user } => {
                    let (for_disk, user) = (*for_disk, *user);
                    // Whoever cannot be blocked is not let wait for the disk either.
                    self.stage = if for_disk && said == Said::No {
                        Stage::Answers(Err(Refusal::NotYet))
                    } else {
                        self.joins(held.as_deref(), (said, user), for_disk, node, now);
                        Stage::Answers(Ok(Reply::Later))
                    };
                }
                Stage::Answers(_) if self.is_watched => {
                    self.is_watched = false;
                    return Step::TellWatchers;
                }
                Stage::Answers(answer) => return Step::Done(*answer),
            }
        }
    }

    /// Who asks for the lock.
    fn asks_for(&self) -> Option<Owner<'a>> {
        if let Request::Acquire(ask) = self.request { Some(ask.owner) } else { None }
    }

    /// Takes out a grant whose lease is over, of a lock that others hold.
    #[inline(never)]
    fn end_over(&mut self, held: Option<&mut Lock>, node: &mut Node, now: Now) -> Option<Step> {
        self.touches_queue |= node.waiting.has_queue(self.key.db, self.key.name);
        let ended = held.and_then(|lock| {
            let ended = lock.ended(now.boot).filter(|_| self.over < ENDED_A_STEP_MAX);
            // That of the one who asks is told to have ended before the next one is told, however many there are.
            let own = || self.asks_for().and_then(|owner| lock.find(owner));
            let ended = ended.or_else(|| own().filter(|&own| lock.grant(own).is_expired(now.boot)));
            let ended = ended.and_then(|id| take(lock, id));
            node.schedule_expiry(self.key, Some(lock));
            ended
        });
        self.has_ended(ended?, Ending::Expired, node, now);
        self.over += 1;
        node.counters.expiries += 1;
        Some(Step::Left(Event::Expired))
    }

    /// Takes out a grant with this token, or the whole lock if it is the last. After `left` grants the rest waits for the next slice.
    #[inline(never)]
    fn break_one(
        &mut self,
        mut held: Option<&mut Lock>,
        token: Token,
        left: usize,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        let by = if let Request::BreakOn(_) = self.request { By::Itself } else { By::Command };
        let id = held.as_deref().and_then(|lock| lock.last_with_token(token));
        let (Some(id), Some(lock)) = (id, held.as_deref_mut()) else {
            self.tell_broken(node);
            let look = serve_queue(self.key, held.as_deref(), by, node, now);
            return self.goes_on(passes(look, Reply::Token(token)));
        };
        if let (0, Request::BreakOn(breaking)) = (left, self.request) {
            node.breaking.push_front((*breaking).clone());
            return self.answer(Ok(Reply::Null));
        }
        let Some(ended) = take(lock, id) else {
            self.tell_broken(node);
            return self.goes_on(Stage::Passes(Passing::ended(Event::Broken, by), Reply::Token(token)));
        };
        self.stage = Stage::Breaks { token, left: left - 1 };
        self.has_ended(ended, Ending::Broken, node, now);
        node.schedule_expiry(self.key, Some(lock));
        Some(Step::Left(Event::Broken))
    }

    /// A client that is blocked waits until all grants with `token` are broken. One that cannot be (in a script or a transaction) would keep
    /// the server from all others for as long as that takes: it is refused.
    fn break_later(&mut self, held: Option<&mut Lock>, token: Token, said: Said, node: &mut Node, now: Now) {
        let Said::Blocked(client) = said else {
            self.stage = Stage::Answers(Err(Refusal::BreaksTooMany));
            return;
        };
        break_lock(held, Some(token), node, now);
        let Key { db, name } = self.key;
        node.breaking.push_back(Breaking { db, name: name.into(), token, client });
        self.touches_queue = true;
        self.stage = Stage::Answers(Ok(Reply::Later));
    }

    /// The next slice of a BREAK. The last one left grants with the token: if the lock is gone, they may be elsewhere.
    fn begin_slice(&mut self, held: Option<&Lock>, breaking: &Breaking, node: &mut Node, now: Now) {
        self.touches_queue = true;
        self.stage = match held {
            Some(_) => Stage::Breaks { token: breaking.token, left: ENDED_A_STEP_MAX },
            None => {
                node.waiting.tell(breaking.client, Answer::Refused(Refusal::BreakCutShort));
                passes(serve_queue(self.key, None, By::Itself, node, now), Reply::Null)
            }
        };
    }

    /// Answers the client that waited for the last slice of its BREAK.
    fn tell_broken(&mut self, node: &mut Node) {
        if let Request::BreakOn(breaking) = self.request {
            node.has_broken(breaking);
            self.touches_queue = true;
        }
    }

    /// This grant was taken out of a lock that others hold.
    fn has_ended(&mut self, (mode, grant): (Mode, Grant), ending: Ending, node: &mut Node, now: Now) {
        node.grant_ends(self.key, (mode, &grant), ending, now.boot);
        self.ended = Some(Box::new(grant));
    }

    #[inline(never)]
    fn asks_for_connection(&mut self) -> Option<Step> {
        let Request::Renew(renewal) = self.request else { return self.answer(Ok(Reply::Null)) };
        self.stage = Stage::ConnectionSaid;
        Some(Step::Ask(Question::MayRenew(renewal.client())))
    }

    #[inline(never)]
    fn connection_said(&mut self, held: Option<&mut Lock>, said: Said, node: &mut Node, now: Now) {
        self.stage = match said {
            Said::No => {
                if let Request::Renew(renewal) = self.request {
                    node.keepalives.end(renewal);
                    if let Some((lock, own)) = kept(held, renewal, now) {
                        lock.mark_unconnected(own);
                    }
                }
                Stage::Answers(Ok(Reply::Null))
            }
            Said::Refused(refusal) => Stage::Answers(Err(refusal)),
            _ if node.ledger.is_ready() => Stage::Decides,
            _ => Stage::Ready,
        };
    }

    /// Where the request begins.
    fn begins(&mut self, held: Option<&mut Lock>, node: &mut Node, now: Now) {
        let Key { db, name } = self.key;
        self.is_watched = node.watching.has(self.key);
        match self.request {
            Request::Acquire(_) => {
                // Whoever waits is before the one who asks now.
                match serve_queue(self.key, held.as_deref(), By::Command, node, now) {
                    Some(passing) => self.stage = Stage::Serves(passing),
                    None => self.promises(node),
                }
            }
            Request::Wait(_) => self.promises(node),
            Request::Extend(_) | Request::Reenter(_) | Request::Fence(..) | Request::Note(_) => {
                self.stage = if node.ledger.is_ready() { Stage::Decides } else { Stage::Ready };
            }
            Request::Renew(renewal) => {
                // Nothing that anybody watches changes.
                self.is_watched = false;
                self.stage = match kept(held, renewal, now) {
                    Some(_) => Stage::Connection,
                    None => Stage::Decides,
                };
            }
            Request::Convert(_) => {
                self.touches_queue |= node.waiting.has_queue(db, name);
                self.promises(node);
            }
            Request::BreakOn(breaking) => self.begin_slice(held.as_deref(), breaking, node, now),
            Request::Release(_) | Request::Break(_) => {
                self.touches_queue = node.waiting.has_queue(db, name);
                self.stage = Stage::Decides;
            }
            Request::Expire(due) => {
                self.stage = match held {
                    Some(lock) if due.is_of(lock) && lock.is_expired(now.boot) => {
                        node.counters.expiries += lock.len() as u64;
                        Stage::Passes(Passing::ended(Event::Expired, By::Itself), Reply::Null)
                    }
                    // Others hold it: perhaps somebody who waits may join them now.
                    Some(lock) if self.over > 0 => {
                        passes(serve_queue(self.key, Some(lock), By::Itself, node, now), Reply::Null)
                    }
                    // The entry of an earlier lock under this name, or of none: it should have gone with its lock.
                    held => {
                        match held.filter(|lock| due.is_of(lock)) {
                            Some(lock) => node.schedule_expiry(self.key, Some(lock)),
                            None => node.forget_due(due),
                        }
                        Stage::Answers(Ok(Reply::Null))
                    }
                };
            }
            Request::Look => {
                self.stage = passes(serve_queue(self.key, held.as_deref(), By::Itself, node, now), Reply::Null);
            }
        }
    }

    /// The rule may promise something that the node has to know its slot for, and what is on the disk: the usual case is that it
    /// does.
    fn promises(&mut self, node: &Node) {
        let knows = node.ledger.is_ready() && !node.slots.needs_look(self.key.name);
        self.stage = if knows { Stage::Decides } else { Stage::Slot };
    }

    /// The rule of the request, and what follows from its outcome.
    fn decide(&mut self, mut held: Option<&mut Lock>, node: &mut Node, now: Now) -> Option<Step> {
        let Key { db, name } = self.key;
        match self.request {
            Request::Acquire(ask) => self.decides_acquire(held, ask, node, now),
            Request::Release(ask) => self.decides_release(held, ask, node, now),
            Request::Extend(ask) => match extend(held.as_deref_mut(), ask, node, now) {
                Ok(Extended::Prolonged(own, token)) => {
                    self.changed(held, own, Some(Event::Extended), Reply::Token(token), node)
                }
                Ok(Extended::Unchanged(token)) => self.answer(Ok(Reply::Token(token))),
                Ok(Extended::NotHeld) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Renew(renewal) => match renew(held.as_deref_mut(), renewal, node, now) {
                Ok(Renewed::Prolonged(own)) => self.changed(held, own, None, Reply::Null, node),
                Ok(Renewed::Unchanged) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Reenter(ask) => match reenter(held.as_deref_mut(), ask, node, now) {
                Ok(Reentered::Changed(own, holds)) => self.changed(held, own, None, Reply::Holds(holds), node),
                Ok(Reentered::Unchanged(holds)) => self.answer(Ok(Reply::Holds(holds))),
                Ok(Reentered::NotHeld) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Fence(owner, token) => match fence(name, held.as_deref_mut(), *owner, *token, node, now) {
                Ok(Fenced::Raised(own, token)) => {
                    self.notice(held.as_deref(), own, Happened::Raised, node, now);
                    self.changed(held, own, None, Reply::Token(token), node)
                }
                Ok(Fenced::Unchanged(token)) => self.answer(Ok(Reply::Token(token))),
                Ok(Fenced::NotHeld) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Wait(ask) => {
                self.touches_queue = true;
                match wait(db, name, held.as_deref(), ask, node, now) {
                    Ok(Waited::Turn(number)) => self.answer(Ok(Reply::Turn(number))),
                    Ok(Waited::TimedOut) => self.answer(Ok(Reply::Turn(0))),
                    Ok(Waited::Queues) => self.block(false),
                    Err(refusal) => self.is_refused(refusal, node, now),
                }
            }
            Request::Convert(ask) => self.decides_conversion(held, ask, node, now),
            Request::Note(ask) => match annotate(held.as_deref_mut(), ask, node, now) {
                Ok(Noted::Replaced(own, number)) => {
                    self.changed(held, own, Some(Event::Noted), Reply::Noted(number), node)
                }
                Ok(Noted::Unchanged(number)) => self.answer(Ok(Reply::Noted(number))),
                Ok(Noted::NotHeld) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Break(asked) => self.decides_break(held, *asked, node, now),
            // Nobody asked, so there is nothing to decide.
            Request::Expire(_) | Request::Look | Request::BreakOn(_) => self.answer(Ok(Reply::Null)),
        }
    }

    /// The rule of BREAK. Where it takes several steps the client has to be blocked first.
    fn decides_break(
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
        match break_lock(held, asked, node, now) {
            Some(token) if asked.is_some() => self.goes_on(Stage::Breaks { token, left: ENDED_A_STEP_MAX }),
            Some(token) => self.goes_on(Stage::Passes(Passing::ended(Event::Broken, By::Command), Reply::Token(token))),
            None => self.answer(Ok(Reply::Null)),
        }
    }

    /// The rule of ACQUIRE, and what follows from its outcome.
    #[inline(always)]
    fn decides_acquire(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Acquire<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        let Key { db, name } = self.key;
        match acquire(db, name, held.as_deref_mut(), ask, node, now) {
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
            Err(refusal) => self.is_refused(refusal, node, now),
        }
    }

    /// The rule of RELEASE, and what follows from its outcome.
    #[inline(always)]
    fn decides_release(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Release<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        let Key { db, name } = self.key;
        match release(db, name, held.as_deref_mut(), ask, node, now) {
            // The usual case: nobody waits.
            Released::Freed if !self.touches_queue => {
                node.lock_ends(self.key, held.as_deref(), Ending::Released, now.boot);
                self.stage = Stage::Answers(Ok(Reply::Holds(0)));
                Some(Step::Delete(Some(Event::Released)))
            }
            Released::Freed => {
                self.goes_on(Stage::Passes(Passing::ended(Event::Released, By::Command), Reply::Holds(0)))
            }
            Released::Left(own) => self.leaves(own, held, node, now),
            Released::Lowered(own, left) => self.changed(held, own, None, Reply::Holds(left), node),
            Released::Unchanged(left) => self.answer(Ok(Reply::Holds(left))),
            Released::NotHeld => {
                // It may have been its turn.
                self.goes_on(passes(serve_queue(self.key, held.as_deref(), By::Command, node, now), Reply::Null))
            }
        }
    }

    /// The rule of CONVERT, and what follows from its outcome.
    #[inline(never)]
    fn decides_conversion(
        &mut self,
        mut held: Option<&mut Lock>,
        ask: &Convert<'_>,
        node: &mut Node,
        now: Now,
    ) -> Option<Step> {
        let Key { db, name } = self.key;
        match convert(db, name, held.as_deref_mut(), ask, node, now) {
            Ok(Converted::Changed(own, token)) => {
                self.notice(held.as_deref(), own, Happened::Converted, node, now);
                node.schedule_expiry(self.key, held.as_deref_mut());
                // Those who wait may join it now.
                let look = serve_queue(self.key, held.as_deref(), By::Command, node, now);
                self.stage = passes(look, Reply::Token(token));
                Some(Step::Changed(Some(Event::Converted), own))
            }
            Ok(Converted::Unchanged(token)) => self.answer(Ok(Reply::Token(token))),
            Ok(Converted::NotHeld) => self.answer(Ok(Reply::Null)),
            Err(refusal) => self.is_refused(refusal, node, now),
        }
    }

    /// One of several holders gave its last hold back.
    #[inline(never)]
    fn leaves(&mut self, own: GrantId, mut held: Option<&mut Lock>, node: &mut Node, now: Now) -> Option<Step> {
        if let Some(ended) = held.as_deref_mut().and_then(|lock| take(lock, own)) {
            self.has_ended(ended, Ending::Released, node, now);
        }
        node.schedule_expiry(self.key, held.as_deref_mut());
        let look = serve_queue(self.key, held.as_deref(), By::Command, node, now);
        self.stage = passes(look, Reply::Holds(0));
        Some(Step::Left(Event::Released))
    }

    #[cold]
    fn asker_said(&mut self, said: Said, for_disk: bool, node: &Node) -> Option<Step> {
        match self.may_wait(said, node) {
            Ok(user) => {
                self.stage = Stage::Blocked { for_disk, user };
                Some(Step::Block)
            }
            // The disk alone was in its way.
            Err(_) if for_disk => self.answer(Err(Refusal::NotYet)),
            Err(refusal) => self.answer(Err(refusal)),
        }
    }

    /// Returns the user of the one who asks. Refuses the request where there is no place for it.
    fn may_wait(&self, said: Said, node: &Node) -> Result<UserId, Refusal> {
        let asker = match said {
            Said::Asks(asker) => asker,
            Said::Refused(refusal) => return Err(refusal),
            _ => Asker::default(),
        };
        let about = match *self.request {
            Request::Acquire(Acquire { owner, note, .. }) | Request::Wait(Wait { owner, note, .. }) => (owner, note),
            _ => return Ok(asker.user),
        };
        node.ensure_may_wait(self.key, about, asker).map(|()| asker.user)
    }

    /// The request takes its place in the queue, under the name of its blocked client.
    #[cold]
    fn joins(&mut self, held: Option<&Lock>, (said, user): (Said, UserId), for_disk: bool, node: &mut Node, now: Now) {
        let Said::Blocked(id) = said else { return };
        let Some((mut waiter, ticket)) = waiter(self.request, id, for_disk, now) else { return };
        waiter.user = user;
        let Key { db, name } = self.key;
        self.touches_queue = true;
        let held = held.filter(|lock| !lock.is_expired(now.boot));
        let is_own = held.is_some_and(|lock| lock.find(waiter.owner()).is_some());
        let is_others = held.is_some() && !is_own;
        if is_own && matches!(held, Some(Lock::Joint(_))) {
            waiter = waiter.of_holder();
        }
        let is_first = node.waiting.join(db, name, waiter, ticket);
        // By its ticket it may be before all others, and go with those who hold the lock together.
        let may_join = matches!(held, Some(Lock::Joint(_))) && is_first;
        // Free or its own, and yet it has to wait: nothing happens to the key that would bring its turn about.
        if for_disk || !is_others || may_join {
            node.waiting.wake_at(db, name, now.boot);
        }
    }

    /// A refusal is the answer, but for what passes: the disk may be up to it by now, and a request that waits longer than the
    /// reason lasts takes a place in the queue.
    #[cold]
    fn is_refused(&mut self, refusal: Refusal, node: &mut Node, now: Now) -> Option<Step> {
        if refusal == Refusal::NotYet && !self.asked_disk {
            self.asked_disk = true;
            self.stage = Stage::Ready;
            return Some(Step::Ask(Question::OnDisk));
        }
        let Key { db, name } = self.key;
        let queues = match self.request {
            Request::Acquire(ask) => acquire_later(db, name, ask, refusal, node)
                .map(|acquired| Stage::Blocks { for_disk: acquired == Acquired::WaitsForDisk }),
            Request::Wait(ask) => {
                let room = || node.waiting.room_for(db, name, ask.owner);
                refusal.or_queue(ask.patience.ms(), room, Stage::Blocks { for_disk: false })
            }
            _ => Err(refusal),
        };
        self.stage = queues.unwrap_or_else(|refusal| Stage::Answers(Err(refusal)));
        (refusal == Refusal::NotYet && node.wants_write(now)).then_some(Step::Write)
    }

    /// `happened` to the grant `id` of the lock in the key.
    #[inline(always)]
    fn notice(&self, held: Option<&Lock>, id: GrantId, happened: Happened, node: &mut Node, now: Now) {
        if let Some(lock) = held {
            node.notice(self.key, lock, id, happened, now.boot);
        }
    }

    fn changed(
        &mut self,
        held: Option<&mut Lock>,
        id: GrantId,
        event: Option<Event>,
        reply: Reply,
        node: &mut Node,
    ) -> Option<Step> {
        node.schedule_expiry(self.key, held);
        self.stage = Stage::Answers(Ok(reply));
        Some(Step::Changed(event, id))
    }

    fn block(&mut self, for_disk: bool) -> Option<Step> {
        self.goes_on(Stage::Blocks { for_disk })
    }

    fn answer(&mut self, answer: Result<Reply, Refusal>) -> Option<Step> {
        self.goes_on(Stage::Answers(answer))
    }

    fn goes_on(&mut self, stage: Stage) -> Option<Step> {
        self.stage = stage;
        None
    }
}

/// Whether grants of a lock that others hold are over, and the request depends on all grants: those are taken out before.
fn has_over(request: &Request<'_>, held: Option<&Lock>, now: Now) -> bool {
    let looks_at_all =
        matches!(request, Request::Acquire(_) | Request::Convert(_) | Request::Expire(_) | Request::Look);
    matches!(held, Some(lock @ Lock::Joint(_)) if looks_at_all && lock.ended(now.boot).is_some())
}

/// If somebody waits for the lock of `key`, it may pass on.
fn serve_queue(key: Key<'_>, held: Option<&Lock>, by: By, node: &mut Node, now: Now) -> Option<Passing> {
    if !node.waiting.has_queue(key.db, key.name) {
        return None;
    }
    if let Some(lock) = held.filter(|lock| lock.is_expired(now.boot)) {
        node.counters.expiries += lock.len() as u64;
        return Some(Passing::ended(Event::Expired, by));
    }
    Some(Passing::look(by))
}

/// Takes out one grant of several, with its mode.
fn take(lock: &mut Lock, id: GrantId) -> Option<(Mode, Grant)> {
    let mode = lock.mode(id);
    lock.take(id).map(|grant| (mode, grant))
}

/// How the grant `id`, which was asked for, is told.
fn granted(held: Option<&Lock>, id: GrantId) -> Reply {
    held.map_or(Reply::Null, |lock| Reply::Granted(lock.grant(id).token(), lock.mode(id).number()))
}

fn passes(passing: Option<Passing>, reply: Reply) -> Stage {
    passing.map_or(Stage::Answers(Ok(reply)), |passing| Stage::Passes(passing, reply))
}

/// The place in the queue that `request` takes.
fn waiter(request: &Request<'_>, id: WaiterId, for_disk: bool, now: Now) -> Option<(Waiter, Option<Ticket>)> {
    match *request {
        Request::Acquire(Acquire { owner, ttl, wanted, retry, fence, note, patience, behind }) => {
            let want = Want::Lock { ttl, fence, retry };
            let ms = if for_disk { DISK_WAIT_MS } else { patience.ms() };
            let waiter = Waiter::new(id, owner, note, want, now.boot, ms).in_mode(wanted).with_behind(behind);
            Some((if for_disk { waiter.at_once() } else { waiter }, None))
        }
        Request::Wait(Wait { owner, wanted, patience, ticket, note, behind }) => {
            let waiter = Waiter::new(id, owner, note, Want::Turn, now.boot, patience.ms());
            Some((waiter.in_mode(wanted).with_behind(behind), ticket))
        }
        _ => None,
    }
}
