//! Model checking of one key and its queue: every order of commands, of what an operator or the server does, and of time, within
//! bounds, on the real engine.
//!
//! The model of [`crate::model`] is about several nodes and late messages; this one about who is served when: `ACQUIRE … WAIT` with
//! hand-over, `LOCK.WAIT` with what is kept free for it, re-entry, BREAK, a key that is deleted by hand, evicted or flushed, and a
//! guard that is armed while somebody waits.

mod key;
mod rules;
mod state;

pub use rules::broken;
pub use state::{Bounds, sound};

use crate::checker::{self, Explained, Outcome};
use state::{Checked, State};

/// Looks for the shortest way to break the queue within `bounds`, in at most this many states.
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
