//! The client on real servers: five of them, and what can happen to them.

#![allow(clippy::disallowed_methods)]

#[allow(dead_code, unused_imports)]
#[path = "../../../tests/harness/mod.rs"]
mod harness;

mod access;
mod cancelling;
mod contention;
mod counterexamples;
mod fixture;
mod holding;
mod misconfigured;
mod proxy;
mod reviewed;
mod taking;
mod unwell;
mod waiting_turns;
