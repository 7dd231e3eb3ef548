//! The rules of a queue that are switched off in this model, one at a time.

use super::state::{Bounds, Checked};
use crate::checker::Bounded;
use crate::rules::{Rule, Without};

/// Returns, for each rule in turn, a model without it and bounds within which the harm shows.
pub fn broken() -> Vec<Bounded<Rule>> {
    let rules = [
        Rule::FirstInFirstOut,
        Rule::NoBarging,
        Rule::DeadHeadPasses,
        Rule::OwnersShareAPlace,
        Rule::ReservationEnds,
        Rule::GuardEndServes,
    ];
    let without = |rule| Bounds { without: Without(Some(rule)), ..Bounds::default() };
    rules.map(|rule| Bounded::new(rule, move || Checked(without(rule)))).into()
}
