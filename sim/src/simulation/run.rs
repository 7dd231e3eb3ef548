//! Executes plans from beginning to end.

use super::outcome::{Failure, Totals};
use super::plan::Plan;
use super::world::World;
use crate::rules::Without;

/// Executes a plan.
pub fn run(plan: &Plan, without: Without) -> (Totals, Option<Failure>) {
    let mut world = World::new(plan, without, false);
    let failure = world.run().err();
    (world.totals, failure)
}

/// Executes a plan. Returns the events, one per line.
pub fn tell(plan: &Plan, without: Without) -> (Vec<String>, Option<Failure>) {
    let mut world = World::new(plan, without, true);
    let failure = world.run().err();
    (world.story.take().unwrap_or_default(), failure)
}
