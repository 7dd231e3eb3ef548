//! Elections under drifting clocks, late, lost and repeated messages, restarts with and without data, and failing
//! candidates. The test checks what observers believe.
//!
//! The simulated nodes are those of the test `storm` for locks, with a note in each grant. The judge knows what
//! happened; observers know only the answers that they received.

mod judge;

use std::collections::BTreeMap;

use super::{LockReport, NoteAnswer, NoteCall, Observer, Proclaim, Proclamation};
use crate::agenda::{Agenda, Clock};
use crate::storm::node::{Node, Owner, TTL_MS, TTL_US};
use crate::values::mode::Mode;
use crate::values::time::BootTime;
use crate::values::token::Token;
use crate::{Acquire, Answer, Ask, Call, Held, NodeId, Progress};

const GIVEN_US: u64 = 100_000;
/// The longest delay of a message: it can arrive after a lease has ended.
const LATE_US: u64 = 2 * TTL_US;
/// The largest difference between the rates of two clocks, in parts per million: just under the 1 % that the protocol
/// allows.
const APART: u64 = 9_800;
const CANDIDATES: usize = 3;
const OBSERVERS: usize = 2;
const END_US: u64 = 20_000_000;
/// The time for which an observer counts an answer, in milliseconds.
const FRESH_MS: u32 = 1_000;
/// The simulated time for which an answer may count, in microseconds: [`FRESH_MS`] on the slowest clock.
const FRESH_US: u64 = FRESH_MS as u64 * 1_020;

/// Faults made on purpose. The test must notice each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// A candidate proclaims before it holds the lock, as soon as it asks for it.
    ProclaimsBeforeItHolds,
    /// The note of an acquisition counts as a proclamation.
    BelievesSequenceZero,
    /// The term is the token of one node, not that of the majority.
    BelievesNodesTokens,
    /// An observer believes the latest answer, even if its term is smaller than one that it has seen.
    GoesBack,
    /// An observer reports that nobody leads when one node less than a majority says so.
    NobodyByAMinority,
    /// Two names of one server count as two.
    CountsNames,
    /// The answer of a guarded node counts, although it may have forgotten the holder.
    BelievesTheGuarded,
    /// An answer from before a leader was seen can end that leader's term.
    BelievesTheEarlier,
}

enum Stage {
    Idle,
    Acquiring(Acquire),
    Leading { held: Held, proclaim: Proclaim },
}

struct Candidate {
    acquisition: u32,
    stage: Stage,
    clock: Clock,
}

struct Server {
    node: Node,
    clock: Clock,
    /// The notes of this server's grants, by owner: sequence number and text.
    notes: BTreeMap<Owner, (u64, Vec<u8>)>,
    /// For each leader, the last time at which this server, while not guarded, answered that the leader does not hold
    /// the lock.
    denied: BTreeMap<Owner, u64>,
    /// For each leader, the time since which this server has held the leader's proclamation without interruption.
    proclaimed: BTreeMap<Owner, u64>,
}

struct Watcher {
    machine: Observer,
    clock: Clock,
    /// For each address in the observer's list (two may be those of one node), the number of the last request without
    /// an answer, and when it was sent.
    asks: Vec<(u64, BootTime)>,
    /// The last term and sequence number that this observer reported.
    last: Option<(u64, u64)>,
    is_none: bool,
}

enum Order {
    Ask(Ask),
    Note { sequence: u64, note: Vec<u8> },
    Release,
}

enum Event {
    Begins(usize),
    AtNode { name: usize, owner: Owner, says: Order, request: u64 },
    Answers { name: usize, request: u64, answer: Option<(NodeId, Answer)> },
    Notes { name: usize, owner: Owner, id: NodeId, has: NoteAnswer },
    Extends(Owner),
    Proclaims(Owner),
    Leaves(Owner),
    Restarts(usize),
    Looks { observer: usize, name: usize },
    Looked { observer: usize, name: usize, request: u64 },
    Seen { observer: usize, name: usize, request: u64, id: NodeId, says: LockReport },
}

struct World {
    wrong: Option<Wrong>,
    agenda: Agenda<Event>,
    names: Vec<usize>,
    servers: Vec<Server>,
    candidates: Vec<Candidate>,
    watchers: Vec<Watcher>,
    open: BTreeMap<u64, (Owner, u64, Ask)>,
    /// The winner of each term.
    won: BTreeMap<u64, Owner>,
    broken: Option<String>,
    seen: u32,
    nobody: u32,
    heals: u32,
}

fn owner_bytes(owner: Owner) -> Vec<u8> {
    format!("{}-{}", owner.0, owner.1).into_bytes()
}

impl World {
    fn new(seed: u64, wrong: Option<Wrong>) -> Self {
        let mut world = Self {
            wrong,
            agenda: Agenda::new(seed),
            names: vec![],
            servers: vec![],
            candidates: vec![],
            watchers: vec![],
            open: BTreeMap::new(),
            won: BTreeMap::new(),
            broken: None,
            seen: 0,
            nobody: 0,
            heals: 0,
        };
        let servers = if world.agenda.below(2) == 0 { 3 } else { 5 };
        world.names = (0..servers).collect();
        if world.agenda.below(3) == 0 {
            world.names[1] = 0;
        }
        for _ in 0..servers {
            let clock = world.agenda.clock(APART);
            world.servers.push(Server {
                node: Node::default(),
                clock,
                notes: BTreeMap::new(),
                denied: BTreeMap::new(),
                proclaimed: BTreeMap::new(),
            });
        }
        for candidate in 0..CANDIDATES {
            let clock = world.agenda.clock(APART);
            world.candidates.push(Candidate { acquisition: 0, stage: Stage::Idle, clock });
            let at = world.agenda.below(500_000);
            world.agenda.at(at, Event::Begins(candidate));
        }
        for observer in 0..OBSERVERS {
            let clock = world.agenda.clock(APART);
            let asks = vec![(0, BootTime::from_us(0)); servers];
            let machine = Observer::new(servers, FRESH_MS);
            world.watchers.push(Watcher { machine, clock, asks, last: None, is_none: false });
            for name in 0..servers {
                let at = world.agenda.below(100_000);
                world.agenda.at(at, Event::Looks { observer, name });
            }
        }
        for _ in 0..10 {
            let (at, server) = (world.agenda.below(END_US), world.agenda.below(servers as u64));
            world.agenda.at(at, Event::Restarts(server as usize));
        }
        world
    }

    fn run(mut self) -> Self {
        while self.broken.is_none()
            && let Some(event) = self.agenda.next(END_US)
        {
            self.perform(event);
        }
        self
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Begins(candidate) => self.begin(candidate),
            Event::AtNode { name, owner, says, request } => self.at_node(name, owner, says, request),
            Event::Answers { name, request, answer } => self.heard(name, request, answer),
            Event::Notes { name, owner, id, has } => {
                if let Some((_, proclaim)) = self.leading(owner) {
                    proclaim.on_answer(name, Some(id), has);
                }
            }
            Event::Restarts(server) => {
                let forgets = self.agenda.below(2) == 0;
                let it = &mut self.servers[server];
                if forgets {
                    it.node.grants.clear();
                    it.notes.clear();
                    it.proclaimed.clear();
                    it.node.guarded_until = it.clock.at(self.agenda.now) + TTL_US * 102 / 100;
                }
            }
            Event::Extends(owner) => {
                let now = self.local(owner.0);
                if let Some((held, proclaim)) = self.leading(owner) {
                    let (calls, tells) = (held.extend(TTL_MS, now), proclaim.again());
                    let round = held.round();
                    self.call(owner, round, calls);
                    self.tell(owner, tells);
                    let next = self.agenda.now + TTL_US / 4 + self.agenda.below(TTL_US / 4);
                    self.agenda.at(next, Event::Extends(owner));
                }
            }
            Event::Proclaims(owner) => {
                if let Some((_, proclaim)) = self.leading(owner) {
                    let tells = proclaim.advance();
                    self.tell(owner, tells);
                    let next = self.agenda.now + self.agenda.below(2 * TTL_US);
                    self.agenda.at(next, Event::Proclaims(owner));
                }
            }
            Event::Leaves(owner) => self.leave(owner),
            Event::Looks { observer, name } => self.look(observer, name),
            Event::Looked { observer, name, request } => self.looked(observer, name, request),
            Event::Seen { observer, name, request, id, says } => self.see(observer, name, request, id, says),
        }
    }

    fn local(&self, candidate: usize) -> BootTime {
        BootTime::from_us(self.candidates[candidate].clock.at(self.agenda.now))
    }

    fn leading(&mut self, owner: Owner) -> Option<(&mut Held, &mut Proclaim)> {
        let candidate = &mut self.candidates[owner.0];
        match &mut candidate.stage {
            Stage::Leading { held, proclaim } if candidate.acquisition == owner.1 => Some((held, proclaim)),
            _ => None,
        }
    }

    fn begin(&mut self, candidate: usize) {
        let now = self.local(candidate);
        let proposal =
            Token::new(1_000_000_000 + self.agenda.now - self.agenda.below(2_000_000).min(self.agenda.now)).unwrap();
        let (machine, calls) = Acquire::begin(self.names.len(), TTL_MS, proposal, now);
        let it = &mut self.candidates[candidate];
        it.acquisition += 1;
        it.stage = Stage::Acquiring(machine);
        let owner = (candidate, it.acquisition);
        self.call(owner, 0, calls);
        if self.wrong == Some(Wrong::ProclaimsBeforeItHolds) {
            let note = Proclamation { term: proposal, value: owner_bytes(owner) }.note();
            for name in 0..self.names.len() {
                self.send(self.agenda.now + 10_000, name, owner, || Order::Note { sequence: 1, note: note.clone() }, 0);
            }
        }
    }

    fn call(&mut self, owner: Owner, round: u64, calls: Vec<Call>) {
        for Call { node: name, ask, after_ms } in calls {
            let sent = self.agenda.now + u64::from(after_ms) * 1_000;
            let request = self.agenda.number();
            self.open.insert(request, (owner, round, ask));
            self.send(sent, name, owner, || Order::Ask(ask), request);
            self.agenda.at(sent + GIVEN_US, Event::Answers { name, request, answer: None });
        }
    }

    fn tell(&mut self, owner: Owner, tells: impl IntoIterator<Item = NoteCall>) {
        let Some((_, proclaim)) = self.leading(owner) else { return };
        let note = Proclamation { term: proclaim.term(), value: owner_bytes(owner) }.note();
        for NoteCall { node: name, sequence } in tells {
            self.send(self.agenda.now, name, owner, || Order::Note { sequence, note: note.clone() }, 0);
        }
    }

    fn send(&mut self, sent: u64, name: usize, owner: Owner, says: impl Fn() -> Order, request: u64) {
        let times = if self.agenda.below(20) == 0 { 2 } else { 1 };
        for _ in 0..times {
            if let Some(takes) = self.agenda.draw_delay(LATE_US) {
                self.agenda.at(sent + takes, Event::AtNode { name, owner, says: says(), request });
            }
        }
    }

    fn leave(&mut self, owner: Owner) {
        let candidate = &mut self.candidates[owner.0];
        if candidate.acquisition != owner.1 {
            return;
        }
        candidate.stage = Stage::Idle;
        // In half of the cases the leader releases the lock; in the others it just stops.
        if self.agenda.below(2) == 0 {
            for name in 0..self.names.len() {
                self.send(self.agenda.now, name, owner, || Order::Release, 0);
            }
        }
        let again = self.agenda.now + self.agenda.below(TTL_US / 4);
        self.agenda.at(again, Event::Begins(owner.0));
    }

    fn at_node(&mut self, name: usize, owner: Owner, says: Order, request: u64) {
        let (id, is_not_ready) = (NodeId(self.names[name] as u128), self.agenda.below(30) == 0);
        let server = &mut self.servers[self.names[name]];
        let now = server.clock.at(self.agenda.now);
        server.expire(now);
        let answer = match says {
            Order::Release => {
                server.node.grants.retain(|grant| grant.owner != owner);
                return server.expire(now);
            }
            Order::Note { sequence, note } => {
                let holds = server.node.grants.iter().any(|grant| grant.owner == owner);
                let has = if holds {
                    let last = server.notes.entry(owner).or_default();
                    if sequence > last.0 {
                        *last = (sequence, note);
                        server.proclaimed.entry(owner).or_insert(self.agenda.now);
                    }
                    NoteAnswer::Has(last.0)
                } else {
                    NoteAnswer::NotHeld
                };
                if let Some(takes) = self.agenda.draw_delay(LATE_US) {
                    self.agenda.at(self.agenda.now + takes, Event::Notes { name, owner, id, has });
                }
                return;
            }
            Order::Ask(_) if is_not_ready => Answer::NotYet { ms: 3 },
            Order::Ask(ask) => {
                let answer = server.node.answer(owner, ask, Mode::Exclusive, now, None);
                // This is the note of an acquisition. It looks like a proclamation, but its sequence number 0 says that
                // it is none.
                if let (Ask::Acquire { proposal, .. }, Answer::Token(_)) = (ask, answer) {
                    let note = Proclamation { term: proposal, value: owner_bytes(owner) }.note();
                    server.notes.entry(owner).or_insert((0, note));
                }
                answer
            }
        };
        if let Some(takes) = self.agenda.draw_delay(LATE_US) {
            self.agenda.at(self.agenda.now + takes, Event::Answers { name, request, answer: Some((id, answer)) });
        }
    }

    fn heard(&mut self, name: usize, request: u64, answer: Option<(NodeId, Answer)>) {
        let Some((owner, round, ask)) = self.open.remove(&request) else { return };
        let (id, answer) = answer.map_or((None, Answer::Failed), |(id, answer)| (Some(id), answer));
        let (now, names) = (self.local(owner.0), self.names.len());
        let candidate = &mut self.candidates[owner.0];
        if candidate.acquisition != owner.1 {
            return;
        }
        match &mut candidate.stage {
            Stage::Idle => {}
            Stage::Acquiring(machine) => match machine.on_answer(name, id, ask, answer, now) {
                Progress::Goes(calls) => self.call(owner, 0, calls),
                Progress::Held(held) => {
                    let (term, ends) = (held.token().get(), self.agenda.now + self.agenda.below(5 * TTL_US));
                    let proclaim = Proclaim::of(&held, names);
                    self.candidates[owner.0].stage = Stage::Leading { held, proclaim };
                    if let Some(other) = self.won.insert(term, owner) {
                        self.broken = Some(format!("term {term} was won by {other:?} and by {owner:?}"));
                    }
                    // Some leaders proclaim only after a while, or never.
                    let first = self.agenda.now + if self.agenda.below(3) == 0 { self.agenda.below(TTL_US) } else { 0 };
                    self.agenda.at(first, Event::Proclaims(owner));
                    self.agenda.at(self.agenda.now + TTL_US / 3, Event::Extends(owner));
                    self.agenda.at(ends, Event::Leaves(owner));
                }
                Progress::TooLate | Progress::Impossible => self.leave(owner),
            },
            Stage::Leading { held, proclaim } => {
                let calls = held.on_answer(round, name, id, ask, answer, now);
                let round = held.round();
                let is_over = held.is_lost() || now >= held.valid_until();
                let is_grant = matches!((ask, answer), (Ask::Acquire { .. }, Answer::Token(_)));
                let tells = if is_grant { proclaim.on_grant(name) } else { None };
                self.heals += u32::from(tells.is_some());
                self.call(owner, round, calls);
                self.tell(owner, tells);
                if is_over {
                    self.leave(owner);
                }
            }
        }
    }

    fn look(&mut self, observer: usize, name: usize) {
        let request = self.agenda.number();
        let it = &mut self.watchers[observer];
        it.asks[name] = (request, BootTime::from_us(it.clock.at(self.agenda.now)));
        if let Some(takes) = self.agenda.draw_delay(LATE_US) {
            self.agenda.at(self.agenda.now + takes, Event::Looked { observer, name, request });
        }
        // The observer asks again in any case; a watch that has no answer by then is given up.
        let again = self.agenda.now + 20_000 + self.agenda.below(200_000);
        self.agenda.at(again, Event::Looks { observer, name });
    }

    fn looked(&mut self, observer: usize, name: usize, request: u64) {
        let server = &mut self.servers[self.names[name]];
        let now = server.clock.at(self.agenda.now);
        server.expire(now);
        let holder = server.node.grants.first();
        let is_guarded = now < server.node.guarded_until;
        if !is_guarded || holder.is_some() {
            for owner in self.won.values() {
                if holder.is_none_or(|grant| grant.owner != *owner) {
                    server.denied.insert(*owner, self.agenda.now);
                }
            }
        }
        let says = match holder {
            None if is_guarded && self.wrong != Some(Wrong::BelievesTheGuarded) => LockReport::Guarded,
            None => LockReport::Free,
            Some(grant) => {
                let (mut sequence, mut note) = server.notes.get(&grant.owner).cloned().unwrap_or_default();
                match self.wrong {
                    Some(Wrong::BelievesSequenceZero) => sequence += 1,
                    Some(Wrong::BelievesNodesTokens) => {
                        let value = owner_bytes(grant.owner);
                        note = Proclamation { term: Token::new(grant.token).unwrap(), value }.note();
                    }
                    _ => {}
                }
                LockReport::Held { owner: owner_bytes(grant.owner), note, sequence }
            }
        };
        let id = NodeId(if self.wrong == Some(Wrong::CountsNames) { name } else { self.names[name] } as u128);
        if let Some(takes) = self.agenda.draw_delay(LATE_US) {
            self.agenda.at(self.agenda.now + takes, Event::Seen { observer, name, request, id, says });
        }
    }
}

impl Server {
    fn expire(&mut self, now: u64) {
        self.node.grants.retain(|grant| grant.until >= now);
        let grants = &self.node.grants;
        let is_held = |owner: &Owner| grants.iter().any(|grant| grant.owner == *owner);
        self.notes.retain(|owner, _| is_held(owner));
        self.proclaimed.retain(|owner, _| is_held(owner));
    }
}

#[test]
fn observers_believe_one_leader_a_term_in_order_and_nobody_by_a_majority() {
    let (mut won, mut seen, mut nobody, mut heals) = (0, 0, 0, 0);
    for seed in 0..1_000 {
        let world = World::new(seed, None).run();
        assert_eq!(world.broken, None, "seed {seed}");
        won += world.won.len();
        (seen, nobody, heals) = (seen + world.seen, nobody + world.nobody, heals + world.heals);
    }
    eprintln!("{won} terms, seen {seen} times, {nobody} times nobody, {heals} nodes told again");
    assert!(won > 4_000 && seen > 5_000 && nobody > 2_000 && heals > 500, "{won} {seen} {nobody} {heals}");
}

#[test]
fn what_is_done_wrong_shows() {
    use Wrong::*;
    let all = [
        ProclaimsBeforeItHolds,
        BelievesSequenceZero,
        BelievesNodesTokens,
        GoesBack,
        NobodyByAMinority,
        CountsNames,
        BelievesTheGuarded,
        BelievesTheEarlier,
    ];
    for wrong in all {
        let found = (0..2_000).find_map(|seed| Some((seed, World::new(seed, Some(wrong)).run().broken?)));
        eprintln!("{wrong:?}: {found:?}");
        assert!(found.is_some(), "{wrong:?}");
    }
}
