//! What shows that the locks keep their promises, for anybody to run again.
//!
//! Every layer records what holders did ([`history`]) and shows it to the same [`referee`].

pub mod client;
pub mod history;
pub mod model;
pub mod referee;
pub mod rules;
pub mod server;
pub mod simulation;
