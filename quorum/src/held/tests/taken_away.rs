//! Tests of when a lock counts as lost, and of which nodes are asked to grant it again.

use super::*;

/// During a round a node is replaced, and its successor grants the lock, but counts only from the next round on. Then a
/// majority answers that it does not have the lock, so the lock is lost, whatever the others answer. No node is asked
/// to grant it again: that could undo a break that reaches one node after another.
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

/// Another process of the owner released the lock. The nodes are asked which token they have, answer that they have no
/// grant, and the lock is lost.
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

/// Regression: the lock was broken on one node after the other, and each granted it again before the next was broken.
/// At no time did a majority lack it, so its holder went on. It must count as lost; rounds that extend the lock
/// meanwhile change nothing about that.
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

/// Regression: a round began while the lock was broken on one node after the other. Nodes that refused the extension
/// were asked at once to grant the lock again, and a majority had it again before the last one was broken. Now they are
/// asked once a round that began a quarter of a lease later has extended the lock.
#[test]
fn a_node_where_it_was_taken_away_is_asked_to_grant_it_a_quarter_of_a_lease_later() {
    let members = (0..5).map(|n| (id(n), Some(token(100)), false)).collect();
    let mut held = Held::new(members, token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    let last_calls = |held: &mut Held, ms| {
        let calls = extend(held, ms);
        assert_eq!(calls.iter().map(|call| call.node).collect::<Vec<_>>(), [2, 3, 4]);
        [2, 3, 4].map(|node| yes(held, held.round(), node, ms + 5))
    };
    extend(&mut held, 100);
    assert!(no(&mut held, 1, 0, 110).is_empty());
    assert!(held.on_missing(1, id(1), token(100), at(110).boot).is_empty());
    for ms in [120, 359] {
        assert_eq!(last_calls(&mut held, ms), [vec![], vec![], vec![]]);
    }
    let heals = [0, 1].map(|node| Call::now(node, held.heal())).to_vec();
    assert_eq!(last_calls(&mut held, 360), [vec![], vec![], heals]);
}

/// Regression: two processes kept one lock of three nodes, which a third one released. Each had found another node
/// without the lock just before, restored it a quarter of a lease later, and counted the one that the other restored.
/// So the lock came back, and was extended from then on.
#[test]
fn two_processes_do_not_restore_for_each_other_what_was_released() {
    let members = || (0..3).map(|n| (id(n), Some(token(100)), false)).collect();
    for one in 0..2 {
        let other = 1 - one;
        let mut held = Held::new(members(), token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        extend(&mut held, 100);
        no(&mut held, 1, one, 110);
        [other, 2].iter().for_each(|&node| drop(yes(&mut held, 1, node, 110)));
        assert_eq!(held.outcome(), Some(true));
        let calls = extend(&mut held, 400);
        assert!(calls.iter().all(|call| call.node != one && matches!(call.ask, Ask::Extend { .. })), "{calls:?}");
        assert!(no(&mut held, 2, 2, 410).is_empty() && held.is_lost());
    }
}

/// Regression: a node had been restored a moment before the lock was taken away on a majority. Its old lease was over, so
/// its answer did not count as a loss, it was asked for the lock once more, and the lock went on.
#[test]
fn a_restored_node_has_a_lease_from_then_on() {
    let members = || (0..3).map(|n| (id(n), Some(token(100)), false)).collect();
    let mut held = Held::new(members(), token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
    for (round, ms) in [(1, 500), (2, 1_200)] {
        extend(&mut held, ms);
        [1, 2].iter().for_each(|&node| drop(yes(&mut held, round, node, ms + 5)));
    }
    assert_eq!(no(&mut held, 2, 0, 1_206), [Call::now(0, held.heal())], "its lease was over");
    healed(&mut held, 0, 100, 1_210);
    extend(&mut held, 1_300);
    assert!(no(&mut held, 3, 0, 1_310).is_empty(), "somebody took it away there");
    assert!(no(&mut held, 3, 1, 1_310).is_empty());
    assert!(held.is_lost());
}

/// Regression: a node refused an extension, and did not answer whether it has the lock with a larger token. It was asked
/// to grant the lock again at once, although somebody was taking the lock away.
#[test]
fn a_node_that_may_have_lost_it_is_asked_whether_it_has_it() {
    let members = || (0..3).map(|n| (id(n), Some(token(100)), false)).collect();
    let fence = Ask::Fence { token: token(100) };
    for looked_at in [false, true] {
        let mut held = Held::new(members(), token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        held.is_spoken_for_elsewhere();
        extend(&mut held, 100);
        let calls = match looked_at {
            true => held.on_missing(0, id(0), token(100), at(110).boot),
            false => no(&mut held, 1, 0, 110),
        };
        assert_eq!(calls, [Call::now(0, fence)]);
        held.on_answer(1, 0, id(0), fence, Answer::Failed, at(120).boot);
        assert_eq!(extend(&mut held, 400)[0], Call::now(0, fence), "{looked_at}");
        assert!(held.on_answer(2, 0, id(0), fence, Answer::No, at(410).boot).is_empty());
        assert!(extend(&mut held, 420).iter().all(|call| call.node != 0));
    }
}

/// Regression: a process that had taken up a lock of another one asked a node that never showed the lock for it in every
/// round. Together with another such process that brought a released lock back.
#[test]
fn a_lock_that_others_may_keep_too_is_restored_after_the_majority() {
    let members = || (0..3).map(|n| (id(n), (n < 2).then(|| token(100)), false)).collect();
    for is_extended in [true, false] {
        let mut held = Held::new(members(), token(100), TTL_MS, valid_until(at(0).boot, TTL_MS));
        held.is_spoken_for_elsewhere();
        assert!(extend(&mut held, 100).iter().all(|call| call.node != 2));
        assert!(yes(&mut held, 1, 0, 110).is_empty());
        if is_extended {
            assert_eq!(yes(&mut held, 1, 1, 110), [Call::now(2, held.heal())]);
        }
    }
}

/// A node was not reached for a whole lease, so it no longer has the lock. Nobody took it away, so the node is asked at
/// once to grant it again.
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

/// Regression: during a round of extension a check found that a node does not have the lock. Then the node's answer to
/// the extension made the client ask it to grant the lock again. In this round it must not be asked.
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

/// A process was stopped, and asks only after its leases have ended. The answers that nodes do not have the lock do not
/// mean that it was taken away before.
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

/// Regression: a restarted node said twice that it does not have the lock: when asked to raise its token, and when
/// asked to extend it. It counted twice, so the lock counted as lost although three of five nodes had it. A node must
/// count once.
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

/// Regression: nodes that restarted without their data said that they do not have the lock, and granted it again when
/// their guard ended, one after the other. The lock counted as lost at the second one. It must not, because no majority
/// lost it at one time.
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

/// Regression: until the first extension, a node that granted the lock after a majority had done so counted as a node
/// with an unknown lease. When the lock was taken away there, the node was asked at once to grant it again. Such a node
/// must count as one that lost the lock.
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
