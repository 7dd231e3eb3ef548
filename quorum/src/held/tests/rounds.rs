//! Tests of which answers count in a round of extension.

use super::*;

#[test]
fn a_majority_extends_from_the_rounds_start_and_the_others_are_healed() {
    let mut held = held();
    let calls = extend(&mut held, 300);
    assert!(calls[..3].iter().all(|call| call.ask == Ask::Extend { ttl_ms: TTL_MS, token: token(100) }));
    assert!(calls[3..].iter().all(|call| matches!(call.ask, Ask::Acquire { retry: true, .. })));
    yes(&mut held, 1, 0, 310);
    yes(&mut held, 1, 1, 310);
    assert_eq!(held.outcome(), None);
    yes(&mut held, 1, 2, 350);
    assert_eq!((held.outcome(), held.valid_until()), (Some(true), valid_until(at(300).boot, TTL_MS)));
}

#[test]
fn answers_count_for_their_own_round_once_and_in_time() {
    let mut held = held();
    extend(&mut held, 100);
    yes(&mut held, 1, 0, 110);
    yes(&mut held, 1, 0, 110);
    yes(&mut held, 1, 1, 110);
    assert_eq!(held.outcome(), None, "one node answered twice");
    extend(&mut held, 200);
    yes(&mut held, 1, 2, 210);
    yes(&mut held, 2, 0, 210);
    yes(&mut held, 2, 1, 210);
    assert_eq!(held.outcome(), None, "one answer was of an older round");
    let until = held.valid_until();
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    held.on_answer(2, 2, id(2), ask, Answer::Token(token(100)), until);
    assert_ne!(held.outcome(), Some(true), "it came when the old validity had ended");
    assert_eq!(held.valid_until(), until);
}

/// A node grants the lock to its holder once more. It adds nothing to the validity in this round, but in the next one.
#[test]
fn a_healed_node_counts_from_the_next_round_on() {
    let mut held = held();
    extend(&mut held, 100);
    yes(&mut held, 1, 0, 110);
    yes(&mut held, 1, 1, 110);
    no(&mut held, 1, 2, 110);
    assert_eq!(held.outcome(), Some(false));
    assert!(extend(&mut held, 420).contains(&Call::now(3, held.heal())), "it never had the lock: healed");
    healed(&mut held, 3, 100, 430);
    [0, 1, 3].iter().for_each(|&node| drop(yes(&mut held, 2, node, 440)));
    assert_eq!(held.outcome(), Some(false));
    extend(&mut held, 450);
    [0, 1, 3].iter().for_each(|&node| drop(yes(&mut held, 3, node, 460)));
    assert_eq!(held.outcome(), Some(true));
}

/// A grant of the acquisition arrives late, and its lease is old. So the node does not count in this round, but in the
/// next one.
#[test]
fn a_late_grant_of_the_acquisition_counts_from_the_next_round_on() {
    let mut held = held();
    extend(&mut held, 100);
    yes(&mut held, 1, 0, 110);
    yes(&mut held, 1, 1, 110);
    let ask = Ask::Acquire { ttl_ms: TTL_MS, proposal: token(100), retry: false };
    held.on_answer(0, 3, id(3), ask, Answer::Token(token(100)), at(115).boot);
    yes(&mut held, 1, 3, 120);
    assert_eq!(held.outcome(), None);
    assert_eq!(held.nodes_held(), 4);
}

#[test]
fn a_shorter_lease_shortens_nothing() {
    let mut held = held();
    let until = held.valid_until();
    held.extend(200, at(100).boot);
    (0..3).for_each(|node| drop(yes(&mut held, 1, node, 110)));
    assert_eq!((held.outcome(), held.valid_until()), (Some(true), until));
}

#[test]
fn nothing_is_raised_or_healed_when_validity_is_over() {
    let mut held = held();
    extend(&mut held, 100);
    let late = held.valid_until();
    let ask = held.heal();
    for node in 0..5 {
        assert!(held.on_answer(1, node, id(node as u128), ask, Answer::Token(token(500)), late).is_empty());
    }
    assert_eq!(held.token(), token(100));
}
