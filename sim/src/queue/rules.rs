//! The rules of a queue that are switched off in this model, one at a time.

use super::state::Bounds;
use crate::rules::{Rule, Without};

/// Without each rule in turn, bounds within which the harm shows.
pub fn broken() -> Vec<Bounds> {
    let rules = [
        Rule::FirstInFirstOut,
        Rule::NoBarging,
        Rule::DeadHeadPasses,
        Rule::OwnersShareAPlace,
        Rule::ReservationEnds,
        Rule::GuardEndServes,
    ];
    rules.map(|rule| Bounds { without: Without(Some(rule)), ..Bounds::default() }).into()
}
