//! How much may wait, and how much is done at once.

use super::super::Reply;
use super::super::fixture::{Key, granted};
use crate::fixture::*;
use crate::refusal::Refusal;
use crate::request::Conversion;
use crate::values::cause::Cause;
use crate::values::limits::{ANSWERS_A_PASS_MAX, ENDED_A_STEP_MAX, OWNER_REQUESTS_MAX};
use crate::values::mode::Wanted;

/// One grant answers all of its owner's requests in one step.
#[test]
fn an_owner_has_few_requests_in_a_queue() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    for _ in 0..OWNER_REQUESTS_MAX {
        key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    }
    let full = Refusal::OwnerQueueFull;
    assert_eq!((key.acquire("b", 1_000, 5_000), key.wait("b", 5_000, Some(1))), (Err(full), Err(full)));
    assert_eq!(key.acquire("b", 1_000, 0), Ok(None), "who does not wait needs no room");
    key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.release("a");
    assert_eq!(granted(&key.settle()).len(), OWNER_REQUESTS_MAX);
}

/// However many wait, and whatever befalls them: no look at their queue takes more of them out than a slice.
#[test]
fn what_concerns_a_whole_queue_is_done_in_slices() {
    let many = 10 * ANSWERS_A_PASS_MAX;
    let guarded = Refusal::Guarded { left_ms: 60_000, cause: Cause::Operator };
    for refusal in [Refusal::WrongType, guarded] {
        let mut key = Key::new();
        key.acquire("a", 1_000, 0).unwrap();
        for n in 0..many {
            key.acquire(&n.to_string(), 1_000, if n % 2 == 0 { 5_000 } else { 50_000 }).unwrap().unwrap();
        }
        let patient = key.acquire("patient", 1_000, 70_000).unwrap().unwrap();
        let mut looks = 0;
        let mut left = many + 1;
        while let Some((db, name)) = key.node.waiting.pop_due(at(0).boot).or((looks == 0).then(|| (0, b"k"[..].into())))
        {
            key.node.waiting.postpone(db, &name, refusal, at(0).boot);
            let now_left = key.node.waiting.len();
            assert!(left - now_left <= ANSWERS_A_PASS_MAX, "{} at once", left - now_left);
            (left, looks) = (now_left, looks + 1);
        }
        assert!(looks >= 10);
        assert_eq!(key.queue(), if refusal == guarded { vec![patient] } else { vec![] });
        let mut told = 0;
        while key.node.waiting.has_answers() {
            let answers = key.node.waiting.take_answers(ANSWERS_A_PASS_MAX);
            assert!(answers.len() <= ANSWERS_A_PASS_MAX);
            told += answers.len();
        }
        assert_eq!(told, many + 1 - left, "and nobody was forgotten");
    }
}

/// Thousands whose time is up at once: a release does not answer them all before it passes the lock on.
#[test]
fn those_whose_time_is_up_are_passed_in_slices() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    for n in 0..2 * ANSWERS_A_PASS_MAX {
        key.acquire(&n.to_string(), 1_000, 10).unwrap().unwrap();
    }
    let last = key.acquire("z", 1_000, 5_000).unwrap().unwrap();
    key.now = 11;
    key.release("a");
    assert_eq!(key.node.waiting.take_answers(usize::MAX).len(), ANSWERS_A_PASS_MAX);
    assert_eq!(granted(&key.settle()), [last]);
}

#[test]
fn no_more_wait_than_may() {
    let mut key = Key::new();
    key.node.waiting.max = 1;
    key.acquire("a", 1_000, 0).unwrap();
    key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let full = Refusal::QueueFull { max: 1 };
    assert_eq!((key.acquire("c", 1_000, 5_000), key.wait("c", 5_000, None)), (Err(full), Err(full)));
    assert_eq!(key.acquire("c", 1_000, 0), Ok(None), "who does not wait needs no room");
    key.release("b");
    assert_eq!((key.acquire("c", 1_000, 5_000).is_ok(), key.node.waiting.most()), (true, 1));
}

/// More leases are over than one step takes out, and one who comes again had the last of them: that it ended is told before its new
/// grant, or replicas would take the one for the other.
#[test]
fn who_comes_again_does_not_come_in_the_place_of_its_grant_that_is_over() {
    let mut key = Key::new();
    key.wanted = Wanted::Shared;
    key.acquire("stays", 60_000, 0).unwrap();
    let many = ENDED_A_STEP_MAX + 10;
    for n in 0..many {
        key.acquire(&n.to_string(), 10, 0).unwrap();
    }
    key.acquire("later", 60_000, 0).unwrap();
    key.now = 11;
    // (That the replica holds the same, in the same order, is looked at after each request.)
    key.acquire(&(many - 1).to_string(), 60_000, 0).unwrap();
    let lock = key.lock.as_ref().unwrap();
    assert_eq!(lock.grants().last().unwrap().1.owner(), (many - 1).to_string().as_bytes());
    assert_eq!(key.node.counters.expiries, ENDED_A_STEP_MAX as u64 + 1);
}

/// The one who is left becomes a writer: the grants that are over end with that, and are counted.
#[test]
fn leases_that_end_by_a_conversion_are_counted() {
    let mut key = Key::new();
    key.wanted = Wanted::Shared;
    key.acquire("stays", 60_000, 0).unwrap();
    let many = ENDED_A_STEP_MAX + 10;
    for n in 0..many {
        key.acquire(&n.to_string(), 10, 0).unwrap();
    }
    key.now = 11;
    assert!(matches!(key.convert("stays", Conversion::Exclusive), Ok(Reply::Token(_))));
    assert_eq!((key.node.counters.expiries, key.node.counters.conversions), (many as u64, 1));
}
