//! The rules of a queue that this model can switch off, one at a time.

use super::state::{Bounds, Checked};
use crate::checker::Bounded;
use crate::rules::{Rule, Without};

/// Returns a model for each rule, without that rule, and with bounds within which its absence causes harm.
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
