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
pub use state::sound;
