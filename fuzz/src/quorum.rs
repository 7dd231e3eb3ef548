//! Fuzzes an acquisition on a majority, and the extensions after it: with all kinds of answers, in any order, late,
//! repeated, or for other rounds.
//!
//! The valid answers are counted here a second time, in the simplest way that the rules of a quorum allow: each server
//! once, whatever the state machine knows of its node. This count must be at least as large as the machine's.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Result, Unstructured};
use palisade_core::quorum::{Acquire, Answer, Ask, Call, Held, NodeId, Progress, majority, valid_until};
use palisade_core::{BootTime, Token};

use crate::choice::Number;

/// Something that happens to the holder.
#[derive(Debug, Arbitrary)]
enum Event {
    /// A node answers a call: an old one, the newest, or one that it has answered before.
    Answers { call: u8, from: u8, says: FuzzedAnswer, after_us: u16 },
    /// A node sends an answer to a question that was not asked, in this round or another.
    Invents { node: u8, from: u8, ask: FuzzedAsk, round: Option<u8>, says: FuzzedAnswer },
    /// The holder begins a round of extension.
    Extends { ttl_ms: u16 },
    /// The holder, a writer, becomes a reader.
    Shares,
    /// Time passes, and nothing else happens.
    Waits(Pause),
}

/// A pause: usually less than a quarter of a lease, so that locks live for many rounds.
#[derive(Clone, Copy, Debug)]
enum Pause {
    Ms(u16),
    /// A part of the ttl, in 1024ths.
    OfTtl(u8),
}

impl<'a> Arbitrary<'a> for Pause {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let part = u8::arbitrary(bytes)?;
        if part.is_multiple_of(32) { u16::arbitrary(bytes).map(Self::Ms) } else { Ok(Self::OfTtl(part)) }
    }
}

#[derive(Debug, Arbitrary)]
enum FuzzedAnswer {
    /// The answer of an honest node: a grant with the token that was asked for.
    AsAsked,
    /// A grant with a token slightly above or below the one that was asked for.
    Near(i8),
    Token(Number),
    No,
    Guarded,
    NotYet,
    Failed,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum FuzzedAsk {
    Acquire { retry: bool },
    Fence(Number),
    Extend(Number),
}

/// The largest number of nodes.
const NODES_MAX: usize = 7;

/// A call that was made, and its round.
#[derive(Clone, Copy)]
struct Made {
    round: u64,
    call: Call,
}

enum Machine {
    Acquire(Acquire),
    Held(Held),
    Over,
}

struct World {
    machine: Machine,
    nodes: usize,
    ttl_ms: u32,
    now: BootTime,
    /// The beginning of the acquisition, or of the last round.
    start: BootTime,
    calls: Vec<Made>,
    /// The largest token that each server has acknowledged under the name of each node.
    acknowledged: BTreeMap<(usize, u8), Token>,
    /// The nodes and servers that had acknowledged the holder's token when the round began. Only their answers to this
    /// round count: the lease of another server may have begun long before.
    take_part: BTreeSet<(usize, u8)>,
    /// The servers that have said that the grant is shared now.
    shared: BTreeSet<u8>,
    /// The servers of `take_part` that extended the lock in this round while the earlier validity still ran.
    extended: BTreeSet<u8>,
}

/// Runs locks that are made from the bytes, one after another: nodes, ttl, proposed token, start, and all events until
/// the lock is over.
pub fn run(input: &[u8]) {
    let _ = all(&mut Unstructured::new(input));
}

fn all(bytes: &mut Unstructured<'_>) -> Result<()> {
    while !bytes.is_empty() {
        let mut world = World::begin(bytes)?;
        while !bytes.is_empty() && !world.is_over() {
            let event = bytes.arbitrary()?;
            crate::tell(&(world.now, &event));
            world.handle(event);
        }
    }
    Ok(())
}

/// Makes a token of any number.
fn token(number: u64) -> Token {
    Token::new(number.clamp(1, palisade_core::limits::TOKEN_LIMIT - 1)).expect("within the bounds")
}

impl World {
    fn begin(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let nodes = bytes.int_in_range(1..=NODES_MAX)?;
        let ttl_ms = u32::from(u16::arbitrary(bytes)?) + 1;
        let proposal = token(u64::arbitrary(bytes)?);
        let start = BootTime::from_us(u32::arbitrary(bytes)?.into());
        let (acquire, calls) = Acquire::begin(nodes, ttl_ms, proposal, start);
        assert_eq!(calls.len(), nodes);
        Ok(Self {
            machine: Machine::Acquire(acquire),
            nodes,
            ttl_ms,
            now: start,
            start,
            calls: calls.into_iter().map(|call| Made { round: 0, call }).collect(),
            acknowledged: BTreeMap::new(),
            take_part: BTreeSet::new(),
            shared: BTreeSet::new(),
            extended: BTreeSet::new(),
        })
    }

    /// Returns true if no answer can change anything any longer, not even a late one.
    fn is_over(&self) -> bool {
        match &self.machine {
            Machine::Acquire(_) => self.now >= valid_until(self.start, self.ttl_ms).plus_ms(self.ttl_ms),
            Machine::Held(held) => self.now >= held.valid_until().plus_ms(self.ttl_ms),
            Machine::Over => true,
        }
    }

    /// Returns the token that `ask` names, or the holder's if it names none.
    fn of(&self, ask: Ask) -> Token {
        match ask {
            Ask::Acquire { proposal, .. } => proposal,
            Ask::Fence { token } | Ask::Extend { token, .. } => token,
            Ask::Share => match &self.machine {
                Machine::Held(held) => held.token(),
                Machine::Acquire(_) | Machine::Over => token(0),
            },
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Answers { call, from, says, after_us } => {
                let Made { round, call } = self.calls[usize::from(call) % self.calls.len()];
                self.now = self.now.plus_us(after_us.into());
                self.answer(round, call.node, from, call.ask, &says);
            }
            Event::Invents { node, from, ask, round, says } => {
                let ttl_ms = self.ttl_ms;
                let ask = match ask {
                    FuzzedAsk::Acquire { retry } => Ask::Acquire { ttl_ms, proposal: token(from.into()), retry },
                    FuzzedAsk::Fence(Number(value)) => Ask::Fence { token: token(value) },
                    FuzzedAsk::Extend(Number(value)) => Ask::Extend { ttl_ms, token: token(value) },
                };
                let round = round.map_or(self.round(), u64::from);
                self.answer(round, usize::from(node) % self.nodes, from, ask, &says);
            }
            Event::Extends { ttl_ms } => {
                let Machine::Held(held) = &mut self.machine else { return };
                self.ttl_ms = u32::from(ttl_ms) + 1;
                self.start = self.now;
                self.extended.clear();
                let known = self.acknowledged.iter().filter(|(_, known)| **known >= held.token());
                self.take_part = known.map(|(seat, _)| *seat).collect();
                let until = held.valid_until();
                let calls = held.extend(self.ttl_ms, self.now);
                assert_eq!(held.valid_until(), until, "asking extends nothing");
                // Every node must be asked, except those from which the lock was taken away.
                let asked: BTreeSet<_> = calls.iter().map(|call| call.node).collect();
                assert!(asked.len() == calls.len(), "a node is asked twice");
                assert!((0..self.nodes).all(|node| asked.contains(&node) || held.was_gone_from(node)));
                self.made(calls);
            }
            Event::Shares => {
                let Machine::Held(held) = &mut self.machine else { return };
                let (token, until) = (held.token(), held.valid_until());
                let calls = held.share();
                assert_eq!(
                    (held.token(), held.valid_until()),
                    (token, until),
                    "a reader relies on what the writer had"
                );
                self.made(calls);
            }
            Event::Waits(Pause::Ms(ms)) => self.now = self.now.plus_ms(ms.into()),
            Event::Waits(Pause::OfTtl(part)) => {
                self.now = self.now.plus_us(u64::from(self.ttl_ms) * 1_000 * u64::from(part) / 1_024);
            }
        }
    }

    fn answer(&mut self, round: u64, node: usize, from: u8, ask: Ask, says: &FuzzedAnswer) {
        // Usually each node is a server of its own. Some share a server, or do not give an id.
        let server = match from {
            0..224 => Some(node as u8),
            224..248 => Some(from % NODES_MAX as u8),
            248.. => None,
        };
        let id = server.map(|server| NodeId(server.into()));
        let answer = match *says {
            FuzzedAnswer::AsAsked => Answer::Token(self.of(ask)),
            FuzzedAnswer::Near(by) => Answer::Token(token(self.of(ask).get().saturating_add_signed(by.into()))),
            FuzzedAnswer::Token(Number(value)) => Answer::Token(token(value)),
            FuzzedAnswer::No => Answer::No,
            FuzzedAnswer::Guarded => Answer::Guarded { ms: 7 },
            FuzzedAnswer::NotYet => Answer::NotYet { ms: 3 },
            FuzzedAnswer::Failed => Answer::Failed,
        };
        if let (Some(server), Answer::Token(token)) = (server, answer) {
            let known = self.acknowledged.entry((node, server)).or_insert(token);
            *known = token.max(*known);
        }
        match std::mem::replace(&mut self.machine, Machine::Over) {
            Machine::Over => {}
            Machine::Acquire(mut acquire) => match acquire.on_answer(node, id, ask, answer, self.now) {
                Progress::Goes(calls) => {
                    self.machine = Machine::Acquire(acquire);
                    self.made(calls);
                }
                Progress::Held(held) => {
                    assert_eq!(held.valid_until(), valid_until(self.start, self.ttl_ms));
                    assert!(self.now < held.valid_until(), "held when nothing of it is left");
                    self.covered(held.token());
                    assert!(held.nodes_held() >= majority(self.nodes));
                    self.machine = Machine::Held(held);
                }
                Progress::TooLate => assert!(self.now >= valid_until(self.start, self.ttl_ms)),
                Progress::Impossible => {
                    let out = acquire.outs().flatten().count();
                    assert!(out > self.nodes - majority(self.nodes), "{out} of {} are out", self.nodes);
                }
            },
            Machine::Held(mut held) => {
                let (before, until, was_lost) = (held.token(), held.valid_until(), held.is_lost());
                if let (Ask::Extend { .. }, Answer::Token(_), Some(server)) = (ask, answer, server)
                    && round == held.round()
                    && self.now < until
                    && self.take_part.contains(&(node, server))
                {
                    self.extended.insert(server);
                }
                if let (Ask::Share, Answer::Token(_), Some(server)) = (ask, answer, server) {
                    self.shared.insert(server);
                }
                let calls = held.on_answer(round, node, id, ask, answer, self.now);
                assert!(!held.is_shared() || self.shared.len() >= majority(self.nodes), "{:?} know", self.shared);
                assert!(held.is_lost() || !was_lost, "what was taken away is taken back");
                assert!(held.token() >= before, "the token fell");
                if held.token() > before {
                    self.covered(held.token());
                }
                let by_majority = self.extended.len() >= majority(self.nodes);
                if held.valid_until() != until {
                    assert!(by_majority && self.now < until, "{:?} extended, of {}", self.extended, self.nodes);
                    assert_eq!(held.valid_until(), until.max(valid_until(self.start, self.ttl_ms)));
                }
                if held.outcome() == Some(true) {
                    assert!(by_majority, "{:?} extended, of {}", self.extended, self.nodes);
                }
                self.machine = Machine::Held(held);
                self.made(calls);
            }
        }
    }

    /// Checks that a majority of the nodes, and of the different servers behind them, has acknowledged at least
    /// `token`.
    fn covered(&self, token: Token) {
        let yes = || self.acknowledged.iter().filter(|(_, known)| **known >= token).map(|(seat, _)| *seat);
        let nodes: BTreeSet<usize> = yes().map(|(node, _)| node).collect();
        let servers: BTreeSet<u8> = yes().map(|(_, server)| server).collect();
        let needed = majority(self.nodes);
        assert!(nodes.len() >= needed && servers.len() >= needed, "{token:?}: {:?}", self.acknowledged);
    }

    /// Returns the number of the last round; 0 for the acquisition.
    fn round(&self) -> u64 {
        match &self.machine {
            Machine::Held(held) => held.round(),
            Machine::Acquire(_) | Machine::Over => 0,
        }
    }

    fn made(&mut self, calls: Vec<Call>) {
        let round = self.round();
        for call in calls {
            assert!(call.node < self.nodes);
            self.calls.push(Made { round, call });
        }
    }
}
