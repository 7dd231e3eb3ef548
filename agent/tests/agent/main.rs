//! Tests the agent over its socket, byte by byte, with real servers as its nodes or with none that answers.

#![allow(clippy::disallowed_methods)]

#[allow(dead_code, unused_imports)]
#[path = "../../../tests/harness/mod.rs"]
mod harness;

mod ending;
mod fixture;
mod forms;
mod garbage;
mod guarded;
mod handshake;
mod limits;
mod places;
mod quorum;
mod terraform;
