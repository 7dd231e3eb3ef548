//! The world of a run: nodes and clients on machines of their own, a network between them, and what goes wrong, in the order
//! of true time. The same plan makes the same run, to the microsecond.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use palisade_core::quorum::NodeId;
use palisade_core::record::BootId;
use palisade_core::{BootTime, NodeState, Now, WaiterId};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::machine::Machine;
use super::plan::{Keeps, Kind, Plan};
use crate::client::{Client, Hears, Reply, Request, Says, Status, Step, owner};
use crate::history::{Event, Holder, TimeUs, What};
use crate::referee::{Referee, Violation};
use crate::rules::Without;
use crate::server::{Found, Server, Setup};

/// True time starts so late that clocks that are behind still count up from the beginning.
pub const START_US: TimeUs = 10_000_000;

/// How often a node looks after itself, in microseconds.
const TICK_US: u64 = 100_000;

/// How often a master tells its replicas its ceiling, in microseconds.
const TELL_REPLICAS_US: u64 = 2_000_000;

/// How late a node's timer may be, in microseconds.
const TIMER_LATE_US: u64 = 10_000;

/// How long a disk takes, in microseconds.
const DISK_US: u64 = 3_000;

/// How often a lease is extended, and how soon it is tried again after a round that failed, as parts of the ttl.
const ROUNDS_A_LEASE: u64 = 3;
const AGAIN: u64 = 10;

/// Between a client's last look at its lock and its write, in microseconds.
const LOOK_TO_WRITE_US: u64 = 20_000;

/// What happens next.
#[derive(Clone, Debug)]
enum Next {
    /// A request reaches a node.
    Arrives(Request),
    /// An answer reaches a client.
    Returns(Reply),
    /// A node's timer, and its regular look after itself.
    Timer(usize),
    Tick(usize),
    /// A node's snapshot of its data.
    Snapshot(usize),
    /// A state is on a node's disk: of this life, with this number.
    Written(usize, u32, u64, Box<NodeState>),
    /// Something comes to a client's mind, in an acquisition.
    Wakes(Holder, Wake),
    /// A write reaches the register.
    Writes {
        key: u32,
        who: Holder,
        token: u64,
    },
    /// A fault begins, and ends.
    Begins(usize),
    Ends(usize),
}

/// What comes to a client's mind.
#[derive(Clone, Copy, Debug)]
enum Wake {
    Wants,
    Misses(u32),
    Extends,
    Looks,
    GivesBack,
    Checks,
    Sends(u64),
    Leaves,
}

/// A moment: of two at one time the one that was planned first comes first.
struct Moment {
    at: TimeUs,
    number: u64,
    next: Next,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// A node: its machine, its server while that runs, and its files.
struct Node {
    machine: Machine,
    server: Option<Server>,
    /// Lives of the process.
    lives: u32,
    keeps: Keeps,
    /// Its first id; another with a new disk.
    id: u128,
    state_file: Option<NodeState>,
    /// A state that the disk has not finished.
    writing: Option<NodeState>,
    hangs_until: TimeUs,
    snapshot: Option<Vec<(u32, Vec<u8>)>>,
    /// What its replica has, and when it had it; newest last.
    replica: Vec<(TimeUs, Followed)>,
    armed: Option<TimeUs>,
    /// When its process ended last.
    died: TimeUs,
    /// What it told its replicas last, and when.
    told: (TimeUs, u64, u32),
}

/// What a replica knows of its master.
#[derive(Clone)]
struct Followed {
    locks: Vec<(u32, Vec<u8>)>,
    ceiling: u64,
    owed_ms: u32,
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Moments.
    pub moments: u64,
    /// Locks taken.
    pub held: u64,
    /// Tries that did not get it.
    pub refused: u64,
    /// Rounds that extended, and rises of tokens.
    pub extended: u64,
    /// Locks lost before they were given back.
    pub lost: u64,
    /// Writes that the register took, and refused.
    pub taken: u64,
    /// See `taken`.
    pub fenced_out: u64,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
}

/// Why a run failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// A law was broken.
    Broken(Violation),
    /// After all faults had ended a lock was not to be had.
    Stuck {
        /// Which.
        key: u32,
    },
    /// After all faults had ended somebody still waited.
    Unserved {
        /// On which node.
        node: usize,
    },
}

impl Failure {
    /// What was broken.
    pub fn law(&self) -> &'static str {
        match self {
            Self::Broken(violation) => violation.law(),
            Self::Stuck { .. } | Self::Unserved { .. } => "progress",
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(violation) => violation.fmt(f),
            Self::Stuck { key } => write!(f, "progress: after all faults had ended key {key} was not to be had"),
            Self::Unserved { node } => {
                write!(f, "progress: after all faults had ended somebody still waited on node {node}")
            }
        }
    }
}

/// A run under way.
pub struct World<'a> {
    plan: &'a Plan,
    without: Without,
    rng: ChaCha8Rng,
    at: TimeUs,
    moments: BinaryHeap<Reverse<Moment>>,
    planned: u64,
    nodes: Vec<Node>,
    clients: Vec<(Machine, Client)>,
    /// Faults that have begun and not ended.
    under_way: Vec<bool>,
    referee: Referee,
    quiet: bool,
    /// How it goes.
    pub totals: Totals,
    /// What happened, a line each, if somebody wants to read it.
    pub story: Option<Vec<String>>,
}

impl<'a> World<'a> {
    /// The beginning of a run.
    pub fn new(plan: &'a Plan, without: Without, tells: bool) -> Self {
        let node = |(n, machine): (usize, &super::plan::Machine)| Node {
            machine: Machine::new(machine),
            server: None,
            lives: 0,
            keeps: machine.keeps,
            id: n as u128 + 1,
            state_file: None,
            writing: None,
            hangs_until: 0,
            snapshot: None,
            replica: vec![],
            armed: None,
            died: 0,
            told: (0, 0, 0),
        };
        let client = |(n, machine): (usize, &super::plan::Machine)| {
            (Machine::new(machine), Client::new(n as u32, plan.nodes.len(), plan.ttl_ms, without))
        };
        let mut world = Self {
            plan,
            without,
            rng: ChaCha8Rng::seed_from_u64(plan.seed ^ 0x5eed),
            at: START_US,
            moments: BinaryHeap::new(),
            planned: 0,
            nodes: plan.nodes.iter().enumerate().map(node).collect(),
            clients: plan.clients.iter().enumerate().map(client).collect(),
            under_way: vec![false; plan.faults.len()],
            referee: Referee::new(plan.laws()),
            quiet: false,
            totals: Totals::default(),
            story: tells.then(Vec::new),
        };
        for n in 0..world.nodes.len() {
            world.start(n);
            // It was just put into service, and its operator says so.
            if let Some(server) = &mut world.nodes[n].server {
                server.lift();
            }
            world.plan_at(START_US + TICK_US, Next::Tick(n));
        }
        for n in 0..world.clients.len() {
            let who = world.clients[n].1.who();
            world.wakes(who, world.plan.rest_us, Wake::Wants);
        }
        for (n, fault) in plan.faults.iter().enumerate() {
            world.plan_at(START_US + fault.at, Next::Begins(n));
        }
        world
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// What the run showed to be broken.
    pub fn run(&mut self) -> Result<(), Failure> {
        let end = START_US + self.plan.until;
        self.run_until(end)?;
        self.heal();
        // Until the longest guard is over, and every lease; then each who waits has a turn.
        let guard_us = u64::from(self.plan.max_ttl_ms.max(self.plan.ttl_ms) + self.plan.skew_ms) * 1_000;
        let calm = self.at + 2 * guard_us + 10_000_000;
        self.run_until(calm)?;
        self.comes_right()
    }

    fn run_until(&mut self, end: TimeUs) -> Result<(), Failure> {
        while let Some(Reverse(moment)) = self.moments.peek() {
            if moment.at > end {
                break;
            }
            let Some(Reverse(Moment { at, next, .. })) = self.moments.pop() else { break };
            self.at = at;
            self.totals.moments += 1;
            self.happens(next).map_err(Failure::Broken)?;
        }
        self.at = end;
        Ok(())
    }

    fn plan_at(&mut self, at: TimeUs, next: Next) {
        self.planned += 1;
        self.moments.push(Reverse(Moment { at, number: self.planned, next }));
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>10} us  {}", self.at - START_US, line()));
        }
    }

    fn happens(&mut self, next: Next) -> Result<(), Violation> {
        // Who is paused does it later.
        let paused_until = match &next {
            Next::Arrives(request) => self.nodes[request.node].machine.paused_until,
            Next::Timer(n) | Next::Tick(n) | Next::Snapshot(n) => self.nodes[*n].machine.paused_until,
            Next::Returns(Reply { who, .. }) | Next::Wakes(who, _) => self.clients[who.client as usize].0.paused_until,
            Next::Written(..) | Next::Writes { .. } | Next::Begins(_) | Next::Ends(_) => 0,
        };
        if paused_until > self.at {
            self.plan_at(paused_until, next);
            return Ok(());
        }
        match next {
            Next::Arrives(request) => self.arrives(request),
            Next::Returns(reply) => {
                let who = reply.who;
                return self.on_client(who.client, |client, now| client.hear(&reply, now));
            }
            Next::Timer(n) => {
                self.nodes[n].armed = None;
                self.on_server(n, |server, now| server.run(now));
            }
            Next::Tick(n) => {
                self.on_server(n, |server, now| {
                    server.run(now);
                    server.tick(now);
                });
                self.follow(n);
                self.plan_at(self.at + TICK_US, Next::Tick(n));
            }
            Next::Snapshot(n) => {
                let now = self.nodes[n].machine.now(self.at);
                if let Some(server) = &self.nodes[n].server {
                    self.nodes[n].snapshot = Some(server.records(now));
                    self.plan_snapshot(n);
                }
            }
            Next::Written(n, life, number, state) => self.written(n, life, number, *state),
            Next::Wakes(who, wake) => return self.on_wake(who, wake),
            Next::Writes { key, who, token } => {
                let taken = self.judge(Event { at: self.at, key, who, what: What::Wrote { token } })?;
                *(if taken { &mut self.totals.taken } else { &mut self.totals.fenced_out }) += 1;
            }
            Next::Begins(fault) => return self.begins(fault),
            Next::Ends(fault) => self.ends(fault),
        }
        Ok(())
    }

    fn judge(&mut self, event: Event) -> Result<bool, Violation> {
        self.tell(|| format!("key {}: {} {:?}", event.key, event.who, event.what));
        self.referee.see(&event)
    }

    // Nodes.

    /// A server starts with what its disk has.
    fn start(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let first = node.lives == 0;
        let aof_always = node.keeps == Keeps::Everything;
        let found = Found {
            state: node.state_file.clone(),
            locks: node.snapshot.clone().unwrap_or_default(),
            from_aof: aof_always && !first,
            aof_always,
            boot: boot_id(n, &node.machine),
        };
        node.lives += 1;
        node.machine.down = false;
        let server = Server::start(self.setup(), self.without, self.nodes[n].id, found, now);
        self.nodes[n].server = Some(server);
        self.nodes[n].armed = None;
        self.plan_snapshot(n);
        self.tell(|| format!("node {n} starts"));
        self.on_server(n, |_, _| ());
    }

    fn setup(&self) -> Setup {
        let Plan { max_ttl_ms, skew_ms, .. } = *self.plan;
        Setup { max_ttl_ms, skew_ms, window_ms: 20 }
    }

    fn plan_snapshot(&mut self, n: usize) {
        if let Keeps::Snapshots { every_us } = self.nodes[n].keeps {
            self.plan_at(self.at + every_us, Next::Snapshot(n));
        }
    }

    /// The process of a server ends, without a word.
    fn kill(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let Some(server) = node.server.take() else { return };
        node.died = self.at;
        if node.keeps == Keeps::Everything {
            node.snapshot = Some(server.records(now));
        }
        // The file is replaced at one moment: it is the old one or the new one.
        if let Some(state) = node.writing.take()
            && self.rng.random()
        {
            self.nodes[n].state_file = Some(state);
        }
        self.nodes[n].machine.down = true;
    }

    /// A server is shut down in order.
    fn shut_down(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        if let Some(server) = &mut node.server
            && node.hangs_until <= self.at
        {
            let state = server.end_of_life(now);
            if node.keeps != Keeps::Nothing {
                node.snapshot = Some(server.records(now));
            }
            node.state_file = state;
            (node.server, node.writing, node.machine.down) = (None, None, true);
        }
        self.kill(n);
    }

    /// A server does something: those whom it tells something are told, its disk gets what is to be written, and its timer is
    /// set.
    fn on_server<T>(&mut self, n: usize, body: impl FnOnce(&mut Server, Now) -> T) -> Option<T> {
        let node = &mut self.nodes[n];
        let now = node.machine.now(self.at);
        let server = node.server.as_mut()?;
        let value = body(server, now);
        let (id, told, due) = (server.id(), server.told(), server.next_due());
        if node.writing.is_none()
            && let Some((number, state)) = server.take_write()
        {
            node.writing = Some(state.clone());
            let (life, done) = (node.lives, self.at.max(node.hangs_until));
            let takes = self.rng.random_range(0..DISK_US);
            self.plan_at(done + takes, Next::Written(n, life, number, Box::new(state)));
        }
        if let Some(due) = due {
            self.arm(n, due);
        }
        for (waiter, free) in told {
            let (client, number) = ((waiter.0 >> 32) as u32, waiter.0 as u32);
            let who = Holder { client, acquisition: 0 };
            self.returns(n, Reply { who, number, id, says: Hears::Told(free) });
        }
        Some(value)
    }

    fn arm(&mut self, n: usize, due: BootTime) {
        let late = self.rng.random_range(0..TIMER_LATE_US);
        let at = self.nodes[n].machine.when(due).max(self.at) + 1 + late;
        if self.nodes[n].armed.is_none_or(|armed| at < armed) {
            self.nodes[n].armed = Some(at);
            self.plan_at(at, Next::Timer(n));
        }
    }

    fn written(&mut self, n: usize, life: u32, number: u64, state: NodeState) {
        let node = &mut self.nodes[n];
        if node.lives != life || node.server.is_none() {
            return;
        }
        if node.hangs_until > self.at {
            let at = node.hangs_until;
            return self.plan_at(at, Next::Written(n, life, number, Box::new(state)));
        }
        let ceiling = state.ceiling;
        (node.state_file, node.writing) = (Some(state), None);
        self.on_server(n, |server, _| server.written(number, ceiling));
    }

    /// What a replica has by now.
    fn follow(&mut self, n: usize) {
        let (at, node) = (self.at, &mut self.nodes[n]);
        let now = node.machine.now(at);
        let Some(server) = &node.server else { return };
        if at >= node.told.0 + TELL_REPLICAS_US {
            let (ceiling, owed_ms) = server.tells_replicas(now);
            node.told = (at, ceiling, owed_ms);
        }
        let (_, ceiling, owed_ms) = node.told;
        node.replica.push((at, Followed { locks: server.records(now), ceiling, owed_ms }));
        node.replica.retain(|(when, _)| *when + 5_000_000 > at);
    }

    /// The replica takes the place of its master, which is dead.
    fn promote(&mut self, n: usize, behind: TimeUs) {
        let node = &mut self.nodes[n];
        let known = node.replica.iter().rev().find(|(when, _)| *when <= behind).or(node.replica.first());
        let Some((_, followed)) = known.cloned() else { return };
        node.id = node.id.wrapping_add(1_000);
        node.snapshot = Some(followed.locks);
        // It has kept what it heard.
        node.state_file = Some(NodeState {
            id: node.id,
            incarnation: 1,
            ceiling: followed.ceiling,
            owed_ms: followed.owed_ms,
            boot: boot_id(n, &node.machine),
            guard: None,
            unproved_before: BootTime::default(),
            aof_life: false,
            end: None,
        });
        self.start(n);
        self.on_server(n, |server, now| server.promote(followed.ceiling, followed.owed_ms, now));
        // From here on it keeps what it has as its master did.
        if self.nodes[n].keeps != Keeps::Everything {
            self.nodes[n].snapshot = None;
        }
    }

    fn arrives(&mut self, request: Request) {
        let Request { who, key, node: n, number, says } = request;
        let owner = owner(who, self.without);
        let waiter = WaiterId(u64::from(who.client) << 32 | u64::from(number));
        let answer = self.on_server(n, |server, now| match says {
            Says::Ask(ask) => Some(Hears::Answer(server.ask(key, &owner, ask, now))),
            Says::Release => {
                server.release(key, &owner, now);
                None
            }
            Says::Wait { ms, ticket } => match server.wait(key, &owner, ms, ticket, waiter, now) {
                Ok(told) => told.map(Hears::Told),
                Err(_) => Some(Hears::Told(false)),
            },
        });
        if let Some(Some(says)) = answer {
            let id = self.nodes[n].server.as_ref().map_or(NodeId(0), Server::id);
            self.tell(|| {
                format!(
                    "node {n} hears {says_of} of {who} about key {key}, answers {says:?}",
                    says_of = brief(&request.says)
                )
            });
            self.returns(n, Reply { who, number, id, says });
        }
    }

    // The network.

    fn sends(&mut self, after_ms: u32, request: Request) {
        let (client, n) = (request.who.client as usize, request.node);
        let mut copies = self.copies(n, client, true);
        // Who waits does so on a connection, which loses nothing without a word and doubles nothing.
        if matches!(request.says, Says::Wait { .. }) {
            copies.truncate(1);
        }
        for delay in copies {
            self.plan_at(self.at + u64::from(after_ms) * 1_000 + delay, Next::Arrives(request));
        }
    }

    fn returns(&mut self, n: usize, reply: Reply) {
        let copies = self.copies(n, reply.who.client as usize, false);
        for delay in copies.into_iter().take(1) {
            self.plan_at(self.at + delay, Next::Returns(reply));
        }
    }

    /// After how long a message arrives, and how often.
    fn copies(&mut self, n: usize, client: usize, to_node: bool) -> Vec<u64> {
        let network = self.plan.network;
        let mut extra = 0;
        for (fault, _) in self.plan.faults.iter().zip(&self.under_way).filter(|(_, under_way)| **under_way) {
            match fault.kind {
                Kind::Cut { node, client: only, there, back }
                    if node == n && only.is_none_or(|only| only == client) =>
                {
                    if if to_node { there } else { back } {
                        return vec![];
                    }
                }
                Kind::Slow { node, by_us } if node == n => extra += by_us,
                _ => {}
            }
        }
        let rng = &mut self.rng;
        let chance = |rng: &mut ChaCha8Rng, permille: u32| permille > 0 && rng.random_range(0..1_000) < permille;
        if !self.quiet && chance(rng, network.lost_permille) {
            return vec![];
        }
        let copies = if !self.quiet && chance(rng, network.doubled_permille) { 2 } else { 1 };
        (0..copies)
            .map(|_| {
                let longest =
                    if !self.quiet && chance(rng, network.slow_permille) { 100 } else { 2 } * network.delay_us;
                extra + rng.random_range(1..=longest)
            })
            .collect()
    }

    // Clients.

    /// Something comes to mind after about `mean_us` of true time.
    fn wakes(&mut self, who: Holder, mean_us: u64, wake: Wake) {
        let after = self.rng.random_range(0..=2 * mean_us);
        self.plan_at(self.at + after, Next::Wakes(who, wake));
    }

    fn on_wake(&mut self, who: Holder, wake: Wake) -> Result<(), Violation> {
        let (machine, client) = &self.clients[who.client as usize];
        if client.who() != who || machine.down {
            return Ok(());
        }
        let holds = client.holding().is_some();
        let key = self.rng.random_range(0..self.plan.keys);
        match wake {
            Wake::Wants if client.is_idle() && !self.quiet => {
                self.on_client(who.client, |client, now| client.acquire(key, now))
            }
            Wake::Misses(number) => self.on_client(who.client, |client, now| client.miss(number, now)),
            Wake::Extends if holds => {
                let again = self.on_client(who.client, |client, now| client.extend(now));
                let ttl_us = u64::from(self.plan.ttl_ms) * 1_000;
                let part = if self.rng.random_ratio(1, 5) { AGAIN } else { ROUNDS_A_LEASE };
                self.plan_at(self.at + ttl_us / part, Next::Wakes(who, Wake::Extends));
                again
            }
            Wake::Looks => {
                let looked = self.on_client(who.client, |client, now| client.look(now).unwrap_or_default());
                self.totals.lost += u64::from(holds && self.clients[who.client as usize].1.is_idle());
                looked
            }
            Wake::GivesBack if holds => self.on_client(who.client, |client, now| client.release(now)),
            Wake::Leaves if client.is_waiting() => self.on_client(who.client, |client, now| client.release(now)),
            Wake::Checks if holds => {
                let now = machine.now(self.at);
                if let Some((held, _, until)) = client.holding()
                    && now.boot < until
                {
                    let token = held.token().get();
                    self.wakes(who, LOOK_TO_WRITE_US, Wake::Sends(token));
                }
                self.wakes(who, self.plan.hold_us / 4, Wake::Checks);
                Ok(())
            }
            Wake::Sends(token) => {
                let (key, delay) = (client.key(), self.rng.random_range(1..=2 * self.plan.network.delay_us));
                self.plan_at(self.at + delay, Next::Writes { key, who, token });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A client does something: what it sends goes out, the referee hears what it says of itself, and it thinks of what is next.
    fn on_client(&mut self, number: u32, body: impl FnOnce(&mut Client, Now) -> Step) -> Result<(), Violation> {
        let (machine, client) = &mut self.clients[number as usize];
        if machine.down {
            return Ok(());
        }
        let now = machine.now(self.at);
        let (before, was_waiting) = (client.who(), client.is_waiting());
        let step = body(client, now);
        let (who, key, waits) = (client.who(), client.key(), client.is_waiting());
        let holding =
            client.holding().map(|(held, since, until)| (machine.when(since), machine.when(until), held.token().get()));
        let timeout_us = u64::from(self.plan.node_timeout_ms) * 1_000;
        for (after_ms, request) in step.sends {
            if matches!(request.says, Says::Ask(_)) {
                self.plan_at(self.at + timeout_us, Next::Wakes(who, Wake::Misses(request.number)));
            }
            if let Says::Wait { ms, .. } = request.says {
                let late = u64::from(ms) * 1_000 + 1_000_000;
                self.plan_at(self.at + late, Next::Wakes(who, Wake::Misses(request.number)));
            }
            self.sends(after_ms, request);
        }
        if waits && !was_waiting && self.rng.random_ratio(1, 10) {
            self.wakes(who, 1_000_000, Wake::Leaves);
        }
        let at = self.at;
        match (step.says, holding) {
            (Some(Status::Held), Some((since, until, token))) => {
                self.totals.held += 1;
                let ttl_us = u64::from(self.plan.ttl_ms) * 1_000;
                self.plan_at(at + ttl_us / ROUNDS_A_LEASE, Next::Wakes(who, Wake::Extends));
                self.wakes(who, self.plan.hold_us, Wake::GivesBack);
                self.wakes(who, self.plan.hold_us / 4, Wake::Checks);
                self.plan_at(until.max(at) + 1, Next::Wakes(who, Wake::Looks));
                self.judge(Event { at, key, who, what: What::Held { since, until, token } })?;
            }
            (Some(Status::Extended), Some((_, until, token))) => {
                self.totals.extended += 1;
                self.plan_at(until.max(at) + 1, Next::Wakes(who, Wake::Looks));
                self.judge(Event { at, key, who, what: What::Extended { until, token } })?;
            }
            (Some(Status::Ended), _) => {
                self.judge(Event { at, key, who: before, what: What::Ended })?;
                self.wakes(who, self.plan.rest_us, Wake::Wants);
            }
            (Some(Status::Refused), _) => {
                self.totals.refused += 1;
                // It waits for its turn, or comes again some time.
                if self.rng.random_bool(0.5) && !self.quiet {
                    return self.on_client(number, Client::wait as fn(&mut Client, Now) -> Step);
                }
                self.wakes(who, self.plan.rest_us, Wake::Wants);
            }
            _ => {}
        }
        // Whatever it heard, it looks at its clock.
        if holding.is_some_and(|(_, until, _)| until <= at) && step.says != Some(Status::Ended) {
            self.plan_at(at, Next::Wakes(who, Wake::Looks));
        }
        Ok(())
    }

    // What goes wrong.

    fn begins(&mut self, number: usize) -> Result<(), Violation> {
        let fault = self.plan.faults[number];
        if self.quiet || self.plan.is_excepted(&fault) {
            return Ok(());
        }
        *self.totals.faults.entry(fault.kind.name()).or_default() += 1;
        self.tell(|| format!("fault {number}: {:?}, for {} us", fault.kind, fault.for_us));
        self.under_way[number] = true;
        let end = self.at + fault.for_us;
        match fault.kind {
            Kind::Crash { node, .. } => self.kill(node),
            Kind::NewDisk { node } => {
                self.kill(node);
                let node = &mut self.nodes[node];
                node.id = node.id.wrapping_add(1_000);
                (node.state_file, node.snapshot) = (None, None);
            }
            Kind::Failover { node, .. } => self.kill(node),
            Kind::Restart { node, .. } => self.shut_down(node),
            Kind::Flush { node } => {
                self.on_server(node, |server, now| server.flush(now));
            }
            Kind::PauseNode { node } => {
                let until = &mut self.nodes[node].machine.paused_until;
                *until = end.max(*until);
            }
            Kind::PauseClient { client } => {
                let until = &mut self.clients[client].0.paused_until;
                *until = end.max(*until);
            }
            Kind::KillClient { client } => {
                self.on_client(client as u32, |client, _| client.forget())?;
                self.clients[client].0.down = true;
            }
            Kind::DiskHangs { node } => {
                let until = &mut self.nodes[node].hangs_until;
                *until = end.max(*until);
            }
            Kind::NodeClockStep { node, by_us } => self.nodes[node].machine.step(by_us),
            Kind::ClientClockStep { client, by_us } => self.clients[client].0.step(by_us),
            Kind::Cut { .. } | Kind::Slow { .. } => {}
        }
        self.plan_at(end, Next::Ends(number));
        Ok(())
    }

    fn ends(&mut self, number: usize) {
        if !std::mem::take(&mut self.under_way[number]) {
            return;
        }
        let fault = self.plan.faults[number];
        match fault.kind {
            Kind::Crash { node, reboot } | Kind::Restart { node, reboot } if self.nodes[node].server.is_none() => {
                if reboot {
                    self.nodes[node].machine.reboot(self.at);
                }
                self.start(node);
            }
            Kind::NewDisk { node } if self.nodes[node].server.is_none() => self.start(node),
            Kind::Failover { node, lag_us } if self.nodes[node].server.is_none() => {
                let died = self.nodes[node].died;
                self.promote(node, died - lag_us);
            }
            Kind::KillClient { client } => {
                self.clients[client].0.down = false;
                let who = self.clients[client].1.who();
                self.wakes(who, self.plan.rest_us, Wake::Wants);
            }
            _ => {}
        }
    }

    /// Every fault ends, and clients begin nothing new.
    fn heal(&mut self) {
        self.quiet = true;
        for fault in 0..self.plan.faults.len() {
            self.ends(fault);
        }
        for n in 0..self.nodes.len() {
            (self.nodes[n].hangs_until, self.nodes[n].machine.paused_until) = (0, 0);
            if self.nodes[n].server.is_none() {
                self.start(n);
            }
            self.on_server(n, |_, _| ());
        }
        for n in 0..self.clients.len() {
            (self.clients[n].0.paused_until, self.clients[n].0.down) = (0, false);
        }
        self.tell(|| "every fault has ended".to_owned());
    }

    /// Whether every lock is to be had at once, and nobody waits.
    fn comes_right(&mut self) -> Result<(), Failure> {
        // Whoever still holds or waits goes.
        for n in 0..self.clients.len() as u32 {
            let gone =
                self.on_client(n, |client, now| if client.is_idle() { Step::default() } else { client.release(now) });
            gone.map_err(Failure::Broken)?;
        }
        self.run_until(self.at + 1_000_000)?;
        // A wait whose end was never heard of is over by its own time.
        self.run_until(self.at + 10_000_000)?;
        for (n, node) in self.nodes.iter().enumerate() {
            if node.server.as_ref().is_some_and(|server| server.node().waiting.len() > 0) {
                return Err(Failure::Unserved { node: n });
            }
        }
        for key in 0..self.plan.keys {
            let held = self.totals.held;
            self.on_client(0, |client, now| client.acquire(key, now)).map_err(Failure::Broken)?;
            self.run_until(self.at + u64::from(self.plan.node_timeout_ms) * 3_000)?;
            if self.totals.held == held {
                return Err(Failure::Stuck { key });
            }
            self.on_client(0, |client, now| client.release(now)).map_err(Failure::Broken)?;
            self.run_until(self.at + 1_000_000)?;
        }
        Ok(())
    }
}

fn brief(says: &Says) -> String {
    match says {
        Says::Ask(ask) => format!("{ask:?}"),
        other => format!("{other:?}"),
    }
}

fn boot_id(n: usize, machine: &Machine) -> BootId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (n as u8, machine.boots());
    BootId(bytes)
}
