//! Model checking: every order of messages, ticks and faults within bounds, on the rules of `core` itself.
//!
//! Time is counted in ticks of a tenth of a second, and a lease lasts a few ticks. A message may be delivered at any
//! later moment; a message that is never delivered counts as lost. A client may act at any moment; a client that never
//! acts counts as paused or dead. Nodes may crash and restart without their data. Clocks run at the same rate, since
//! the simulation covers drift.

mod config;
mod moves;
mod state;

pub use config::{OUT_OF_SIGHT, broken, sound};
