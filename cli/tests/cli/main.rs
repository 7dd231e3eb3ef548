//! The program on real servers, as shells, cron and people run it.

#![allow(clippy::disallowed_methods)]

#[allow(dead_code, unused_imports)]
#[path = "../../../tests/harness/mod.rs"]
mod harness;

mod advice;
mod agent;
mod breaking;
mod by_owner;
mod changing_set;
mod deadlocking;
mod electing;
mod explaining;
mod fitness;
mod five_servers;
mod fixture;
mod gated;
mod guarded;
mod incidents;
mod leaving;
mod legacy;
mod looking;
mod losing;
mod modes;
mod old_list;
mod outages;
mod places;
mod plumbing;
mod pty;
mod races;
mod remembering;
mod roles;
mod signals;
mod starting;
mod statuses;
mod terminal;
mod terraform;
mod tls;
mod transcripts;
mod watching;
