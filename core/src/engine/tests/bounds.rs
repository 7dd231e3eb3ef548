//! Bounds on the number of waiting requests, and on the work of one step.

use super::super::fixture::{Key, granted};
use super::super::{Finding, Question, Reply, Request};
use crate::fixture::*;
use crate::queue::of_key::{Waiter, WaiterId, Want};
use crate::queue::shares::{Asker, Load, UserId};
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::{Conversion, Known, Note};
use crate::values::cause::Cause;
use crate::values::limits::{ANSWERS_A_PASS_MAX, ENDED_A_STEP_MAX, ENTRY_BYTES, NOTE_BYTES_MAX, OWNER_REQUESTS_MAX};
use crate::values::mode::Wanted;
use crate::values::token::Token;

/// An owner has the largest number of requests in a queue, and the next one is refused. The number is small because a
/// grant answers all requests of its owner in one step.
#[test]
fn an_owner_has_few_requests_in_a_queue() {
    let mut key = Key::held();
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

/// A whole queue is answered, because the key holds a value of another type or the node is guarded. Each check of the
/// queue answers at most a slice of it, and nobody is forgotten.
#[test]
fn what_concerns_a_whole_queue_is_done_in_slices() {
    let many = 10 * ANSWERS_A_PASS_MAX;
    let guarded = Refusal::Guarded { left_ms: 60_000, cause: Cause::Operator };
    for refusal in [Refusal::WrongType, guarded] {
        let mut key = Key::held();
        for n in 0..many {
            key.acquire(&n.to_string(), 1_000, if n % 2 == 0 { 5_000 } else { 50_000 }).unwrap().unwrap();
        }
        let patient = key.acquire("patient", 1_000, 70_000).unwrap().unwrap();
        let mut looks = 0;
        let mut left = many + 1;
        while let Some((_, name)) = key.node.waiting.pop_due(at(0).boot).or((looks == 0).then(|| (0, b"k"[..].into())))
        {
            key.node.queues().postpone(key_of(&name), refusal, at(0).boot);
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

/// Regression: thousands of readers asked again while the node was guarded. When the guard ended, one step answered all
/// that still held the lock.
#[test]
fn holders_that_asked_again_are_answered_in_slices() {
    for lease_ms in [60_000, 10] {
        let mut key = Key::new();
        key.wanted = Wanted::Shared;
        key.acquire("stays", 60_000, 0).unwrap();
        let many = 3 * ANSWERS_A_PASS_MAX;
        for n in 0..many {
            key.acquire(&n.to_string(), lease_ms, 0).unwrap();
        }
        key.node.guard_by_operator(Some(50), at(0).boot);
        for n in 0..many {
            key.acquire(&n.to_string(), 60_000, 5_000).unwrap().unwrap();
        }
        key.now = 51;
        let mut answered = 0;
        while let Some(work) = key.node.take_due(at(51).boot, true) {
            key.perform_for(b"k", &work.request()).unwrap();
            let told = key.node.waiting.take_answers(usize::MAX).len();
            assert!(told <= ANSWERS_A_PASS_MAX, "{told} at once");
            answered += told;
        }
        assert_eq!((answered, key.node.waiting.len()), (many, 0));
        assert_eq!(key.holders().len(), many + 1);
    }
}

/// More waits end at once than one step answers. A release answers only a slice of them, and the lock passes on later.
#[test]
fn those_whose_time_is_up_are_passed_in_slices() {
    let mut key = Key::held();
    for n in 0..2 * ANSWERS_A_PASS_MAX {
        key.acquire(&n.to_string(), 1_000, 10).unwrap().unwrap();
    }
    let last = key.acquire("z", 1_000, 5_000).unwrap().unwrap();
    key.now = 11;
    key.release("a");
    assert_eq!(key.node.waiting.take_answers(usize::MAX).len(), ANSWERS_A_PASS_MAX);
    assert_eq!(granted(&key.settle()), [last]);
}

/// Regression: a RELEASE of one of a hundred keys with names of a megabyte took 12 ms, because each stage compared the
/// names. Now a request compares them at most twice.
#[test]
fn a_name_is_searched_for_once_and_not_at_each_stage() {
    let mut key = Key::held();
    let searches = |key: &mut Key, request: &Request<'_>| {
        let before = key.node.searches();
        key.perform(request).unwrap();
        key.node.searches() - before
    };
    for n in 0..3 {
        key.acquire(&n.to_string(), 1_000, 5_000).unwrap().unwrap();
    }
    key.wait("t", 5_000, None).unwrap();
    for owner in ["a", "0", "1", "2"] {
        assert!(searches(&mut key, &Request::Release(releases(owner))) <= 2, "{owner} of a lock with a queue");
    }
    assert_eq!(key.node.waiting.len(), 0);
}

/// Regression: LOCK.WATCH compared a name of a megabyte a second time, to plan its check. The first watcher of a lock
/// compares it with no other name, since the Bloom filter shows that no such name is stored.
#[test]
fn a_watcher_searches_for_its_name_once() {
    let mut key = Key::held();
    let known = Known::Grant(key.lock.as_ref().unwrap().first().token(), None);
    for searches in [0, 1, 1] {
        let before = key.node.searches();
        key.watch(known, 5_000).unwrap().unwrap();
        assert_eq!(key.node.searches() - before, searches);
    }
}

#[test]
fn no_more_wait_than_may() {
    let mut key = Key::new();
    key.node.max_load.places = 1;
    key.acquire("a", 1_000, 0).unwrap();
    key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    let full = Refusal::QueueFull { max: 1 };
    assert_eq!((key.acquire("c", 1_000, 5_000), key.wait("c", 5_000, None)), (Err(full), Err(full)));
    assert_eq!(key.acquire("c", 1_000, 0), Ok(None), "who does not wait needs no room");
    key.release("b");
    assert_eq!((key.acquire("c", 1_000, 5_000).is_ok(), key.node.waiting.most()), (true, 1));
}

/// The queue is full. A request that can be granted at once takes no place in it, so it is not refused.
#[test]
fn what_need_not_wait_needs_no_room() {
    let mut key = Key::new();
    key.node.max_load = Load { places: 0, bytes: 0 };
    assert_eq!(key.wait("a", 5_000, None), Ok((Reply::Turn(1), 0)));
    assert_eq!(key.acquire("b", 1_000, 5_000), Ok(None), "nothing is kept for a");
    assert_eq!(key.holder(), Some(&b"b"[..]));
    assert_eq!(key.wait("b", 5_000, None), Ok((Reply::Turn(1), 0)), "its own");
    assert_eq!(key.wait("a", 5_000, None), Err(Refusal::QueueFull { max: 0 }));
    key.wanted = Wanted::Shared;
    key.release("b");
    for name in ["r", "s", "t"] {
        assert_eq!(key.wait(name, 5_000, None), Ok((Reply::Turn(1), 0)));
        assert_eq!(key.acquire(name, 1_000, 5_000), Ok(None));
    }
    assert_eq!((key.holders().len(), key.node.load()), (3, Load::NONE));
}

/// Answers, in the server's place, that the user `name` sent the request.
fn says_user(question: Question, name: &[u8]) -> Option<Finding> {
    let asker = Asker { user: UserId::of(name), listener: None };
    (question == Question::WhoAsks).then_some(Finding::Asks(asker))
}

/// One user makes as many requests as it may. Requests of other users still find room.
#[test]
fn no_user_takes_the_places_of_others() {
    let mut key = Key::new();
    key.node.max_load.places = 80;
    key.acquire("holds", 1_000, 0).unwrap();
    key.says = |question| says_user(question, b"ann");
    for n in 0..70 {
        key.acquire(&n.to_string(), 1_000, 5_000).unwrap().unwrap();
    }
    let share = Refusal::ShareTaken { parameter: "lock.max-waiters" };
    assert_eq!((key.acquire("z", 1_000, 5_000), key.wait("z", 5_000, None)), (Err(share), Err(share)));
    assert_eq!(key.acquire("z", 1_000, 0), Ok(None), "who does not wait needs no room");
    key.says = |question| says_user(question, b"bob");
    for n in 70..78 {
        key.acquire(&n.to_string(), 1_000, 5_000).unwrap().unwrap();
    }
    key.says = |question| says_user(question, b"ann");
    assert_eq!(key.acquire("z", 1_000, 5_000), Err(share));
    key.release("0");
    key.release("1");
    assert_eq!(key.acquire("z", 1_000, 5_000), Err(share), "the others have less now");
}

/// The server is above `maxmemory`. Requests that would wait are refused, and holders can still extend and release.
#[test]
fn without_memory_nobody_begins_to_wait() {
    let mut key = Key::held();
    key.acquire("b", 1_000, 5_000).unwrap().unwrap();
    key.says = |question| (question == Question::WhoAsks).then_some(Finding::Refused(Refusal::OutOfMemory));
    assert_eq!(key.wait("c", 5_000, None), Err(Refusal::OutOfMemory));
    assert_eq!(key.wait("c", 0, None), Ok((Reply::Turn(0), 0)), "who does not wait is told");
    assert_eq!((key.release("a"), granted(&key.settle()).len()), (Some(0), 1));
    assert_eq!(key.node.load(), Load::NONE);
    assert_eq!(key.wait("b", 5_000, None), Ok((Reply::Turn(1), 0)));
}

/// After a demotion waiting requests are refused one after the other. Requests that arrive later stay.
#[test]
fn those_who_are_sent_away_leave_one_by_one() {
    let mut key = Key::new();
    key.acquire("a", 60_000, 0).unwrap();
    key.node.dismiss_all();
    assert!(!key.node.waiting.is_dismissing(), "nobody waits");
    let many = 3 * ANSWERS_A_PASS_MAX;
    let ids: Vec<_> = (0..many).map(|n| key.acquire(&n.to_string(), 1_000, 5_000).unwrap().unwrap()).collect();
    key.node.dismiss_all();
    let later = key.acquire("later", 1_000, 1_000).unwrap().unwrap();
    let mut sent = vec![];
    for n in 0..=many {
        let waiting = key.node.waiting.len();
        assert_eq!(key.node.next_due(), Some(at(0).boot));
        sent.extend(key.node.dismiss_next(at(0).boot).unwrap());
        assert!(waiting - key.node.waiting.len() <= 1, "{n}");
    }
    assert_eq!(sent.iter().map(|id| id.0).collect::<Vec<_>>(), ids);
    assert_eq!((key.queue(), key.node.dismiss_next(at(0).boot)), (vec![later], None));
    assert!(!key.node.waiting.is_dismissing());
}

/// Returns a lock with one reader that stays, and more grants that end after 10 ms than one step removes. Also returns
/// how many those are.
fn with_short_leases() -> (Key, usize) {
    let mut key = Key::new();
    key.wanted = Wanted::Shared;
    key.acquire("stays", 60_000, 0).unwrap();
    let many = ENDED_A_STEP_MAX + 10;
    for n in 0..many {
        key.acquire(&n.to_string(), 10, 0).unwrap();
    }
    (key, many)
}

/// More leases have ended than one step removes, and the last of them was that of an owner that now acquires again. The
/// end of its old grant must be reported before its new grant, or a replica would confuse the two.
#[test]
fn who_comes_again_does_not_come_in_the_place_of_its_grant_that_is_over() {
    let (mut key, many) = with_short_leases();
    key.acquire("later", 60_000, 0).unwrap();
    key.now = 11;
    // (After each request the fixture checks that the replica has the same grants in the same order.)
    key.acquire(&(many - 1).to_string(), 60_000, 0).unwrap();
    let lock = key.lock.as_ref().unwrap();
    assert_eq!(lock.grants().last().unwrap().1.owner(), (many - 1).to_string().as_bytes());
    assert_eq!(key.node.counters.expiries, ENDED_A_STEP_MAX as u64 + 1);
}

/// The one remaining holder becomes a writer. That ends the grants whose leases are over, and they are counted.
#[test]
fn leases_that_end_by_a_conversion_are_counted() {
    let (mut key, many) = with_short_leases();
    key.now = 11;
    assert!(matches!(key.convert("stays", Conversion::Exclusive), Ok(Reply::Token(_))));
    assert_eq!((key.node.counters.expiries, key.node.counters.conversions), (many as u64, 1));
}

/// Returns a lock that `readers` readers hold with one shared token, and that token.
fn with_one_token(readers: usize) -> (Key, Token) {
    let mut key = Key::new();
    key.wanted = Wanted::Shared;
    key.acquire("0", 60_000, 0).unwrap();
    let token = key.lock.as_ref().unwrap().first().token();
    key.fence = Some(token);
    for n in 1..readers {
        key.acquire(&n.to_string(), 60_000, 0).unwrap();
    }
    assert!(key.lock.as_ref().unwrap().grants().all(|(_, grant)| grant.token() == token));
    (key, token)
}

/// An operator breaks a token that many readers share: each slice ends a few of the grants, and the answer comes after
/// the last. Meanwhile a request that proposes this token gets a larger one, so that the work comes to an end.
#[test]
fn many_grants_with_one_token_are_broken_in_slices() {
    let (mut key, token) = with_one_token(3 * ENDED_A_STEP_MAX);
    assert_eq!(key.perform(&Request::Break(Some(token))), Ok(Reply::Later));
    assert_eq!(key.lock.as_ref().unwrap().len(), 3 * ENDED_A_STEP_MAX);
    key.acquire("later", 60_000, 0).unwrap();
    let told = key.settle();
    assert!(matches!(told[..], [(_, Answer::Broken(broken))] if broken == token), "{told:?}");
    assert_eq!((key.slices, key.lock.as_ref().unwrap().len()), (3, 1));
    let later = key.lock.as_ref().unwrap().first();
    assert!(later.owner() == b"later" && later.token() > token);
}

#[test]
fn a_break_in_slices_passes_the_lock_on_at_its_end() {
    let (mut key, token) = with_one_token(ENDED_A_STEP_MAX + 1);
    key.wanted = Wanted::Exclusive;
    let writer = key.acquire("writer", 60_000, 5_000).unwrap().unwrap();
    assert_eq!(key.perform(&Request::Break(Some(token))), Ok(Reply::Later));
    let told = key.settle();
    assert_eq!(granted(&told), [writer]);
    assert!(told.iter().any(|(_, answer)| *answer == Answer::Broken(token)));
}

/// Regression: while a BREAK went on in slices, another BREAK ended the rest. The first client was wrongly answered
/// that the lock may be elsewhere; it must be answered that all is done.
#[test]
fn a_break_in_slices_is_done_when_another_ends_the_lock() {
    for other in [None, Some(())] {
        let (mut key, token) = with_one_token(2 * ENDED_A_STEP_MAX);
        key.perform(&Request::Break(Some(token))).unwrap();
        key.perform(&Request::Break(other.map(|()| token))).unwrap();
        let told: Vec<_> = key.settle().into_iter().map(|(_, answer)| answer).collect();
        let blocked = if other.is_some() { 2 } else { 1 };
        assert_eq!(told, vec![Answer::Broken(token); blocked]);
        assert!(key.lock.is_none());
    }
}

/// Between two slices of a BREAK the lock is renamed, or its slot moves away. The grants continue there, so the
/// operator gets an error instead of a success.
#[test]
fn a_break_whose_lock_goes_away_is_refused() {
    let (mut key, token) = with_one_token(2 * ENDED_A_STEP_MAX);
    key.perform(&Request::Break(Some(token))).unwrap();
    key.lock = None;
    let told = key.settle();
    assert!(matches!(told[..], [(_, Answer::Refused(Refusal::BreakCutShort))]), "{told:?}");
}

/// Between two slices of a BREAK the lock is renamed, or leaves with its database, and a new one takes its place. The
/// grants go on elsewhere, also if the new lock is broken too.
#[test]
fn a_break_whose_lock_is_replaced_is_refused() {
    for (is_swapped, is_broken_too) in [(false, false), (false, true), (true, false)] {
        let (mut key, token) = with_one_token(2 * ENDED_A_STEP_MAX);
        key.perform(&Request::Break(Some(token))).unwrap();
        if is_swapped {
            key.node.swap(0, 1);
            key.lock = None;
        } else {
            key.del();
        }
        (key.wanted, key.fence) = (Wanted::Exclusive, None);
        key.acquire("other", 60_000, 0).unwrap();
        if is_broken_too {
            key.perform(&Request::Break(None)).unwrap();
        }
        let told = key.settle();
        assert!(matches!(told[..], [(_, Answer::Refused(Refusal::BreakCutShort))]), "{told:?}");
        assert_eq!(key.lock.is_some(), !is_broken_too);
    }
}

/// The last grant with the broken token was the last of the lock.
#[test]
fn no_later_reader_gets_a_broken_token() {
    for named in [true, false] {
        let (mut key, token) = with_one_token(1);
        assert_eq!(key.perform(&Request::Break(named.then_some(token))), Ok(Reply::Token(token)));
        assert!(key.lock.is_none());
        key.fence = Some(token);
        key.acquire("later", 60_000, 0).unwrap();
        assert!(key.lock.as_ref().unwrap().first().token() > token);
    }
}

/// A script or transaction cannot wait. Its BREAK ends the grants if one step may end all of them; otherwise it is
/// refused and ends none.
#[test]
fn who_cannot_be_blocked_breaks_no_more_than_one_slice() {
    let (mut key, token) = with_one_token(ENDED_A_STEP_MAX + 1);
    key.blocks = false;
    assert_eq!(key.perform(&Request::Break(Some(token))), Err(Refusal::BreaksTooMany));
    assert_eq!((key.lock.as_ref().unwrap().len(), key.node.counters.breaks), (ENDED_A_STEP_MAX + 1, 0));
    key.acquire("later", 60_000, 0).unwrap();
    let mut grants = key.lock.as_ref().unwrap().grants();
    assert!(grants.all(|(_, grant)| grant.token() == token), "whoever asks for the token still gets it");

    let (mut key, token) = with_one_token(ENDED_A_STEP_MAX);
    key.blocks = false;
    assert_eq!(key.perform(&Request::Break(Some(token))), Ok(Reply::Token(token)));
    assert!(key.lock.is_none() && key.settle().is_empty());
}

#[test]
fn a_node_that_follows_a_master_breaks_nothing_more_and_tells_who_asked() {
    let (mut key, token) = with_one_token(2 * ENDED_A_STEP_MAX);
    key.perform(&Request::Break(Some(token))).unwrap();
    key.node.become_replica();
    let told = key.settle();
    assert!(matches!(told[..], [(_, Answer::Refused(Refusal::MasterOnly))]), "{told:?}");
    assert_eq!(key.lock.as_ref().unwrap().len(), 2 * ENDED_A_STEP_MAX);
}

/// The client of a BREAK in slices goes away, so nobody is left to answer. The server may use its id for the next client
/// that it blocks.
#[test]
fn a_break_whose_client_has_gone_answers_nobody() {
    let (mut key, token) = with_one_token(2 * ENDED_A_STEP_MAX);
    key.perform(&Request::Break(Some(token))).unwrap();
    // It was the first client that was blocked.
    key.node.leave_queue(WaiterId(1), at(key.now).boot);
    assert_eq!(key.settle(), []);
    assert!(key.lock.is_none());
}

/// Between two slices of a BREAK all leases end, or the last holders release the lock. No grant is left, and none is
/// elsewhere, so the operator is answered that all is done.
#[test]
fn a_break_whose_grants_end_by_themselves_is_done() {
    for are_released in [false, true] {
        let (mut key, token) = with_one_token(2 * ENDED_A_STEP_MAX);
        key.perform(&Request::Break(Some(token))).unwrap();
        if are_released {
            (0..2 * ENDED_A_STEP_MAX).for_each(|n| assert_eq!(key.release(&n.to_string()), Some(0)));
        } else {
            key.now = 60_001;
        }
        let told = key.settle();
        assert!(matches!(told[..], [(_, Answer::Broken(broken))] if broken == token), "{are_released}: {told:?}");
    }
}

/// A client waits for long without a note, and asks again with a long note for a moment. The first request keeps the note,
/// so its bytes must go on to count.
#[test]
fn a_note_that_an_earlier_request_took_over_goes_on_to_count() {
    let (mut key, text) = (Key::held(), [b'n'; NOTE_BYTES_MAX]);
    let asks = [(1, Note::default(), 5_000), (2, Note::new(&text).unwrap(), 1)];
    for (id, note, ms) in asks {
        let waiter = Waiter::new(WaiterId(id), owner("b"), note, Want::Turn, at(0).boot, ms);
        key.node.queues().join(KEY, waiter, None);
    }
    key.now = 2;
    assert_eq!(key.settle().len(), 1);
    let noted: usize = key.node.waiting().of(KEY).map(|waiter| waiter.note().bytes().len()).sum();
    let counted = key.node.load().bytes - ENTRY_BYTES;
    assert!(counted >= noted as u64, "{counted} bytes count of a note of {noted}");
}
