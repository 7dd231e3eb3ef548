//! The possible actions on the key of the model, within bounds, and the properties that must hold.

use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

use super::key::OneKey;
use crate::checker::{Bounded, Explained};
use crate::rules::Without;

/// A possible next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A tenth of a second passes: half a lease.
    Tick,
    /// The work that is due now is done.
    Settle,
    /// ACQUIRE by an owner, which waits if the flag is true.
    Acquire(u8, bool),
    /// LOCK.WAIT by an owner.
    WaitForTurn(u8),
    /// RELEASE by an owner.
    Release(u8),
    /// REENTER by an owner.
    Reenter(u8),
    /// A waiting client disconnects.
    Gone(usize),
    /// BREAK by an operator.
    Break,
    /// DEL of the key by hand.
    Delete,
    /// The server evicts the key to make room.
    Evict,
    /// FLUSHALL.
    Flush,
    /// An operator arms the guard for a moment.
    Arm,
}

/// The bounds of a model.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The number of lock owners.
    pub owners: u8,
    /// The number of commands that all owners together send.
    pub commands: u32,
    /// The number of other events, such as a disconnection or a flush.
    pub events: u32,
    /// The number of ticks after which time ends.
    pub ticks: u32,
    /// The rule that is switched off.
    pub without: Without,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { owners: 3, commands: 5, events: 1, ticks: 3, without: Without::default() }
    }
}

/// Returns the models with every rule on, each with its subject.
pub fn sound() -> Vec<Bounded<&'static str>> {
    let all = [
        ("one key, three owners, five commands, one event", Bounds::default()),
        (
            "one key, two owners, six commands, two events",
            Bounds { owners: 2, commands: 6, events: 2, ticks: 4, ..Bounds::default() },
        ),
    ];
    all.map(|(about, bounds)| Bounded::new(about, move || Checked(bounds.clone()))).into()
}

pub(super) struct Checked(pub Bounds);

/// A state of the model.
#[derive(Clone, Debug)]
pub struct State {
    key: OneKey,
    commands: u32,
    events: u32,
    /// The first rule that was broken, in words, if any.
    pub broken: Option<String>,
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
        vec![State { key: OneKey::new(self.0.without), commands: 0, events: 0, broken: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Bounds { owners, commands, events, ticks, .. } = self.0;
        actions.push(Action::Settle);
        if state.key.tick < ticks {
            actions.push(Action::Tick);
        }
        if state.commands < commands {
            for owner in 0..owners {
                actions.extend([true, false].map(|waits| Action::Acquire(owner, waits)));
                actions.extend([Action::WaitForTurn(owner), Action::Release(owner), Action::Reenter(owner)]);
            }
        }
        if state.events < events {
            actions.extend([Action::Break, Action::Delete, Action::Evict, Action::Flush, Action::Arm]);
            actions.extend((0..state.key.waits.len()).map(Action::Gone));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.key.passes(),
            Action::Settle => state.key.settle(),
            Action::Acquire(owner, waits) => state.key.acquire(owner, waits),
            Action::WaitForTurn(owner) => state.key.wait_for_turn(owner),
            Action::Release(owner) => state.key.release(owner),
            Action::Reenter(owner) => state.key.reenter(owner),
            Action::Gone(which) => state.key.is_gone(which),
            Action::Break => state.key.break_it(),
            Action::Delete => state.key.delete(),
            Action::Evict => state.key.evict(),
            Action::Flush => state.key.flush(),
            Action::Arm => state.key.arm(2),
        }
        match action {
            Action::Tick | Action::Settle => {}
            Action::Break | Action::Delete | Action::Evict | Action::Flush | Action::Arm | Action::Gone(_) => {
                state.events += 1;
            }
            _ => state.commands += 1,
        }
        state.broken = state.key.broken.clone().or_else(|| state.key.goes_wrong());
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("the queue is sound", |_, state: &State| state.broken.is_none())]
    }
}

impl State {
    fn essence(&self) -> impl Hash + Eq + use<> {
        (self.key.essence(), self.commands, self.events, self.broken.clone())
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.essence() == other.essence()
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.essence().hash(hasher);
    }
}
