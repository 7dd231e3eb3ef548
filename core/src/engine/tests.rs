//! What happens to one key and its queue, whoever brings it about.

use super::fixture::{Key, granted, handed_over};
use super::{Event, Key as At, Question, Reply, Request, Said, Step, Work};
use crate::fixture::*;
use crate::queue::of_key::{Waiter, WaiterId, Want};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{Note, Release};
use crate::values::cause::Cause;
use crate::values::limits::{ANSWERS_A_PASS_MAX, DISK_WAIT_MS, OWNER_REQUESTS_MAX, UNUSED_TURNS_MAX};

#[test]
fn a_released_lock_passes_to_the_first_with_a_larger_token_and_a_full_lease() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let first = key.lock.as_ref().unwrap().token();
    let b = key.acquire("b", 700, 5_000).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.now = 30;
    key.release("a");
    let lock = key.lock.clone().unwrap();
    assert_eq!(key.settle(), [(b, Answer::Granted { token: lock.token(), waited_ms: 30 })]);
    assert!(lock.token() > first && lock.owner() == b"b" && lock.deadline() == at(730).boot);
    assert_eq!(key.queue(), [c]);
    key.now = 731;
    assert_eq!(granted(&key.settle()), [c], "a lease that ends passes on too");
    let counters = key.node.counters;
    assert_eq!((counters.grants, counters.hand_overs, key.node.waiting.waits.count()), (3, 2, 2));
}

/// Its client was promised an answer by then, and does not count on the lock any more.
#[test]
fn whose_time_is_up_gets_nothing_even_if_it_was_not_told_yet() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 50).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.now = 51;
    key.release("a");
    let answers = key.settle();
    assert!(matches!(answers[0], (id, Answer::InVain(_)) if id == b), "{answers:?}");
    assert_eq!(granted(&answers), [c]);
}

#[test]
fn nobody_passes_the_queue() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    key.del();
    assert_eq!(key.acquire("c", 1_000, 0), Ok(None));
    assert_eq!(granted(&key.settle()), [b]);
    assert_eq!(key.holder(), Some(&b"b"[..]));
}

#[test]
fn a_grant_answers_every_request_of_its_owner() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 50).unwrap().unwrap();
    key.acquire("c", 1_000, 500).unwrap().unwrap();
    let again = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let (_, turn) = key.wait("b", 5_000, Some(9)).unwrap();
    key.release("a");
    let answers = key.settle();
    assert_eq!(granted(&answers), [b, again]);
    assert!(answers.contains(&(turn, Answer::Turn)) && answers.len() == 3);
    assert_eq!((key.queue().len(), key.node.counters.hand_overs), (1, 1));
}

#[test]
fn release_takes_back_what_its_owner_waits_for() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let ask = Release { owner: owner("b"), level: None, token: Some(token(7)) };
    assert_eq!(key.perform(&Request::Release(ask)), Ok(Reply::Null));
    assert_eq!(key.queue(), [b], "about one grant alone");
    key.release("b");
    assert!(matches!(key.settle()[..], [(id, Answer::InVain(Want::Lock { .. }))] if id == b));
    assert!(key.node.waiting.is_empty() && key.node.waiting.next_due().is_none());
}

#[test]
fn a_reservation_used_unused_and_taken_back() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let (_, b) = key.wait("b", 5_000, None).unwrap();
    let (_, c) = key.wait("c", 5_000, None).unwrap();
    let (_, d) = key.wait("d", 5_000, None).unwrap();
    key.release("a");
    assert_eq!(key.settle(), [(b, Answer::Turn)]);
    key.acquire("c", 1_000, 0).unwrap();
    assert_eq!(key.holder(), None, "it is kept for b");
    key.now = 20;
    assert_eq!(key.settle(), []);
    key.now = 21;
    assert_eq!(key.settle(), [(c, Answer::Turn)], "unused: the next is told");
    key.acquire("b", 1_000, 0).unwrap();
    assert_eq!(key.holder(), None, "too late");
    key.release("c");
    assert_eq!(key.settle(), [(d, Answer::Turn)], "taken back");
    key.acquire("d", 1_000, 0).unwrap();
    assert_eq!(key.holder(), Some(&b"d"[..]));
    key.release("d");
    assert!(key.settle().is_empty() && key.node.waiting.is_empty());
}

#[test]
fn a_free_lock_is_kept_for_who_asks_and_not_for_ever() {
    let mut key = Key::new();
    for ms in [0, 5, 20] {
        key.now = ms;
        assert_eq!(key.wait("a", 0, None).unwrap().0, Reply::Turn(true));
    }
    assert_eq!(key.wait("b", 0, None).unwrap().0, Reply::Turn(false));
    key.now = 21;
    key.settle();
    assert!(key.node.waiting.is_empty());
    assert_eq!(key.wait("b", 0, None).unwrap().0, Reply::Turn(true));
    key.acquire("b", 1_000, 0).unwrap();
    assert_eq!(key.wait("b", 0, None).unwrap().0, Reply::Turn(true), "its own");
}

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

#[test]
fn an_evicted_lock_keeps_its_queue_waiting_until_its_lease_would_have_ended() {
    let mut key = Key::new();
    key.acquire("a", 300, 0).unwrap();
    let short = key.acquire("b", 1_000, 200).unwrap().unwrap();
    let long = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    let lock = key.lock.clone().unwrap();
    key.del();
    assert!(key.node.evict(At { db: 0, name: b"k" }, &lock, at(0)));
    assert!(matches!(key.settle()[..], [(id, Answer::Refused(Refusal::Evicted { .. }))] if id == short));
    key.now = 300;
    assert_eq!(key.settle(), []);
    key.now = 301;
    assert_eq!(granted(&key.settle()), [long]);
}

#[test]
fn without_a_ceiling_the_queue_waits_and_without_tokens_it_is_told() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
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

/// One owner asked twice, for leases of different length: both are told that it is theirs for theirs.
#[test]
fn the_lease_is_the_longest_that_its_owner_was_told_of() {
    for kept in [false, true] {
        let mut key = Key::new();
        key.acquire("a", 1_000, 0).unwrap();
        key.acquire("b", 300, 5_000).unwrap().unwrap();
        key.acquire("b", 30_000, 5_000).unwrap().unwrap();
        if kept {
            // The lock is gone and kept for its owner, who has asked for it already.
            key.del();
            key.node.waiting.reserve(0, b"k", owner("b"), at(0).boot);
            key.perform(&Request::Look).unwrap();
        } else {
            key.release("a");
        }
        assert_eq!(granted(&key.settle()).len(), 2);
        assert_eq!(key.lock.as_ref().unwrap().deadline(), at(30_000).boot);
    }
}

/// The guard kept a repetition of the holder's own request waiting: when it ends the holder is told what it has.
#[test]
fn the_holder_does_not_wait_for_itself() {
    let mut key = Key::new();
    key.acquire("a", 10_000, 0).unwrap();
    key.node.guard_by_operator(Some(9_499), at(0).boot);
    let again = key.acquire_again("a", 1_000, 20_000).unwrap().unwrap();
    let plain = key.acquire("a", 1_000, 20_000).unwrap().unwrap();
    let token = key.lock.as_ref().unwrap().token();
    key.now = 9_500;
    let answers = key.settle();
    assert!(answers.contains(&(again, Answer::Granted { token, waited_ms: 9_500 })), "{answers:?}");
    assert!(answers.contains(&(plain, Answer::Refused(Refusal::Owned))));
    assert!(key.node.waiting.is_empty());
    assert_eq!(key.lock.as_ref().unwrap().deadline(), at(10_500).boot, "for as long as it was told");
    assert_eq!(key.node.deadlines.earliest(), Some(at(10_500).boot));
}

/// Locks that are kept free take room, and none is left behind when its key turns out to be something else.
#[test]
fn reservations_are_bounded_and_end() {
    let mut key = Key::new();
    key.node.waiting.max = 1;
    assert_eq!(key.wait("a", 0, None).unwrap().0, Reply::Turn(true));
    let full = Err(Refusal::QueueFull { max: 1 });
    assert_eq!(key.wait_for(b"other", "b", 0, None), full);
    key.node.waiting.put_off(0, b"k", Refusal::WrongType, at(0).boot);
    assert!(key.node.waiting.is_empty() && key.node.waiting.next_due().is_none());
    assert_eq!(key.wait_for(b"other", "b", 0, None), Ok((Reply::Turn(true), 0)));
}

/// What the whole node cannot do is tried with one queue at a time, however many there are.
#[test]
fn a_node_that_cannot_grant_yet_looks_at_one_queue_at_a_time() {
    let mut key = Key::new();
    for n in 0..100_u8 {
        let want = Want::Lock { ttl: ttl(60_000), fence: None, retry: false };
        let waiter = Waiter::new(WaiterId(n.into()), owner("o"), Note::default(), want, at(0).boot, 60_000);
        key.node.waiting.join(0, &[n], waiter, None);
    }
    key.node.waiting.look_at_all();
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

/// Two clients that take turns in being told, with the smallest ticket, and never acquire.
#[test]
fn whoever_waits_longest_is_served_after_so_many_turns_that_nobody_used() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let (_, turn) = key.wait("b", 60_000, Some(7)).unwrap();
    let lock = key.acquire("c", 1_000, 60_000).unwrap().unwrap();
    key.wait("x", 60_000, Some(0)).unwrap();
    key.wait("y", 60_000, Some(0)).unwrap();
    key.release("a");
    for n in 0..UNUSED_TURNS_MAX {
        let answers = key.settle();
        assert!(matches!(answers[..], [(id, Answer::Turn)] if id != turn), "turn {n}: {answers:?}");
        key.wait(&format!("x{n}"), 60_000, Some(0)).unwrap();
        if n == 0 {
            // A turn that is given back is not used either.
            key.release("x");
        } else {
            key.now += 21;
        }
    }
    assert_eq!(key.settle(), [(turn, Answer::Turn)], "whatever the tickets");
    key.now += 21;
    assert_eq!(granted(&key.settle()), [lock], "and so on, until somebody acquires");
    let (_, turn) = key.wait("b", 60_000, Some(7)).unwrap();
    key.release("c");
    assert!(key.settle().iter().all(|answer| answer.0 != turn), "then tickets count again");
}

/// Clients that ask several nodes and collide leave a turn unused now and then.
#[test]
fn a_few_unused_turns_change_no_order() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    // The later they come, the smaller their tickets.
    let turn = |key: &mut Key, n: u32| key.wait(&n.to_string(), 60_000, Some(n.into())).unwrap().1;
    let turns: Vec<_> = (1..=UNUSED_TURNS_MAX).rev().map(|n| turn(&mut key, n)).collect();
    key.release("a");
    for expected in turns.into_iter().rev() {
        assert_eq!(key.settle(), [(expected, Answer::Turn)]);
        key.now += 21;
    }
}

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
            key.node.waiting.put_off(db, &name, refusal, at(0).boot);
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

/// Its handle may name another client by the time that the answer would be sent.
#[test]
fn the_answer_of_a_client_that_has_gone_is_dropped() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.release("b");
    key.release("c");
    assert_eq!(key.node.waiting.leave(WaiterId(b)), None);
    let mut waiter = Waiter::new(WaiterId(b), owner("d"), Note::default(), Want::Turn, at(0).boot, 5_000);
    waiter.until = at(5_000).boot;
    key.node.waiting.join(0, b"k", waiter, None);
    assert_eq!(key.settle().iter().map(|answer| answer.0).collect::<Vec<_>>(), [c]);
    assert_eq!(key.queue(), [b]);
}

/// An ACQUIRE that does not wait, while only the node's state file is in its way: as if it had been answered at once.
#[test]
fn a_request_that_waits_for_the_disk_alone_never_stands_behind_others() {
    let no_ceiling = |key: &mut Key| key.node.tokens.set_ceiling(0);
    // Nothing at all may be promised, to nobody: whoever asks waits.
    let no_disk = |key: &mut Key| key.node.ledger.taken(true);
    let disk = |key: &mut Key| {
        key.node.tokens.set_ceiling(u64::MAX);
        key.node.ledger.taken(false);
        key.now += 11;
    };
    let want = Want::Lock { ttl: ttl(1_000), fence: None, retry: false };
    let wait_for_disk = |key: &mut Key, name: &str| {
        no_disk(key);
        key.acquire(name, 1_000, 0).unwrap().unwrap()
    };
    // The disk comes: the first gets the lock, the others hear that they do not.
    let mut key = Key::new();
    no_ceiling(&mut key);
    let first = key.acquire("a", 1_000, 0).unwrap().unwrap();
    assert_eq!(key.acquire("b", 1_000, 0), Ok(None), "another is before it");
    let ids = [first, wait_for_disk(&mut key, "b"), wait_for_disk(&mut key, "c")];
    assert_eq!(key.settle(), []);
    disk(&mut key);
    let answers = key.settle();
    assert_eq!(granted(&answers), [ids[0]]);
    assert_eq!(answers[1..], [(ids[1], Answer::InVain(want)), (ids[2], Answer::InVain(want))]);
    assert_eq!((key.node.counters.contended, key.node.waiting.timeouts()), (3, 0));
    // It is held by another, or kept for one who was told: not for this one. Its own is its own.
    for (other, outcome) in [("b", Answer::InVain(want)), ("a", Answer::Refused(Refusal::Owned))] {
        let id = wait_for_disk(&mut key, other);
        disk(&mut key);
        assert_eq!(key.settle(), [(id, outcome)], "{other}");
    }
    key.release("a");
    assert_eq!(key.wait("t", 0, None).unwrap().0, Reply::Turn(true));
    let (other, own) = (wait_for_disk(&mut key, "u"), wait_for_disk(&mut key, "t"));
    disk(&mut key);
    let answers = key.settle();
    assert_eq!((granted(&answers), answers.len()), (vec![own], 2));
    assert!(answers.contains(&(other, Answer::InVain(want))));
    // A guard is told of, even if it would end before the disk is waited for in vain.
    let id = wait_for_disk(&mut key, "u");
    key.node.guard.arm(Cause::Operator, at(key.now).boot, at(key.now + 5).boot);
    assert!(matches!(key.settle()[..], [(told, Answer::Refused(Refusal::Guarded { .. }))] if told == id));
    disk(&mut key);
    // The disk does not come.
    key.now += 5_000;
    key.settle();
    no_ceiling(&mut key);
    let id = key.acquire("v", 1_000, 0).unwrap().unwrap();
    key.now += u64::from(DISK_WAIT_MS);
    assert_eq!(key.settle(), []);
    key.now += 1;
    assert_eq!(key.settle(), [(id, Answer::Refused(Refusal::NotYet))]);
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

/// The steps by which a lock ends: the key goes, or it is the next one's.
#[test]
fn what_ends_is_deleted_or_handed_over_and_told_once() {
    type End = fn(&mut Key) -> Event;
    let ends: [End; 3] = [
        |key| {
            assert_eq!(key.release("a"), Some(0));
            Event::Released
        },
        |key| {
            let token = key.lock.as_ref().unwrap().token();
            assert_eq!(key.perform(&Request::Break), Ok(Reply::Token(token)));
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
        let mut key = Key::new();
        key.acquire("a", 1_000, 0).unwrap();
        assert_eq!(key.effects(), [Step::Store(Event::Acquired)]);
        let event = end(&mut key);
        assert_eq!((key.effects(), key.lock.is_none()), (vec![Step::Delete(Some(event))], true));
        assert!(key.node.deadlines.is_empty());

        let mut key = Key::new();
        key.acquire("a", 1_000, 0).unwrap();
        let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
        let event = end(&mut key);
        assert_eq!(key.effects(), handed_over(event));
        assert_eq!(granted(&key.settle()), [b]);
        assert_eq!(key.holder(), Some(&b"b"[..]));
        assert_eq!(key.node.deadlines.len(), 1);
    }
}

/// Its lease is over, and the background has not come to it yet.
#[test]
fn who_asks_finds_the_lock_of_the_first_in_the_queue() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    key.now = 1_001;
    assert_eq!(key.acquire("c", 1_000, 0), Ok(None));
    assert_eq!(key.effects(), handed_over(Event::Expired), "before it is answered");
    assert_eq!(granted(&key.settle()), [b]);
    assert_eq!(key.holder(), Some(&b"b"[..]));
    // And where nobody waits it takes its place.
    key.now = 2_002;
    key.acquire("c", 1_000, 0).unwrap();
    assert_eq!((key.effects(), key.holder()), (vec![Step::Replace], Some(&b"c"[..])));
}

/// Where the server grants nothing for now, what ended is gone and those who wait are served as soon as it does; where it grants
/// nothing any more they are told.
#[test]
fn what_may_not_be_granted_is_free() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    key.says = |question| matches!(question, Question::MayGrant(_)).then_some(Said::Refused(Refusal::NotYet));
    key.release("a");
    assert_eq!(key.effects(), [Step::Tell(Event::Released), Step::Delete(None)]);
    assert_eq!((key.settle(), key.lock.is_none()), (vec![], true));
    key.now = 11;
    key.says = |_| None;
    assert_eq!(granted(&key.settle()), [b]);
    // So where a later life would not know of the grant.
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.node.ledger.taken(true);
    key.release("b");
    assert_eq!((key.settle(), key.lock.is_none()), (vec![], true));
    key.now = 22;
    key.node.ledger.taken(false);
    assert_eq!(granted(&key.settle()), [c]);
    let d = key.acquire("d", 1_000, 5_000).unwrap().unwrap();
    key.says = Key::says_poisoned;
    key.release("c");
    assert_eq!((key.settle(), key.lock.is_none()), (vec![(d, Answer::Refused(Refusal::Poisoned))], true));
}

#[test]
fn whose_user_lost_the_permission_is_told_and_the_next_is_served() {
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    let b = key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    assert_eq!((b, c), (1, 2));
    key.says = |question| (question == Question::IsPermitted(WaiterId(1))).then_some(Said::Refused(Refusal::Forbidden));
    key.release("a");
    let answers = key.settle();
    assert_eq!(answers[0], (b, Answer::Refused(Refusal::Forbidden)));
    assert_eq!((granted(&answers), answers.len()), (vec![c], 2));
}

/// Who is asked about is who gets it: that need not be the first in the queue.
#[test]
fn whose_user_lost_the_permission_gets_nothing_out_of_turn_either() {
    let forbidden =
        |question| (question == Question::IsPermitted(WaiterId(2))).then_some(Said::Refused(Refusal::Forbidden));
    // The time of the one before it is up.
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    key.acquire("b", 1_000, 10).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.now = 11;
    key.says = forbidden;
    key.release("a");
    assert_eq!((c, key.holder()), (2, None));
    assert!(key.settle().contains(&(c, Answer::Refused(Refusal::Forbidden))));
    // It is kept for the second.
    let mut key = Key::new();
    key.acquire("a", 1_000, 0).unwrap();
    key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let c = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
    key.del();
    key.node.waiting.reserve(0, b"k", owner("c"), at(0).boot);
    key.says = forbidden;
    assert!(key.settle().contains(&(c, Answer::Refused(Refusal::Forbidden))));
    assert_eq!(key.holder(), None);
}
