//! Tests of servers with two names, and of names that come to lead to another server.

use super::*;

#[test]
fn a_server_that_takes_a_nodes_name_adds_nothing_to_the_round() {
    let mut held = held();
    extend(&mut held, 300);
    yes(&mut held, 1, 0, 310);
    yes(&mut held, 1, 1, 310);
    let (heal, ask) = (held.heal(), Ask::Extend { ttl_ms: TTL_MS, token: token(100) });
    for ask in [heal, ask] {
        held.on_answer(1, 2, id(9), ask, Answer::Token(token(100)), at(320).boot);
    }
    assert_eq!((held.outcome(), held.valid_until()), (Some(false), valid_until(at(0).boot, TTL_MS)));
    extend(&mut held, 400);
    for node in [0, 1] {
        yes(&mut held, 2, node, 410);
    }
    held.on_answer(2, 2, id(9), ask, Answer::Token(token(100)), at(410).boot);
    assert_eq!(held.valid_until(), valid_until(at(400).boot, TTL_MS), "in the next one it counts");
}

/// Regression: the lock was broken on all nodes. A server was asked under its second name, and granted the lock again
/// before it reported under its first name that the lock is gone. So the break was undone. Now it is not asked.
#[test]
fn a_second_name_of_a_server_is_not_asked_to_grant_it() {
    for known in [true, false] {
        let members = [(0, true), (0, false), (2, true)];
        let member = |(n, has)| (id(n).filter(|_| has || known), has.then(|| token(100)), false);
        let until = valid_until(at(0).boot, TTL_MS);
        let mut held = Held::new(members.map(member).to_vec(), token(100), TTL_MS, until);
        if !known {
            assert_eq!(extend(&mut held, 50)[1], Call::now(1, held.heal()));
            assert!(held.on_answer(1, 1, id(0), held.heal(), Answer::Token(token(100)), at(60).boot).is_empty());
        }
        let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
        assert_eq!(extend(&mut held, 100), [0, 1, 2].map(|node| Call::now(node, ask)));
        let round = held.round();
        assert!(no(&mut held, round, 2, 110).is_empty());
        assert!(held.on_answer(round, 1, id(0), ask, Answer::No, at(110).boot).is_empty());
        let fence = Ask::Fence { token: token(200) };
        assert_eq!(healed(&mut held, 2, 200, 120), [Call::now(0, fence)]);
        assert!(no(&mut held, round, 0, 120).is_empty());
        assert!(held.on_answer(round, 0, id(0), fence, Answer::No, at(130).boot).is_empty());
        assert!(held.is_lost());
    }
}

/// Two names of the list led to the same server. When the second name leads to another server, that server is asked to
/// grant the lock in the next round.
#[test]
fn a_second_name_that_leads_elsewhere_is_asked_to_grant_it_in_the_next_round() {
    let members = [(0, true), (0, false), (2, true)].map(|(n, has)| (id(n), has.then(|| token(100)), false)).to_vec();
    let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    extend(&mut held, 100);
    assert!(no(&mut held, 1, 1, 110).is_empty());
    assert_eq!(extend(&mut held, 200)[1], Call::now(1, held.heal()));
    healed(&mut held, 1, 100, 210);
    assert_eq!((held.nodes_held(), held.is_lost()), (3, false));
}

/// A name leads to another server now. What the old server acknowledged does not count for the new one.
#[test]
fn another_server_under_the_same_name_does_not_count() {
    let mut held = held();
    extend(&mut held, 100);
    yes(&mut held, 1, 0, 110);
    yes(&mut held, 1, 1, 110);
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    held.on_answer(1, 2, id(77), ask, Answer::Token(token(100)), at(110).boot);
    assert_eq!(held.outcome(), Some(false));
    // A server that is already in the set does not count a second time.
    assert!(held.on_answer(1, 4, id(0), held.heal(), Answer::Token(token(100)), at(110).boot).is_empty());
    assert_eq!(held.nodes_held(), 3);
}

/// A slot of a cluster moved with its locks, so the name leads to another server with the lock. That one was not asked
/// when the round began, and counts from the next round on.
#[test]
fn a_server_that_the_lock_moved_to_counts_from_the_next_round_on() {
    let member = (id(0), Some(token(100)), false);
    let mut held = Held::new(vec![member], token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    let until = held.valid_until();
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    extend(&mut held, 100);
    assert!(held.on_answer(1, 0, id(77), ask, Answer::Token(token(100)), at(110).boot).is_empty());
    assert_eq!((held.outcome(), held.valid_until(), held.nodes_held()), (Some(false), until, 1));
    extend(&mut held, 200);
    held.on_answer(2, 0, id(77), ask, Answer::Token(token(100)), at(210).boot);
    assert_eq!((held.outcome(), held.valid_until()), (Some(true), valid_until(at(200).boot, TTL_MS)));
    // A server that does not have the lock does not take the place of the earlier one.
    extend(&mut held, 300);
    held.on_answer(3, 0, id(78), ask, Answer::No, at(310).boot);
    assert!(held.is_lost());
}
