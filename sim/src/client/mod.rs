//! A client without sockets: the state machines of `palisade-quorum`, with a simple substitute for the rest of the
//! client crate.
//!
//! The client takes one lock at a time. Its driver (a model or the simulation) delivers the client's requests, decides
//! when time passes, and reports to the referee what the client relies on. Times are those of the client's own clocks.

mod hearing;
mod keeping;
mod learning;
mod set;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use palisade_core::quorum::{Acquire, Call, Choice, Held, NodeId, Refused, Waiter, first};
use palisade_core::{BootTime, Now, Token, Wanted};

use crate::history::{HeldAs, Holder};
use crate::messages::{Payload, Request};
use crate::rules::{Rule, Without};

use keeping::Keeping;
pub use set::Set;

/// The time, in milliseconds, for which nodes keep a waiting client's request.
const WAIT_MS: u32 = 5_000;

/// The result of an input to the client.
#[derive(Debug, Default)]
pub struct Step {
    /// The requests to send, each with a delay in milliseconds.
    pub sends: Vec<(u32, Request)>,
    /// The client's change of status; `None` if it has not changed.
    pub says: Option<Status>,
}

/// A change of a client's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The client holds the lock.
    Held,
    /// The client relies on the lock for longer, or with a larger token.
    Extended,
    /// The lock was converted: the client relies on it in another mode.
    Converted,
    /// The client no longer relies on the lock.
    Ended,
    /// An attempt was refused.
    Refused(Refused),
    /// The client's turn in the queues came, with this reserved permit number; `None` if the client left the queues.
    Told(Option<u16>),
    /// A majority shows a permit as free, with this number; `None` if it shows none.
    Shown(Option<u16>),
    /// The client no longer asks or waits for a lock.
    Left,
}

/// The stage of a client's current acquisition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Idle,
    Acquiring {
        machine: Acquire,
        since: BootTime,
    },
    Looking(Choice),
    Waiting(Waiter),
    Holding {
        keeping: Keeping,
        since: BootTime,
        until: BootTime,
    },
}

/// A request to a node that has not been answered so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Open {
    seat: usize,
    round: u64,
    says: Payload,
    sent: BootTime,
}

/// A client, with its one acquisition or lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    number: u32,
    acquisition: u32,
    key: u32,
    ttl_ms: u32,
    /// The node set that the client works with, and the node set that its current acquisition asks. They are equal
    /// unless a rule is switched off.
    works_with: Arc<Set>,
    asks: Arc<Set>,
    without: Without,
    /// True if the shipped keeper extends the held lock.
    in_background: bool,
    /// The highest token seen, for proposals.
    seen: u64,
    ticket: u64,
    /// The requested mode, and the mode of the request that was sent, with a permit's number.
    wanted: Wanted,
    mode: HeldAs,
    stage: Stage,
    open: BTreeMap<u32, Open>,
    requests: u32,
    /// The ids of the servers that answered under each name.
    ids: BTreeMap<usize, NodeId>,
}

impl Client {
    /// Returns client `number`, whose configuration has `nodes` names.
    pub fn new(number: u32, nodes: usize, ttl_ms: u32, without: Without) -> Self {
        let set = Arc::new(Set::of_names(nodes));
        Self { number, ttl_ms, works_with: Arc::clone(&set), asks: set, without, ..Self::default() }
    }

    /// Sets whether the client extends its lock in the background.
    pub fn in_background(self, in_background: bool) -> Self {
        Self { in_background, ..self }
    }

    /// Returns the current acquisition, or the last one if there is no current one.
    pub fn who(&self) -> Holder {
        Holder { client: self.number, acquisition: self.acquisition }
    }

    /// Returns the key of the acquisition [`who`](Self::who).
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Returns the mode of the acquisition [`who`](Self::who).
    pub fn mode(&self) -> HeldAs {
        self.mode
    }

    /// Returns the ticket, which determines the client's place in the queues.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the number of acquisitions begun.
    pub fn acquisitions(&self) -> u32 {
        self.acquisition
    }

    /// Returns the size of the set that the client works with.
    pub fn nodes(&self) -> usize {
        self.works_with.len()
    }

    /// Returns true if the client does nothing.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Returns the held lock, the time at which the client began to ask for it, and the time until which the client
    /// relies on it.
    pub fn holding(&self) -> Option<(&Held, BootTime, BootTime)> {
        match &self.stage {
            Stage::Holding { keeping, since, until } => Some((keeping.held(), *since, *until)),
            _ => None,
        }
    }

    /// Returns the moment at which to wake the client, so that it extends its lock in the background.
    pub fn wake_at(&self) -> Option<BootTime> {
        match &self.stage {
            Stage::Holding { keeping, .. } => keeping.wake_at(self.without),
            _ => None,
        }
    }

    /// Returns true if an operator took the held lock away.
    pub fn is_taken_away(&self) -> bool {
        let is_noticed = !self.without.is(Rule::TakenAwayIsLost);
        matches!(&self.stage, Stage::Holding { keeping, .. } if is_noticed && keeping.is_taken_away())
    }

    /// Returns true if the client waits for its turn.
    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// Returns the pending requests: the number of each, and the time at which it was sent.
    pub fn open(&self) -> impl Iterator<Item = (u32, BootTime)> {
        self.open.iter().map(|(number, open)| (*number, open.sent))
    }

    /// Returns true if request `number` is pending.
    pub fn is_open(&self, number: u32) -> bool {
        self.open.contains_key(&number)
    }

    // Actions of the client.

    /// Asks for `key` once.
    pub fn acquire(&mut self, key: u32, now: Now) -> Step {
        self.set_out(key, Wanted::Exclusive, now);
        self.ask(Wanted::Exclusive, false, now)
    }

    /// Begins to take `key` in this mode, with a new ticket.
    pub fn set_out(&mut self, key: u32, wanted: Wanted, now: Now) {
        (self.key, self.wanted) = (key, wanted);
        self.asks = Arc::clone(&self.works_with);
        self.ticket = self.propose(now).get();
    }

    /// Asks for the lock in this mode. With `keeps_name`, the request has the owner name whose turn has come;
    /// otherwise, it has a new one. If `wanted` names no permit, the client draws one.
    pub fn ask(&mut self, wanted: Wanted, keeps_name: bool, now: Now) -> Step {
        let number = match wanted {
            Wanted::Permit { number: Some(number), .. } => number,
            Wanted::Permit { limit, .. } => first(limit, self.random()),
            Wanted::Exclusive | Wanted::Shared => 1,
        };
        self.begin(number, keeps_name && self.is_waiting(), now)
    }

    /// Asks for the lock after the client's turn came, or for the permit that was reserved or shown as free.
    pub fn ask_as_told(&mut self, told: Option<u16>, now: Now) -> Step {
        let wanted = match (self.wanted, told) {
            (Wanted::Permit { limit, .. }, Some(number)) => Wanted::Permit { limit, number: Some(number) },
            (wanted, _) => wanted,
        };
        self.ask(wanted, told.is_some(), now)
    }

    /// Returns a pseudorandom number: the same in every run, and different between clients.
    fn random(&self) -> u64 {
        let seed = u64::from(self.number) << 32 | u64::from(self.requests);
        let mixed = (seed ^ seed >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    /// Asks for the lock, or for permit `number`.
    fn begin(&mut self, number: u16, keeps_name: bool, now: Now) -> Step {
        self.mode = HeldAs::of(self.wanted, number);
        // Each attempt has a new name. A client whose turn has come keeps the name under which it waited.
        if !keeps_name {
            self.begin_name();
        }
        let proposal = self.propose(now);
        let (machine, calls) = Acquire::begin(self.members().len(), self.ttl_ms, proposal, now.boot);
        self.stage = Stage::Acquiring { machine, since: now.boot };
        self.open.clear();
        self.send(0, calls, now)
    }

    /// Asks the nodes, after a refusal, which other permit is free.
    pub fn look_for_permit(&mut self, now: Now) -> Step {
        self.stage = Stage::Looking(Choice::begin(self.members().len()));
        self.open.clear();
        self.tell_all(Payload::Look, now)
    }

    /// Waits for the client's turn after a refusal: once at each node, under a new owner name, with the ticket of the
    /// acquisition.
    pub fn wait(&mut self, now: Now) -> Step {
        self.join(now.boot, WAIT_MS, now)
    }

    /// Waits for the client's turn for `patience_ms`, and renews the wait at nodes where it has run out.
    pub fn wait_for(&mut self, patience_ms: u32, now: Now) -> Step {
        if self.without.is(Rule::TicketIsKept) {
            self.ticket = self.propose(now).get();
        }
        let until = now.boot.plus_ms(patience_ms);
        self.join(until, Waiter::at_a_time_ms(until, 0, now.boot, self.random()), now)
    }

    /// Gives the client a new owner name for the next request, and the newest version of the set that it knows. With
    /// `AcquisitionsBeginAnew` switched off, it keeps the version with which it began.
    fn begin_name(&mut self) {
        self.acquisition += 1;
        if !self.without.is(Rule::AcquisitionsBeginAnew) {
            self.asks = Arc::clone(&self.works_with);
        }
    }

    fn join(&mut self, until: BootTime, ms: u32, now: Now) -> Step {
        self.begin_name();
        self.stage = Stage::Waiting(Waiter::begin(self.members().len(), until));
        self.open.clear();
        self.tell_all(Payload::Wait { ms, ticket: self.ticket }, now)
    }

    /// Extends the lock now.
    pub fn extend(&mut self, now: Now) -> Step {
        let ttl_ms = self.ttl_ms;
        self.keeps(now, |keeping, random| keeping.extend(ttl_ms, now.boot, random))
    }

    /// Wakes the keeper.
    pub fn wake(&mut self, now: Now) -> Step {
        self.keeps(now, |keeping, random| keeping.wake(now.boot, random))
    }

    /// Turns a writer (a holder in exclusive mode) into a reader.
    pub fn share(&mut self, now: Now) -> Step {
        let is_writer = self.mode == HeldAs::Exclusive;
        if !self.holding().is_some_and(|(.., until)| is_writer && now.boot < until) {
            return Step::default();
        }
        self.mode = HeldAs::Shared;
        Step { says: Some(Status::Converted), ..self.keeps(now, |keeping, random| keeping.share(now.boot, random)) }
    }

    fn keeps(&mut self, now: Now, keep: impl FnOnce(&mut Keeping, u64) -> Vec<Call>) -> Step {
        let random = self.random();
        let Stage::Holding { keeping, .. } = &mut self.stage else { return Step::default() };
        let calls = keep(keeping, random);
        let round = keeping.held().round();
        self.send(round, calls, now)
    }

    /// Releases the lock, or the grants that the client may have, and stops waiting.
    pub fn release(&mut self, now: Now) -> Step {
        let held = matches!(self.stage, Stage::Holding { .. });
        self.give_back(if held { Status::Ended } else { Status::Left }, now)
    }

    fn give_back(&mut self, says: Status, now: Now) -> Step {
        self.stage = Stage::Idle;
        self.open.clear();
        let step = self.tell_all(Payload::Release, now);
        self.open.clear();
        Step { says: Some(says), ..step }
    }

    /// Kills the client's process. The client then relies on nothing, and only remembers the names that it must not use
    /// again.
    pub fn forget(&mut self) -> Step {
        let held = matches!(self.stage, Stage::Holding { .. });
        (self.stage, self.seen) = (Stage::Idle, 0);
        self.open.clear();
        self.ids.clear();
        Step { sends: vec![], says: held.then_some(Status::Ended) }
    }

    /// Releases the held lock if its validity has ended or if it was taken away. Otherwise returns `None`.
    pub fn look(&mut self, now: Now) -> Option<Step> {
        let Stage::Holding { keeping, until, .. } = &self.stage else { return None };
        let held = keeping.held();
        // With `AnswersInTime` switched off, the client keeps the lock as long as a round is pending.
        let hopes = self.without.is(Rule::AnswersInTime) && held.round() > 0 && held.outcome().is_none();
        let over = now.boot >= *until && !hopes;
        (over || self.is_taken_away()).then(|| self.release(now))
    }

    // Requests of the client.

    /// Returns the indexes in the set of the nodes that the client uses: all, or only half of them with
    /// `MajoritiesMeet` switched off.
    fn members(&self) -> Range<usize> {
        let nodes = self.asks.len();
        match self.without.is(Rule::MajoritiesMeet) {
            true if self.number.is_multiple_of(2) => 0..nodes / 2,
            true => nodes / 2..nodes,
            false => 0..nodes,
        }
    }

    fn propose(&self, now: Now) -> Token {
        let value = now.wall_us.max(self.seen + 1);
        Token::new(value).expect("clocks here are far below the end of the token space")
    }

    fn send(&mut self, round: u64, calls: Vec<Call>, now: Now) -> Step {
        let sends = calls
            .into_iter()
            .map(|call| (call.after_ms, self.request(call.node, round, Payload::Ask(call.ask), now)))
            .collect();
        Step { sends, says: None }
    }

    fn tell_all(&mut self, says: Payload, now: Now) -> Step {
        let sends = (0..self.members().len()).map(|seat| (0, self.request(seat, 0, says, now))).collect();
        Step { sends, says: None }
    }

    fn request(&mut self, seat: usize, round: u64, says: Payload, now: Now) -> Request {
        self.requests += 1;
        let number = self.requests;
        self.open.insert(number, Open { seat, round, says, sent: now.boot });
        let (node, meant) = self.asks.seat(self.members().start + seat);
        let wanted = match says {
            Payload::Wait { .. } => self.wanted,
            // With `NumbersNotCounts` switched off, the node counts holders and ignores their numbers.
            _ if self.without.is(Rule::NumbersNotCounts) => match self.mode {
                HeldAs::Permit { limit, .. } => Wanted::Permit { limit, number: None },
                mode => mode.wanted(),
            },
            _ => self.mode.wanted(),
        };
        let (who, key, joined) = (self.who(), self.key, Some(self.works_with.version()));
        Request { who, key, node, number, wanted, joined, meant, says }
    }
}

/// Returns the owner's bytes, by which nodes know the acquisition `who`.
pub fn owner(who: Holder, without: Without) -> [u8; 8] {
    let acquisition = if without.is(Rule::OwnerOfItsOwn) { 0 } else { who.acquisition };
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&who.client.to_be_bytes());
    bytes[4..].copy_from_slice(&acquisition.to_be_bytes());
    bytes
}
