//! The possible actions of a model, and the properties that must hold in all its states.

use std::sync::PoisonError;

use stateright::{Model, Property};

use super::config::{Checked, Config, LateMessages, TICK_US};
use super::state::State;
use crate::checker::Explained;
use crate::messages::{Payload, Reply, Request};

/// A possible next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A client begins to take a key. The numbers are those of the client and the key.
    Acquire(u32, u32),
    /// A client that was refused waits.
    Wait(u32),
    /// A client begins to extend its lock.
    Extend(u32),
    /// A client releases its lock.
    Release(u32),
    /// A client gives up on answers that have been pending for a tick.
    Miss(u32),
    /// A request reaches its node.
    Deliver(Request),
    /// A request reaches its node, and a copy of it stays on its way.
    DeliverOnce(Request),
    /// An answer reaches its client.
    Hear(Reply),
    /// A server crashes, and restarts without its data.
    Restart(usize),
    /// A hostile client raises the token of a key of its own on this server.
    Raise(usize),
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

impl Explained for Checked {
    fn why(state: &State) -> Option<String> {
        state.violation.map(|why| why.to_string())
    }

    fn describe(action: &Action) -> String {
        describe(action)
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
            if state.duplicates > 0 && !matches!(request.says, Payload::Wait { .. }) {
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
            // A client waits for an answer until at least the next tick.
            if client.open().any(|(_, sent)| sent.as_us() < now_us) {
                actions.push(Action::Miss(n));
            }
        }
        if state.restarts > 0 {
            actions.extend((0..config.servers).map(Action::Restart));
        }
        if state.raises > 0 {
            actions.extend((0..config.servers).map(Action::Raise));
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
            Action::Raise(n) => {
                state.raises -= 1;
                state.raise(n, config);
            }
        }
        state.tidy(config);
        Some(state)
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
        Action::DeliverOnce(request) => format!("{} arrives for the first time", what(request)),
        Action::Hear(reply) => format!("client {} hears {}", reply.who.client, reply.says),
        Action::Restart(n) => format!("server {n} crashes and comes back without its data"),
        Action::Raise(n) => format!("a hostile client raises a token of its own on server {n}"),
    }
}

fn what(request: &Request) -> String {
    let Request { who, node, says, .. } = request;
    format!("client {}'s {says} to node {node}, of its acquisition {},", who.client, who.acquisition)
}
