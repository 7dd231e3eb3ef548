//! Tests of tokens that rise while the lock is held.

use super::*;

/// Regression: another process of the same owner raised the tokens. The nodes no longer had the tokens that they had
/// acknowledged to this process, so the lock counted as gone. Now the nodes are asked which tokens they have.
#[test]
fn tokens_that_another_process_raises() {
    let raised = |held: &mut Held, node: usize, calls: &[Call]| {
        // The first node that reports its token sets the token to which the others are asked to raise theirs.
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
    // The same happens if a check of the nodes finds the tokens missing.
    let mut held = self::held();
    held.is_spoken_for_elsewhere();
    for node in 0..3 {
        let calls = held.on_missing(node, id(node as u128), token(100), at(105).boot);
        raised(&mut held, node, &calls);
        assert!(held.on_missing(node, id(node as u128), token(100), at(121).boot).is_empty());
    }
    assert_eq!((held.token(), held.is_lost()), (token(200), false));
}

/// A writer becomes a reader while node 2, which may have a larger token, is asked for it. The node says twice that it
/// does not have the lock, but the round ends only with its answer to the raise.
#[test]
fn a_node_that_lost_the_lock_while_it_is_shared_does_not_keep_the_round_open() {
    for told in [Answer::No, Answer::Failed] {
        let mut held = held();
        held.is_spoken_for_elsewhere();
        extend(&mut held, 100);
        held.share();
        assert_eq!(no(&mut held, 1, 2, 110), [Call::now(2, Ask::Fence { token: token(100) })]);
        held.on_answer(1, 2, id(2), Ask::Share, Answer::No, at(111).boot);
        (0..2).for_each(|node| drop(yes(&mut held, 1, node, 112)));
        assert_eq!(held.outcome(), None);
        held.on_answer(1, 2, id(2), Ask::Fence { token: token(100) }, told, at(114).boot);
        assert_eq!(held.outcome(), Some(false), "{told:?}");
    }
}

/// Regression: the lock was broken on all nodes while their tokens were being raised. The nodes reported that it was
/// gone, but the next round took it again on one node after the other, as if they had restarted. It has to count as
/// lost.
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
    // A node with a lower token is asked to raise it first. It takes part in rounds only after that.
    let calls = healed(&mut held, 4, 150, 130);
    assert!(calls.contains(&Call::now(4, Ask::Fence { token: token(200) })));
    let calls = extend(&mut held, 200);
    assert_eq!(calls[4].ask, Ask::Fence { token: token(200) });
    assert_eq!(calls[0].ask, Ask::Extend { ttl_ms: TTL_MS, token: token(200) });
    assert_eq!(held.token(), token(200));
}

/// A late grant has a larger token, so all nodes are asked to raise theirs while an extension with the lower token is
/// on its way. The nodes refuse the extension, but still have the lock, so nothing is lost.
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
fn a_raise_that_failed_leaves_it_unknown_and_asked_again() {
    let mut held = held();
    extend(&mut held, 100);
    healed(&mut held, 3, 200, 110);
    held.on_answer(1, 0, id(0), Ask::Fence { token: token(200) }, Answer::Failed, at(150).boot);
    let calls = extend(&mut held, 200);
    assert_eq!(calls[0].ask, Ask::Fence { token: held.token() });
}

/// Nodes hung for longer than they have time to answer. Then they raised their tokens, and refused an extension that
/// named the lower one. Before the lock counts as gone there, they are asked which token they have.
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
