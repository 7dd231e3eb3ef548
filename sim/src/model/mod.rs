//! Model checking: every order of messages, ticks and faults within bounds, on the real rules.
//!
//! Time is counted in ticks of a tenth of a second, a lease lasts a few of them. A message may be delivered at any later
//! moment, or never, which is the same as being lost; a client may act at any moment or never, which is the same as being
//! paused or dead. Nodes may crash and come back without their data. Clocks run at one rate; drift is the simulation's.

mod state;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::client::{Reply, Request, Says};
use crate::rules::{Rule, Without};
use crate::server::Setup;

pub use state::{State, TICK_US};

/// Most keys of a model.
const KEYS_MAX: u32 = 2;

/// Which messages may come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LateMessages {
    /// All of them.
    Always,
    /// A node's answer comes with the delivery of the request: requests alone are delayed.
    Never,
}

/// A client of a model.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Its list of nodes: which server each name leads to.
    pub names: Vec<usize>,
    /// Its wall clock is so many ticks ahead.
    pub ahead_ticks: u32,
    /// It sets out from this tick on.
    pub from_tick: u32,
    /// How often it sets out to take a lock.
    pub acquisitions: u32,
    /// How many rounds of extension each of them may have.
    pub extensions: u32,
    /// It may give the lock back.
    pub releases: bool,
}

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many servers.
    pub servers: usize,
    /// Who wants locks.
    pub clients: Vec<Wants>,
    /// How many keys, at most two.
    pub keys: u32,
    /// Length of a lease, in ticks.
    pub ttl_ticks: u32,
    /// `lock.max-clock-skew`, in ticks.
    pub skew_ticks: u32,
    /// Time ends after so many ticks.
    pub ticks: u32,
    /// Who was refused may wait in the queues.
    pub waits: bool,
    /// How many crashes.
    pub restarts: u32,
    /// How many messages are delivered twice.
    pub duplicates: u32,
    /// A node that restarts finds its wall clock stepped back by so many ticks.
    pub step_back_ticks: u32,
    /// Each node's wall clock is so many ticks ahead of the one before.
    pub node_clocks_apart_ticks: u32,
    /// Whether answers are delayed too.
    pub late_messages: LateMessages,
    /// The rule that is switched off.
    pub without: Without,
}

impl Config {
    /// So many nodes, and so many clients that want one lock once, of which the first has a clock that is ahead; leases of two
    /// ticks; no faults.
    pub fn of(servers: usize, clients: u32) -> Self {
        let wants = |n: u32| {
            let ahead_ticks = if n == 0 { 2 } else { 0 };
            Wants {
                names: (0..servers).collect(),
                ahead_ticks,
                from_tick: 0,
                acquisitions: 1,
                extensions: 0,
                releases: true,
            }
        };
        Self {
            servers,
            clients: (0..clients).map(wants).collect(),
            keys: 1,
            ttl_ticks: 2,
            skew_ticks: 0,
            ticks: 4,
            waits: false,
            restarts: 0,
            duplicates: 0,
            step_back_ticks: 0,
            node_clocks_apart_ticks: 0,
            late_messages: LateMessages::Never,
            without: Without(None),
        }
    }

    fn ttl_ms(&self) -> u32 {
        self.ttl_ticks * (TICK_US / 1_000) as u32
    }

    fn setup(&self) -> Setup {
        Setup { max_ttl_ms: self.ttl_ms(), skew_ms: self.skew_ticks * (TICK_US / 1_000) as u32, window_ms: 1 }
    }
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A client sets out to take a key.
    Acquire(u32, u32),
    /// A client that was refused waits.
    Wait(u32),
    /// A client begins to extend its lock.
    Extend(u32),
    /// A client gives its lock back.
    Release(u32),
    /// A client stops hoping for the answers that it has awaited for a tick.
    Miss(u32),
    /// A request reaches its node.
    Deliver(Request),
    /// The same, and a copy of it is still on its way.
    DeliverOnce(Request),
    /// An answer reaches its client.
    Hear(Reply),
    /// A server crashes and comes back without its data.
    Restart(usize),
}

/// A model, and what is known of it.
struct Checked {
    config: Config,
    /// Whether locks come right from nodes in these states: many states differ in nothing that matters for it.
    right: Mutex<HashMap<u64, bool>>,
}

impl Checked {
    fn comes_right(&self, state: &State) -> bool {
        let nodes = state.nodes_hash();
        let known = self.right.lock().unwrap_or_else(PoisonError::into_inner).get(&nodes).copied();
        known.unwrap_or_else(|| {
            let right = state.comes_right(&self.config);
            self.right.lock().unwrap_or_else(PoisonError::into_inner).insert(nodes, right);
            right
        })
    }
}

impl Model for Checked {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::begin(&self.config)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let config = &self.config;
        if state.violation.is_some() {
            return;
        }
        for &reply in &state.replies {
            actions.push(Action::Hear(reply));
        }
        for &request in &state.requests {
            actions.push(Action::Deliver(request));
            if state.duplicates > 0 && !matches!(request.says, Says::Wait { .. }) {
                actions.push(Action::DeliverOnce(request));
            }
        }
        let now_us = u64::from(state.tick) * TICK_US;
        for (client, wants) in state.clients.iter().zip(&config.clients) {
            let n = client.who().client;
            if client.is_idle() && client.acquisitions() < wants.acquisitions && state.tick >= wants.from_tick {
                actions.extend((0..config.keys).map(|key| Action::Acquire(n, key)));
                if config.waits && client.acquisitions() > 0 {
                    actions.push(Action::Wait(n));
                }
            }
            if let Some((held, ..)) = client.holding() {
                if wants.releases {
                    actions.push(Action::Release(n));
                }
                if held.round() < u64::from(wants.extensions) {
                    actions.push(Action::Extend(n));
                }
            }
            // An answer is hoped for until the next tick at least.
            if client.open().any(|(_, sent)| sent.as_us() < now_us) {
                actions.push(Action::Miss(n));
            }
        }
        if state.restarts > 0 {
            actions.extend((0..config.servers).map(Action::Restart));
        }
        if state.tick < config.ticks {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let (config, mut state) = (&self.config, last.clone());
        match action {
            Action::Tick => state.pass_a_tick(config),
            Action::Acquire(n, key) => state.on_client(n, config, |client, now| client.acquire(key, now)),
            Action::Wait(n) => state.on_client(n, config, |client, now| client.wait(now)),
            Action::Extend(n) => state.on_client(n, config, |client, now| client.extend(now)),
            Action::Release(n) => state.on_client(n, config, |client, now| client.release(now)),
            Action::Miss(n) => state.on_client(n, config, |client, now| client.miss_overdue(now)),
            Action::Deliver(request) => {
                state.requests.remove(&request);
                config.deliver(&mut state, request);
            }
            Action::DeliverOnce(request) => {
                state.duplicates -= 1;
                config.deliver(&mut state, request);
            }
            Action::Hear(reply) => {
                state.replies.remove(&reply);
                state.on_client(reply.who.client, config, |client, now| client.hear(&reply, now));
            }
            Action::Restart(n) => {
                state.restarts -= 1;
                state.restart(n, config);
            }
        }
        state.tidy(config);
        Some(state)
    }

    fn format_action(&self, action: &Action) -> String {
        describe(action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("laws", |_, state: &State| state.violation.is_none()),
            Property::always("progress", |model: &Self, state: &State| {
                state.tick < model.config.ticks || state.violation.is_some() || model.comes_right(state)
            }),
        ]
    }
}

impl Config {
    fn deliver(&self, state: &mut State, request: Request) {
        state.deliver(request, self);
        if self.late_messages == LateMessages::Never {
            while let Some(reply) = state.replies.pop_first() {
                state.on_client(reply.who.client, self, |client, now| client.hear(&reply, now));
            }
        }
    }
}

fn describe(action: &Action) -> String {
    match action {
        Action::Tick => "a tick passes".to_owned(),
        Action::Acquire(n, key) => format!("client {n} asks for key {key}"),
        Action::Wait(n) => format!("client {n} waits for its turn"),
        Action::Extend(n) => format!("client {n} begins to extend its lock"),
        Action::Release(n) => format!("client {n} gives its lock back"),
        Action::Miss(n) => format!("client {n} hopes no longer for answers"),
        Action::Deliver(request) => format!("{} arrives", what(request)),
        Action::DeliverOnce(request) => format!("{} arrives, for the first time", what(request)),
        Action::Hear(reply) => format!("client {} hears {:?}", reply.who.client, reply.says),
        Action::Restart(n) => format!("server {n} crashes and comes back without its data"),
    }
}

fn what(request: &Request) -> String {
    let Request { who, node, says, .. } = request;
    let says = match says {
        Says::Ask(ask) => format!("{ask:?}"),
        other => format!("{other:?}"),
    };
    format!("client {}'s {says} of acquisition {} to node {node}", who.client, who.acquisition)
}

/// What a check came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Different states.
    pub states: usize,
    /// The longest path.
    pub depth: usize,
    /// All states within the bounds were seen.
    pub complete: bool,
    /// What was broken, and how that comes about, a step a line.
    pub found: Option<(String, Vec<String>)>,
}

/// Looks for the shortest way to break `model`, in at most this many states.
pub fn find(model: &Config, states_max: usize) -> Outcome {
    let checker = checked(model).checker().finish_when(HasDiscoveries::Any).target_state_count(states_max);
    outcome(&checker.spawn_bfs().join(), states_max)
}

/// Looks at all states of `model`, in at most this many.
pub fn exhaust(model: &Config, states_max: usize, threads: usize) -> Outcome {
    let checker = checked(model).checker().threads(threads).finish_when(HasDiscoveries::Any);
    outcome(&checker.target_state_count(states_max).spawn_dfs().join(), states_max)
}

fn checked(config: &Config) -> Checked {
    Checked { config: config.clone(), right: Mutex::default() }
}

fn outcome(checker: &impl Checker<Checked>, states_max: usize) -> Outcome {
    let found = checker.discoveries().into_iter().next().map(|(property, path)| {
        let last = path.last_state();
        let broken =
            last.violation.map_or_else(|| format!("{property}: a lock is not to be had"), |why| why.to_string());
        let steps = path.into_actions().iter().map(describe).collect();
        (broken, steps)
    });
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: checker.state_count() < states_max,
        found,
    }
}

/// Without each rule in turn, bounds within which the harm shows. (Clocks do not drift here, so the margin for drift is
/// nothing that this model can miss.)
pub fn broken() -> Vec<Config> {
    use Rule::*;
    let without = |rule, servers, clients, change: fn(&mut Config)| {
        let mut config = Config { without: Without(Some(rule)), ..Config::of(servers, clients) };
        change(&mut config);
        config
    };
    vec![
        without(SecondRound, 3, 2, |config| config.node_clocks_apart_ticks = 20),
        without(Guard, 1, 2, |config| config.restarts = 1),
        without(GuardLength, 1, 2, |config| (config.ttl_ticks, config.restarts) = (3, 1)),
        without(ProposalAboveLast, 3, 2, |config| config.skew_ticks = 2),
        without(AnswersInTime, 1, 2, |config| {
            config.late_messages = LateMessages::Always;
            config.clients[0].extensions = 1;
        }),
        without(AnswersOfTheirRound, 1, 2, |config| {
            (config.late_messages, config.ttl_ticks) = (LateMessages::Always, 3);
            config.clients[0].extensions = 2;
        }),
        without(OwnerOfItsOwn, 1, 2, |config| config.clients[0].acquisitions = 2),
        // One client's second name leads to the first server again.
        without(ServersNotNames, 3, 2, |config| {
            config.ttl_ticks = 3;
            config.clients[0] =
                Wants { names: vec![0, 0, 2], extensions: 2, releases: false, ..config.clients[0].clone() };
            config.clients[1].from_tick = 4;
        }),
        without(MajoritiesMeet, 3, 2, |_| {}),
        without(FromTheSend, 1, 2, |config| {
            (config.late_messages, config.ttl_ticks) = (LateMessages::Always, 3);
        }),
        without(Ceiling, 1, 2, |config| {
            (config.restarts, config.step_back_ticks, config.skew_ticks, config.ticks) = (1, 20, 2, 5);
        }),
        without(FenceBeyondTheClock, 3, 1, |config| (config.node_clocks_apart_ticks, config.ticks) = (20, 1)),
        without(QueueIsLookedAt, 1, 2, |config| {
            config.waits = true;
            config.clients[0].acquisitions = 2;
        }),
    ]
}

/// With every rule: bounds within which nothing may be found, each with what it is about.
pub fn sound() -> Vec<(&'static str, Config)> {
    let with = |servers, clients, change: fn(&mut Config)| {
        let mut config = Config::of(servers, clients);
        change(&mut config);
        config
    };
    vec![
        ("1: one node, three clients, a crash", with(1, 3, |config| config.restarts = 1)),
        (
            "2: one node, late and doubled messages, extensions, a crash",
            with(1, 2, |config| {
                (config.late_messages, config.duplicates, config.restarts) = (LateMessages::Always, 1, 1);
                config.clients[0].extensions = 1;
            }),
        ),
        ("3: three nodes, two clients", with(3, 2, |_| {})),
        (
            "4: three nodes whose clocks are apart",
            with(3, 2, |config| (config.ticks, config.node_clocks_apart_ticks) = (2, 20)),
        ),
        ("5: three nodes, a crash", with(3, 2, |config| (config.ticks, config.restarts) = (3, 1))),
        (
            "6: one node wait",
            with(1, 3, |config| {
                config.ticks = 3;
                config.waits = true;
                for c in &mut config.clients {
                    c.acquisitions = 2;
                }
            }),
        ),
        (
            "7: two nodes",
            with(2, 2, |config| {
                config.duplicates = 1;
                config.restarts = 1;
            }),
        ),
    ]
}
