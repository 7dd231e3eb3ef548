//! What happens to a lock and its queue, from the moment a command arrives or something comes due until all is done.
//!
//! The engine decides with the rules and hands out one [`Step`] after the other; a *driver* performs them. The module's driver
//! writes to the server; those of the simulation, the model and the fuzzer change maps in memory. None of them repeats a rule.
//! What only reads (CHECK, INFO) takes no step, and no engine.
//!
//! The node is borrowed while the engine decides, and not while a step is performed: a server calls the module back in the
//! middle of an effect. Steps own what they carry, and no step of a command that finds nobody waiting allocates.
//!
//! | what happens | file |
//! |---|---|
//! | a command arrives | `run.rs`; before its rule `preconditions.rs`, then `decide.rs` |
//! | it is refused, or has to wait | `blocking.rs` |
//! | a BREAK ends very many grants | `break_slices.rs` |
//! | a lock ends or is free, and somebody waits | `passing.rs` |
//! | the server changes keys by itself, or for others | `keyspace.rs` |
//! | nothing, but time passes | `due.rs` |

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
pub use step::{By, Event, Question, Reply, Request, Said, Step};
