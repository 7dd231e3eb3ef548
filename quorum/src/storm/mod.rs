//! Runs the state machines in all modes while clocks drift, messages are late, lost and repeated, and nodes restart.
//! Checks that no two owners rely on locks that exclude each other, and that later holders have larger tokens.
//!
//! The simulated nodes are simplified: one key, leases on a clock of their own, a guard after a restart without data.
//! Other tests show that real nodes keep the same rules.

mod messages;
pub(super) mod node;
mod resuming;

use std::collections::{BTreeMap, BTreeSet};

use self::node::{Node, Owner, TTL_MS, TTL_US, Wrong};
use super::agenda::{Agenda, Clock};
use super::floors::Floors;
use super::{Acquire, Answer, Ask, Call, Held, NodeId, OwnGrant, Progress, Resumed, resume};
use crate::values::mode::{Mode, Permit};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The time for which a client waits for a node's answer, in microseconds.
const GIVEN_US: u64 = 100_000;
/// The longest delay of a message, in microseconds. A message can arrive after a lease has ended.
const LATE_US: u64 = 2 * TTL_US;
const CLIENTS: usize = 4;
/// The length of a run, in microseconds of simulated time.
const END_US: u64 = 20_000_000;

enum Stage {
    Idle,
    Acquiring(Acquire),
    Holding {
        held: Held,
        mode: Mode,
        ends: u64,
    },
    /// The process that acquired the lock, or was about to, is gone. Another process of its owner asks the nodes for
    /// the grants.
    Looking {
        start: BootTime,
        seen: Vec<Option<(NodeId, Option<OwnGrant>)>>,
        told: OwnerView,
    },
    /// The other process raises the tokens that it found.
    Raising {
        machine: Acquire,
        told: OwnerView,
    },
    /// The other process marks the grants as adopted; this many nodes have confirmed it.
    Adopting {
        held: Held,
        adopted: usize,
        told: OwnerView,
    },
}

/// The state of the lock as the earlier process knew it: the end of its validity, and its token.
#[derive(Clone, Copy, Default)]
struct OwnerView {
    until: BootTime,
    token: u64,
    ends: u64,
}

struct Client {
    acquisition: u32,
    /// The mode that the client asks for.
    asks: Mode,
    stage: Stage,
    clock: Clock,
}

#[derive(Clone, Copy)]
enum Message {
    Ask(Ask, Mode),
    /// Asks whether the owner has this token (LOCK.CHECK).
    Look(Token),
    /// Asks which grant the owner has (LOCK.INFO).
    Show,
    /// Marks the grant as adopted: another process continues it.
    Adopt,
    /// Frees the lock (LOCK.RELEASE). An attempt that never received an answer sends a plain release, without token or
    /// level.
    Release {
        is_plain: bool,
    },
}

enum Event {
    Begins(usize),
    AtNode {
        name: usize,
        owner: Owner,
        says: Message,
        request: u64,
    },
    Answers {
        name: usize,
        request: u64,
        answer: Option<(NodeId, Answer)>,
    },
    Shown {
        name: usize,
        request: u64,
        answer: (NodeId, Option<OwnGrant>),
    },
    Adopted {
        owner: Owner,
        request: u64,
    },
    Replaced(Owner),
    /// The process that was replaced gives the lock back, as if it had not been replaced.
    GivesBack(Owner, bool),
    GivesUp(Owner),
    Extends(Owner),
    Shares(Owner),
    Looks(Owner, usize),
    /// Another process of this owner raises the tokens of its grants.
    Raises(Owner),
    Leaves(Owner),
    Restarts(usize),
}

struct World {
    wrong: Option<Wrong>,
    agenda: Agenda<Event>,
    /// The server to which each name leads. Two names may lead to one.
    names: Vec<usize>,
    nodes: Vec<(Node, Clock)>,
    clients: Vec<Client>,
    /// The requests without an answer so far: owner, round and question.
    open: BTreeMap<u64, (Owner, u64, Ask)>,
    /// The checks without an answer so far: owner and token.
    looks: BTreeMap<u64, (Owner, Token)>,
    /// The owners whose requests to show a grant have no answer so far.
    shows: BTreeMap<u64, Owner>,
    /// The numbers of the requests to adopt a grant without an answer so far.
    adoptions: BTreeSet<u64>,
    won: Floors,
    broken: Option<String>,
    grants: u32,
    shares: u32,
    missing: u32,
    resumed: u32,
    raised: u32,
}

impl World {
    fn new(seed: u64, wrong: Option<Wrong>) -> Self {
        let mut world = Self {
            wrong,
            agenda: Agenda::new(seed),
            names: vec![],
            nodes: vec![],
            clients: vec![],
            open: BTreeMap::new(),
            looks: BTreeMap::new(),
            shows: BTreeMap::new(),
            adoptions: BTreeSet::new(),
            won: Floors::default(),
            broken: None,
            grants: 0,
            shares: 0,
            missing: 0,
            resumed: 0,
            raised: 0,
        };
        // The rates of any two clocks differ by less than 1 %.
        let apart = if wrong == Some(Wrong::ClocksApart) { 400_000 } else { 9_800 };
        let servers = if world.agenda.one_in(2) { 3 } else { 5 };
        world.names = (0..servers).collect();
        if world.agenda.one_in(5) {
            world.names[1] = 0;
        }
        for _ in 0..servers {
            let clock = world.agenda.clock(apart);
            world.nodes.push((Node::default(), clock));
        }
        for client in 0..CLIENTS {
            let clock = world.agenda.clock(apart);
            world.clients.push(Client { acquisition: 0, asks: Mode::Shared, stage: Stage::Idle, clock });
            let at = world.agenda.below(500_000);
            world.agenda.at(at, Event::Begins(client));
        }
        for _ in 0..12 {
            let (at, node) = (world.agenda.below(END_US), world.agenda.below(servers as u64));
            world.agenda.at(at, Event::Restarts(node as usize));
        }
        world
    }

    fn run(mut self) -> Self {
        while self.broken.is_none()
            && let Some(event) = self.agenda.next(END_US)
        {
            self.perform(event);
            self.look();
        }
        self
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Begins(client) => self.begin(client),
            Event::AtNode { name, owner, says, request } => self.at_node(name, owner, says, request),
            Event::Answers { name, request, answer } => self.heard(name, request, answer),
            Event::Shown { name, request, answer } => self.shown(name, request, answer),
            Event::Adopted { owner, request } => self.adopted(owner, request),
            Event::Replaced(owner) => self.replace(owner),
            Event::GivesBack(owner, is_plain) => self.give_back(owner, is_plain),
            Event::GivesUp(owner) => {
                let client = &self.clients[owner.0];
                let resumes =
                    matches!(client.stage, Stage::Looking { .. } | Stage::Raising { .. } | Stage::Adopting { .. });
                if client.acquisition == owner.1 && resumes {
                    self.leave(owner);
                }
            }
            Event::Restarts(server) => {
                let clock = self.nodes[server].1;
                let forgets = self.agenda.one_in(2);
                let guarded_until = clock.at(self.agenda.now) + TTL_US * 102 / 100;
                let node = &mut self.nodes[server].0;
                if forgets {
                    node.grants.clear();
                    if self.wrong != Some(Wrong::NoGuard) {
                        node.guarded_until = guarded_until;
                    }
                }
            }
            Event::Extends(owner) => {
                let now = self.local(owner.0);
                if let Some(held) = self.held(owner) {
                    let calls = held.extend(TTL_MS, now);
                    let round = held.round();
                    self.call(owner, round, calls);
                    let next = self.agenda.now + TTL_US / 4 + self.agenda.below(TTL_US / 4);
                    self.agenda.at(next, Event::Extends(owner));
                }
            }
            Event::Shares(owner) => self.share(owner),
            Event::Looks(owner, name) => self.look_at(owner, name),
            Event::Raises(owner) => self.raise_elsewhere(owner),
            Event::Leaves(owner) => self.leave(owner),
        }
    }

    /// Returns the time on this client's own clock.
    fn local(&self, client: usize) -> BootTime {
        BootTime::from_us(self.clients[client].clock.at(self.agenda.now))
    }

    fn held(&mut self, owner: Owner) -> Option<&mut Held> {
        let client = &mut self.clients[owner.0];
        match &mut client.stage {
            Stage::Holding { held, .. } if client.acquisition == owner.1 => Some(held),
            _ => None,
        }
    }

    fn begin(&mut self, client: usize) {
        let asks = match self.agenda.below(6) {
            0 | 1 => Mode::Exclusive,
            2 | 3 => Mode::Shared,
            drawn => {
                let limit = if drawn == 4 { 2 } else { 3 };
                Permit::new(1 + self.agenda.below(limit) as u16, limit as u16).map_or(Mode::Shared, Mode::Permit)
            }
        };
        let now = self.local(client);
        let proposal =
            Token::new(1_000_000_000 + self.agenda.now - self.agenda.below(2_000_000).min(self.agenda.now)).unwrap();
        let (machine, calls) = Acquire::begin(self.names.len(), TTL_MS, proposal, now);
        let it = &mut self.clients[client];
        it.acquisition += 1;
        (it.asks, it.stage) = (asks, Stage::Acquiring(machine));
        let owner = (client, it.acquisition);
        self.call(owner, 0, calls);
        if self.agenda.one_in(6) {
            // In half of the cases the process is replaced during the acquisition, or right after it.
            let within = if self.agenda.one_in(2) { 10_000 } else { TTL_US };
            let at = self.agenda.now + self.agenda.below(within);
            self.agenda.at(at, Event::Replaced(owner));
        }
    }

    fn call(&mut self, owner: Owner, round: u64, calls: Vec<Call>) {
        for Call { node: name, ask, after_ms } in calls {
            let sent = self.agenda.now + u64::from(after_ms) * 1_000;
            let says = Message::Ask(ask, self.clients[owner.0].asks);
            let request = self.agenda.number();
            self.open.insert(request, (owner, round, ask));
            self.send(sent, name, owner, says, request);
            self.agenda.at(sent + GIVEN_US, Event::Answers { name, request, answer: None });
        }
    }

    /// Sends a message to the node `name`; some messages arrive twice.
    fn send(&mut self, sent: u64, name: usize, owner: Owner, says: Message, request: u64) {
        let times = if self.agenda.one_in(20) { 2 } else { 1 };
        for _ in 0..times {
            if let Some(takes) = self.agenda.draw_delay(LATE_US) {
                self.agenda.at(sent + takes, Event::AtNode { name, owner, says, request });
            }
        }
    }

    fn leave(&mut self, owner: Owner) {
        let client = &mut self.clients[owner.0];
        if client.acquisition != owner.1 {
            return;
        }
        client.stage = Stage::Idle;
        // In the other cases the client releases nothing, as if it had crashed.
        if !self.agenda.one_in(4) {
            self.give_back(owner, false);
        }
        let again = self.agenda.now + self.agenda.below(TTL_US / 10);
        self.agenda.at(again, Event::Begins(owner.0));
    }

    fn give_back(&mut self, owner: Owner, is_plain: bool) {
        for name in 0..self.names.len() {
            self.send(self.agenda.now, name, owner, Message::Release { is_plain }, 0);
        }
    }

    fn share(&mut self, owner: Owner) {
        let client = &mut self.clients[owner.0];
        let Stage::Holding { held, mode, .. } = &mut client.stage else { return };
        if client.acquisition != owner.1 || *mode != Mode::Exclusive {
            return;
        }
        client.asks = Mode::Shared;
        if self.wrong != Some(Wrong::WritesOn) {
            *mode = Mode::Shared;
        }
        let (calls, round) = (held.share(), held.round());
        self.shares += 1;
        self.call(owner, round, calls);
    }

    /// Records that the owner relies on the lock from now on. If it relied on the lock before, in another process,
    /// `own` is the token that it had; otherwise 0.
    fn hold(&mut self, owner: Owner, held: Held, own: u64) {
        let ends = self.agenda.now + self.agenda.below(4 * TTL_US);
        let mode = self.clients[owner.0].asks;
        let (token, floor) = (held.token().get(), self.won.floor_of(mode));
        if token < floor || token == floor && token != own {
            self.broken = Some(format!("token order: {mode:?} with {token} after {floor}"));
        }
        self.grants += 1;
        self.keep(owner, held, mode, ends);
    }

    fn keep(&mut self, owner: Owner, mut held: Held, mode: Mode, ends: u64) {
        if self.agenda.one_in(3) {
            held.is_spoken_for_elsewhere();
            let at = self.agenda.now + self.agenda.below(2 * TTL_US);
            self.agenda.at(at, Event::Raises(owner));
        }
        self.clients[owner.0].stage = Stage::Holding { held, mode, ends };
        // Some clients never extend their lock, and rely on the first lease to its end.
        if !self.agenda.one_in(3) {
            self.agenda.at(self.agenda.now + TTL_US / 3, Event::Extends(owner));
        }
        if mode == Mode::Exclusive && !self.agenda.one_in(4) {
            let at = self.agenda.now + self.agenda.below(TTL_US / 2);
            self.agenda.at(at, Event::Shares(owner));
        }
        for name in 0..self.names.len() {
            let at = self.agenda.now + self.agenda.below(2 * TTL_US);
            self.agenda.at(at, Event::Looks(owner, name));
        }
        self.agenda.at(ends, Event::Leaves(owner));
    }

    /// Checks all owners that rely on a lock now: their modes are compatible, and later holders have larger tokens.
    fn look(&mut self) {
        let mut relies = vec![];
        for (n, client) in self.clients.iter().enumerate() {
            let (until, mode, token, ends) = match &client.stage {
                Stage::Holding { held, mode, ends } => (held.valid_until(), *mode, held.token().get(), *ends),
                Stage::Looking { told, .. } | Stage::Raising { told, .. } | Stage::Adopting { told, .. } => {
                    (told.until, client.asks, told.token, told.ends)
                }
                Stage::Idle | Stage::Acquiring(_) => continue,
            };
            if self.local(n) < until && self.agenda.now <= ends {
                relies.push((n, mode, token));
            }
        }
        for (at, (one, mode, token)) in relies.iter().enumerate() {
            self.won.add(*mode, *token);
            for (other, other_mode, _) in &relies[..at] {
                if !mode.is_compatible(*other_mode) {
                    self.broken = Some(format!("exclusion: {other} has {other_mode:?}, {one} has {mode:?}"));
                }
            }
        }
    }
}

#[test]
fn nobody_relies_on_it_beside_whom_it_must_not_and_tokens_are_in_order() {
    let (mut grants, mut shares, mut missing, mut resumed, mut raised) = (0, 0, 0, 0, 0);
    for seed in 0..1_000 {
        let world = World::new(seed, None).run();
        assert_eq!(world.broken, None, "seed {seed}");
        grants += world.grants;
        shares += world.shares;
        missing += world.missing;
        resumed += world.resumed;
        raised += world.raised;
    }
    eprintln!(
        "{grants} grants, {shares} writers that became readers, {missing} found missing, {resumed} resumed, {raised} raised elsewhere"
    );
    assert!(
        grants > 20_000 && shares > 200 && missing > 200 && resumed > 1_000 && raised > 1_000,
        "{grants} {shares} {missing} {resumed} {raised}"
    );
}

#[test]
fn what_is_done_wrong_shows() {
    use Wrong::*;
    let all = [
        NoGuard,
        HealsAnyNumber,
        WritesOn,
        ClocksApart,
        ReadersBesideWriters,
        AnyTokenForPermits,
        NoSecondRound,
        ResumesWithoutRaising,
        ResumesAMinority,
        ResumesForAWholeLease,
        ResumesUnmarked,
        FreesAdopted,
        GivesBackWhatIsOver,
    ];
    for wrong in all {
        let found = (0..20_000).find_map(|seed| Some((seed, World::new(seed, Some(wrong)).run().broken?)));
        eprintln!("{wrong:?}: {found:?}");
        assert!(found.is_some(), "{wrong:?}");
    }
}
