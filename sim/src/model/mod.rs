//! Model checking: every order of messages, ticks and faults within bounds, on the real rules.
//!
//! Time is counted in ticks of a tenth of a second, a lease lasts a few of them. A message may be delivered at any later
//! moment, or never, which is the same as being lost; a client may act at any moment or never, which is the same as being
//! paused or dead. Nodes may crash and come back without their data. Clocks run at one rate; drift is the simulation's.

mod config;
mod moves;
mod state;

use stateright::{Checker, HasDiscoveries, Model as _};

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
    outcome(&checker.spawn_bfs().join(), states_max)
}

/// Looks at all states of `model`, in at most this many.
pub fn exhaust(model: &Config, states_max: usize, threads: usize) -> Outcome {
    let checker = Checked::new(model).checker().threads(threads).finish_when(HasDiscoveries::Any);
    outcome(&checker.target_state_count(states_max).spawn_dfs().join(), states_max)
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
