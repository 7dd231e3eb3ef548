//! What happens when a command arrives, or something comes due, for one key.
//!
//! The stages stand in the order in which they come.

use super::passing::Passing;
use super::step::{By, Event, Key, Question, Reply, Said, Step};
use crate::lock::Lock;
use crate::lock::deadlines::Due;
use crate::node::Node;
use crate::queue::of_key::{Waiter, WaiterId, Want};
use crate::refusal::Refusal;
use crate::request::{Acquire, Extend, Note, Owner, Reenter, Release, Ticket, Wait};
use crate::rules::acquire::{Acquired, acquire, acquire_later};
use crate::rules::break_lock::break_lock;
use crate::rules::extend::{Extended, extend};
use crate::rules::fence::{Fenced, fence};
use crate::rules::reenter::{Reentered, reenter};
use crate::rules::release::{Released, release};
use crate::rules::wait::{Waited, wait};
use crate::values::limits::DISK_WAIT_MS;
use crate::values::time::Now;
use crate::values::token::Token;

/// What is to be done about one key.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// `LOCK.ACQUIRE`.
    Acquire {
        /// What is asked.
        ask: Acquire<'a>,
        /// Whether the client can be blocked. If not, it is not let wait for the disk either.
        may_block: bool,
    },
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
    /// `LOCK.BREAK`.
    Break,
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
    granted: Option<Lock>,
    /// It was asked what is on the disk.
    asked_disk: bool,
    touches_queue: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Arrived,
    /// Whoever waits is served first.
    Serves(Passing),
    /// The node has to know what it may promise: in this slot of the cluster, and of what is on the disk.
    Slot,
    Ready,
    /// The rule decides.
    Decides,
    /// The lock ended, or it may be somebody's turn; then this is answered.
    Passes(Passing, Reply),
    /// The lock is stored for the one who asked.
    Stored(Token),
    /// The client has to wait: until it is its turn, or for the disk alone.
    Blocks {
        for_disk: bool,
    },
    Blocked {
        for_disk: bool,
    },
    Answers(Result<Reply, Refusal>),
}

impl<'a> Run<'a> {
    /// Does `request` for `key`.
    pub fn new(key: Key<'a>, request: &'a Request<'a>) -> Self {
        Self { key, request, stage: Stage::Arrived, granted: None, asked_disk: false, touches_queue: false }
    }

    /// The lock to be stored.
    pub fn granted(&mut self) -> Option<Lock> {
        self.granted.take()
    }

    /// How the command is answered, if nothing else is left to be done: then [`Run::next`] need not be asked.
    pub fn answered(&self) -> Option<Result<Reply, Refusal>> {
        if let Stage::Answers(answer) = self.stage { Some(answer) } else { None }
    }

    /// Whether somebody may have an answer now, or something be due earlier than before.
    pub fn touches_queue(&self) -> bool {
        self.touches_queue
    }

    /// What is done next. `held` is what the key holds now; `said` answers the step before (the first time: [`Said::Yes`]).
    /// After [`Step::Done`] it is over.
    pub fn next(&mut self, mut held: Option<&mut Lock>, said: Said, node: &mut Node, now: Now) -> Step {
        loop {
            match &mut self.stage {
                Stage::Arrived => self.arrives(held.as_deref(), node, now),
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
                Stage::Stored(token) => {
                    node.schedule_expiry(self.key, held.as_deref_mut());
                    self.stage = Stage::Answers(Ok(Reply::Token(*token)));
                }
                Stage::Blocks { for_disk } => {
                    self.stage = Stage::Blocked { for_disk: *for_disk };
                    return Step::Block;
                }
                Stage::Blocked { for_disk } => {
                    let for_disk = *for_disk;
                    self.joins(held.as_deref(), said, for_disk, node, now);
                    self.stage = Stage::Answers(Ok(Reply::Later));
                }
                Stage::Answers(answer) => return Step::Done(*answer),
            }
        }
    }

    /// Where the request begins.
    fn arrives(&mut self, held: Option<&Lock>, node: &mut Node, now: Now) {
        let Key { db, name } = self.key;
        match self.request {
            Request::Acquire { .. } => {
                // Whoever waits is before the one who asks now.
                match serve_queue(self.key, held, By::Command, node, now) {
                    Some(passing) => self.stage = Stage::Serves(passing),
                    None => self.promises(node),
                }
            }
            Request::Wait(_) => self.promises(node),
            Request::Extend(_) | Request::Reenter(_) | Request::Fence(..) => {
                self.stage = if node.ledger.is_ready() { Stage::Decides } else { Stage::Ready };
            }
            Request::Release(_) | Request::Break => {
                self.touches_queue = node.waiting.has_queue(db, name);
                self.stage = Stage::Decides;
            }
            Request::Expire(due) => {
                self.stage = match held {
                    Some(lock) if due.is_of(lock) => {
                        node.counters.expiries += 1;
                        Stage::Passes(Passing::ended(Event::Expired, By::Itself), Reply::Null)
                    }
                    // The entry of an earlier lock under this name, or of none: it should have gone with its lock.
                    _ => Stage::Answers(Ok(Reply::Null)),
                };
            }
            Request::Look => self.stage = passes(serve_queue(self.key, held, By::Itself, node, now), Reply::Null),
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
            Request::Acquire { ask, .. } => {
                let is_in_key = held.is_some();
                match acquire(db, name, held.as_deref_mut(), ask, node, now) {
                    Ok(Acquired::Granted(lock)) => {
                        self.stage = Stage::Stored(lock.token());
                        self.granted = Some(lock);
                        Some(if is_in_key { Step::Replace } else { Step::Store(Event::Acquired) })
                    }
                    Ok(Acquired::Prolonged(token)) => {
                        self.changed(held, Some(Event::Extended), Reply::Token(token), node)
                    }
                    Ok(Acquired::Unchanged(token)) => self.answer(Ok(Reply::Token(token))),
                    Ok(Acquired::Contended) => self.answer(Ok(Reply::Null)),
                    Ok(Acquired::Queues) => self.block(false),
                    Ok(Acquired::WaitsForDisk) => self.block(true),
                    Err(refusal) => self.is_refused(refusal, node, now),
                }
            }
            Request::Release(ask) => match release(db, name, held.as_deref_mut(), ask, node, now) {
                // The usual case: nobody waits.
                Released::Freed if !self.touches_queue => {
                    self.stage = Stage::Answers(Ok(Reply::Holds(0)));
                    Some(Step::Delete(Some(Event::Released)))
                }
                Released::Freed => {
                    self.goes_on(Stage::Passes(Passing::ended(Event::Released, By::Command), Reply::Holds(0)))
                }
                Released::Lowered(left) => self.changed(held, None, Reply::Holds(left), node),
                Released::Unchanged(left) => self.answer(Ok(Reply::Holds(left))),
                Released::NotHeld => {
                    // It may have been its turn.
                    self.goes_on(passes(serve_queue(self.key, held.as_deref(), By::Command, node, now), Reply::Null))
                }
            },
            Request::Extend(ask) => match extend(held.as_deref_mut(), ask, node, now) {
                Ok(Extended::Prolonged(token)) => self.changed(held, Some(Event::Extended), Reply::Token(token), node),
                Ok(Extended::Unchanged(token)) => self.answer(Ok(Reply::Token(token))),
                Ok(Extended::NotHeld) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Reenter(ask) => match reenter(held.as_deref_mut(), ask, node, now) {
                Ok(Reentered::Changed(holds)) => self.changed(held, None, Reply::Holds(holds), node),
                Ok(Reentered::Unchanged(holds)) => self.answer(Ok(Reply::Holds(holds))),
                Ok(Reentered::NotHeld) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Fence(owner, token) => match fence(name, held.as_deref_mut(), *owner, *token, node, now) {
                Ok(Fenced::Raised(token)) => self.changed(held, None, Reply::Token(token), node),
                Ok(Fenced::Unchanged(token)) => self.answer(Ok(Reply::Token(token))),
                Ok(Fenced::NotHeld) => self.answer(Ok(Reply::Null)),
                Err(refusal) => self.is_refused(refusal, node, now),
            },
            Request::Wait(ask) => {
                self.touches_queue = true;
                match wait(db, name, held.as_deref(), ask, node, now) {
                    Ok(Waited::Turn) => self.answer(Ok(Reply::Turn(true))),
                    Ok(Waited::TimedOut) => self.answer(Ok(Reply::Turn(false))),
                    Ok(Waited::Queues) => self.block(false),
                    Err(refusal) => self.is_refused(refusal, node, now),
                }
            }
            Request::Break => match break_lock(held, node, now) {
                Some(token) => {
                    self.goes_on(Stage::Passes(Passing::ended(Event::Broken, By::Command), Reply::Token(token)))
                }
                None => self.answer(Ok(Reply::Null)),
            },
            // Nobody asked, so there is nothing to decide.
            Request::Expire(_) | Request::Look => self.answer(Ok(Reply::Null)),
        }
    }

    /// The request takes its place in the queue, under the name of its blocked client.
    #[cold]
    fn joins(&mut self, held: Option<&Lock>, said: Said, for_disk: bool, node: &mut Node, now: Now) {
        let Said::Blocked(id) = said else { return };
        let Some((waiter, ticket)) = waiter(self.request, id, for_disk, now) else { return };
        let Key { db, name } = self.key;
        self.touches_queue = true;
        let is_others = held.is_some_and(|lock| !lock.is_expired(now.boot) && !lock.is_of(waiter.owner()));
        node.waiting.join(db, name, waiter, ticket);
        // Free or its own, and yet it has to wait: nothing happens to the key that would bring its turn about.
        if for_disk || !is_others {
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
            Request::Acquire { ask, may_block } => acquire_later(db, name, ask, refusal, *may_block, node)
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

    fn changed(
        &mut self,
        held: Option<&mut Lock>,
        event: Option<Event>,
        reply: Reply,
        node: &mut Node,
    ) -> Option<Step> {
        node.schedule_expiry(self.key, held);
        self.stage = Stage::Answers(Ok(reply));
        Some(Step::Changed(event))
    }

    fn block(&mut self, for_disk: bool) -> Option<Step> {
        self.goes_on(Stage::Blocks { for_disk })
    }

    fn answer(&self, answer: Result<Reply, Refusal>) -> Option<Step> {
        Some(Step::Done(answer))
    }

    fn goes_on(&mut self, stage: Stage) -> Option<Step> {
        self.stage = stage;
        None
    }
}

/// If somebody waits for the lock of `key`, it may pass on.
fn serve_queue(key: Key<'_>, held: Option<&Lock>, by: By, node: &mut Node, now: Now) -> Option<Passing> {
    if !node.waiting.has_queue(key.db, key.name) {
        return None;
    }
    if held.is_some_and(|lock| lock.is_expired(now.boot)) {
        node.counters.expiries += 1;
        return Some(Passing::ended(Event::Expired, by));
    }
    Some(Passing::look(by))
}

fn passes(passing: Option<Passing>, reply: Reply) -> Stage {
    passing.map_or(Stage::Answers(Ok(reply)), |passing| Stage::Passes(passing, reply))
}

/// The place in the queue that `request` takes.
fn waiter(request: &Request<'_>, id: WaiterId, for_disk: bool, now: Now) -> Option<(Waiter, Option<Ticket>)> {
    match *request {
        Request::Acquire { ask: Acquire { owner, ttl, retry, fence, note, patience }, .. } => {
            let want = Want::Lock { ttl, fence, retry };
            let ms = if for_disk { DISK_WAIT_MS } else { patience.ms() };
            let waiter = Waiter::new(id, owner, note, want, now.boot, ms);
            Some((if for_disk { waiter.at_once() } else { waiter }, None))
        }
        Request::Wait(Wait { owner, patience, ticket }) => {
            Some((Waiter::new(id, owner, Note::default(), Want::Turn, now.boot, patience.ms()), ticket))
        }
        _ => None,
    }
}
