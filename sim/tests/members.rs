//! The models of a set of nodes that changes: nothing is found with all rules in place, and something with each of them switched off.

use palisade_sim::members::{RULES, agreement, broken, locks};

/// States that the checker looks at of each model, here.
const STATES_MAX: usize = 300_000;

#[test]
fn with_every_rule_a_set_that_changes_is_sound() {
    for (name, bounds) in locks::sound() {
        let outcome = locks::exhaust(bounds, STATES_MAX, 2);
        eprintln!("{name}: {} states, all: {}", outcome.states, outcome.complete);
        assert!(outcome.found.is_none(), "{name}: {:#?}", outcome.found);
    }
    let outcome = agreement::exhaust(agreement::Bounds::sound(1), STATES_MAX, 2);
    eprintln!("two changers: {} states, all: {}", outcome.states, outcome.complete);
    assert!(outcome.found.is_none(), "two changers: {:#?}", outcome.found);
}

#[test]
fn without_any_one_rule_of_it_something_is_found() {
    for rule in RULES {
        let outcome = broken(rule, 4_000_000);
        let found = outcome.found.as_ref().map(|(why, steps)| (why, steps.len()));
        eprintln!("{rule:?}: {} states, {found:?}", outcome.states);
        assert!(outcome.found.is_some(), "{rule:?}: nothing in {} states", outcome.states);
    }
}
