//! A node without Redis: drives the engine of `palisade-core`, and keeps locks in memory.
//!
//! The node has one database, and can be part of a cluster. Times are those of its own two clocks. The node hands its
//! files to the caller and gets them back at the next start, so the caller decides what survives a crash.

mod commands;
mod files;
mod keys;
mod losses;
mod members;
mod quorum;
mod setup;
mod slots;
mod start;
mod watch;

use std::collections::BTreeMap;

use palisade_core::BootId;
use palisade_core::engine::{Event, Finding, Question, Reply as Outcome, Request as Does, Run, Step, Work};
use palisade_core::quorum::NodeId;
use palisade_core::record;
use palisade_core::{BootTime, IncarnationId, Lock, Mode, Node, NodeState, Now, Refusal, Waiter, WaiterId, Want};

pub use keys::{NOT_YET_MS, name, shares_stripe};
pub use setup::{Found, Setup};
pub use watch::Wrong;

use self::keys::{DB, key_of};
use self::watch::Watch;
use crate::client::owner;
use crate::messages::{Hears, Payload, Request};
use crate::rules::{Rule, Without};

/// A running node: the engine, its locks, and what it has to write or answer.
#[derive(Clone, Debug)]
pub struct Server {
    setup: Setup,
    without: Without,
    boot: BootId,
    aof_life: bool,
    node: Node,
    locks: BTreeMap<u32, Lock>,
    /// The locks as the AOF and replicas know them, built from the changes that the node sent.
    told: BTreeMap<u32, Lock>,
    /// The next state to write to the state file. A newer state replaces an older one.
    to_write: Option<(u64, NodeState)>,
    /// Requests that waited for a lock that this node no longer serves, and that are still unanswered.
    sent_away: Vec<WaiterId>,
    /// The version of the node set with which the connection of each waiting request joined.
    joined: BTreeMap<WaiterId, u64>,
    /// True after an operator has armed the guard.
    was_armed: bool,
    watch: Watch,
}

impl Server {
    /// Returns the incarnation: the node's id and number.
    pub fn incarnation(&self) -> IncarnationId {
        self.node.ledger().incarnation()
    }

    /// Returns true if the AOF contains every grant of this incarnation.
    pub fn is_aof_life(&self) -> bool {
        self.aof_life
    }

    /// Returns the server's id.
    pub fn id(&self) -> NodeId {
        NodeId(self.incarnation().node)
    }

    // Requests.

    /// Receives `request`. Returns `None` if the answer comes later or no client waits for one.
    pub fn hear(&mut self, request: &Request, now: Now) -> Option<Hears> {
        let (key, owner) = (request.key, owner(request.who, self.without));
        if let Some(why) = self.is_not_heard(request) {
            return Some(why).filter(|_| request.is_answered());
        }
        match request.says {
            Payload::Ask(ask) => Some(Hears::Answer(self.ask(key, &owner, ask, request.wanted, now))),
            Payload::Release => {
                self.release(key, &owner, now);
                None
            }
            Payload::Command(command) => self.command(request, command, &owner, now).map(Hears::Replied),
            Payload::Look => Some(Hears::Free(self.free(key, request.wanted, now))),
            Payload::Wait { .. } if !self.serves(key) => Some(Hears::Told(0)),
            Payload::Wait { ms, ticket } => {
                match self.wait(key, &owner, (request.wanted, ms, ticket), request.waiter(), now) {
                    Ok(told) => {
                        let waits = request.joined.filter(|_| told.is_none());
                        waits.map(|version| self.joined.insert(request.waiter(), version));
                        told.map(Hears::Told)
                    }
                    Err(_) => Some(Hears::Told(0)),
                }
            }
        }
    }

    /// Performs the engine's decisions, step by step. `waiter` is the id of the request if it has to wait.
    fn perform(
        &mut self,
        key: u32,
        request: &Does<'_>,
        waiter: Option<WaiterId>,
        now: Now,
    ) -> Result<Outcome, Refusal> {
        let name = name(key);
        let mut run = Run::new(key_of(&name), request);
        let mut said = Finding::Yes;
        loop {
            let step = run.next(self.locks.get_mut(&key), said, &mut self.node, now);
            said = Finding::Yes;
            match step {
                Step::Store(_) | Step::Replace => {
                    if let Some(lock) = run.take_granted() {
                        self.watch.grants(key, lock.first(), now);
                        self.store(key, *lock);
                        self.tell(key, now, record::encode);
                    }
                }
                Step::Changed(event, id) => {
                    let joins = matches!(event, Some(Event::Acquired | Event::HandedOver));
                    if let Some(lock) = self.locks.get(&key).filter(|_| joins) {
                        self.watch.grants(key, lock.grant(id), now);
                    }
                    if !joins || !self.without.is(Rule::GrantsAreTold) {
                        self.tell(key, now, |lock, now, boot, out| record::encode_change(lock, id, now, boot, out));
                    }
                }
                Step::Left(_) => {
                    if let Some(ended) = run.take_ended() {
                        self.tell(key, now, |_, now, boot, out| record::encode_end(&ended, now, boot, out));
                    }
                }
                Step::Delete(_) => self.end(key),
                Step::Ask(Question::IsServedHere) if !self.serves(key) => said = Finding::No,
                Step::Redirect => self.sent_away.extend(self.node.dismiss(key_of(&name), usize::MAX, now.boot)),
                Step::Block => {
                    said = waiter.map_or(Finding::No, Finding::Blocked);
                    if self.without.is(Rule::FirstInFirstOut) {
                        self.first_to_the_end(key, now);
                    }
                }
                Step::Write => self.save(now),
                Step::Publish(_) | Step::AnswerWatchers | Step::Ask(_) | Step::ReadSlots => {}
                Step::Done(answer) => {
                    self.is_told(key, now);
                    return answer;
                }
            }
        }
    }

    // Work that becomes due with time.

    /// Returns the earliest moment at which work is due.
    pub fn next_due(&self) -> Option<BootTime> {
        self.node.next_due()
    }

    /// Does the work that is due by `now`: leases that ended, queues to serve, waits that are over.
    pub fn run(&mut self, now: Now) {
        loop {
            while self.node.time_out(now.boot) {}
            // No client gets this answer, so nothing can be refused.
            let _ = match self.node.take_due(now.boot, true) {
                Some(Work::Look(_, name)) if self.forgets_to_serve(key(&name), now) => continue,
                Some(Work::Look(_, name)) => self.perform(key(&name), &Does::Look, None, now),
                Some(Work::Renew(renewal)) => self.perform(key(renewal.key().name), &Does::Renew(&renewal), None, now),
                Some(Work::Break(breaking)) => {
                    self.perform(key(breaking.key().name), &Does::BreakOn(&breaking), None, now)
                }
                Some(Work::Expire(due)) if self.without.is(Rule::QueueIsLookedAt) => {
                    self.end(key(due.key().name));
                    continue;
                }
                Some(Work::Expire(due)) => self.perform(key(due.key().name), &Does::Expire(&due), None, now),
                None => return,
            };
        }
    }

    /// Returns the answers to waiting requests.
    pub fn told(&mut self) -> Vec<(WaiterId, Hears)> {
        let answers = self.node.take_answers(usize::MAX);
        if answers.is_empty() && self.sent_away.is_empty() && !self.watch.has_granted() {
            return vec![];
        }
        let sent_away = self.sent_away.drain(..).map(|id| (id, None));
        let told: Vec<_> = sent_away.chain(answers.into_iter().map(|(id, told)| (id, Some(told)))).collect();
        self.joined.retain(|waiter, _| told.iter().all(|(id, _)| id != waiter));
        let hears = told.into_iter().map(|(id, told)| (id, self.watch.hears(id, told))).collect();
        self.watch.has_told();
        hears
    }

    /// Returns the first error that the watch detected, if any.
    pub fn wrong(&self) -> Option<Wrong> {
        self.watch.wrong()
    }

    /// Checks that every request whose time was up has been answered.
    pub fn pass_times(&mut self, now: Now) {
        self.watch.check_overdue(now.boot);
    }

    /// Returns true if `GuardEndServes` is switched off and a guard postponed the queue of `key`: such a queue is never
    /// served again.
    fn forgets_to_serve(&self, key: u32, now: Now) -> bool {
        self.without.is(Rule::GuardEndServes)
            && self.was_armed
            && self.node.guard().armed(now.boot).is_none()
            && !self.locks.contains_key(&key)
    }

    /// Moves the first waiter to the end, if `FirstInFirstOut` is switched off.
    fn first_to_the_end(&mut self, key: u32, now: Now) {
        let name = name(key);
        let first = self.node.waiting().of(key_of(&name)).find(|first| first.want != Want::Turn).map(|first| first.id);
        if let Some(first) = first.and_then(|first| self.node.leave_queue(first, now.boot)) {
            self.node.tamper().waiting.join(key_of(&name), first, None);
        }
    }

    fn end(&mut self, key: u32) {
        self.told.remove(&key);
        if let Some(mut lock) = self.locks.remove(&key) {
            self.node.cancel_expiry(key_of(&name(key)), &mut lock);
        }
    }

    fn store(&mut self, key: u32, lock: Lock) {
        match self.locks.get_mut(&key) {
            Some(held) => drop(held.replace(lock)),
            None => drop(self.locks.insert(key, lock)),
        }
    }

    // Information for observers.

    /// Returns true if a request waits for a free lock although nothing prevents the node from granting it.
    pub fn lets_wait_for_nothing(&self, now: Now) -> bool {
        // A lock that was evicted stays closed to others until its lease would have ended. A node whose disk hangs has
        // no more tokens to grant with.
        let may_have = |waiter: &Waiter, name: &[u8]| {
            self.node.evicted().ensure_open(key_of(name), waiter.owner(), now.boot).is_ok()
                && (waiter.want == Want::Turn
                    || self.node.tokens().clone().issue(name, None, now, self.setup.skew_ms).is_ok())
        };
        self.node.ready(now.boot).is_ok()
            && self.node.guard().ensure_open(now.boot).is_ok()
            && self.node.waiting().names(DB).any(|name| {
                self.could_serve(name, now)
                    && self.node.slots().ensure_open(name, now.boot).is_ok()
                    && self.node.waiting().len_of(key_of(name)) > 0
                    && self.node.waiting().of(key_of(name)).all(|waiter| may_have(waiter, name))
            })
    }

    /// Returns true if neither the holders of lock `name` nor its reservations block the first waiter of its queue, nor
    /// the one that has waited longest.
    fn could_serve(&self, name: &[u8], now: Now) -> bool {
        let waiting = self.node.waiting();
        let grants = self.locks.get(&key(name)).into_iter().flat_map(Lock::grants);
        let held: Vec<Mode> = grants.filter(|(_, grant)| !grant.is_expired(now.boot)).map(|(mode, _)| mode).collect();
        let is_free_for = |waiter: &Waiter| {
            let mut kept = waiting.reservations(key_of(name)).filter(|(_, _, until)| now.boot <= *until);
            held.is_empty() && kept.next().is_none()
                || waiter.wanted.modes().any(|mode| {
                    let kept = waiting.reservations(key_of(name)).map(|(_, kept, _)| kept);
                    held.iter().copied().chain(kept).all(|other| other.is_compatible(mode))
                })
        };
        let longest = waiting.of(key_of(name)).min_by_key(|waiter| waiter.since);
        waiting.of(key_of(name)).next().into_iter().chain(longest).all(is_free_for)
    }

    /// Returns what the engine remembers besides the locks, such as tokens, queue, guard and ledger.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the locks in memory.
    pub fn locks(&self) -> &BTreeMap<u32, Lock> {
        &self.locks
    }
}

fn key(name: &[u8]) -> u32 {
    name.try_into().map_or(0, u32::from_be_bytes)
}
