//! Moves a cluster slot key by key between two nodes, in random histories: moves that are given up on one side or both,
//! questions and answers that are late, clocks that differ, tokens that are raised. Nobody is granted the lock while
//! another owner may rely on it, and a later grant has a larger token.

use proptest::prelude::*;

use super::super::{Finding, Reply, Request, Run, Step};
use crate::durability::start::token_floor;
use crate::durability::ties::Found;
use crate::fixture::{KEY, asks, owner, releases, token, ttl};
use crate::guard::slot_set::{SlotSet, slot_of};
use crate::guard::slots::Moves;
use crate::guard::sources::{ANSWERS_WITHIN_MS, ServerId, SourceAnswer};
use crate::lock::Lock;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::request::Acquire;
use crate::tokens::Tokens;
use crate::values::mode::Wanted;
use crate::values::time::{BootTime, Now};

/// The length of every lease, in milliseconds. A guard is a little longer.
const TTL_MS: u32 = 2_000;

/// The time that passes with each event, in microseconds.
const EVENT_US: u64 = 1_000;

/// The difference between the clocks that the nodes allow for, and the leads of the source's and of the target's clock,
/// in milliseconds.
const CLOCKS_MS: [(u32, [u64; 2]); 3] = [(2_000, [1_500, 0]), (2_000, [0, 1_500]), (0, [0, 0])];

/// The names of the source and of the target.
const NAMES: [ServerId; 2] = [[b's'; 40], [b't'; 40]];
const SOURCE: usize = 0;
const TARGET: usize = 1;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// SETSLOT IMPORTING at the target.
    Imports,
    /// SETSLOT MIGRATING at the source.
    Offers,
    /// SETSLOT STABLE at this node, which has not read it yet.
    GivesUp(usize),
    /// SETSLOT NODE at the target, which ought to wait until the source has offered the slot and has no keys in it.
    Takes,
    /// The source hears of that.
    IsTaken,
    /// A new owner asks for the lock, and follows redirections.
    Asks(Wanted),
    /// A new owner asks for the lock. If it is redirected to the target, its request is late.
    AsksSlowly(Wanted),
    /// The late request arrives.
    Arrives,
    /// The holder whose number this is, modulo the number of holders, gives the lock back.
    Releases(usize),
    /// All holders try to extend their leases.
    Extend,
    /// This node reads its slots.
    Reads(usize),
    /// The target asks the source, which answers.
    Questions,
    /// The target hears the oldest answer.
    Hears,
    /// This node gains another slot, so its tokens jump ahead of its clock.
    Jumps(usize),
    /// The holder whose number this is, modulo the number of holders, raises its token far ahead.
    Raises(usize),
    /// This number of milliseconds passes.
    Waits(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let wanted = || prop_oneof![Just(Wanted::Shared), Just(Wanted::Exclusive)];
    let event = prop_oneof![
        2 => Just(Event::Imports),
        3 => Just(Event::Offers),
        1 => (0..2_usize).prop_map(Event::GivesUp),
        1 => Just(Event::Takes),
        1 => Just(Event::IsTaken),
        6 => wanted().prop_map(Event::Asks),
        1 => wanted().prop_map(Event::AsksSlowly),
        1 => Just(Event::Arrives),
        3 => (0..4_usize).prop_map(Event::Releases),
        2 => Just(Event::Extend),
        1 => (0..2_usize).prop_map(Event::Reads),
        3 => Just(Event::Questions),
        3 => Just(Event::Hears),
        1 => (0..2_usize).prop_map(Event::Jumps),
        1 => (0..4_usize).prop_map(Event::Raises),
        2 => prop_oneof![Just(50), Just(150), Just(1_950), Just(12_000)].prop_map(Event::Waits),
    ];
    prop::collection::vec(event, 1..60)
}

/// An owner that relies on its grant.
#[derive(Debug)]
struct Holder {
    name: String,
    at: usize,
    is_reader: bool,
    /// The end of its lease, in microseconds.
    until: u64,
}

/// Two nodes, and what their servers know of the slot.
struct Cluster {
    nodes: [Node; 2],
    locks: [Option<Lock>; 2],
    serves: [bool; 2],
    is_imported: bool,
    is_offered: bool,
    /// The answers on their way to the target, each with the time of its question.
    answers: Vec<(BootTime, SourceAnswer)>,
    holders: Vec<Holder>,
    /// The highest token of any grant, and of any writer's.
    last: (u64, u64),
    owners: usize,
    /// The request that was redirected and is late, with the time at which it was sent.
    on_its_way: Option<(Wanted, u64)>,
    granted: [usize; 2],
    /// The time at which the target took the slot, if the source has not answered since.
    unanswered_since: Option<u64>,
    us: u64,
    /// The leads of the nodes' clocks, in microseconds.
    ahead_us: [u64; 2],
}

impl Cluster {
    fn new((skew_ms, ahead_ms): (u32, [u64; 2])) -> Self {
        let node = || {
            let mut node = Node::new(10);
            node.tokens = Tokens::with_stripes(10, 2, 1);
            node.skew_ms = skew_ms;
            node.begin_in_cluster();
            node
        };
        let mut cluster = Self {
            nodes: [node(), node()],
            locks: [None, None],
            serves: [true, false],
            is_imported: false,
            is_offered: false,
            answers: vec![],
            holders: vec![],
            last: (0, 0),
            owners: 0,
            on_its_way: None,
            granted: [0, 0],
            unanswered_since: None,
            us: EVENT_US,
            ahead_us: ahead_ms.map(|ms| ms * 1_000),
        };
        cluster.reads(SOURCE);
        cluster.reads(TARGET);
        // By now the clocks have passed the tokens of the start.
        cluster.us = 20_000_000;
        cluster
    }

    fn now(&self, which: usize) -> Now {
        Now::new(BootTime::from_us(self.us), self.us + self.ahead_us[which])
    }

    fn reads(&mut self, which: usize) {
        let slot = slot_of(KEY.name);
        let mut owned = SlotSet::default();
        if self.serves[which] {
            owned.insert(slot..=slot);
        }
        let mut moves = Moves::default();
        if which == SOURCE && self.is_offered {
            moves.exported.insert(slot, NAMES[TARGET]);
        } else if which == TARGET && self.is_imported {
            moves.imported.insert(slot, self.serves[SOURCE].then_some(NAMES[SOURCE]));
        }
        let now = self.now(which);
        self.nodes[which].confirm_slot_flush(false);
        self.nodes[which].update_slots(&owned, moves, now);
    }

    fn happens(&mut self, event: Event) {
        self.us += EVENT_US;
        // A source that has not answered by then counts as silent, and its tokens can only be estimated.
        if self.unanswered_since.is_some_and(|since| self.us > since + u64::from(ANSWERS_WITHIN_MS) * 1_000) {
            return;
        }
        let now = BootTime::from_us(self.us);
        for node in &mut self.nodes {
            node.ledger.on_lease(TTL_MS, node.skew_ms, now);
        }
        match event {
            Event::Imports if !self.serves[TARGET] => {
                self.is_imported = true;
                self.reads(TARGET);
            }
            Event::Offers if self.serves[SOURCE] && !self.is_offered => {
                // Before and after the command.
                self.reads(SOURCE);
                self.is_offered = true;
                self.reads(SOURCE);
            }
            Event::GivesUp(SOURCE) if !self.serves[TARGET] => self.is_offered = false,
            Event::GivesUp(TARGET) => self.is_imported = false,
            Event::Takes if self.is_imported => {
                (self.serves[TARGET], self.is_imported) = (true, false);
                self.unanswered_since = Some(self.us);
                self.reads(TARGET);
            }
            Event::IsTaken => self.is_taken(),
            Event::Asks(wanted) => {
                let at = self.redirected();
                self.acquires(at, wanted);
            }
            Event::AsksSlowly(wanted) => match self.redirected() {
                TARGET => self.on_its_way = Some((wanted, self.us)),
                at => self.acquires(at, wanted),
            },
            Event::Arrives => {
                if let Some((wanted, since)) = self.on_its_way.take()
                    && self.us <= since + u64::from(TTL_MS) * 1_000
                {
                    self.acquires(TARGET, wanted);
                }
            }
            Event::Releases(which) if !self.holders.is_empty() => self.releases(which % self.holders.len()),
            Event::Extend => self.extend(),
            Event::Reads(which) => self.reads(which),
            Event::Questions => self.questions(),
            Event::Hears if !self.answers.is_empty() => {
                let ((asked, answer), now) = (self.answers.remove(0), self.now(TARGET).boot);
                self.nodes[TARGET].on_source_answer(NAMES[SOURCE], asked, answer, now);
                self.unanswered_since = self.unanswered_since.filter(|since| asked < BootTime::from_us(*since));
            }
            Event::Jumps(which) => {
                let (wall_us, node) = (self.now(which).wall_us, &mut self.nodes[which]);
                node.raise_floor(token_floor(None, &Found::default(), wall_us, node.skew_ms));
            }
            Event::Raises(which) if !self.holders.is_empty() => self.raises(which % self.holders.len()),
            Event::Waits(ms) if self.unanswered_since.is_none() => {
                self.is_taken();
                // As each node does ten times a second, and the target also right after it has read its slots.
                self.us += 10_000;
                self.reads(TARGET);
                self.questions();
                self.us += ms * 1_000;
            }
            _ => {}
        }
        let us = self.us;
        self.holders.retain(|holder| us <= holder.until);
    }

    /// The source hears that the target took the slot, if it did, and deletes the lock that it still has there.
    fn is_taken(&mut self) {
        if self.serves[TARGET] && self.serves[SOURCE] {
            (self.serves[SOURCE], self.is_offered) = (false, false);
            if let Some(lock) = self.locks[SOURCE].take() {
                self.nodes[SOURCE].on_dropped_in_slot(KEY.name, lock.end());
            }
        }
    }

    /// Lets the target ask the source, if it wants to know anything; the source answers.
    fn questions(&mut self) {
        let now = self.now(TARGET).boot;
        if let [(_, question)] = &self.nodes[TARGET].ask_sources(now)[..] {
            // A question makes the source read its slots.
            self.reads(SOURCE);
            let (at_source, mut has) = (self.now(SOURCE), SlotSet::default());
            has.set(slot_of(KEY.name), self.locks[SOURCE].is_some());
            let answer = self.nodes[SOURCE].source_answer(&NAMES[TARGET], question, &has, at_source).unwrap();
            self.answers.push((now, answer));
        }
    }

    /// Returns the node to which the source's server lets a client go. The timer has deleted a lock whose lease is over.
    fn redirected(&self) -> usize {
        let is_here = self.locks[SOURCE].as_ref().is_some_and(|lock| !lock.is_expired(self.now(SOURCE).boot));
        if self.serves[SOURCE] && (is_here || !self.is_offered) { SOURCE } else { TARGET }
    }

    fn acquires(&mut self, at: usize, wanted: Wanted) {
        if at == TARGET && !self.is_imported && !self.serves[TARGET] {
            return;
        }
        self.owners += 1;
        let name = format!("o{}", self.owners);
        let ask = Request::Acquire(Acquire { owner: owner(&name), ttl: ttl(TTL_MS.into()), wanted, ..asks("me") });
        let Ok(Reply::Granted(token, _)) = self.runs(at, &ask) else { return };
        let is_reader = wanted == Wanted::Shared;
        let others: Vec<_> = self.holders.iter().filter(|holder| !(is_reader && holder.is_reader)).collect();
        assert!(others.is_empty(), "{name} at {at} beside {others:?}");
        let (token, last) = (token.get(), if is_reader { self.last.1 } else { self.last.0 });
        assert!(token > last, "{name} at {at}: {token} after {last}");
        self.last = (self.last.0.max(token), if is_reader { last } else { token });
        self.holders.push(Holder { name, at, is_reader, until: self.us + u64::from(TTL_MS) * 1_000 });
        self.granted[at] += 1;
    }

    fn raises(&mut self, which: usize) {
        let Holder { name, at, is_reader, .. } = &self.holders[which];
        let (name, at, is_reader) = (name.clone(), *at, *is_reader);
        let far = token(self.last.0 + 60_000_000);
        if self.runs(at, &Request::Fence(owner(&name), far)) == Ok(Reply::Token(far)) {
            self.last = (far.get(), if is_reader { self.last.1 } else { far.get() });
        }
    }

    fn releases(&mut self, which: usize) {
        let Holder { name, at, .. } = self.holders.remove(which);
        let _ = self.runs(at, &Request::Release(releases(&name)));
    }

    fn extend(&mut self) {
        for which in 0..self.holders.len() {
            let (name, at) = (self.holders[which].name.clone(), self.holders[which].at);
            let retry = Acquire {
                owner: owner(&name),
                ttl: ttl(TTL_MS.into()),
                retry: true,
                wanted: if self.holders[which].is_reader { Wanted::Shared } else { Wanted::Exclusive },
                ..asks("me")
            };
            if matches!(self.runs(at, &Request::Acquire(retry)), Ok(Reply::Granted(..) | Reply::Token(_))) {
                self.holders[which].until = self.us + u64::from(TTL_MS) * 1_000;
            }
        }
    }

    /// Performs a request at a node.
    fn runs(&mut self, at: usize, request: &Request<'_>) -> Result<Reply, Refusal> {
        let now = self.now(at);
        let (mut run, mut said) = (Run::new(KEY, request), Finding::Yes);
        let mut held = self.locks[at].take();
        let answer = loop {
            let step = run.next(held.as_mut(), said, &mut self.nodes[at], now);
            said = Finding::Yes;
            match step {
                Step::Store(_) | Step::Replace => held = run.take_granted().map(|lock| *lock),
                Step::Delete(_) => held = None,
                Step::ReadSlots => self.reads(at),
                Step::Done(answer) => break answer,
                _ => {}
            }
        };
        self.locks[at] = held;
        answer
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn no_history_of_a_moving_slot_grants_twice_or_falls_back(events in events()) {
        for clocks in CLOCKS_MS {
            let mut cluster = Cluster::new(clocks);
            for event in &events {
                cluster.happens(*event);
            }
        }
    }
}

/// The source gives the move up right after an answer. While that counts, the holder at the target extends its lease.
#[test]
fn a_lease_that_an_old_answer_allowed_ends_before_the_source_grants() {
    use Event::*;
    for (until_extended, until_asked) in [(150, 1_950), (500, 1_780)] {
        let mut cluster = Cluster::new(CLOCKS_MS[2]);
        let begin = [Imports, Offers, Questions, Hears, Asks(Wanted::Exclusive), Questions, Hears];
        let end = [GivesUp(SOURCE), Reads(SOURCE), Waits(until_extended), Extend, Waits(until_asked)];
        begin.into_iter().chain(end).for_each(|event| cluster.happens(event));
        assert_eq!(cluster.holders.len(), usize::from(until_extended == 150));
        cluster.happens(Asks(Wanted::Exclusive));
        cluster.happens(Waits(1_000));
        cluster.happens(Asks(Wanted::Exclusive));
        assert_eq!(cluster.granted, [1, 1]);
    }
}

/// The source's tokens jump ahead of its clock: before the slot moves, or after the source has answered.
#[test]
fn the_target_continues_above_a_source_that_is_ahead() {
    use Event::*;
    let (reads, writes) = (Asks(Wanted::Shared), Asks(Wanted::Exclusive));
    let before = [Jumps(SOURCE), writes, Imports, Offers, Releases(0), Takes, Questions, Hears, writes, Reads(TARGET)];
    let after = [reads, Imports, Offers, Questions, Hears, Jumps(SOURCE), reads, Releases(0), Releases(0), writes];
    for events in [before, after] {
        let mut cluster = Cluster::new(CLOCKS_MS[0]);
        events.into_iter().for_each(|event| cluster.happens(event));
        assert_eq!(cluster.granted, [1, 1]);
    }
}

/// The holder at the source raises its token far ahead right after an answer: while the slot moves, or between two moves.
#[test]
fn the_target_continues_above_a_token_that_was_raised_after_an_answer() {
    use Event::*;
    let moves = [vec![Raises(0)], vec![GivesUp(SOURCE), Reads(SOURCE), Raises(0), Offers]];
    for meanwhile in moves {
        let mut cluster = Cluster::new(CLOCKS_MS[2]);
        let begin = [Asks(Wanted::Exclusive), Imports, Offers, Questions, Hears];
        begin.into_iter().chain(meanwhile).for_each(|event| cluster.happens(event));
        assert!(cluster.last.0 < 60_000_000, "{:?}", cluster.last);
        // Later answers allow that token. A move that was given up guards the slot for a lease.
        let end =
            [Waits(250), Raises(0), Releases(0), Waits(1_950), Waits(1_950), Questions, Hears, Hears, Hears, Hears];
        end.into_iter().chain([Asks(Wanted::Exclusive)]).for_each(|event| cluster.happens(event));
        assert_eq!(cluster.granted, [1, 1]);
        assert!(cluster.last.0 > 60_000_000, "{:?}", cluster.last);
    }
}
