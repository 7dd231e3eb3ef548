//! Tests of a free lock that waiting requests cannot get for now: because of a guard, an eviction, the disk, the server
//! or a permission.

use super::super::fixture::{Key, granted};
use super::super::{Event, Finding, Question, Reply, Request, Step, Work};
use crate::fixture::*;
use crate::guard::evicted::Evictee;
use crate::queue::of_key::{Waiter, WaiterId, Want};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::Note;
use crate::values::cause::Cause;
use crate::values::limits::DISK_WAIT_MS;
use crate::values::mode::{Mode, Wanted};

#[test]
fn the_guard_refuses_who_cannot_outwait_it_and_serves_the_others_after() {
    let mut key = Key::new();
    key.acquire("a", 10_000, 0).unwrap();
    let short = key.acquire("b", 1_000, 400).unwrap().unwrap();
    let long = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.node.guard_by_operator(Some(500), at(0).boot);
    let guarded = Refusal::Guarded { left_ms: 500, cause: Cause::Operator };
    assert_eq!(key.settle(), [(short, Answer::Refused(guarded))], "while the lock is held, too");
    assert_eq!(key.acquire("d", 1_000, 500), Err(guarded));
    let late = key.acquire("d", 1_000, 501).unwrap().unwrap();
    key.now = 100;
    key.release("a");
    assert_eq!((key.settle(), key.holder()), (vec![], None));
    assert!(key.wait("e", 100, None).is_err());
    key.now = 500;
    assert_eq!(key.settle(), []);
    key.now = 501;
    assert_eq!((granted(&key.settle()), key.queue()), (vec![long], vec![late]));
}

/// Regression: after a guard was lifted, a shorter one did not refuse the requests that had arrived in between and could
/// not wait for its end. They got Null when their time was over.
#[test]
fn a_guard_after_a_longer_one_that_was_lifted_refuses_who_cannot_outwait_it() {
    let mut key = Key::new();
    key.acquire("a", 10_000, 0).unwrap();
    let long = key.acquire("b", 1_000, 90_000).unwrap().unwrap();
    key.node.guard_by_operator(Some(60_000), at(0).boot);
    assert_eq!(key.settle(), []);
    key.node.guard_by_operator(None, at(0).boot);
    let short = key.acquire("c", 1_000, 400).unwrap().unwrap();
    key.node.guard_by_operator(Some(500), at(0).boot);
    let guarded = Refusal::Guarded { left_ms: 500, cause: Cause::Operator };
    assert_eq!((key.settle(), key.queue()), (vec![(short, Answer::Refused(guarded))], vec![long]));
}

#[test]
fn an_evicted_lock_keeps_its_queue_waiting_until_its_lease_would_have_ended() {
    let mut key = Key::new();
    key.acquire("a", 300, 0).unwrap();
    let short = key.acquire("b", 1_000, 200).unwrap().unwrap();
    let long = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    let lock = key.lock.clone().unwrap();
    key.del();
    assert!(key.node.evict(KEY, Evictee::of(&lock), at(0)));
    assert!(matches!(key.settle()[..], [(id, Answer::Refused(Refusal::Evicted { .. }))] if id == short));
    key.now = 300;
    assert_eq!(key.settle(), []);
    key.now = 301;
    assert_eq!(granted(&key.settle()), [long]);
}

#[test]
fn without_a_ceiling_the_queue_waits_and_without_tokens_it_is_told() {
    let (mut key, [b]) = Key::with_queue(["b"]);
    key.node.tokens.set_ceiling(0);
    key.now = 1;
    key.release("a");
    assert!(key.settle().is_empty());
    key.now = 11;
    key.node.tokens.set_ceiling(u64::MAX);
    assert_eq!(granted(&key.settle()), [b], "tried again");
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.node.tokens.raise_floor(u64::MAX);
    key.release("b");
    assert_eq!(key.settle(), [(c, Answer::Refused(Refusal::TokensExhausted))]);
}

/// A command in a transaction or script cannot be blocked. It is answered at once, even if only the disk is in its way.
#[test]
fn who_cannot_be_blocked_does_not_wait_for_the_disk() {
    let mut key = Key::new();
    key.node.tokens.set_ceiling(0);
    key.blocks = false;
    assert_eq!(key.acquire("a", 1_000, 0), Err(Refusal::NotYet));
    assert_eq!((key.queue(), key.node.next_due()), (vec![], None));
    key.blocks = true;
    let waits = key.acquire("a", 1_000, 0).unwrap().unwrap();
    assert_eq!(key.queue(), [waits]);
}

/// The node is guarded. It checks one queue at a time, however many there are, because the reason is the same for all.
#[test]
fn a_node_that_cannot_grant_yet_looks_at_one_queue_at_a_time() {
    let mut key = Key::new();
    for n in 0..100_u8 {
        let want = Want::Lock { ttl: ttl(60_000), fence: None, retry: false };
        let waiter = Waiter::new(WaiterId(n.into()), owner("o"), Note::default(), want, at(0).boot, 60_000);
        key.node.queues().join(key_of(&[n]), waiter, None);
    }
    key.node.waiting.wake_all();
    key.says = Key::says_not_yet;
    let mut looks = 0;
    for ms in 0..1_000 {
        key.now = ms;
        while let Some(Work::Look(_, name)) = key.node.take_due(at(ms).boot, true) {
            looks += 1;
            assert_eq!(key.perform_for(&name, &Request::Look), Ok(Reply::Null));
        }
    }
    assert_eq!((looks, key.others.len()), (100, 0), "one every 10 ms");
    key.says = |_| None;
    key.now = 2_000;
    assert_eq!(granted(&key.settle()).len(), 100, "and none was forgotten");
    assert_eq!(key.others.len(), 100);
}

/// An ACQUIRE without WAIT waits only for the node's state file. When the file is written, it gets the answer that it
/// would have got at once.
#[test]
fn a_request_that_waits_for_the_disk_alone_never_stands_behind_others() {
    let no_ceiling = |key: &mut Key| key.node.tokens.set_ceiling(0);
    // The state file belongs to another server, so nothing can be promised and every request waits.
    let no_disk = |key: &mut Key| key.node.ledger.set_file_taken(true);
    let disk = |key: &mut Key| {
        key.node.tokens.set_ceiling(u64::MAX);
        key.node.ledger.set_file_taken(false);
        key.now += 11;
    };
    let want = Want::Lock { ttl: ttl(1_000), fence: None, retry: false };
    let wait_for_disk = |key: &mut Key, name: &str| {
        no_disk(key);
        key.acquire(name, 1_000, 0).unwrap().unwrap()
    };
    // The state is on the disk. The first request gets the lock, and the others are answered that they do not.
    let mut key = Key::new();
    no_ceiling(&mut key);
    let first = key.acquire("a", 1_000, 0).unwrap().unwrap();
    assert_eq!(key.acquire("b", 1_000, 0), Ok(None), "another is before it");
    let ids = [first, wait_for_disk(&mut key, "b"), wait_for_disk(&mut key, "c")];
    assert_eq!(key.settle(), []);
    disk(&mut key);
    let answers = key.settle();
    assert_eq!(granted(&answers), [ids[0]]);
    assert_eq!(answers[1..], [(ids[1], Answer::TimedOut(want)), (ids[2], Answer::TimedOut(want))]);
    assert_eq!((key.node.counters.contended, key.node.waiting.timeouts()), (3, 0));
    // Another owner holds or has reserved the lock, so the request does not get it. An owner that holds it already is
    // refused as usual.
    for (other, outcome) in [("b", Answer::TimedOut(want)), ("a", Answer::Refused(Refusal::Owned))] {
        let id = wait_for_disk(&mut key, other);
        disk(&mut key);
        assert_eq!(key.settle(), [(id, outcome)], "{other}");
    }
    key.release("a");
    assert_eq!(key.wait("t", 0, None).unwrap().0, Reply::Turn(1));
    let (other, own) = (wait_for_disk(&mut key, "u"), wait_for_disk(&mut key, "t"));
    disk(&mut key);
    let answers = key.settle();
    assert_eq!((granted(&answers), answers.len()), (vec![own], 2));
    assert!(answers.contains(&(other, Answer::TimedOut(want))));
    // The request is refused because of the guard, even if the guard ends before the wait for the disk does.
    let id = wait_for_disk(&mut key, "u");
    key.node.guard.arm(Cause::Operator, at(key.now).boot, at(key.now + 5).boot);
    assert!(matches!(key.settle()[..], [(told, Answer::Refused(Refusal::Guarded { .. }))] if told == id));
    disk(&mut key);
    // The state never reaches the disk.
    key.now += 5_000;
    key.settle();
    no_ceiling(&mut key);
    let id = key.acquire("v", 1_000, 0).unwrap().unwrap();
    key.now += u64::from(DISK_WAIT_MS);
    assert_eq!(key.settle(), []);
    key.now += 1;
    assert_eq!(key.settle(), [(id, Answer::Refused(Refusal::NotYet))]);
}

/// The time of a request ends while the disk alone keeps the node from handing over a free lock. The answer names the disk:
/// "another holds it" would be untrue. Once the disk works again, others may hold it, and the answer says so.
#[test]
fn a_wait_that_ends_while_the_disk_fails_is_told_of_the_disk() {
    let (mut key, [b, c]) = Key::with_queue(["b", "c"]);
    key.node.ledger.set_file_taken(true);
    key.release("a");
    assert_eq!(key.settle(), []);
    let short = key.acquire("d", 1_000, 30).unwrap().unwrap();
    key.now += 31;
    assert_eq!(key.settle(), [(short, Answer::Refused(Refusal::NotYet))]);
    key.wait("e", 30, None).unwrap();
    key.now += 31;
    assert!(matches!(key.settle()[..], [(_, Answer::TimedOut(Want::Turn))]), "a wait for a turn asks for no lock");
    let late = key.acquire("f", 1_000, 30).unwrap().unwrap();
    key.node.ledger.set_file_taken(false);
    key.now += 11;
    assert_eq!(granted(&key.settle()), [b]);
    key.now += 30;
    assert!(matches!(key.settle()[..], [(told, Answer::TimedOut(_))] if told == late), "b holds it");
    key.release("b");
    assert_eq!(granted(&key.settle()), [c]);
}

/// A lock ends while the server lets the node grant nothing: its key is deleted. Waiting requests are served once the
/// server allows it again, and refused if it never will.
#[test]
fn what_may_not_be_granted_is_free() {
    let (mut key, [b]) = Key::with_queue(["b"]);
    key.says = |question| matches!(question, Question::MayGrant(_)).then_some(Finding::Refused(Refusal::NotYet));
    key.release("a");
    assert_eq!(key.effects(), [Step::Publish(Event::Released), Step::Delete(None)]);
    assert_eq!((key.settle(), key.lock.is_none()), (vec![], true));
    key.now = 11;
    key.says = |_| None;
    assert_eq!(granted(&key.settle()), [b]);
    // Here the reason is the disk, which lacks a state that a later incarnation needs to know of the grant.
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.node.ledger.set_file_taken(true);
    key.release("b");
    assert_eq!((key.settle(), key.lock.is_none()), (vec![], true));
    key.now = 22;
    key.node.ledger.set_file_taken(false);
    assert_eq!(granted(&key.settle()), [c]);
    let d = key.acquire("d", 1_000, 5_000).unwrap().unwrap();
    key.says = Key::says_poisoned;
    key.release("c");
    assert_eq!((key.settle(), key.lock.is_none()), (vec![(d, Answer::Refused(Refusal::Poisoned))], true));
}

#[test]
fn whose_user_lost_the_permission_is_told_and_the_next_is_served() {
    let (mut key, [b, c]) = Key::with_queue(["b", "c"]);
    assert_eq!((b, c), (1, 2));
    key.says =
        |question| (question == Question::IsPermitted(WaiterId(1))).then_some(Finding::Refused(Refusal::Forbidden));
    key.release("a");
    let answers = key.settle();
    assert_eq!(answers[0], (b, Answer::Refused(Refusal::Forbidden)));
    assert_eq!((granted(&answers), answers.len()), (vec![c], 2));
}

/// The user of a request that is not first in the queue has lost the permission. It is checked when that request would
/// get the lock, and refused.
#[test]
fn whose_user_lost_the_permission_gets_nothing_out_of_turn_either() {
    // Case 1: the wait of the request before it is over.
    let mut key = Key::held();
    key.acquire("b", 1_000, 10).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.now = 11;
    key.says = Key::says_second_is_forbidden;
    key.release("a");
    assert_eq!((c, key.holder()), (2, None));
    assert!(key.settle().contains(&(c, Answer::Refused(Refusal::Forbidden))));
    // Case 2: the lock is reserved for the second request.
    let mut key = Key::held();
    key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.del();
    key.node.queues().reserve(KEY, owner("c"), Mode::Exclusive, at(0).boot);
    key.says = Key::says_second_is_forbidden;
    assert!(key.settle().contains(&(c, Answer::Refused(Refusal::Forbidden))));
    assert_eq!(key.holder(), None);
}

/// A request of an owner that already holds the lock with others is answered with its grant. The request behind it gets
/// the lock only after its own user's permission was checked.
#[test]
fn who_is_behind_a_holder_s_own_request_is_asked_for_too() {
    let mut key = Key::new();
    key.wanted = Wanted::Shared;
    assert_eq!(key.acquire("a", 1_000, 0), Ok(None));
    key.node.guard_by_operator(Some(50), at(0).boot);
    let (own, other) = (key.acquire("a", 1_000, 500).unwrap().unwrap(), key.acquire("b", 1_000, 500).unwrap().unwrap());
    assert_eq!((own, other), (1, 2));
    key.says = Key::says_second_is_forbidden;
    key.now = 60;
    let answers = key.settle();
    assert_eq!(answers, [(own, Answer::Refused(Refusal::Owned)), (other, Answer::Refused(Refusal::Forbidden))]);
    assert_eq!(key.holders().len(), 1);
}
