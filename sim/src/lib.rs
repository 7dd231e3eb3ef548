//! Reproducible evidence that the locks keep their promises.
//!
//! There are three layers, each closer to production than the previous one. A [`model`] checker explores every order of
//! events within small bounds, a [`simulation`] executes long runs with every kind of fault, and a campaign injects
//! faults into real servers. The first two execute the rules of `palisade-core` itself, not a copy: a node without
//! Redis (`server`) and a client without sockets (`client`) surround those rules. Every layer records the actions of
//! holders (`history`) and passes them to the same `referee`.
//!
//! To show that the layers detect the absence of each of the [`rules`], the rules can be switched off one by one.

pub mod campaign;
mod checker;
mod client;
pub mod family;
mod highest;
mod history;
pub mod members;
mod messages;
pub mod model;
pub mod queue;
mod referee;
pub mod rules;
mod server;
pub mod simulation;
mod single_client;
mod violation;

pub use checker::{Bounded, Outcome};
