use super::*;
use crate::fixture::{at, id, token};

const TTL_MS: u32 = 1_000;

/// Returns a lock that nodes 0, 1 and 2 of five hold with token 100, from 0 ms on.
fn held() -> Held {
    let members = (0..5).map(|n| (id(n), (n < 3).then(|| token(100)), false)).collect();
    Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS))
}

fn extend(held: &mut Held, ms: u64) -> Vec<Call> {
    held.extend(TTL_MS, at(ms).boot)
}

fn yes(held: &mut Held, round: u64, node: usize, ms: u64) -> Vec<Call> {
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    held.on_answer(round, node, id(node as u128), ask, Answer::Token(token(100)), at(ms).boot)
}

fn no(held: &mut Held, round: u64, node: usize, ms: u64) -> Vec<Call> {
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    held.on_answer(round, node, id(node as u128), ask, Answer::No, at(ms).boot)
}

fn healed(held: &mut Held, node: usize, value: u64, ms: u64) -> Vec<Call> {
    let ask = held.heal();
    held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(value)), at(ms).boot)
}

fn fenced(held: &mut Held, node: usize, value: u64, ms: u64) -> Vec<Call> {
    let ask = Ask::Fence { token: token(value) };
    held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(value)), at(ms).boot)
}

/// A node was replaced, and its successor granted the lock, while a round ran. It is healed and nothing else. Then a
/// majority is asked and does not have the lock, so it is lost, whatever the rest answers. No node is asked to grant it
/// again meanwhile, so taking it away on one node after the other is not undone.
#[test]
fn what_a_majority_is_missing_is_lost() {
    let mut held = held();
    let calls = extend(&mut held, 100);
    assert_eq!(calls.len(), 5);
    held.on_missing(0, id(0), token(100), at(105).boot);
    held.on_missing(0, id(0), token(100), at(105).boot);
    assert!(!held.is_lost() && held.token_at(0).is_none(), "one node is one node");
    assert!(yes(&mut held, 1, 0, 110).is_empty(), "what it says of before it was looked at is late");
    assert_eq!(held.outcome(), Some(false), "two are left who can extend it");
    held.on_missing(1, id(1), token(99), at(105).boot);
    held.on_missing(2, id(7), token(100), at(105).boot);
    held.on_missing(3, id(3), token(100), at(105).boot);
    assert!(!held.is_lost(), "another token, another server, and one that never had it");
    held.on_missing(1, id(1), token(100), at(105).boot);
    held.on_missing(2, id(2), token(100), at(105).boot);
    assert!(held.is_lost());
}

/// Regression: another process of the same owner raised the tokens. The nodes did not have the tokens that they had
/// acknowledged here, so the lock counted as gone and its owner was granted another permit.
#[test]
fn tokens_that_another_process_raises() {
    let raised = |held: &mut Held, node: usize, calls: &[Call]| {
        // As soon as one node has told its token, the others are asked for that token before they are asked what they
        // have.
        let ask = Ask::Fence { token: token(if node == 0 { 100 } else { 200 }) };
        assert_eq!(calls, if node == 0 { vec![Call::now(node, ask)] } else { vec![] });
        held.on_answer(held.round(), node, id(node as u128), ask, Answer::Token(token(200)), at(120).boot)
    };
    let mut held = held();
    held.is_spoken_for_elsewhere();
    extend(&mut held, 100);
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(200) };
    for node in 0..3 {
        let calls = no(&mut held, 1, node, 110);
        let calls = raised(&mut held, node, &calls);
        assert!(calls.contains(&Call::now(node, ask)), "then it is extended in this round: {calls:?}");
        held.on_answer(1, node, id(node as u128), ask, Answer::Token(token(200)), at(130).boot);
    }
    assert_eq!((held.outcome(), held.token(), held.is_lost()), (Some(true), token(200), false));
    // The same, found by reading the nodes.
    let mut held = self::held();
    held.is_spoken_for_elsewhere();
    for node in 0..3 {
        let calls = held.on_missing(node, id(node as u128), token(100), at(105).boot);
        raised(&mut held, node, &calls);
        assert!(held.on_missing(node, id(node as u128), token(100), at(121).boot).is_empty());
    }
    assert_eq!((held.token(), held.is_lost()), (token(200), false));
}

/// A node without the grant says so when asked what it has.
#[test]
fn a_lock_that_another_process_gave_back_is_lost() {
    for looked_at in [false, true] {
        let mut held = held();
        held.is_spoken_for_elsewhere();
        extend(&mut held, 100);
        for (node, is_lost) in [(0, false), (1, false), (2, true)] {
            let calls = match looked_at {
                true => held.on_missing(node, id(node as u128), token(100), at(105).boot),
                false => no(&mut held, 1, node, 110),
            };
            held.on_answer(1, node, id(node as u128), calls[0].ask, Answer::No, at(120).boot);
            assert_eq!(held.is_lost(), is_lost, "{node}");
        }
    }
}

/// Regression: the lock was broken on one node after the other, and each granted it again before the next was asked. No
/// majority lost it at once, so its holder went on, or it was reported as nodes that could not be asked. Rounds that
/// extend it meanwhile change nothing.
#[test]
fn a_lock_that_is_taken_away_on_one_node_after_the_other_is_lost() {
    let members = || (0..5).map(|n| (id(n), Some(token(100)), false)).collect();
    for (pause_ms, is_lost) in [(1, true), (120, true), (251, false)] {
        let mut held = Held::new(members(), token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        for node in 0..3 {
            let ms = 100 + node as u64 * pause_ms;
            extend(&mut held, ms);
            let round = held.round();
            no(&mut held, round, node, ms);
            assert_eq!(held.is_lost(), is_lost && node == 2, "{pause_ms} {node}");
            healed(&mut held, node, 100, ms);
            (0..5).filter(|other| *other != node).for_each(|other| drop(yes(&mut held, round, other, ms)));
            assert_eq!(held.outcome(), Some(true));
            assert!(held.was_gone_from(node));
        }
        assert_eq!((held.is_lost(), held.nodes_held()), (is_lost, 5));
    }
}

/// Regression: a round of extension began while the lock was broken on one node after the other. The nodes that refused
/// it were asked to grant the lock again at once, and a majority had it before the last one was broken.
#[test]
fn a_node_where_it_was_taken_away_is_asked_to_grant_it_a_quarter_of_a_lease_later() {
    let mut held = held();
    extend(&mut held, 100);
    assert!(no(&mut held, 1, 0, 110).is_empty());
    assert!(held.on_missing(1, id(1), token(100), at(110).boot).is_empty());
    for ms in [120, 359] {
        let calls = extend(&mut held, ms);
        assert_eq!(calls.iter().map(|call| call.node).collect::<Vec<_>>(), [2, 3, 4]);
    }
    let calls = extend(&mut held, 360);
    assert_eq!(calls[..2], [0, 1].map(|node| Call::now(node, held.heal())));
}

/// A node that was not reached for a whole lease no longer has the lock, and nobody took it away there.
#[test]
fn a_node_whose_lease_has_ended_is_asked_to_grant_it_at_once() {
    let members = (0..5).map(|n| (id(n), Some(token(100)), false)).collect();
    let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    for (ms, round) in [(600, 1), (1_200, 2)] {
        extend(&mut held, ms);
        (2..5).for_each(|node| drop(yes(&mut held, round, node, ms)));
    }
    for node in 0..2 {
        assert_eq!(no(&mut held, 2, node, 1_200), [Call::now(node, held.heal())]);
        assert!(!held.was_gone_from(node));
    }
    held.on_missing(2, id(2), token(100), at(1_210).boot);
    assert!(held.was_gone_from(2) && !held.is_lost());
}

/// Regression: a node that was found without the lock during an extension was asked to grant it again, by its answer to
/// the extension.
#[test]
fn what_is_missing_in_a_round_stays_missing_in_it() {
    let mut held = held();
    extend(&mut held, 100);
    for (node, is_lost) in [(0, false), (1, false), (2, true)] {
        held.on_missing(node, id(node as u128), token(100), at(105).boot);
        no(&mut held, 1, node, 110);
        healed(&mut held, node, 100, 115);
        assert_eq!(held.is_lost(), is_lost, "{node}");
    }
}

/// A stopped process asks after its leases have ended.
#[test]
fn what_is_said_when_validity_is_over_is_no_loss_before() {
    let mut held = held();
    extend(&mut held, 100);
    for node in 0..3 {
        no(&mut held, 1, node, 5_000);
        held.on_missing(node, id(node as u128), token(100), at(5_000).boot);
    }
    assert!(!held.is_lost());
}

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

/// Regression: the lock was broken on all nodes while their tokens were being raised. They said so then, and the next
/// round took it back node by node, as if they had restarted.
#[test]
fn broken_while_tokens_are_raised_it_is_lost() {
    let mut held = held();
    let fence = Ask::Fence { token: token(200) };
    extend(&mut held, 100);
    healed(&mut held, 3, 200, 110);
    for (node, is_lost) in [(0, false), (1, false), (2, true)] {
        held.on_answer(1, node, id(node as u128), fence, Answer::No, at(120).boot);
        assert_eq!(held.is_lost(), is_lost, "{node}");
    }
    healed(&mut held, 2, 200, 130);
    assert!(held.is_lost(), "a node that grants it again does not bring it back");
}

/// A node that came back empty and was healed adds no validity to the current round, nor does a late grant.
#[test]
fn a_healed_node_counts_from_the_next_round_on() {
    let mut held = held();
    extend(&mut held, 100);
    yes(&mut held, 1, 0, 110);
    yes(&mut held, 1, 1, 110);
    no(&mut held, 1, 2, 110);
    assert_eq!(held.outcome(), Some(false));
    assert_eq!(extend(&mut held, 420)[2], Call::now(2, held.heal()), "lost there: healed");
    healed(&mut held, 2, 100, 430);
    (0..3).for_each(|node| drop(yes(&mut held, 2, node, 440)));
    assert_eq!(held.outcome(), Some(false));
    extend(&mut held, 450);
    (0..3).for_each(|node| drop(yes(&mut held, 3, node, 460)));
    assert_eq!(held.outcome(), Some(true));
}

/// Regression: a restarted node said that it does not have the lock when asked to raise its token, and again when asked
/// to extend it. It was counted twice, so two nodes of five made a lock lost that three had.
#[test]
fn a_node_that_says_twice_that_it_is_gone_is_one_node() {
    let members = (0..5).map(|n| (id(n), (n < 4).then(|| token(100)), false)).collect();
    let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    extend(&mut held, 100);
    healed(&mut held, 4, 200, 110);
    for node in [0, 1] {
        let fence = Ask::Fence { token: token(200) };
        held.on_answer(1, node, id(node as u128), fence, Answer::No, at(120).boot);
        no(&mut held, 1, node, 121);
    }
    assert!(!held.is_lost());
    for node in [2, 3] {
        yes(&mut held, 1, node, 122);
        fenced(&mut held, node, 200, 122);
    }
    assert_eq!((held.nodes_held(), held.is_lost()), (3, false));
}

/// Regression: the lock was broken on all nodes. A server that was asked under its second name granted it again before
/// it said under its first that it is gone, so the break was undone.
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

/// A second name leads to a separate server from now on.
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

/// A straggler's grant has an old lease and is nothing to rely on.
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
fn the_token_rises_when_a_majority_has_the_larger_one_and_never_falls() {
    let mut held = held();
    extend(&mut held, 100);
    let calls = healed(&mut held, 3, 200, 110);
    let raise: Vec<_> = (0..3).map(|node| Call::now(node, Ask::Fence { token: token(200) })).collect();
    assert_eq!(calls, raise);
    assert_eq!(held.token(), token(100));
    fenced(&mut held, 0, 200, 120);
    assert_eq!(held.token(), token(100), "two of five");
    fenced(&mut held, 1, 200, 120);
    assert_eq!(held.token(), token(200));
    // A node with a lower token is raised, and takes part only then.
    let calls = healed(&mut held, 4, 150, 130);
    assert!(calls.contains(&Call::now(4, Ask::Fence { token: token(200) })));
    let calls = extend(&mut held, 200);
    assert_eq!(calls[4].ask, Ask::Fence { token: token(200) });
    assert_eq!(calls[0].ask, Ask::Extend { ttl_ms: TTL_MS, token: token(200) });
    assert_eq!(held.token(), token(200));
}

/// A late grant has a larger token, so all are raised to it while a round with the lower one is on its way. The nodes
/// refuse the round, and have the lock.
#[test]
fn a_raise_that_overtakes_an_extension_loses_nothing() {
    for fence_answered_first in [false, true] {
        let mut held = held();
        extend(&mut held, 100);
        assert_eq!(healed(&mut held, 3, 200, 110).len(), 3, "all are asked to raise");
        let mut again = vec![];
        for node in 0..3 {
            if fence_answered_first {
                fenced(&mut held, node, 200, 120);
                again.extend(no(&mut held, 1, node, 121));
            } else {
                assert!(no(&mut held, 1, node, 120).is_empty());
                again.extend(fenced(&mut held, node, 200, 121));
            }
        }
        assert!(!held.is_lost());
        let expected = Ask::Extend { ttl_ms: TTL_MS, token: token(200) };
        let extensions: Vec<_> = again.iter().filter(|call| call.ask == expected).collect();
        assert_eq!(extensions.len(), 3, "{again:?}");
        for node in 0..3 {
            held.on_answer(1, node, id(node as u128), expected, Answer::Token(token(200)), at(130).boot);
        }
        assert_eq!((held.outcome(), held.token()), (Some(true), token(200)));
    }
}

#[test]
fn a_lower_token_of_a_healed_node_lowers_nothing() {
    let mut held = held();
    extend(&mut held, 100);
    no(&mut held, 1, 2, 110);
    let calls = healed(&mut held, 2, 50, 120);
    assert_eq!((held.token(), held.nodes_held()), (token(100), 2));
    assert_eq!(calls, [Call::now(2, Ask::Fence { token: token(100) })]);
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

/// The server behind a name was replaced: the new one's answers do not fulfil the old one's promises.
#[test]
fn another_server_under_the_same_name_does_not_count() {
    let mut held = held();
    extend(&mut held, 100);
    yes(&mut held, 1, 0, 110);
    yes(&mut held, 1, 1, 110);
    let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(100) };
    held.on_answer(1, 2, id(77), ask, Answer::Token(token(100)), at(110).boot);
    assert_eq!(held.outcome(), Some(false));
    // A server that is in the set already does not count under a second name.
    assert!(held.on_answer(1, 4, id(0), held.heal(), Answer::Token(token(100)), at(110).boot).is_empty());
    assert_eq!(held.nodes_held(), 3);
}

/// A slot of a cluster moved with its locks: its new server was not asked when the round began, and is asked in the
/// next one.
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
    // A server without the lock takes no seat.
    extend(&mut held, 300);
    held.on_answer(3, 0, id(78), ask, Answer::No, at(310).boot);
    assert!(held.is_lost());
}

#[test]
fn a_raise_that_failed_leaves_it_unknown_and_asked_again() {
    let mut held = held();
    extend(&mut held, 100);
    healed(&mut held, 3, 200, 110);
    held.on_answer(1, 0, id(0), Ask::Fence { token: token(200) }, Answer::Failed, at(150).boot);
    let calls = extend(&mut held, 200);
    assert!(matches!(calls[0].ask, Ask::Acquire { retry: true, .. }));
    let Ask::Acquire { proposal, .. } = calls[0].ask else { panic!() };
    assert!(proposal >= held.token());
}

/// Nodes hung for longer than their time to answer. Then they raised their tokens, and refused an extension that named
/// the lower one. They are asked what they have before the lock counts as gone there.
#[test]
fn a_raise_without_an_answer_is_no_loss() {
    for has_it in [true, false] {
        let mut held = held();
        healed(&mut held, 3, 200, 50);
        extend(&mut held, 100);
        let raise = Ask::Fence { token: token(200) };
        for node in 0..3 {
            held.on_answer(0, node, id(node as u128), raise, Answer::Failed, at(150).boot);
        }
        for node in 0..3 {
            let ask = Ask::Fence { token: held.token() };
            assert_eq!(no(&mut held, 1, node, 160), [Call::now(node, ask)]);
            let answer = if has_it { Answer::Token(token(200)) } else { Answer::No };
            let calls = held.on_answer(1, node, id(node as u128), ask, answer, at(170).boot);
            let ask = Ask::Extend { ttl_ms: TTL_MS, token: token(200) };
            assert_eq!(calls.contains(&Call::now(node, ask)), has_it);
            if has_it {
                held.on_answer(1, node, id(node as u128), ask, Answer::Token(token(200)), at(180).boot);
            }
        }
        assert_eq!((held.is_lost(), held.outcome()), (!has_it, Some(has_it)));
    }
}

/// Regression: nodes that restart without their data say that they do not have the lock when they are asked to raise its
/// token. They grant it again when their guard has ended, one after the other, and the lock was lost at the second one.
#[test]
fn nodes_that_restart_one_after_the_other_lose_nothing() {
    let members = (0..3).map(|n| (id(n), Some(token(100)), false)).collect();
    let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    for node in 0..3 {
        let began = 100 + 1_300 * node as u64;
        let others = || (0..3).filter(move |other| *other != node);
        let fence = Ask::Fence { token: token(200) };
        held.on_answer(held.round(), node, id(node as u128), fence, Answer::No, at(began).boot);
        for ms in [300, 600, 900, 1_200] {
            extend(&mut held, began + ms);
            let round = held.round();
            others().for_each(|other| drop(yes(&mut held, round, other, began + ms)));
        }
        healed(&mut held, node, 100, began + 1_250);
        assert!(!held.is_lost(), "{node}");
    }
    assert_eq!((held.nodes_held(), held.was_gone_from(0)), (3, false));
}

/// Regression: nodes whose answers to the acquisition came after the majority's were taken for nodes with an unknown
/// lease until the first extension. They granted the lock again at once after it was taken away there.
#[test]
fn a_lock_that_is_taken_away_where_it_was_granted_last_is_lost() {
    let granted = |n| (id(n), Some(token(100)), false);
    let members = vec![granted(0), granted(1), (None, None, false)];
    let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    let ask = Ask::Acquire { ttl_ms: TTL_MS, proposal: token(100), retry: false };
    assert!(held.on_answer(0, 2, id(2), ask, Answer::Token(token(100)), at(5).boot).is_empty());
    held.on_missing(2, id(2), token(100), at(100).boot);
    assert!(held.was_gone_from(2));
    held.on_missing(0, id(0), token(100), at(110).boot);
    assert!(held.is_lost());
}
