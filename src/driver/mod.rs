//! Performs the engine's decisions on the server: the only code that writes to it.

mod answer;
mod askers;
pub mod blocked_clients;
pub mod cluster;
pub mod effects;
pub mod gates;
pub mod grant_events;
pub mod joined;
mod key_events;
pub mod listeners;
mod parked;
pub mod pass;
mod perform;
pub mod propagation;
mod questions;
pub mod sight;
pub mod slot_sources;
pub mod timer;
pub mod watchers;

pub use answer::answer;
