use std::cell::Cell;

use super::*;
use crate::fixture::*;

fn waiter(n: u64, name: &str) -> Waiter {
    Waiter::new(WaiterId(n), owner(name), Note::default(), Want::Turn, at(0).boot, 100)
}

fn join(queue: &mut Queue, waiter: Waiter, ticket: Option<u64>, arrival: u64) -> Place {
    queue.join(waiter, ticket, arrival, &mut Loads::default())
}

fn order(queue: &Queue) -> Vec<u64> {
    queue.iter().map(|waiter| waiter.id.0).collect()
}

#[test]
fn order_is_by_ticket_then_arrival() {
    // (tickets in order of arrival, numbers of the requests in order of service)
    let cases: [(&[Option<u64>], &[u64]); 5] = [
        (&[None, None, None], &[1, 2, 3]),
        (&[Some(30), Some(10), Some(20)], &[2, 3, 1]),
        (&[Some(7), Some(7), Some(7)], &[1, 2, 3]),
        // A request without a ticket is behind all present requests. A later request with a smaller ticket goes
        // before it.
        (&[Some(20), None, Some(10), Some(20)], &[3, 1, 2, 4]),
        (&[None, Some(10), None, Some(0)], &[1, 4, 2, 3]),
    ];
    for (tickets, expected) in cases {
        let mut queue = Queue::default();
        for (n, ticket) in (1..).zip(tickets) {
            join(&mut queue, waiter(n, &n.to_string()), *ticket, n);
        }
        assert_eq!(order(&queue), expected, "{tickets:?}");
    }
}

#[test]
fn who_asks_twice_stands_where_it_stood() {
    let mut queue = Queue::default();
    let first = join(&mut queue, waiter(1, "me"), None, 1);
    join(&mut queue, waiter(2, "you"), None, 2);
    join(&mut queue, waiter(3, "me"), None, 3);
    assert_eq!(order(&queue), [1, 3, 2]);
    queue.leave(first);
    join(&mut queue, waiter(4, "me"), None, 4);
    assert_eq!(order(&queue), [3, 4, 2], "the place is kept as long as one of its requests stands there");
    assert_eq!(queue.leave_all_of(owner("me"), |_| true).len(), 2);
    assert_eq!((order(&queue), queue.owners.len(), queue.arrivals.len()), (vec![2], 1, 1));
}

#[test]
fn who_asks_in_another_mode_passes_nobody() {
    let of = |n, name, wanted| Waiter { wanted, ..waiter(n, name) };
    let permit = |limit, number| Wanted::Permit { limit, number };
    let mut queue = Queue::default();
    join(&mut queue, of(1, "me", permit(3, None)), None, 1);
    join(&mut queue, of(2, "you", permit(3, None)), None, 2);
    join(&mut queue, of(3, "me", Wanted::Exclusive), None, 3);
    assert_eq!(order(&queue), [1, 2, 3]);
    join(&mut queue, of(4, "me", permit(3, Some(2))), None, 4);
    join(&mut queue, of(5, "you", Wanted::Shared), None, 5);
    join(&mut queue, of(6, "me", Wanted::Exclusive), None, 6);
    assert_eq!(order(&queue), [1, 4, 2, 3, 6, 5], "each keeps its own place");
}

/// A client that waits for long asks again and again, each time with more callers behind it. Only its last number of
/// callers counts, and only once.
#[test]
fn what_the_last_request_of_an_owner_says_counts_and_counts_once() {
    let mut queue = Queue::default();
    let behind = |n| Behind::new(Some(n)).unwrap();
    let told = |queue: &Queue| queue.iter().map(|waiter| waiter.behind.get()).collect::<Vec<_>>();
    let first = join(&mut queue, Waiter { behind: behind(3), ..waiter(1, "me") }, Some(5), 1);
    let other = join(&mut queue, Waiter { behind: behind(10), ..waiter(2, "you") }, Some(6), 2);
    assert_eq!((queue.behind(), told(&queue)), (13, vec![3, 10]));
    let again = Note::new(b"again").unwrap();
    let renewed = Waiter::new(WaiterId(3), owner("me"), again, Want::Turn, at(50).boot, 100);
    let second = join(&mut queue, Waiter { behind: behind(4), ..renewed }, Some(5), 3);
    assert_eq!((queue.behind(), told(&queue)), (14, vec![4, 4, 10]));
    assert!(queue.iter().take(2).all(|waiter| waiter.note() == again));
    queue.leave(first);
    assert_eq!(queue.behind(), 14, "it still waits");
    queue.leave(second);
    assert_eq!(queue.behind(), 10);
    queue.leave(other);
    assert_eq!(queue.behind(), 0);
}

/// A request for the lock itself has a note, and its owner asks again with another note. The first note stays, because
/// it becomes that of the grant.
#[test]
fn the_note_of_a_request_for_the_lock_stays() {
    let mut queue = Queue::default();
    let lock = Want::Lock { ttl: ttl(1_000), fence: None, retry: false };
    let note = Note::new(b"deploy").unwrap();
    join(&mut queue, Waiter::new(WaiterId(1), owner("me"), note, lock, at(0).boot, 100), None, 1);
    join(&mut queue, waiter(2, "me"), None, 2);
    assert_eq!(queue.iter().next().unwrap().note(), note);
}

#[test]
fn owners_that_begin_alike_are_different() {
    let mut queue = Queue::default();
    for (n, name) in (1..).zip(["a", "ab", "b", "a\0"]) {
        join(&mut queue, waiter(n, name), None, n);
    }
    assert_eq!(queue.leave_all_of(owner("a"), |_| true).len(), 1);
    assert_eq!(order(&queue), [2, 3, 4]);
}

/// An owner whose turn it is may have the lock before waiting requests, in the reserved mode. Others may not.
#[test]
fn a_turn_goes_before_those_who_wait() {
    let (mut queue, free) = (Queue::default(), Modes::default());
    let claim = |queue: &Queue, name| queue.claim(owner(name), Wanted::Shared, &free);
    assert_eq!(claim(&queue, "you"), Some(Mode::Shared));
    join(&mut queue, waiter(1, "first"), None, 1);
    assert_eq!(claim(&queue, "you"), None, "the first is served by a hand-over");
    queue.keep(owner("me"), Mode::Shared, at(20).boot, at(0).boot);
    assert_eq!((claim(&queue, "me"), claim(&queue, "you")), (Some(Mode::Shared), None));
    assert_eq!(queue.claim(owner("me"), Wanted::Exclusive, &free), None, "another mode is another request");
}

/// Regression: ACQUIREs whose owners had had a turn were all looked at for each request that was served. A thousand of
/// them made a RELEASE take 13 ms.
#[test]
fn an_acquire_waits_for_those_before_it_again_once_the_turn_is_over() {
    let mut queue = Queue::default();
    let lock = Want::Lock { ttl: ttl(1_000), retry: false, fence: None };
    let acquire = |n, name| Waiter { want: lock, wanted: Wanted::Shared, ..waiter(n, name) };
    let of_turns =
        |queue: &Queue| queue.of_turns.iter().map(|place| queue.waiters[place].owner.to_vec()).collect::<Vec<_>>();
    join(&mut queue, acquire(1, "early"), None, 1);
    for (name, until) in [("early", 10), ("late", 20), ("used", 30)] {
        queue.keep(owner(name), Mode::Shared, at(until).boot, at(0).boot);
    }
    join(&mut queue, acquire(2, "late"), None, 2);
    join(&mut queue, acquire(3, "used"), None, 3);
    join(&mut queue, Waiter { wanted: Wanted::Exclusive, ..acquire(4, "used") }, None, 4);
    assert_eq!(of_turns(&queue), [&b"early"[..], b"late", b"used"], "in the mode of the turn");
    assert!(queue.end_turn_over(at(11).boot) && !queue.end_turn_over(at(11).boot));
    assert_eq!(of_turns(&queue), [&b"late"[..], b"used"]);
    assert!(queue.end_turn(b"used") && queue.end_turn_over(at(21).boot));
    assert!(of_turns(&queue).is_empty());
}

/// Regression: the requests of readers whose grants had ended were all looked at for each request that was served.
#[test]
fn a_request_whose_owner_holds_the_lock_no_longer_is_looked_at_once() {
    let mut queue = Queue::default();
    let many = 2 * ANSWERS_A_PASS_MAX as u64 + 10;
    for n in 1..=many {
        join(&mut queue, Waiter { is_of_holder: true, ..waiter(n, &n.to_string()) }, None, n);
    }
    let looks = Cell::new(0);
    let find = |queue: &mut Queue, holder: &[u8]| {
        looks.set(0);
        let found = queue.find_holder(|owner| {
            looks.set(looks.get() + 1);
            (owner.bytes() == holder).then_some(())
        });
        let found = match found {
            Search::Found(()) => "found",
            Search::Nobody => "nobody",
            Search::Unfinished => "unfinished",
        };
        (found, looks.get())
    };
    assert_eq!(find(&mut queue, b"51"), ("unfinished", 50));
    assert_eq!((find(&mut queue, b"51"), find(&mut queue, b"51")), (("found", 1), ("found", 1)));
    assert_eq!(
        (find(&mut queue, b""), find(&mut queue, b""), find(&mut queue, b"")),
        (("unfinished", 50), ("nobody", 10), ("nobody", 0))
    );
}
