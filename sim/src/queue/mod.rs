//! Model checking of one key and its queue on the real engine: every order of commands, of actions of an operator or
//! the server, and of time, within bounds.
//!
//! The model of [`crate::model`] covers several nodes and late messages. This one covers the order of service, by
//! `ACQUIRE … WAIT` with hand-over and by `LOCK.WAIT` with its reservation. It includes re-entry, BREAK, a key that is
//! deleted by hand, evicted or flushed, and a guard armed while somebody waits.

mod key;
mod rules;
mod state;

pub use rules::broken;
pub use state::sound;
