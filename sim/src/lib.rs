//! Reproducible evidence that the locks keep their promises.
//!
//! There are three layers, each closer to production than the one before. A [`model`] checker explores every order of
//! events within small bounds, a [`simulation`] does long runs in which everything goes wrong, and a campaign injects
//! faults into real servers. The first two run the rules of `palisade-core`, not a copy of them: around them stand a
//! node without Redis (`server`) and a client without sockets (`client`). Every layer records what holders did
//! (`history`) and hands it to the same `referee`.
//!
//! Switching off the [`rules`] one by one shows that the layers detect the absence of each.

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
