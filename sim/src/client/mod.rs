//! A client without sockets: the machines of `palisade_core::quorum`, and around them what the client crate does.
//!
//! It takes one lock at a time. Whoever runs it delivers what it sends, decides when time passes, and tells the referee what it
//! says it relies on. Times are those of its own clocks.

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
use crate::messages::{Request, Says};
use crate::rules::{Rule, Without};

use keeping::Keeping;
pub use set::Set;

/// How long a client that waits once has the nodes wait for it, in milliseconds.
const WAIT_MS: u32 = 5_000;

/// What came of an input.
#[derive(Debug, Default)]
pub struct Step {
    /// What is to be sent, each after so many milliseconds.
    pub sends: Vec<(u32, Request)>,
    /// What the client says of itself.
    pub says: Option<Status>,
}

/// What a client says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It holds the lock.
    Held,
    /// It relies on it for longer, or with a larger token.
    Extended,
    /// It relies on it in another mode.
    Converted,
    /// It relies on it no more.
    Ended,
    /// An attempt was refused.
    Refused(Refused),
    /// It was told in the queues that it is its turn, with the number of the permit that is kept for it; or it left them.
    Told(Option<u16>),
    /// This permit was shown as free at a majority, or none.
    Shown(Option<u16>),
    /// It wants nothing any more.
    Left,
}

/// What it is doing.
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

/// A request that awaits its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Open {
    seat: usize,
    round: u64,
    says: Says,
    sent: BootTime,
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    number: u32,
    acquisition: u32,
    key: u32,
    ttl_ms: u32,
    /// The set of nodes that it works with, and the one that its present acquisition asks: the same but without a rule.
    works_with: Arc<Set>,
    asks: Arc<Set>,
    without: Without,
    /// The shipped keeper extends what it holds.
    in_background: bool,
    /// The highest token seen, for proposals.
    seen: u64,
    ticket: u64,
    /// What it asks for, and the mode in which it does: with the number of a permit.
    wanted: Wanted,
    mode: HeldAs,
    stage: Stage,
    open: BTreeMap<u32, Open>,
    requests: u32,
    /// Which servers answered under these names.
    ids: BTreeMap<usize, NodeId>,
}

impl Client {
    /// Client `number`, whose list has `nodes` names.
    pub fn new(number: u32, nodes: usize, ttl_ms: u32, without: Without) -> Self {
        let set = Arc::new(Set::of_names(nodes));
        Self { number, ttl_ms, works_with: Arc::clone(&set), asks: set, without, ..Self::default() }
    }

    /// The same, which extends what it holds in the background, if so.
    pub fn in_background(self, in_background: bool) -> Self {
        Self { in_background, ..self }
    }

    /// Its acquisition under way, or the last one.
    pub fn who(&self) -> Holder {
        Holder { client: self.number, acquisition: self.acquisition }
    }

    /// Which lock that is about.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// In which mode that is.
    pub fn mode(&self) -> HeldAs {
        self.mode
    }

    /// Its ticket, by which it stands in the queues.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// How many acquisitions it began.
    pub fn acquisitions(&self) -> u32 {
        self.acquisition
    }

    /// How many nodes the set has that it works with.
    pub fn nodes(&self) -> usize {
        self.works_with.len()
    }

    /// It does nothing.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// The lock it holds, when it began to ask for it, and until when it relies on it.
    pub fn holding(&self) -> Option<(&Held, BootTime, BootTime)> {
        match &self.stage {
            Stage::Holding { keeping, since, until } => Some((keeping.held(), *since, *until)),
            _ => None,
        }
    }

    /// When it is to be woken, to extend what it holds in the background.
    pub fn wake_at(&self) -> Option<BootTime> {
        match &self.stage {
            Stage::Holding { keeping, .. } => keeping.wake_at(self.without),
            _ => None,
        }
    }

    /// Somebody took away what it holds.
    pub fn is_taken_away(&self) -> bool {
        let is_noticed = !self.without.is(Rule::TakenAwayIsLost);
        matches!(&self.stage, Stage::Holding { keeping, .. } if is_noticed && keeping.is_taken_away())
    }

    /// It waits for its turn.
    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// Requests that await an answer: their numbers, and when they were sent.
    pub fn open(&self) -> impl Iterator<Item = (u32, BootTime)> {
        self.open.iter().map(|(number, open)| (*number, open.sent))
    }

    /// An answer to the request `number` is awaited.
    pub fn is_open(&self, number: u32) -> bool {
        self.open.contains_key(&number)
    }

    // What it sets out to do.

    /// It asks once for `key`.
    pub fn acquire(&mut self, key: u32, now: Now) -> Step {
        self.set_out(key, Wanted::Exclusive, now);
        self.ask(Wanted::Exclusive, false, now)
    }

    /// It sets out to take `key` in this mode: its ticket is of this moment.
    pub fn set_out(&mut self, key: u32, wanted: Wanted, now: Now) {
        (self.key, self.wanted) = (key, wanted);
        self.asks = Arc::clone(&self.works_with);
        self.ticket = self.propose(now).get();
    }

    /// It asks for the lock in this mode, as the one who was told that it is its turn or under a new name. Of several permits it draws one if
    /// none is named.
    pub fn ask(&mut self, wanted: Wanted, keeps_name: bool, now: Now) -> Step {
        let number = match wanted {
            Wanted::Permit { number: Some(number), .. } => number,
            Wanted::Permit { limit, .. } => first(limit, self.random()),
            Wanted::Exclusive | Wanted::Shared => 1,
        };
        self.begin(number, keeps_name && self.is_waiting(), now)
    }

    /// It asks for what it was told is free.
    pub fn ask_as_told(&mut self, told: Option<u16>, now: Now) -> Step {
        let wanted = match (self.wanted, told) {
            (Wanted::Permit { limit, .. }, Some(number)) => Wanted::Permit { limit, number: Some(number) },
            (wanted, _) => wanted,
        };
        self.ask(wanted, told.is_some(), now)
    }

    /// What it draws by: the same in every run, and other clients draw otherwise.
    fn random(&self) -> u64 {
        let seed = u64::from(self.number) << 32 | u64::from(self.requests);
        let mixed = (seed ^ seed >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    /// It asks for the lock, or for the permit `number`.
    fn begin(&mut self, number: u16, keeps_name: bool, now: Now) -> Step {
        self.mode = HeldAs::of(self.wanted, number);
        // Each attempt has a name of its own; who was told that it is free goes on under that name.
        if !keeps_name {
            self.begin_name();
        }
        let proposal = self.propose(now);
        let (machine, calls) = Acquire::begin(self.members().len(), self.ttl_ms, proposal, now.boot);
        self.stage = Stage::Acquiring { machine, since: now.boot };
        self.open.clear();
        self.sends(0, calls, now)
    }

    /// It was refused, and looks which other permit is free.
    pub fn look_for_permit(&mut self, now: Now) -> Step {
        self.stage = Stage::Looking(Choice::begin(self.members().len()));
        self.open.clear();
        self.tell_all(Says::Look, now)
    }

    /// It was refused, and waits for its turn under a new name, where its ticket says: once at each node.
    pub fn wait(&mut self, now: Now) -> Step {
        self.join(now.boot, WAIT_MS, now)
    }

    /// The same for so long, renewed at nodes whose time is up.
    pub fn wait_for(&mut self, patience_ms: u32, now: Now) -> Step {
        if self.without.is(Rule::TicketIsKept) {
            self.ticket = self.propose(now).get();
        }
        let until = now.boot.plus_ms(patience_ms);
        self.join(until, Waiter::at_a_time_ms(until, 0, now.boot, self.random()), now)
    }

    /// A new name, in the set as it is known by now; without the rule, in that with which it set out.
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
        self.tell_all(Says::Wait { ms, ticket: self.ticket }, now)
    }

    /// It extends its lock, now.
    pub fn extend(&mut self, now: Now) -> Step {
        let ttl_ms = self.ttl_ms;
        self.keeps(now, |keeping, random| keeping.extend(ttl_ms, now.boot, random))
    }

    /// It is woken.
    pub fn wake(&mut self, now: Now) -> Step {
        self.keeps(now, |keeping, random| keeping.wake(now.boot, random))
    }

    /// A writer goes on as a reader.
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
        self.sends(round, calls, now)
    }

    /// It gives the lock back, or what it may have of it, and waits no longer.
    pub fn release(&mut self, now: Now) -> Step {
        let held = matches!(self.stage, Stage::Holding { .. });
        self.give_back(if held { Status::Ended } else { Status::Left }, now)
    }

    fn give_back(&mut self, says: Status, now: Now) -> Step {
        self.stage = Stage::Idle;
        self.open.clear();
        let step = self.tell_all(Says::Release, now);
        self.open.clear();
        Step { says: Some(says), ..step }
    }

    /// Its process is killed: it relies on nothing, and remembers nothing but to use no name twice.
    pub fn forget(&mut self) -> Step {
        let held = matches!(self.stage, Stage::Holding { .. });
        (self.stage, self.seen) = (Stage::Idle, 0);
        self.open.clear();
        self.ids.clear();
        Step { sends: vec![], says: held.then_some(Status::Ended) }
    }

    /// It looks at its clock: a lock that is valid no more is lost.
    pub fn look(&mut self, now: Now) -> Option<Step> {
        let Stage::Holding { keeping, until, .. } = &self.stage else { return None };
        let held = keeping.held();
        // Without the rule it hopes as long as a round is under way.
        let hopes = self.without.is(Rule::AnswersInTime) && held.round() > 0 && held.outcome().is_none();
        let over = now.boot >= *until && !hopes;
        (over || self.is_taken_away()).then(|| self.release(now))
    }

    // What it sends.

    /// The nodes of its set that it uses: without majorities that meet, half of them.
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

    fn sends(&mut self, round: u64, calls: Vec<Call>, now: Now) -> Step {
        let sends = calls
            .into_iter()
            .map(|call| (call.after_ms, self.request(call.node, round, Says::Ask(call.ask), now)))
            .collect();
        Step { sends, says: None }
    }

    fn tell_all(&mut self, says: Says, now: Now) -> Step {
        let sends = (0..self.members().len()).map(|seat| (0, self.request(seat, 0, says, now))).collect();
        Step { sends, says: None }
    }

    fn request(&mut self, seat: usize, round: u64, says: Says, now: Now) -> Request {
        self.requests += 1;
        let number = self.requests;
        self.open.insert(number, Open { seat, round, says, sent: now.boot });
        let (node, meant) = self.asks.seat(self.members().start + seat);
        let wanted = match says {
            Says::Wait { .. } => self.wanted,
            // Without the rule it counts holders, whichever numbers they have.
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

/// The bytes by which nodes know `who`.
pub fn owner(who: Holder, without: Without) -> [u8; 8] {
    let acquisition = if without.is(Rule::OwnerOfItsOwn) { 0 } else { who.acquisition };
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&who.client.to_be_bytes());
    bytes[4..].copy_from_slice(&acquisition.to_be_bytes());
    bytes
}
