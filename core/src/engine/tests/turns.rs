//! Tests of the turns of LOCK.WAIT, and of their reservations.

use super::super::Reply;
use super::super::fixture::{Key, granted};
use crate::fixture::*;
use crate::queue::of_key::WaiterId;
use crate::queue::shares::Load;
use crate::queue::waiting::Answer;
use crate::refusal::Refusal;
use crate::request::Conversion;
use crate::values::limits::UNUSED_TURNS_MAX;
use crate::values::mode::Wanted;

#[test]
fn a_reservation_used_unused_and_taken_back() {
    let mut key = Key::held();
    let (_, b) = key.wait("b", 5_000, None).unwrap();
    let (_, c) = key.wait("c", 5_000, None).unwrap();
    let (_, d) = key.wait("d", 5_000, None).unwrap();
    key.release("a");
    assert_eq!(key.settle(), [(b, Answer::Turn(1))]);
    key.acquire("c", 1_000, 0).unwrap();
    assert_eq!(key.holder(), None, "it is kept for b");
    key.now = 20;
    assert_eq!(key.settle(), []);
    key.now = 21;
    assert_eq!(key.settle(), [(c, Answer::Turn(1))], "unused: the next is told");
    key.acquire("b", 1_000, 0).unwrap();
    assert_eq!(key.holder(), None, "too late");
    key.release("c");
    assert_eq!(key.settle(), [(d, Answer::Turn(1))], "taken back");
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
        assert_eq!(key.wait("a", 0, None).unwrap().0, Reply::Turn(1));
    }
    assert_eq!(key.wait("b", 0, None).unwrap().0, Reply::Turn(0));
    key.now = 21;
    key.settle();
    assert!(key.node.waiting.is_empty());
    assert_eq!(key.wait("b", 0, None).unwrap().0, Reply::Turn(1));
    key.acquire("b", 1_000, 0).unwrap();
    assert_eq!(key.wait("b", 0, None).unwrap().0, Reply::Turn(1), "its own");
}

/// A reservation is over, but still in the table, because no timer runs while the server pauses writes. It does not
/// keep a reader from becoming a writer.
#[test]
fn a_reader_becomes_a_writer_once_the_reservation_of_another_is_over() {
    let mut key = Key::new();
    key.wanted = Wanted::Shared;
    assert_eq!(key.wait("reader", 0, None).unwrap().0, Reply::Turn(1));
    key.acquire("writer", 1_000, 0).unwrap();
    key.now = 20;
    assert_eq!(key.convert("writer", Conversion::Exclusive), Ok(Reply::Null), "still reserved");
    key.now = 21;
    assert!(matches!(key.convert("writer", Conversion::Exclusive), Ok(Reply::Token(_))), "no longer reserved");
}

/// Reservations take room, and they end when their key turns out to hold something else than a lock. A request for a
/// free lock is answered even if there is no room for a reservation.
#[test]
fn reservations_are_bounded_and_end() {
    let mut key = Key::new();
    let kept = |key: &Key, name: &[u8]| key.node.waiting.reservations(key_of(name)).count();
    key.node.max_load.places = 1;
    assert_eq!(key.wait("a", 0, None).unwrap().0, Reply::Turn(1));
    assert_eq!(key.wait_for(b"other", "b", 0, None), Ok((Reply::Turn(1), 0)));
    assert_eq!((kept(&key, b"k"), kept(&key, b"other")), (1, 0));
    key.node.queues().postpone(KEY, Refusal::WrongType, at(0).boot);
    assert!(key.node.waiting.is_empty() && key.node.waiting.next_due().is_none());
    assert_eq!(key.wait_for(b"other", "b", 0, None), Ok((Reply::Turn(1), 0)));
    assert_eq!(kept(&key, b"other"), 1);
    // An owner that did not wait may also get a reservation. All of these may take an eighth of the room, in places and
    // in bytes.
    key.node.max_load = Load { places: 80, bytes: 8 * 3_000 };
    let large = [b'l'; 3_000];
    assert_eq!(key.wait_for(&large, "b", 0, None), Ok((Reply::Turn(1), 0)));
    assert_eq!(kept(&key, &large), 0);
    for n in 0..20 {
        assert_eq!(key.wait_for(&[n], "b", 0, None), Ok((Reply::Turn(1), 0)));
    }
    let turns = key.node.waiting.turns();
    assert!(turns.places == 5 && turns.bytes <= 3_000, "{turns:?}");
    key.now = 21;
    key.settle();
    assert_eq!(key.node.load(), Load::NONE);
}

/// Two clients with the smallest tickets get turns alternately, and never acquire. After some turns the request that
/// has waited longest gets the turn.
#[test]
fn whoever_waits_longest_is_served_after_so_many_turns_that_nobody_used() {
    let mut key = Key::held();
    let (_, turn) = key.wait("b", 60_000, Some(7)).unwrap();
    let lock = key.acquire("c", 1_000, 60_000).unwrap().unwrap();
    key.wait("x", 60_000, Some(0)).unwrap();
    key.wait("y", 60_000, Some(0)).unwrap();
    key.release("a");
    for n in 0..UNUSED_TURNS_MAX {
        let answers = key.settle();
        assert!(matches!(answers[..], [(id, Answer::Turn(1))] if id != turn), "turn {n}: {answers:?}");
        key.wait(&format!("x{n}"), 60_000, Some(0)).unwrap();
        if n == 0 {
            // A turn that is given back is unused too.
            key.release("x");
        } else {
            key.now += 21;
        }
    }
    assert_eq!(key.settle(), [(turn, Answer::Turn(1))], "whatever the tickets");
    key.now += 21;
    assert_eq!(granted(&key.settle()), [lock], "and so on, until somebody acquires");
    let (_, turn) = key.wait("b", 60_000, Some(7)).unwrap();
    key.release("c");
    assert!(key.settle().iter().all(|answer| answer.0 != turn), "then tickets count again");
}

/// Now and then a turn is left unused, as when clients that ask several nodes collide. As long as these are few, the
/// order stays that of the tickets.
#[test]
fn a_few_unused_turns_change_no_order() {
    let mut key = Key::held();
    // Each later request has a smaller ticket, so it comes first.
    let turn = |key: &mut Key, n: u32| key.wait(&n.to_string(), 60_000, Some(n.into())).unwrap().1;
    let turns: Vec<_> = (1..=UNUSED_TURNS_MAX).rev().map(|n| turn(&mut key, n)).collect();
    key.release("a");
    for expected in turns.into_iter().rev() {
        assert_eq!(key.settle(), [(expected, Answer::Turn(1))]);
        key.now += 21;
    }
}

/// Once enough turns in a row were not used, the request that has waited longest is next. It stays next if the request
/// before it leaves, although another is ahead of it by ticket.
#[test]
fn a_reader_that_is_next_by_waiting_longest_gets_in_when_the_one_before_it_leaves() {
    let mut key = Key::new();
    key.node.waiting.unused_turns_max = 2;
    key.wanted = Wanted::Shared;
    key.acquire("holds", 1_000, 0).unwrap();
    for reader in ["one", "two"] {
        assert_eq!(key.wait(reader, 0, None).unwrap().0, Reply::Turn(1));
    }
    key.wanted = Wanted::Exclusive;
    let writer = key.acquire("writes", 1_000, 5_000).unwrap().unwrap();
    // Two turns were unused.
    key.release("one");
    key.release("two");
    key.wanted = Wanted::Shared;
    let (_, reader) = key.wait("one", 5_000, None).unwrap();
    // The writer's second request is right behind its first, ahead of the reader, though it arrived later.
    key.wanted = Wanted::Exclusive;
    key.acquire("writes", 1_000, 5_000).unwrap().unwrap();
    assert_eq!(key.settle(), []);
    key.node.leave_queue(WaiterId(writer), at(key.now).boot).unwrap();
    assert_eq!(key.settle(), [(reader, Answer::Turn(1))]);
}
