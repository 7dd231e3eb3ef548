//! The actions of this model's clients and nodes, and the properties that must hold.

use palisade_core::quorum::{floors::Floors, majority};
use palisade_core::{Mode, Token};
use stateright::{Model, Property};

use super::node::{Node, permit};
use super::rules::FamilyRule;
use crate::checker::{Bounded, Explained};

/// The mode in which a client asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// The exclusive lock; the holder may share it later.
    Exclusive,
    /// A shared lock.
    Shared,
    /// A permit with this limit.
    Permit(u16),
}

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The number of nodes.
    pub nodes: usize,
    /// The request of each client.
    pub clients: Vec<LockMode>,
    /// The number of times each client asks.
    pub turns: u8,
    /// The largest token that clients propose; the smallest is 1.
    pub proposals: u64,
    /// The rule that is switched off.
    pub without: Option<FamilyRule>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { nodes: 3, clients: vec![], turns: 1, proposals: 3, without: None }
    }
}

/// Returns the models with every rule on, each with a description of its bounds.
pub fn sound() -> Vec<Bounded<&'static str>> {
    use LockMode::{Exclusive, Permit, Shared};
    let all = [
        (
            "three nodes, a writer that becomes a reader, two readers",
            Bounds { clients: vec![Exclusive, Shared, Shared], proposals: 2, ..Bounds::default() },
        ),
        (
            "three nodes, a writer and a reader, twice each",
            Bounds { clients: vec![Exclusive, Shared], turns: 2, ..Bounds::default() },
        ),
        (
            "three nodes, three clients for two permits",
            Bounds { clients: vec![Permit(2), Permit(2), Permit(2)], proposals: 2, ..Bounds::default() },
        ),
        (
            "three nodes, two permits twice each",
            Bounds { clients: vec![Permit(2), Permit(2)], turns: 2, ..Bounds::default() },
        ),
        (
            "three nodes, limits that differ, and a reader",
            Bounds { clients: vec![Permit(1), Permit(3), Shared], proposals: 2, ..Bounds::default() },
        ),
    ];
    all.map(|(about, bounds)| Bounded::new(about, move || Checked(bounds.clone()))).into()
}

/// The stage of a client's acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// The client asks each node once. `asked` has a bit for each node that was asked.
    Asks {
        mode: Mode,
        proposal: u64,
        asked: u8,
    },
    /// A majority granted the lock, and the client raises the tokens of these grants to the largest.
    Raises {
        mode: Mode,
        token: Token,
    },
    /// The client relies on the lock.
    Holds {
        mode: Mode,
        token: Token,
    },
    /// The client relies on nothing, but nodes may still have its grant.
    Leaves,
}

/// A possible next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client begins, with a proposed token and, if it wants a permit, a permit's number.
    Starts { client: usize, number: u16, proposal: u64 },
    /// A node receives a client's ACQUIRE and answers.
    Acquire { client: usize, node: usize },
    /// The client has the answers of a majority and continues.
    Counts { client: usize },
    /// A node receives a client's FENCE.
    Fence { client: usize, node: usize },
    /// The client relies on the lock from now on.
    Wins { client: usize },
    /// A writer becomes a reader.
    Shares { client: usize },
    /// A node receives a client's CONVERT.
    Convert { client: usize, node: usize },
    /// The client gives up or is done.
    Leaves { client: usize },
    /// A node receives a client's RELEASE, or the lease ends there.
    Drop { client: usize, node: usize },
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    nodes: Vec<Node>,
    clients: Vec<(Stage, u8)>,
    won: Floors,
    /// The first rule that was broken, in words, if any.
    pub broken: Option<String>,
}

pub(super) struct Checked(pub Bounds);

impl State {
    fn held(&self, client: usize) -> impl Iterator<Item = (usize, Token)> {
        self.nodes.iter().enumerate().filter_map(move |(n, node)| Some((n, node.token_of(client)?)))
    }

    /// Makes the client rely on the lock. Checks that no other client relies on it in a conflicting mode, and that the
    /// token is large enough.
    fn win(&mut self, client: usize, mode: Mode, token: Token) {
        for (other, (stage, _)) in self.clients.iter().enumerate().filter(|(other, _)| *other != client) {
            if let Stage::Holds { mode: held, .. } = stage
                && !held.is_compatible(mode)
            {
                self.broken = Some(format!("exclusion: {other} holds {held:?}, {client} holds {mode:?}"));
            }
        }
        let floor = self.won.floor_of(mode);
        if token.get() <= floor {
            self.broken = Some(format!("token order: {mode:?} with {} after {floor}", token.get()));
        }
        self.won.add(mode, token.get());
        self.clients[client].0 = Stage::Holds { mode, token };
    }
}

impl Explained for Checked {
    fn why(state: &State) -> Option<String> {
        state.broken.clone()
    }
}

impl Model for Checked {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Bounds { nodes, clients, turns, .. } = &self.0;
        vec![State {
            nodes: vec![Node::new(); *nodes],
            clients: vec![(Stage::Idle, *turns); clients.len()],
            won: Floors::default(),
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Bounds { nodes, clients, proposals, without, .. } = &self.0;
        for (client, &(stage, turns)) in state.clients.iter().enumerate() {
            match stage {
                Stage::Idle if turns == 0 => {}
                Stage::Idle => {
                    let numbers = if let LockMode::Permit(limit) = clients[client] { limit } else { 1 };
                    for number in 1..=numbers {
                        actions.extend((1..=*proposals).map(|proposal| Action::Starts { client, number, proposal }));
                    }
                }
                Stage::Asks { asked, .. } => {
                    actions.extend(
                        (0..*nodes).filter(|n| asked >> n & 1 == 0).map(|node| Action::Acquire { client, node }),
                    );
                    if state.held(client).count() >= majority(*nodes) {
                        actions.push(Action::Counts { client });
                    }
                    actions.push(Action::Leaves { client });
                }
                Stage::Raises { token, .. } => {
                    let low = state.held(client).filter(|(_, has)| *has < token);
                    actions.extend(low.map(|(node, _)| Action::Fence { client, node }));
                    let raised = state.held(client).filter(|(_, has)| *has >= token).count();
                    if raised >= majority(*nodes) || *without == Some(FamilyRule::RaisedToTheLargest) {
                        actions.push(Action::Wins { client });
                    }
                    actions.push(Action::Leaves { client });
                }
                Stage::Holds { mode, .. } => {
                    if mode == Mode::Exclusive {
                        actions.push(Action::Shares { client });
                    }
                    let unshared = |node: &Node| {
                        node.grants.iter().any(|grant| grant.client == client && grant.mode == Mode::Exclusive)
                    };
                    if mode == Mode::Shared {
                        let late = state.nodes.iter().enumerate().filter(|(_, node)| unshared(node));
                        actions.extend(late.map(|(node, _)| Action::Convert { client, node }));
                    }
                    actions.push(Action::Leaves { client });
                }
                Stage::Leaves => actions.extend(state.held(client).map(|(node, _)| Action::Drop { client, node })),
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let without = self.0.without;
        let mut state = before.clone();
        match action {
            Action::Starts { client, number, proposal } => {
                let mode = match self.0.clients[client] {
                    LockMode::Exclusive => Mode::Exclusive,
                    LockMode::Shared => Mode::Shared,
                    LockMode::Permit(limit) => permit(number, limit),
                };
                state.clients[client] = (Stage::Asks { mode, proposal, asked: 0 }, before.clients[client].1 - 1);
            }
            Action::Acquire { client, node } => {
                let Stage::Asks { mode, proposal, asked } = state.clients[client].0 else { return None };
                state.nodes[node].acquire(client, mode, Token::new(proposal)?, without);
                state.clients[client].0 = Stage::Asks { mode, proposal, asked: asked | 1 << node };
            }
            Action::Counts { client } => {
                let Stage::Asks { mode, .. } = state.clients[client].0 else { return None };
                let token = state.held(client).map(|(_, token)| token).max()?;
                state.clients[client].0 = Stage::Raises { mode, token };
            }
            Action::Fence { client, node } => {
                let Stage::Raises { token, .. } = state.clients[client].0 else { return None };
                state.nodes[node].raise(client, token, without);
            }
            Action::Wins { client } => {
                let Stage::Raises { mode, token } = state.clients[client].0 else { return None };
                state.win(client, mode, token);
            }
            Action::Shares { client } => {
                let Stage::Holds { token, .. } = state.clients[client].0 else { return None };
                state.clients[client].0 = Stage::Holds { mode: Mode::Shared, token };
            }
            Action::Convert { client, node } => state.nodes[node].share(client),
            Action::Leaves { client } => state.clients[client].0 = Stage::Leaves,
            Action::Drop { client, node } => state.nodes[node].drop(client),
        }
        for client in 0..state.clients.len() {
            if state.clients[client].0 == Stage::Leaves && state.held(client).next().is_none() {
                state.clients[client].0 = Stage::Idle;
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("nothing is broken", |_, state: &State| state.broken.is_none())]
    }
}
