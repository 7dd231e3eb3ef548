//! Model checking: every order of messages, ticks and faults within bounds, on the real rules.
//!
//! Time is counted in ticks of a tenth of a second, a lease lasts a few of them. A message may be delivered at any later
//! moment, or never, which is the same as being lost; a client may act at any moment or never, which is the same as being
//! paused or dead. Nodes may crash and come back without their data. Clocks run at one rate; drift is the simulation's.

mod config;
mod moves;
mod state;

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

use moves::{Checked, describe};

pub use config::{Config, LateMessages, OUT_OF_SIGHT, Wants, broken, sound};
pub use moves::Action;
pub use state::{State, TICK_US};

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
    let checker = Checked::new(model).checker().finish_when(HasDiscoveries::Any).target_state_count(states_max);
    outcome(&checker.spawn_bfs().join(), states_max, why, describe)
}

/// Looks at all states of `model`, in at most this many.
pub fn exhaust(model: &Config, states_max: usize, threads: usize) -> Outcome {
    let checker = Checked::new(model).checker().threads(threads).finish_when(HasDiscoveries::Any);
    outcome(&checker.target_state_count(states_max).spawn_dfs().join(), states_max, why, describe)
}

fn why(state: &State) -> Option<String> {
    state.violation.map(|why| why.to_string())
}

/// What the `checker` of any model came to; `why` says what is broken in a state, `describe` what happened.
pub(crate) fn outcome<M>(
    checker: &impl Checker<M>,
    states_max: usize,
    why: fn(&M::State) -> Option<String>,
    describe: fn(&M::Action) -> String,
) -> Outcome
where
    M: Model<State: Clone + Debug + PartialEq + Hash, Action: Clone + Debug + PartialEq>,
{
    let found = checker.discoveries().into_iter().next().map(|(property, path)| {
        let broken = why(path.last_state()).unwrap_or_else(|| format!("{property}: a lock is not to be had"));
        (broken, path.into_actions().iter().map(describe).collect())
    });
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: checker.state_count() < states_max,
        found,
    }
}
