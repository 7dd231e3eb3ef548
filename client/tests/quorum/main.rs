//! The client on real servers: five of them, with the failures that they can have.

#![allow(clippy::disallowed_methods)]

#[allow(dead_code, unused_imports)]
#[path = "../../../tests/harness/mod.rs"]
mod harness;

mod access;
mod adopting;
mod bursts;
mod by_owner;
mod cancelling;
mod changing_sets;
mod closing;
mod cluster;
mod cluster_access;
mod cluster_changes;
mod cluster_fail_over;
#[cfg(feature = "tls")]
mod cluster_tls;
mod connecting;
mod contention;
mod counterexamples;
mod elections;
mod fixture;
mod gated;
mod holding;
mod limits;
mod lost_at_once;
mod misconfigured;
mod modes;
mod pool;
mod proxy;
mod reconnecting;
mod reviewed;
mod runtimes;
mod sentinel;
#[cfg(feature = "tls")]
mod sentinel_tls;
mod sessions;
mod storms;
mod taking;
mod told;
mod unwell;
mod upgrades;
mod waiting_turns;
mod watching;
