//! Model checking of one key and its queue, on the engine of `core` itself: every order of commands, actions of an
//! operator or the server, and time, within bounds.
//!
//! The model of [`crate::model`] covers several nodes and late messages. This model covers the order of service, both
//! by `ACQUIRE … WAIT`, which hands the lock over, and by `LOCK.WAIT`, which reserves it. It includes re-entry, BREAK,
//! a key that is deleted by hand, evicted or flushed, and a guard that is armed while requests wait.

mod key;
mod rules;
mod state;

pub use rules::broken;
pub use state::sound;
