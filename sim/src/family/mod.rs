//! A model of shared locks and permits over several nodes: compatibility, token floors and permit numbers as `core` decides them.
//!
//! Time is left out: a lease that ends is a grant that a node drops after its holder has given it up, and the restart guard is what
//! keeps a node from forgetting one earlier. Every order of requests, answers, drops and conversions is looked at.

mod broken;
mod node;
mod rules;
mod state;

pub use broken::broken;
pub use rules::FamilyRule;
pub use state::{Bounds, Wants, sound};

use crate::checker::{self, Explained, Outcome};
use state::{Checked, State};

/// Looks for the shortest way to break the family within `bounds`, in at most this many states.
pub fn find(bounds: &Bounds, states_max: usize) -> Outcome {
    checker::find(Checked(bounds.clone()), states_max)
}

/// Looks at all states within `bounds`, in at most this many.
pub fn exhaust(bounds: &Bounds, states_max: usize, threads: usize) -> Outcome {
    checker::exhaust(Checked(bounds.clone()), states_max, threads)
}

impl Explained for Checked {
    fn why(state: &State) -> Option<String> {
        state.broken.clone()
    }
}
