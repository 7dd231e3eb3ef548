//! The models find nothing with every rule on, and something with each rule switched off.

use std::fmt::Debug;

use palisade_sim::{Bounded, family, members, model, queue};

/// Checks that no rule is broken in the first states of each model.
fn are_sound(models: &[Bounded<&str>], states_max: usize) {
    for model in models {
        let outcome = model.exhaust(states_max, 2);
        eprintln!("{model:?}: {} states, all: {}", outcome.states, outcome.complete);
        assert!(outcome.found.is_none(), "{model:?}: {:#?}", outcome.found);
    }
}

/// Checks that each model, without its rule, reaches a state that breaks something.
fn are_needed<R: Debug>(models: &[Bounded<R>], states_max: usize) {
    for model in models {
        let outcome = model.find(states_max);
        let found = outcome.found.as_ref().map(|(why, steps)| (why, steps.len()));
        eprintln!("{model:?}: {} states, {found:?}", outcome.states);
        assert!(outcome.found.is_some(), "{model:?}: nothing in {} states", outcome.states);
    }
}

/// Explores all states of the small models, and the first states of the others.
#[test]
fn nodes_with_every_rule_are_sound() {
    are_sound(&model::sound(), 300_000);
}

#[test]
fn nodes_need_every_rule() {
    are_needed(&model::broken(), 12_000_000);
}

#[test]
fn a_queue_with_every_rule_is_sound() {
    are_sound(&queue::sound(), 150_000);
}

#[test]
fn a_queue_needs_every_rule() {
    are_needed(&queue::broken(), 2_000_000);
}

#[test]
fn readers_writers_and_permits_with_every_rule_are_sound() {
    are_sound(&family::sound(), 300_000);
}

#[test]
fn readers_writers_and_permits_need_every_rule() {
    are_needed(&family::broken(), 2_000_000);
}

#[test]
fn a_set_that_changes_with_every_rule_is_sound() {
    are_sound(&members::sound(1), 300_000);
}

#[test]
fn a_set_that_changes_needs_every_rule() {
    are_needed(&members::broken(), 4_000_000);
}
