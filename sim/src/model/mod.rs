//! Model checking: every order of messages, ticks and faults within bounds, on the real rules.
//!
//! Time is counted in ticks of a tenth of a second; a lease lasts a few of them. A message may be delivered at any
//! later moment, or never, which is the same as being lost. A client may act at any moment or never, which is the same
//! as being paused or dead. Nodes may crash and come back without their data. Clocks run at one rate; drift is the
//! simulation's subject.

mod config;
mod moves;
mod state;

pub use config::{OUT_OF_SIGHT, broken, sound};
