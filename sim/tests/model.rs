//! The model checker: nothing is found with all rules in place, and something with each of them switched off.

use palisade_sim::model::{broken, exhaust, find, sound};

/// States that the checker looks at of each model, here: all of the small ones, the beginning of the others.
const STATES_MAX: usize = 300_000;

#[test]
fn with_every_rule_nothing_is_broken() {
    for (name, config) in sound() {
        let outcome = exhaust(&config, STATES_MAX, 2);
        assert!(outcome.found.is_none(), "{name}: {:#?}", outcome.found);
    }
}

#[test]
fn without_any_one_rule_something_is() {
    for config in broken() {
        let outcome = find(&config, 12_000_000);
        assert!(outcome.found.is_some(), "{:?}: nothing in {} states", config.without, outcome.states);
    }
}
