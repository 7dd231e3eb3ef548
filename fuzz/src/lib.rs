//! Hostile input against the rules of Palisade.
//!
//! Each target is a function of bytes: it turns them into input for the rules, and panics if a promise is broken.
//! Nothing here reads a clock or is random, so the same bytes always make the same run.
//!
//! | target | what the bytes become | what must hold |
//! |---|---|---|
//! | [`node`] | requests, operators, time, a late disk, refusals | the invariants of [`palisade_core`] and its engine |
//! | [`record`] | a lock's record in RDB, AOF, replication and DUMP | an error, or a possible lock that round-trips |
//! | [`state_file`] | the text of a node's state file | an error, or a state that round-trips |
//! | [`quorum`] | answers to an acquisition and its extensions | a majority of servers covers validity and token |
//! | [`callers`] | callers, and nodes that hang, forget, change | one holder; asking in turn, pausing; extending in time |
//! | [`rounds`] | answers of nodes to a wait and to a release | nothing counted twice |
//!
//! The targets are driven in three ways: by `cargo test` over the inputs in `seeds` and some thousand random ones, by
//! libFuzzer (`make fuzz`, the package in `libfuzzer`), and one input at a time:
//! `cargo run --package palisade-fuzz -- TARGET FILE`.

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

/// A target: its name and its function.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name, which is also that of its folder in `seeds`.
    pub name: &'static str,
    /// The function, which panics if a promise is broken.
    pub run: fn(&[u8]),
}

/// Every target of the fuzzer.
pub const TARGETS: [Target; 6] = [
    Target { name: "node", run: node::run },
    Target { name: "record", run: record::run },
    Target { name: "state_file", run: state_file::run },
    Target { name: "quorum", run: quorum::run },
    Target { name: "rounds", run: rounds::run },
    Target { name: "callers", run: callers::run },
];

/// True if each step is printed to standard error, so that one input can be inspected.
pub static TELLS: AtomicBool = AtomicBool::new(false);

fn tell(step: &impl Debug) {
    if TELLS.load(Ordering::Relaxed) {
        eprintln!("{step:?}");
    }
}
