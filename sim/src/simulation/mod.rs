//! Deterministic simulation: clients and nodes on virtual time, and everything that can go wrong between them, from one seed.

mod machine;
pub mod plan;
pub mod world;

use plan::Plan;
use world::{Failure, Totals, World};

use crate::rules::Without;

/// Runs a plan.
pub fn run(plan: &Plan, without: Without) -> (Totals, Option<Failure>) {
    let mut world = World::new(plan, without, false);
    let failure = world.run().err();
    (world.totals, failure)
}
