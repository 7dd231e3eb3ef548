//! The model of shared locks and permits: nothing is found with all rules in place, and something with each of them switched off.

use palisade_sim::family::{broken, exhaust, find, sound};

/// States that the checker looks at of each model, here.
const STATES_MAX: usize = 300_000;

#[test]
fn with_every_rule_the_family_is_sound() {
    for (name, bounds) in sound() {
        let outcome = exhaust(&bounds, STATES_MAX, 2);
        eprintln!("{name}: {} states, all: {}", outcome.states, outcome.complete);
        assert!(outcome.found.is_none(), "{name}: {:#?}", outcome.found);
    }
}

#[test]
fn without_any_one_rule_of_the_family_something_is_found() {
    for (rule, bounds) in broken() {
        let outcome = find(&bounds, 2_000_000);
        eprintln!(
            "{rule:?}: {} states, {:?}",
            outcome.states,
            outcome.found.as_ref().map(|(why, steps)| (why, steps.len()))
        );
        assert!(outcome.found.is_some(), "{rule:?}: nothing in {} states", outcome.states);
    }
}
