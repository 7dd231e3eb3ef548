//! Deterministic simulation: clients and nodes on virtual time, with all faults between them, from one seed.
//!
//! A [`Plan`] is drawn from a seed; a [`World`] executes it. The plan contains the faults, so a plan that fails can be
//! made [smaller](smallest()) and kept.

mod agenda;
mod breaking;
mod caller;
mod changer;
mod changers;
mod clients;
mod draw;
mod faults;
mod kinds;
mod machine;
mod moments;
mod network;
mod node;
mod nodes;
mod outcome;
mod plan;
mod run;
mod sets;
mod single_clients;
mod slots;
mod smallest;
mod taking;
mod world;

pub use kinds::{Fault, Kind};
pub use outcome::{Failure, Totals};
pub use plan::{Keeps, Machine, Network, Plan, SingleClient};
pub use run::{run, tell};
pub use smallest::smallest;
pub use world::World;
