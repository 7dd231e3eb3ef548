//! Deterministic simulation: clients and nodes on virtual time, and everything that can go wrong between them, from one seed.
//!
//! A [`Plan`] is drawn from a seed; a [`World`] runs it. What goes wrong is written into the plan, so that a plan that fails can
//! be made [smaller](smallest()) and kept.

mod agenda;
mod changers;
mod clients;
mod draw;
mod faults;
mod kinds;
mod machine;
mod moments;
mod network;
mod nodes;
mod outcome;
mod plan;
mod sets;
mod single_clients;
mod slots;
mod smallest;
mod taking;
mod world;

pub use kinds::{Fault, Kind};
pub use outcome::{Failure, Totals};
pub use plan::{Keeps, Machine, Network, Plan, SingleClient};
pub use smallest::smallest;
pub use world::World;

use crate::rules::Without;

/// Runs a plan.
pub fn run(plan: &Plan, without: Without) -> (Totals, Option<Failure>) {
    let mut world = World::new(plan, without, false);
    let failure = world.run().err();
    (world.totals, failure)
}

/// Runs a plan and tells what happened, a line each.
pub fn tell(plan: &Plan, without: Without) -> (Vec<String>, Option<Failure>) {
    let mut world = World::new(plan, without, true);
    let failure = world.run().err();
    (world.story.take().unwrap_or_default(), failure)
}
