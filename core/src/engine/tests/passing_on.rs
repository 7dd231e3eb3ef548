//! Tests of how a lock passes on to the first waiting request.

use super::super::fixture::{Key, granted, handed_over};
use super::super::{Event, Reply, Request, Step, Work};
use crate::fixture::*;
use crate::queue::of_key::{Waiter, WaiterId, Want};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{Acquire, Note, Release};
use crate::values::mode::{Mode, Wanted};

#[test]
fn a_released_lock_passes_to_the_first_with_a_larger_token_and_a_full_lease() {
    let mut key = Key::held();
    let first = key.lock.as_ref().unwrap().first().token();
    let b = key.acquire("b", 700, 5_000).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.now = 30;
    key.release("a");
    let lock = key.lock.clone().unwrap();
    let (token, granted_at) = (lock.first().token(), at(30).boot);
    assert_eq!(key.settle(), [(b, Answer::Granted { token, number: 1, waited_ms: 30, granted: granted_at })]);
    assert!(lock.first().token() > first && lock.first().owner() == b"b" && lock.first().deadline() == at(730).boot);
    assert_eq!(key.queue(), [c]);
    key.now = 731;
    assert_eq!(granted(&key.settle()), [c], "a lease that ends passes on too");
    let counters = key.node.counters;
    assert_eq!((counters.grants, counters.hand_overs, key.node.waiting.waits.count()), (3, 2, 2));
}

/// A request's wait is over, but it has not been answered yet when the lock ends. It does not get the lock: its client
/// expects an answer by then, and no longer counts on the lock.
#[test]
fn whose_time_is_up_gets_nothing_even_if_it_was_not_told_yet() {
    let mut key = Key::held();
    let b = key.acquire("b", 1_000, 50).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.now = 51;
    key.release("a");
    let answers = key.settle();
    assert!(matches!(answers[0], (id, Answer::TimedOut(_)) if id == b), "{answers:?}");
    assert_eq!(granted(&answers), [c]);
}

#[test]
fn nobody_passes_the_queue() {
    let (mut key, [b]) = Key::with_queue(["b"]);
    key.del();
    assert_eq!(key.acquire("c", 1_000, 0), Ok(None));
    assert_eq!(granted(&key.settle()), [b]);
    assert_eq!(key.holder(), Some(&b"b"[..]));
}

#[test]
fn a_grant_answers_every_request_of_its_owner() {
    let mut key = Key::held();
    let b = key.acquire("b", 1_000, 50).unwrap().unwrap();
    key.acquire("c", 1_000, 500).unwrap().unwrap();
    let again = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let (_, turn) = key.wait("b", 5_000, Some(9)).unwrap();
    key.release("a");
    let answers = key.settle();
    assert_eq!(granted(&answers), [b, again]);
    assert!(answers.contains(&(turn, Answer::Turn(1))) && answers.len() == 3);
    assert_eq!((key.queue().len(), key.node.counters.hand_overs), (1, 1));
}

#[test]
fn release_takes_back_what_its_owner_waits_for() {
    let (mut key, [b]) = Key::with_queue(["b"]);
    let ask = Release { owner: owner("b"), level: None, token: Some(token(7)) };
    assert_eq!(key.perform(&Request::Release(ask)), Ok(Reply::Null));
    assert_eq!(key.queue(), [b], "about one grant alone");
    key.release("b");
    assert!(matches!(key.settle()[..], [(id, Answer::TimedOut(Want::Lock { .. }))] if id == b));
    assert!(key.node.waiting.is_empty() && key.node.waiting.next_due().is_none());
}

/// An owner has two requests in the queue, for leases of different lengths. Both get the grant, and its lease is the
/// longer of the two.
#[test]
fn the_lease_is_the_longest_that_its_owner_was_told_of() {
    for kept in [false, true] {
        let mut key = Key::held();
        key.acquire("b", 300, 5_000).unwrap().unwrap();
        key.acquire("b", 30_000, 5_000).unwrap().unwrap();
        if kept {
            // The lock is deleted and then reserved for the owner, which has an ACQUIRE in the queue.
            key.del();
            key.node.queues().reserve(KEY, owner("b"), Mode::Exclusive, at(0).boot);
            key.perform(&Request::Look).unwrap();
        } else {
            key.release("a");
        }
        assert_eq!(granted(&key.settle()).len(), 2);
        assert_eq!(key.lock.as_ref().unwrap().first().deadline(), at(30_000).boot);
    }
}

/// The guard makes a repeated request of the holder wait. When the guard ends, the request is answered with the grant
/// that the owner has.
#[test]
fn the_holder_does_not_wait_for_itself() {
    let mut key = Key::new();
    key.acquire("a", 10_000, 0).unwrap();
    key.node.guard_by_operator(Some(9_499), at(0).boot);
    let again = key.acquire_again("a", 1_000, 20_000).unwrap().unwrap();
    let plain = key.acquire("a", 1_000, 20_000).unwrap().unwrap();
    let token = key.lock.as_ref().unwrap().first().token();
    key.now = 9_500;
    let answers = key.settle();
    let answer = Answer::Granted { token, number: 1, waited_ms: 9_500, granted: at(0).boot };
    assert!(answers.contains(&(again, answer)), "{answers:?}");
    assert!(answers.contains(&(plain, Answer::Refused(Refusal::Owned))));
    assert!(key.node.waiting.is_empty());
    assert_eq!(key.lock.as_ref().unwrap().first().deadline(), at(10_500).boot, "for as long as it was told");
    assert_eq!(key.node.deadlines.last(0), Some(at(10_500).boot));
}

/// A client disconnects before its answer is delivered. The answer is dropped, because the id may belong to another
/// client by then.
#[test]
fn the_answer_of_a_client_that_has_gone_is_dropped() {
    let (mut key, [b, c]) = Key::with_queue(["b", "c"]);
    key.release("b");
    key.release("c");
    assert_eq!(key.node.leave_queue(WaiterId(b), at(key.now).boot), None);
    let mut waiter = Waiter::new(WaiterId(b), owner("d"), Note::default(), Want::Turn, at(0).boot, 5_000);
    waiter.until = at(5_000).boot;
    key.node.queues().join(KEY, waiter, None);
    assert_eq!(key.settle().iter().map(|answer| answer.0).collect::<Vec<_>>(), [c]);
    assert_eq!(key.queue(), [b]);
}

/// A lease is over, but the timer has not handled its end yet. A new request finds that the first waiting request has
/// the lock.
#[test]
fn who_asks_finds_the_lock_of_the_first_in_the_queue() {
    let (mut key, [b]) = Key::with_queue(["b"]);
    key.now = 1_001;
    assert_eq!(key.acquire("c", 1_000, 0), Ok(None));
    assert_eq!(key.effects(), handed_over(Event::Expired), "before it is answered");
    assert_eq!(granted(&key.settle()), [b]);
    assert_eq!(key.holder(), Some(&b"b"[..]));
    // If nobody waits, the new request gets the lock.
    key.now = 2_002;
    key.acquire("c", 1_000, 0).unwrap();
    assert_eq!((key.effects(), key.holder()), (vec![Step::Replace], Some(&b"c"[..])));
}

/// A lock ends in several ways. The steps delete the key or hand it over, and publish each event once.
#[test]
fn what_ends_is_deleted_or_handed_over_and_told_once() {
    type End = fn(&mut Key) -> Event;
    let ends: [End; 3] = [
        |key| {
            assert_eq!(key.release("a"), Some(0));
            Event::Released
        },
        |key| {
            let token = key.lock.as_ref().unwrap().first().token();
            assert_eq!(key.perform(&Request::Break(None)), Ok(Reply::Token(token)));
            Event::Broken
        },
        |key| {
            key.now = 1_001;
            let Some(Work::Expire(due)) = key.node.take_due(at(key.now).boot, true) else { panic!("nothing is due") };
            key.perform(&Request::Expire(&due)).unwrap();
            Event::Expired
        },
    ];
    for end in ends {
        let mut key = Key::held();
        assert_eq!(key.effects(), [Step::Store(Event::Acquired)]);
        let event = end(&mut key);
        assert_eq!((key.effects(), key.lock.is_none()), (vec![Step::Delete(Some(event))], true));
        assert!(key.node.deadlines.is_empty());

        let (mut key, [b]) = Key::with_queue(["b"]);
        let event = end(&mut key);
        assert_eq!(key.effects(), handed_over(event));
        assert_eq!(granted(&key.settle()), [b]);
        assert_eq!(key.holder(), Some(&b"b"[..]));
        assert_eq!(key.node.deadlines.len(), 1);
    }
}

/// A lock of readers is renamed to a key that a writer held with a larger token. A reader that joins then gets a token
/// above the writer's.
#[test]
fn a_lock_that_came_from_another_key_is_joined_above_what_its_new_key_had() {
    let mut key = Key::new();
    let ask = |name, wanted, fence| Request::Acquire(Acquire { wanted, fence: Some(token(fence)), ..asks(name) });
    let granted = |value| Ok(Reply::Granted(token(value), 1));
    assert_eq!(key.perform(&ask("reader", Wanted::Shared, 100)), granted(100));
    assert_eq!(key.perform_for(b"x", &ask("writer", Wanted::Exclusive, 500)), granted(500));
    let mut writers = key.others.remove(&b"x"[..]).unwrap();
    key.node.cancel_expiry(key_of(b"x"), &mut writers);
    let mut lock = key.lock.take().unwrap();
    key.node.cancel_expiry(KEY, &mut lock);
    key.node.on_lock_arrived(key_of(b"x"), &mut lock, at(0).boot);
    key.others.insert(b"x".to_vec(), lock);
    assert_eq!(key.perform_for(b"x", &ask("other", Wanted::Shared, 300)), granted(501));
}

/// An owner waits for a key, and a lock that it holds with others is renamed to that key. It keeps that grant, and its
/// request gets no other.
#[test]
fn who_waits_and_then_holds_by_a_lock_that_came_is_not_granted_another() {
    let mut key = Key::new();
    key.acquire("writer", 2_000, 0).unwrap();
    key.wanted = Wanted::Shared;
    let waits = key.acquire("a", 100, 5_000).unwrap().unwrap();
    for name in ["a", "b"] {
        key.perform_for(b"x", &Request::Acquire(Acquire { wanted: Wanted::Shared, ..asks(name) })).unwrap();
    }
    key.rename(b"x");
    assert_eq!(key.settle(), [(waits, Answer::Refused(Refusal::Owned))]);
    let lock = key.lock.as_ref().unwrap();
    assert!(lock.grants().all(|(_, grant)| grant.deadline() == at(1_000).boot));
}
