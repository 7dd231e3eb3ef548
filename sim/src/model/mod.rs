//! Model checking: every order of messages, ticks and faults within bounds, on the real rules.
//!
//! Time is counted in ticks of a tenth of a second; a lease lasts a few of them. A message may be delivered at any
//! later moment; one that never is counts as lost. A client may act at any moment; one that never does counts as paused
//! or dead. Nodes may crash and come back without their data. Clocks run at the same rate; the simulation covers drift.

mod config;
mod moves;
mod state;

pub use config::{OUT_OF_SIGHT, broken, sound};
