//! Tests every short history of a cluster slot that leaves a node and returns, perhaps with a lock that was granted
//! elsewhere, and perhaps from a node that has forgotten that lock; or that begins to leave and stays. Never do two
//! owners hold the lock at a time, and tokens only grow.

use super::super::{Finding, Question, Reply, Request, Run, Step};
use crate::fixture::{KEY, asks, owner, token, ttl};
use crate::guard::slot_set::{SlotSet, slot_of};
use crate::guard::slots::Moves;
use crate::guard::sources::{MigrationId, ServerId, SourceAnswer};
use crate::lock::Lock;
use crate::lock::grant::Grant;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::{Acquire, Extend, Note};
use crate::values::time::{BootTime, Now};
use crate::values::token::Token;

/// The length of every lease, in milliseconds: longer than any history here.
const TTL_MS: u64 = 60_000;

/// The node that has the slot while the node under test does not.
const OTHER: ServerId = [b'o'; 40];

/// The migration in one step by which the slot comes back. It ends well.
const MIGRATION: MigrationId = [b'm'; 40];

/// An owner whose lock has ended.
const EARLIER: &str = "earlier";

/// The time at which each history begins, in microseconds. By then the clock has passed the tokens of the node's start.
const BEGIN_US: u64 = 10_000_000;

/// The lead of the other node's clock, in microseconds: as much as clocks may differ.
const AHEAD_US: u64 = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The node reads which slots it serves. It does so ten times a second.
    Looks,
    /// The slot leaves because of a message from another node. The server knows it at once, but the node may not have
    /// read it yet.
    Leaves,
    /// A command takes the slot from the node. The node reads its slots before and after.
    IsTaken,
    /// A command begins to move the slot away key by key. The node reads its slots before and after. From now on the
    /// other node grants the lock if it is free here.
    IsOffered,
    /// A command gives this move up, on both nodes. The node under test has not read it yet.
    Stays,
    /// The slot returns in one step, with its locks.
    ComesBack,
    /// The slot is imported key by key. The node reads its slots when the import is announced, and when it owns the
    /// slot.
    IsImported,
    /// A command gives the slot to the node without its locks. The node reads its slots before and after.
    IsGiven,
    /// A client asks the node that has the slot for the lock.
    IsAsked,
    /// The holder gives the lock back.
    Release,
    /// The other node, which has the slot, restarts and has forgotten its locks. It is guarded.
    OtherForgets,
    /// The other node restarts with earlier data: it remembers that [`EARLIER`] holds the lock, not that somebody else got
    /// it since. It is guarded.
    OtherRemembersEarlier,
    /// The other node answers the last question of the node under test.
    OtherAnswers,
}

const EVENTS: [Event; 13] = [
    Event::Looks,
    Event::Leaves,
    Event::IsTaken,
    Event::IsOffered,
    Event::Stays,
    Event::ComesBack,
    Event::IsImported,
    Event::IsGiven,
    Event::IsAsked,
    Event::Release,
    Event::OtherForgets,
    Event::OtherRemembersEarlier,
    Event::OtherAnswers,
];

/// The node under test, and the rest of its cluster.
#[derive(Clone)]
struct Cluster {
    node: Node,
    /// True if the node under test has the slot.
    is_here: bool,
    /// True while the slot is moved away key by key.
    is_offered: bool,
    /// The key's content, on the node that has the slot.
    lock: Option<Lock>,
    /// The lock that the other node granted while the slot is moved away key by key.
    there: Option<Lock>,
    /// True if such a move was given up after the other node had granted the lock. When the slot leaves again, the other
    /// node is guarded: because this one is and says so, or because the slot comes there without its locks.
    is_unknown: bool,
    /// True if an owner was granted the lock, and has not given it back.
    is_held: bool,
    /// True if the other node is guarded.
    is_other_guarded: bool,
    /// The time of the last question to the other node, if it has not answered yet.
    question: Option<BootTime>,
    /// The largest token that was ever issued.
    last: Option<Token>,
    us: u64,
    /// The events so far, for the report of a failure.
    history: Vec<Event>,
}

impl Cluster {
    fn new() -> Self {
        let mut node = Node::new(10);
        node.begin_in_cluster();
        node.ledger.on_lease(TTL_MS as u32, node.skew_ms, BootTime::from_us(BEGIN_US));
        let mut cluster = Self {
            node,
            is_here: true,
            is_offered: false,
            lock: None,
            there: None,
            is_unknown: false,
            is_held: false,
            is_other_guarded: false,
            question: None,
            last: None,
            us: 0,
            history: vec![],
        };
        cluster.look();
        cluster.us = BEGIN_US;
        cluster
    }

    fn now(&self) -> Now {
        Now::new(BootTime::from_us(self.us), self.us)
    }

    fn look(&mut self) {
        self.look_at(false);
    }

    fn look_at(&mut self, is_imported: bool) {
        let slot = slot_of(KEY.name);
        let set = |is_in: bool| {
            let mut set = SlotSet::default();
            if is_in {
                set.insert(slot..=slot);
            }
            set
        };
        let moves = Moves {
            imported: is_imported.then_some((slot, Some(OTHER))).into_iter().collect(),
            exported: self.is_offered.then_some((slot, OTHER)).into_iter().collect(),
        };
        self.node.update_slots(&set(self.is_here), moves, self.now());
        self.ask_other();
    }

    /// Asks the other node what it has forgotten, if the node under test wants to know.
    fn ask_other(&mut self) {
        let now = self.now().boot;
        if !self.node.ask_sources(now).is_empty() {
            self.question = Some(now);
        }
    }

    /// Performs this event, if it is possible now; returns whether it was.
    fn happens(&mut self, event: Event) -> bool {
        self.us += 1;
        let slot = slot_of(KEY.name);
        match event {
            Event::Looks => self.look(),
            Event::Leaves if self.is_here => self.leaves(),
            Event::IsTaken if self.is_here => {
                self.look();
                self.leaves();
                self.look();
            }
            Event::IsOffered if self.is_here && !self.is_offered => {
                self.look();
                self.is_offered = true;
                self.look();
            }
            Event::Stays if self.is_offered => {
                self.is_offered = false;
                self.is_unknown |= self.there.take().is_some();
            }
            Event::ComesBack if !self.is_here => {
                self.node.on_slots_arriving(slot..=slot, OTHER, MIGRATION);
                self.is_here = true;
                self.arrives();
                self.us += 1;
                self.node.on_slots_arrived(slot..=slot, MIGRATION, self.now());
                self.ask_other();
            }
            Event::IsImported if !self.is_here => {
                self.look_at(true);
                self.is_here = true;
                self.arrives();
                // It came by RESTORE.
                self.lock.iter_mut().for_each(Lock::mark_suspect);
                self.us += 1;
                self.look();
            }
            Event::IsGiven if !self.is_here => {
                self.look();
                (self.lock, self.is_here) = (None, true);
                self.look();
            }
            Event::IsAsked if self.is_here && !(self.is_offered && self.lock.is_none()) => self.ask(),
            Event::IsAsked if self.lock.is_none() && !self.is_held && !self.is_other_guarded => {
                let token = Token::new((self.us + AHEAD_US).max(self.last.map_or(0, |last| last.get() + 1))).unwrap();
                let grant = Grant::new(owner("other"), Note::default(), token, self.now().boot, ttl(TTL_MS));
                *if self.is_here { &mut self.there } else { &mut self.lock } = Some(Lock::Exclusive(grant));
                self.is_granted(token);
            }
            Event::Release if self.is_held => {
                if let Some(mut lock) = self.lock.take().filter(|_| self.is_here) {
                    self.node.cancel_expiry(KEY, &mut lock);
                }
                (self.is_held, self.there) = (false, None);
            }
            Event::OtherForgets if !self.is_here && self.lock.is_some() => {
                (self.lock, self.is_other_guarded) = (None, true);
            }
            Event::OtherRemembersEarlier if !self.is_here && self.lock.is_some() => {
                let grant = Grant::new(owner(EARLIER), Note::default(), token(1), self.now().boot, ttl(TTL_MS));
                (self.lock, self.is_other_guarded) = (Some(Lock::Exclusive(grant)), true);
            }
            Event::OtherAnswers => {
                let Some(asked) = self.question.take() else { return false };
                let mut answer = SourceAnswer { ended: vec![MIGRATION], ..SourceAnswer::default() };
                if self.is_other_guarded {
                    answer.forgotten_ms = TTL_MS as u32;
                    answer.forgotten.set(slot, true);
                    answer.doubted.set(slot, true);
                }
                self.node.on_source_answer(OTHER, asked, answer, self.now().boot);
            }
            _ => return false,
        }
        true
    }

    /// Lets the slot leave the node, and its lock with it.
    fn leaves(&mut self) {
        (self.is_here, self.is_offered) = (false, false);
        if let Some(lock) = &mut self.lock {
            self.node.cancel_expiry(KEY, lock);
        }
        self.lock = self.there.take().or(self.lock.take());
        self.is_other_guarded |= std::mem::take(&mut self.is_unknown);
    }

    /// Puts the lock that the other node knows under the key of the node under test.
    fn arrives(&mut self) {
        let now = self.now().boot;
        if let Some(lock) = &mut self.lock {
            self.node.on_lock_arrived(KEY, lock, now);
        }
    }

    /// Checks that the node under test does not extend the lock of an owner that has lost it.
    fn extends_no_earlier_grant(&self) {
        if self.is_here && self.history.contains(&Event::OtherRemembersEarlier) {
            let extend = Request::Extend(Extend { owner: owner(EARLIER), ttl: ttl(TTL_MS), token: None });
            let answer = self.clone().answer(&extend);
            assert!(matches!(answer, Ok(Reply::Null) | Err(_)), "{answer:?}: {:?}", self.history);
        }
    }

    /// Asks the node that has the slot for the lock, and checks the answer.
    fn ask(&mut self) {
        let answer = self.answer(&Request::Acquire(Acquire { ttl: ttl(TTL_MS), ..asks("me") }));
        if let Ok(Reply::Granted(token, _)) = answer {
            self.is_granted(token);
        }
    }

    /// Returns the answer of the node under test.
    fn answer(&mut self, request: &Request<'_>) -> Result<Reply, Refusal> {
        let (mut run, mut said, mut held, now) = (Run::new(KEY, request), Finding::Yes, self.lock.take(), self.now());
        let answer = loop {
            let step = run.next(held.as_mut(), said, &mut self.node, now);
            said = Finding::Yes;
            match step {
                Step::Store(_) => held = run.take_granted().map(|lock| *lock),
                Step::ReadSlots => self.look(),
                Step::Ask(Question::OnDisk) | Step::Write => {}
                Step::Done(answer) => break answer,
                step => panic!("{step:?}: {:?}", self.history),
            }
        };
        self.lock = held;
        answer
    }

    fn is_granted(&mut self, token: Token) {
        assert!(!self.is_held, "two hold the lock: {:?}", self.history);
        assert!(self.last.is_none_or(|last| token > last), "{token:?} after {:?}: {:?}", self.last, self.history);
        (self.is_held, self.last) = (true, Some(token));
    }
}

#[test]
fn no_history_of_a_slot_that_comes_back_grants_twice_or_falls_back() {
    const LENGTH: usize = 7;
    let mut histories = vec![Cluster::new()];
    let (mut grants_after_an_answer, mut looked_at) = (0, 0);
    while let Some(cluster) = histories.pop() {
        for event in EVENTS {
            let mut next = cluster.clone();
            next.history.push(event);
            if !next.happens(event) {
                continue;
            }
            next.extends_no_earlier_grant();
            looked_at += 1;
            let returned =
                [Event::ComesBack, Event::IsImported, Event::IsGiven].iter().any(|by| cluster.history.contains(by));
            let is_granted = returned && next.is_here && next.last != cluster.last;
            grants_after_an_answer += usize::from(is_granted && cluster.history.contains(&Event::OtherAnswers));
            if next.history.len() < LENGTH {
                histories.push(next);
            }
        }
    }
    println!(
        "{looked_at} histories, {grants_after_an_answer} grants after the slot came back and the other node answered"
    );
    assert!(grants_after_an_answer > 300);
}
