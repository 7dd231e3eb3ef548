//! The model of one key's queue: nothing is found with all rules in place, and something with each of them switched off.

use palisade_sim::queue::{broken, exhaust, find, sound};

/// States that the checker looks at of each model, here.
const STATES_MAX: usize = 150_000;

#[test]
fn with_every_rule_the_queue_is_sound() {
    for (name, bounds) in sound() {
        let outcome = exhaust(&bounds, STATES_MAX, 2);
        assert!(outcome.found.is_none(), "{name}: {:#?}", outcome.found);
    }
}

#[test]
fn without_any_one_rule_of_the_queue_something_is_found() {
    for bounds in broken() {
        let outcome = find(&bounds, 2_000_000);
        assert!(outcome.found.is_some(), "{:?}: nothing in {} states", bounds.without, outcome.states);
    }
}
