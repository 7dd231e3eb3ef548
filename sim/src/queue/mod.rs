//! Model checking of one key and its queue: every order of commands, of what an operator or the server does, and of time, within
//! bounds, on the real engine.
//!
//! The model of [`crate::model`] is about several nodes and late messages; this one about who is served when: `ACQUIRE … WAIT` with
//! hand-over, `LOCK.WAIT` with what is kept free for it, re-entry, BREAK, a key that is deleted by hand, evicted or flushed, and a
//! guard that is armed while somebody waits.

mod key;
mod rules;
mod state;

use stateright::{Checker, HasDiscoveries, Model as _};

pub use rules::broken;
pub use state::{Bounds, sound};

use crate::model::{Outcome, outcome};
use state::{Action, Checked, State};

/// Looks for the shortest way to break the queue within `bounds`, in at most this many states.
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
