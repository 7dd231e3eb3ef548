//! What hostile input must not do to the rules of Palisade.
//!
//! Each target is a function of bytes: it makes of them what the rules take in, hands that in, and panics where a promise
//! is broken. Nothing here reads a clock or is random, so the same bytes always tell the same story.
//!
//! | target | what the bytes become | what must hold |
//! |---|---|---|
//! | [`node`] | requests of several owners for several keys, and what operators, time, a late disk and a server that refuses do between them | the invariants of [`palisade_core`], and of the steps of its engine |
//! | [`record`] | a lock as RDB files, AOF, replication streams and DUMP payloads have it | an error, or a possible lock that is written and read the same |
//! | [`state_file`] | the text of a node's state file | an error, or a state that is written and read the same |
//! | [`quorum`] | answers of nodes to an acquisition and its extensions | validity and token never beyond what a majority of servers said |
//! | [`callers`] | callers that take, wait, keep and leave, and nodes that hang, forget and are replaced | nobody relies beside another; a caller asks until its limit, in turn, with pauses; a holder extends in time |
//! | [`rounds`] | answers of nodes to a wait and to a release | nothing counted twice |
//!
//! They are driven in three ways: by `cargo test` over the inputs in `seeds` and some thousand random ones, by libFuzzer
//! (`make fuzz`, the package in `libfuzzer`), and one input at a time: `cargo run --package palisade-fuzz -- TARGET FILE`.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

mod answers;
pub mod callers;
mod calls;
mod chance;
mod choice;
mod clients;
mod crowd;
mod disk;
mod driver;
mod holding;
mod keeping;
mod keyspace;
pub mod node;
mod oracle;
pub mod quorum;
pub mod record;
mod replica;
pub mod rounds;
mod simple_node;
pub mod state_file;
mod waiting;
mod watched;
mod watchers;
mod world;

/// A target: what it is called, and what it does with an input.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, also that of its folder in `seeds`.
    pub name: &'static str,
    /// Panics where a promise is broken.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 6] = [
    Target { name: "node", run: node::run },
    Target { name: "record", run: record::run },
    Target { name: "state_file", run: state_file::run },
    Target { name: "quorum", run: quorum::run },
    Target { name: "rounds", run: rounds::run },
    Target { name: "callers", run: callers::run },
];

/// Whether each step is told on standard error: for looking at one input.
pub static TELLS: AtomicBool = AtomicBool::new(false);

fn tell(step: &impl Debug) {
    if TELLS.load(Ordering::Relaxed) {
        eprintln!("{step:?}");
    }
}
