//! Performs the decisions of the machines of `palisade_quorum`, with tasks, timers and cancellation. Nothing is decided
//! here.

pub mod attempt;
pub mod checked;
pub mod choosing;
pub mod give_back;
pub mod kept;
pub mod limit;
pub mod locking;
pub mod looking;
pub mod members;
pub mod observing;
pub mod orders;
pub mod proclaiming;
pub mod refusal;
pub mod renewer;
pub mod shared;
pub mod sharing;
pub mod thread;
pub mod waiting;
pub mod watch;
pub mod watching;
