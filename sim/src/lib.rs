//! What shows that the locks keep their promises, for anybody to run again.
//!
//! Three layers, each nearer to what people run than the one before: a [`model`] checker that looks at every order of events
//! within small bounds, a [`simulation`] of long runs in which everything goes wrong, and a campaign of faults on real servers.
//! The first two run the rules of `palisade-core`, not a copy of them: around them stand a node without Redis ([`server`]) and
//! a client without sockets ([`client`]). Every layer records what holders did ([`history`]) and shows it to the same
//! [`referee`].
//!
//! That the layers see what they are there to see is shown by switching off one [rule](rules) after the other.

pub mod campaign;
mod checker;
pub mod client;
pub mod family;
mod highest;
pub mod history;
pub mod members;
pub mod messages;
pub mod model;
pub mod queue;
pub mod referee;
pub mod rules;
pub mod server;
pub mod simulation;
pub mod single_client;
mod violation;

pub use checker::Outcome;
