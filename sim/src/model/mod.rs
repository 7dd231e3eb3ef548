//! Model checking: every order of messages, ticks and faults within bounds, on the real rules.
//!
//! Time is counted in ticks of a tenth of a second, a lease lasts a few of them. A message may be delivered at any later
//! moment, or never, which is the same as being lost; a client may act at any moment or never, which is the same as being
//! paused or dead. Nodes may crash and come back without their data. Clocks run at one rate; drift is the simulation's.

mod config;
mod moves;
mod state;

use crate::checker::{self, Explained, Outcome};
use moves::{Checked, describe};

pub use config::{Config, LateMessages, OUT_OF_SIGHT, TICK_US, Wants, broken, sound};
pub use moves::Action;
pub use state::State;

/// Looks for the shortest way to break `model`, in at most this many states.
pub fn find(model: &Config, states_max: usize) -> Outcome {
    checker::find(Checked::new(model), states_max)
}

/// Looks at all states of `model`, in at most this many.
pub fn exhaust(model: &Config, states_max: usize, threads: usize) -> Outcome {
    checker::exhaust(Checked::new(model), states_max, threads)
}

impl Explained for Checked {
    fn why(state: &State) -> Option<String> {
        state.violation.map(|why| why.to_string())
    }

    fn describe(action: &Action) -> String {
        describe(action)
    }
}
