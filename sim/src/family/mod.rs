//! A model of shared locks and permits over several nodes: compatibility, token floors and permit numbers as `core` decides them.
//!
//! Time is left out: a lease that ends is a grant that a node drops after its holder has given it up, and the restart guard is what
//! keeps a node from forgetting one earlier. Every order of requests, answers, drops and conversions is looked at.

mod node;
mod rules;
mod state;

use stateright::{Checker, HasDiscoveries, Model as _};

pub use rules::{FamilyRule, broken};
pub use state::{Bounds, Wants, sound};

use crate::model::{Outcome, outcome};
use state::{Action, Checked, State};

/// Looks for the shortest way to break the family within `bounds`, in at most this many states.
pub fn find(bounds: &Bounds, states_max: usize) -> Outcome {
    let checker = Checked(bounds.clone()).checker().finish_when(HasDiscoveries::Any).target_state_count(states_max);
    outcome(&checker.spawn_bfs().join(), states_max, why, describe)
}

/// Looks at all states within `bounds`, in at most this many.
pub fn exhaust(bounds: &Bounds, states_max: usize, threads: usize) -> Outcome {
    let checker = Checked(bounds.clone()).checker().threads(threads).finish_when(HasDiscoveries::Any);
    outcome(&checker.target_state_count(states_max).spawn_dfs().join(), states_max, why, describe)
}

fn why(state: &State) -> Option<String> {
    state.broken.clone()
}

fn describe(action: &Action) -> String {
    format!("{action:?}")
}
