//! The engine: decides what happens to a lock and its queue, from the arrival of a command, or of due work, to its end.
//!
//! The engine decides by the rules and returns one [`Step`] after the other; a *driver* performs them. The module's
//! driver writes to the server; those of the simulation, the model and the fuzzer change maps in memory. No driver
//! repeats a rule. Commands that only read (CHECK, INFO) take no step, and need no engine.
//!
//! The node is borrowed while the engine decides, but not while a step is performed: a server calls the module back in
//! the middle of an effect. Steps own what they carry. No step of a command without waiting requests allocates.
//!
//! | what happens | file |
//! |---|---|
//! | a command arrives | `run.rs`; before its rule `preconditions.rs`, then `decide.rs` |
//! | a command is refused, or has to wait | `blocking.rs` |
//! | a BREAK ends very many grants | `break_slices.rs` |
//! | a lock ends or is free, and somebody waits | `passing.rs` |
//! | the server changes keys by itself, or for others | `keyspace.rs` |
//! | time passes: a lease, wait, reservation or gate ends | `due.rs` |

mod at;
mod blocking;
mod break_slices;
mod decide;
mod due;
mod keyspace;
mod passing;
mod preconditions;
mod run;
mod step;

#[cfg(test)]
mod as_a_list;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use crate::values::key::Key;
pub use due::Work;
pub use run::Run;
pub use step::{By, Event, Finding, Question, Reply, Request, Step};
