//! The state of the model: nodes, clients, messages between them, and the referee's record.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use palisade_core::BootId;
use palisade_core::engine::Key;
use palisade_core::quorum::NodeId;
use palisade_core::{Armed, BootTime, FileId, Found as Ties, Lock, NodeState, Now, StripeCeiling, Token, WaiterId};

use super::config::{ClientPlan, Config, KEYS_MAX, TICK_US};
use crate::client::{Client, Status, Step, owner};
use crate::history::{Event, Holder, Occurrence};
use crate::messages::{Reply, Request};
use crate::referee::{Laws, Referee, Violation};
use crate::server::{Found, Server, name};

/// The reading of wall clocks when the boot clock shows zero, in microseconds.
const WALL_US: u64 = 1_000_000_000;

/// The whole state at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The time, in ticks.
    pub tick: u32,
    servers: Vec<Arc<Node>>,
    pub(super) clients: Vec<Arc<Client>>,
    pub(super) requests: BTreeSet<Request>,
    pub(super) replies: BTreeSet<Reply>,
    /// The number of restarts that may still happen.
    pub(super) restarts: u32,
    /// The number of times that a hostile client may still raise a token.
    pub(super) raises: u32,
    /// The number of messages that may still be delivered twice.
    pub(super) duplicates: u32,
    referee: Referee,
    /// The first law that was broken, if any.
    pub violation: Option<Violation>,
}

/// A server, and the offset of its wall clock, in microseconds.
#[derive(Clone, Debug)]
struct Node {
    server: Server,
    /// The last state that the server wrote to its state file.
    state: Option<NodeState>,
    wall_off_us: i64,
    essence: Essence,
}

impl State {
    /// Returns the initial state: new nodes, and clients that have done nothing.
    pub fn begin(config: &Config) -> Self {
        let node = |n: usize| {
            let wall_off_us = config.node_clocks_apart_ticks as i64 * n as i64 * TICK_US as i64;
            let server = start(config, n as u128 + 1, None, now(0, wall_off_us));
            // The node has never granted anything, so its operator lifted the guard.
            Arc::new(Node::new(lifted(server), wall_off_us))
        };
        let client = |(n, wants): (usize, &ClientPlan)| {
            Arc::new(Client::new(n as u32, wants.names.len(), config.ttl_ms(), config.without))
        };
        Self {
            tick: 0,
            servers: (0..config.servers).map(node).collect(),
            clients: config.clients.iter().enumerate().map(client).collect(),
            requests: BTreeSet::new(),
            replies: BTreeSet::new(),
            restarts: config.restarts,
            raises: config.raises,
            duplicates: config.duplicates,
            referee: Referee::new(Laws::All),
            violation: None,
        }
    }

    fn client_now(&self, client: u32, config: &Config) -> Now {
        let ahead_ticks = config.clients.get(client as usize).map_or(0, |wants| wants.ahead_ticks);
        now(self.tick, i64::from(ahead_ticks) * TICK_US as i64)
    }

    /// Lets a tick pass: due work is done, and clients notice that a validity has ended.
    pub(super) fn pass_a_tick(&mut self, config: &Config) {
        self.tick += 1;
        for n in 0..self.servers.len() {
            self.on_server(n, |server, now| server.run(now));
        }
        for client in 0..config.clients.len() as u32 {
            self.on_client(client, config, |client, now| client.look(now).unwrap_or_default());
        }
    }

    /// Delivers `request` to its node.
    pub(super) fn deliver(&mut self, request: Request, config: &Config) {
        let Request { who, node, number, .. } = request;
        let place = config.clients.get(who.client as usize).map_or(node, |wants| wants.names[node]);
        let answer = self.on_server(place, |server, now| server.hear(&request, now));
        if let Some(says) = answer {
            self.replies.insert(Reply { who, number, id: self.servers[place].server.id(), says });
        }
    }

    /// Runs `body` on a server, and sends the answers that result from it.
    fn on_server<T>(&mut self, place: usize, body: impl FnOnce(&mut Server, Now) -> T) -> T {
        let node = Arc::make_mut(&mut self.servers[place]);
        let value = body(&mut node.server, now(self.tick, node.wall_off_us));
        node.settle();
        let id = node.server.id();
        let told = node.server.told();
        for (waiter, hears) in told {
            self.replies.insert(Reply::later(waiter, id, hears));
        }
        value
    }

    /// Runs `body` on a client, sends its requests, and reports its change of status to the referee.
    pub(super) fn on_client(&mut self, number: u32, config: &Config, body: impl FnOnce(&mut Client, Now) -> Step) {
        let now = self.client_now(number, config);
        let client = Arc::make_mut(&mut self.clients[number as usize]);
        let before = client.who();
        let mut step = body(client, now);
        // A client asks for the lock at once when its turn has come, and also when its wait ended without a turn.
        if let Some(Status::Told(told)) = step.says {
            let asked = client.ask_as_told(told, now);
            step.sends.extend(asked.sends);
        }
        self.requests.extend(step.sends.into_iter().map(|(_, request)| request));
        let client = &self.clients[number as usize];
        let what = match step.says {
            Some(says @ (Status::Held | Status::Extended)) => client.holding().map(|(held, since, until)| {
                let (until, token, since) = (until.as_us(), held.token().get(), since.as_us());
                match says {
                    Status::Held => Occurrence::Held { since, until, token, mode: client.mode() },
                    _ => Occurrence::Extended { until, token },
                }
            }),
            Some(Status::Ended) => Some(Occurrence::Ended),
            _ => None,
        };
        if let Some(what) = what {
            let event = Event { at: now.boot.as_us(), key: client.key(), who: before, what };
            self.violation = self.violation.or(self.referee.see(&event).err());
        }
    }

    /// Drops messages that change nothing whenever they arrive, so that states that differ only in these messages
    /// become equal. They are answers that no client awaits, and messages to a node that does not know their owner and
    /// learns nothing from them.
    pub(super) fn tidy(&mut self, config: &Config) {
        let awaited = |who: Holder, number| self.clients[who.client as usize].is_open(number);
        self.replies.retain(|reply| awaited(reply.who, reply.number));
        let arrives: Vec<(Holder, usize)> = self
            .requests
            .iter()
            .filter(|request| request.makes_known())
            .map(|request| (request.who, request.node))
            .collect();
        self.requests.retain(|request| {
            let Request { who, node, number, .. } = *request;
            let place = config.clients[who.client as usize].names[node];
            request.makes_known()
                || awaited(who, number) && request.is_answered()
                || arrives.contains(&(who, node))
                || self.servers[place].knows(request.key, &owner(who, config.without))
        });
    }

    /// Raises the token of a hostile client's own key on this server. Does so twice, since the first answer asks for a
    /// repetition.
    pub(super) fn raise(&mut self, place: usize, config: &Config) {
        let tick = self.tick;
        let node = Arc::make_mut(&mut self.servers[place]);
        for _ in 0..2 {
            node.server.raise_far(config.keys, now(tick, node.wall_off_us));
            node.settle();
        }
    }

    pub(super) fn restart(&mut self, place: usize, config: &Config) {
        let node = &self.servers[place];
        let wall_off_us = node.wall_off_us - i64::from(config.step_back_ticks) * TICK_US as i64;
        let server = &node.server;
        let (NodeId(id), state) = (server.id(), node.state.clone());
        let server = start(config, id, state, now(self.tick, wall_off_us));
        self.servers[place] = Arc::new(Node::new(server, wall_off_us));
    }

    /// Returns a hash of the nodes and the time alone.
    pub(super) fn nodes_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.tick, &self.servers).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns true if every lock becomes free, every waiter is answered, and a new client gets the lock at the first
    /// attempt, provided that no client acts any more and only time passes.
    pub fn comes_right(&self, config: &Config) -> bool {
        let mut later = self.clone();
        later.requests.clear();
        later.replies.clear();
        later.violation = None;
        // The time covers the longest guard, the longest lease, and a turn for each waiter, which may leave the turn
        // unused.
        let ticks = 2 + 2 * config.ttl_ticks + config.skew_ticks + config.clients.len() as u32;
        for _ in 0..ticks {
            later.tick += 1;
            for n in 0..later.servers.len() {
                later.on_server(n, |server, now| server.run(now));
            }
        }
        if later.servers.iter().any(|node| !node.server.node().waiting().is_empty()) {
            return false;
        }
        let keys = 0..config.keys;
        keys.into_iter().all(|key| (0..config.servers).all(|first| later.clone().obtains(key, first, config)))
    }

    /// Returns true if a new client acquires the lock. Nodes answer in order, from `first` on.
    fn obtains(mut self, key: u32, first: usize, config: &Config) -> bool {
        let newcomer = self.clients.len() as u32;
        self.clients.push(Arc::new(Client::new(newcomer, config.servers, config.ttl_ms(), config.without)));
        self.on_client(newcomer, config, |client, now| client.acquire(key, now));
        let names = config.servers;
        while let Some(&request) = self.requests.iter().min_by_key(|request| (request.node + names - first) % names) {
            self.requests.remove(&request);
            self.deliver(request, config);
            while let Some(reply) = self.replies.pop_first() {
                self.on_client(newcomer, config, |client, now| client.hear(&reply, now));
            }
        }
        self.clients[newcomer as usize].holding().is_some()
    }
}

/// The id of each node's state file.
const STATE_FILE: FileId = FileId { number: 1, born_ns: 0 };

/// Returns the clocks of a node or client whose wall clock is off by `wall_off_us`.
fn now(tick: u32, wall_off_us: i64) -> Now {
    let boot_us = u64::from(tick) * TICK_US;
    Now::new(BootTime::from_us(boot_us), (WALL_US + boot_us).saturating_add_signed(wall_off_us))
}

fn start(config: &Config, id: u128, state: Option<NodeState>, now: Now) -> Server {
    // The state file is the one that the node wrote for its data.
    let ties = Ties { file: Some(STATE_FILE), used_by: state.as_ref().map(NodeState::incarnation), aof: vec![] };
    let found = Found { state, ties, locks: vec![], from_aof: false, aof_always: false, boot: BootId([1; 16]) };
    Server::start(config.setup(), config.without, id, found, now)
}

fn lifted(mut server: Server) -> Server {
    server.lift();
    server
}

/// The part of a node that determines its future. Two nodes with equal parts count as equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Essence {
    wall_off_us: i64,
    locks: Vec<(u32, Vec<u8>, Token, BootTime, bool)>,
    last: [u64; KEYS_MAX as usize],
    waiters: Vec<(u32, WaiterId, BootTime)>,
    ceiling: u64,
    stripes: Vec<StripeCeiling>,
    trusted_since: BootTime,
    next_due: Option<BootTime>,
    guard: Option<(BootTime, BootTime)>,
}

impl Node {
    fn new(server: Server, wall_off_us: i64) -> Self {
        let mut node = Self { server, state: None, wall_off_us, essence: Essence::default() };
        node.settle();
        node
    }

    /// Writes the state that the node wants on the disk, if any, at once, and records the state that the checker
    /// compares.
    fn settle(&mut self) {
        if let Some((number, state)) = self.server.take_write() {
            self.server.written(number, state.ceiling);
            self.state = Some(NodeState { file: Some(STATE_FILE), ..state });
        }
        self.essence = essence(&self.server, self.wall_off_us);
    }
}

fn essence(server: &Server, wall_off_us: i64) -> Essence {
    let node = server.node();
    let lock = |(key, lock): (&u32, &Lock)| {
        (
            *key,
            lock.first().owner().to_vec(),
            lock.first().token(),
            lock.first().deadline(),
            node.is_suspect(lock.first()),
        )
    };
    let waiters = |key: u32| {
        let name = name(key);
        let of = node.waiting().of(Key { db: 0, name: &name });
        of.map(move |waiter| (key, waiter.id, waiter.until)).collect::<Vec<_>>()
    };
    Essence {
        wall_off_us,
        locks: server.locks().iter().map(lock).collect(),
        last: std::array::from_fn(|key| node.tokens().last(&name(key as u32))),
        waiters: (0..KEYS_MAX).flat_map(waiters).collect(),
        ceiling: node.tokens().ceiling(),
        stripes: node.tokens().stripe_ceilings().0,
        trusted_since: node.trusted_since(),
        next_due: node.next_due(),
        guard: node.guard().armed(BootTime::default()).map(|Armed { since, until, .. }| (since, until)),
    }
}

impl Node {
    fn knows(&self, key: u32, owner: &[u8]) -> bool {
        let (waiting, name) = (self.server.node().waiting(), name(key));
        let at = Key { db: 0, name: &name };
        self.server.locks().get(&key).is_some_and(|lock| lock.first().owner() == owner)
            || waiting.of(at).any(|waiter| waiter.owner().bytes() == owner)
            || waiting.reservations(at).any(|(kept_for, ..)| kept_for == owner)
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.essence == other.essence
    }
}

impl Eq for Node {}

impl Hash for Node {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.essence.hash(hasher);
    }
}
