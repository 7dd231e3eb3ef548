//! Whose a lock is that got free: the first in its queue.

use crate::guard::vouched;
use crate::lock::live;
use crate::request::{Acquire, Owner};
use crate::waiting::Next;
use crate::{Lock, Node, Now, Refusal, Token, Want};

/// What came of a hand-over.
#[derive(Debug, PartialEq, Eq)]
pub enum HandedOver {
    /// It passes to the first who waits and is now this one: store it.
    Granted(Lock),
    /// It stays free: nobody waits, or it is kept for somebody who was told.
    Free,
    /// It is held.
    Held,
    /// It is held by an owner whose repeated request waited: its lease lasts longer now, store the lock.
    Prolonged,
}

/// Passes the lock `name` of `db`, if it is free at `now`, to the first live request in its queue; `held` is what the
/// key holds, nothing if its lock has just ended. Answers are left in [`crate::Waiting`].
///
/// While it is refused nothing changes but for those whose time is up. [`crate::Waiting::put_off`] says what comes of
/// those who wait.
pub fn hand_over(
    db: u32,
    name: &[u8],
    held: Option<&mut Lock>,
    node: &mut Node,
    now: Now,
) -> Result<HandedOver, Refusal> {
    if let Some(lock) = live(held, now.boot) {
        // Nobody gets it before the guard ends, whatever its holder does.
        node.guard.serve(now.boot)?;
        let vouched = vouched(lock, node, now.boot);
        let owner = Owner::new(lock.owner())?;
        let repeated = node.waiting.held_by(db, name, owner, lock.token(), vouched, now.boot);
        node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
        // Its owner counts on the ttl from the moment at which its wait ends.
        let prolonged = repeated.is_some_and(|ttl| lock.prolong(now.boot, ttl));
        return Ok(if prolonged { HandedOver::Prolonged } else { HandedOver::Held });
    }
    let first = match node.waiting.next(db, name, now.boot) {
        Next::Request(first) => first,
        Next::KeptUntil(until) => {
            node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
            node.waiting.look_at(db, name, until.plus_us(1));
            return Ok(HandedOver::Free);
        }
        Next::Nobody => return Ok(HandedOver::Free),
    };
    node.guard.serve(now.boot)?;
    node.slots.serve(name, now.boot)?;
    node.evicted.serve(db, name, first.owner(), now.boot)?;
    let owner = first.owner();
    match first.want {
        Want::Lock { ttl, fence, retry } => {
            let token = node.tokens.issue(name, fence, now, node.skew_ms)?;
            node.counters.hand_overs += 1;
            let patience = crate::request::Patience::NONE;
            let ask = Acquire { owner, ttl, retry, fence, note: first.note(), patience };
            Ok(HandedOver::Granted(grant(db, name, &ask, token, node, now)))
        }
        Want::Turn => {
            node.counters.turns += 1;
            node.waiting.reserve(db, name, owner, now.boot);
            node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
            Ok(HandedOver::Free)
        }
    }
}

/// The lock that `ask` is granted with `token`, and what the node remembers of it.
pub(crate) fn grant(db: u32, name: &[u8], ask: &Acquire<'_>, token: Token, node: &mut Node, now: Now) -> Lock {
    node.evicted.forget(db, name);
    node.counters.grants += 1;
    // All requests of its owner are answered, so the lease is the longest that any of them was told of.
    let longest = node.waiting.longest_ttl(db, name, ask.owner).into_iter().chain([ask.ttl]).max_by_key(|ttl| ttl.ms());
    node.waiting.granted(db, name, ask.owner, token, now.boot);
    node.counters.contended += node.waiting.answer_at_once(db, name, now.boot);
    Lock::new(ask.owner, ask.note, token, now.boot, longest.unwrap_or(ask.ttl))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Cause;
    use crate::limits::{ANSWERS_A_PASS_MAX, DISK_WAIT_MS, OWNER_REQUESTS_MAX, UNUSED_TURNS_MAX};
    use crate::lock::fixture::*;
    use crate::request::{Note, Patience, Release, Ticket, Wait};
    use crate::{Acquired, Answer, Waited, Waiter, WaiterId, acquire, acquire_later, release, wait};
    use proptest::prelude::*;

    /// One key of one node, with what a server does around the rules.
    struct Key {
        node: Node,
        lock: Option<Lock>,
        now: u64,
        next_id: u64,
    }

    impl Key {
        fn new() -> Self {
            Self { node: node(), lock: None, now: 0, next_id: 1 }
        }

        /// Its id if it queues.
        fn acquire(&mut self, name: &str, ttl_ms: u64, wait_ms: u64) -> Result<Option<u64>, Refusal> {
            self.serve();
            let patience = Patience::new(Some(wait_ms)).unwrap();
            let ttl = ttl(ttl_ms);
            let retry = false;
            let ask = Acquire { owner: owner(name), ttl, retry, fence: None, note: Note::default(), patience };
            let acquired = acquire(0, b"k", self.lock.as_mut(), &ask, &mut self.node, at(self.now));
            match acquired.or_else(|refusal| acquire_later(0, b"k", &ask, refusal, true, &self.node))? {
                Acquired::Granted(lock) => {
                    self.store(lock);
                    Ok(None)
                }
                Acquired::Queues => Ok(Some(self.join(name, Want::Lock { ttl, fence: None, retry }, wait_ms, None))),
                Acquired::WaitsForDisk => Ok(Some(self.wait_for_disk(name, Want::Lock { ttl, fence: None, retry }))),
                _ => Ok(None),
            }
        }

        fn wait_for_disk(&mut self, name: &str, want: Want) -> u64 {
            let id = self.new_id();
            let now = at(self.now).boot;
            let waiter = Waiter::new(id, owner(name), Note::default(), want, now, DISK_WAIT_MS).at_once();
            self.node.waiting.join(0, b"k", waiter, None);
            self.node.waiting.look_at(0, b"k", now);
            id.0
        }

        fn new_id(&mut self) -> WaiterId {
            self.next_id += 1;
            WaiterId(self.next_id - 1)
        }

        fn wait(&mut self, name: &str, wait_ms: u64, ticket: Option<u64>) -> Result<(Waited, u64), Refusal> {
            let patience = Patience::new(Some(wait_ms)).unwrap();
            let ticket = ticket.map(|ticket| Ticket::new(Some(ticket)).unwrap());
            let ask = Wait { owner: owner(name), patience, ticket };
            let waited = wait(0, b"k", self.lock.as_ref(), &ask, &mut self.node, at(self.now));
            let waited =
                waited.or_else(|refusal| refusal.or_queue(patience, || self.node.waiting.room(), Waited::Queues))?;
            let id = if waited == Waited::Queues { self.join(name, Want::Turn, wait_ms, ticket) } else { 0 };
            Ok((waited, id))
        }

        fn join(&mut self, name: &str, want: Want, wait_ms: u64, ticket: Option<Ticket>) -> u64 {
            let id = self.new_id();
            let waiter = Waiter::new(id, owner(name), Note::default(), want, at(self.now).boot, wait_ms as u32);
            self.node.waiting.join(0, b"k", waiter, ticket);
            self.node.waiting.look_at(0, b"k", at(self.now).boot);
            id.0
        }

        fn release(&mut self, name: &str) {
            let ask = Release { owner: owner(name), level: None, token: None };
            if release(0, b"k", self.lock.as_mut(), &ask, &mut self.node, at(self.now)) == crate::Released::Freed {
                self.end();
            }
        }

        /// Somebody deletes the key.
        fn del(&mut self) {
            self.end_entry();
            self.node.waiting.look_at(0, b"k", at(self.now).boot);
        }

        fn end_entry(&mut self) {
            if let Some(mut lock) = self.lock.take() {
                self.node.deadlines.forget(0, &mut lock);
            }
        }

        fn end(&mut self) {
            self.end_entry();
            self.serve();
        }

        fn serve(&mut self) {
            match hand_over(0, b"k", self.lock.as_mut(), &mut self.node, at(self.now)) {
                Ok(HandedOver::Granted(lock)) => self.store(lock),
                Ok(HandedOver::Prolonged) => self.node.deadlines.watch(0, b"k", self.lock.as_mut().unwrap()),
                Ok(_) => {}
                Err(refusal) => self.node.waiting.put_off(0, b"k", refusal, at(self.now).boot),
            }
        }

        fn store(&mut self, lock: Lock) {
            match &mut self.lock {
                Some(held) => held.replace(lock),
                None => self.lock = Some(lock),
            }
            self.node.deadlines.watch(0, b"k", self.lock.as_mut().unwrap());
        }

        /// What the background does until nothing is due.
        fn settle(&mut self) -> Vec<(u64, Answer)> {
            let now = at(self.now).boot;
            while self
                .node
                .next_due()
                .is_some_and(|due| now > due || self.node.waiting.next_due() == Some(due) && now >= due)
            {
                while self.node.waiting.time_out(now) {}
                if self.node.deadlines.pop_due(now).is_some() {
                    self.end();
                }
                if self.node.waiting.pop_due(now).is_some() {
                    self.serve();
                }
            }
            self.node.waiting.take_answers(usize::MAX).into_iter().map(|(id, answer)| (id.0, answer)).collect()
        }

        fn holder(&self) -> Option<&[u8]> {
            self.lock.as_ref().filter(|lock| !lock.is_expired(at(self.now).boot)).map(Lock::owner)
        }

        fn queue(&self) -> Vec<u64> {
            self.node.waiting.of(0, b"k").map(|waiter| waiter.id.0).collect()
        }
    }

    fn granted(answers: &[(u64, Answer)]) -> Vec<u64> {
        answers.iter().filter(|(_, answer)| matches!(answer, Answer::Granted { .. })).map(|(id, _)| *id).collect()
    }

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
        release(0, b"k", key.lock.as_mut(), &ask, &mut key.node, at(0));
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
            assert_eq!(key.wait("a", 0, None).unwrap().0, Waited::Turn);
        }
        assert_eq!(key.wait("b", 0, None).unwrap().0, Waited::InVain);
        key.now = 21;
        key.settle();
        assert!(key.node.waiting.is_empty());
        assert_eq!(key.wait("b", 0, None).unwrap().0, Waited::Turn);
        key.acquire("b", 1_000, 0).unwrap();
        assert_eq!(key.wait("b", 0, None).unwrap().0, Waited::Turn, "its own");
    }

    #[test]
    fn the_guard_refuses_who_cannot_outwait_it_and_serves_the_others_after() {
        let mut key = Key::new();
        key.acquire("a", 10_000, 0).unwrap();
        let short = key.acquire("b", 1_000, 400).unwrap().unwrap();
        let long = key.acquire("c", 1_000, 5_000).unwrap().unwrap();
        key.node.guard.arm(Cause::Operator, at(0).boot, at(500).boot);
        key.node.waiting.look_at_all();
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
        key.node.evicted.note(0, b"k", key.lock.as_ref().unwrap());
        key.del();
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
                key.end_entry();
                key.node.waiting.reserve(0, b"k", owner("b"), at(0).boot);
                key.serve();
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
        let ttl = ttl(1_000);
        let again = key.join("a", Want::Lock { ttl, fence: None, retry: true }, 20_000, None);
        let plain = key.join("a", Want::Lock { ttl, fence: None, retry: false }, 20_000, None);
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
        assert_eq!(key.wait("a", 0, None).unwrap().0, Waited::Turn);
        let ask = Wait { owner: owner("b"), patience: Patience::NONE, ticket: None };
        let full = Err(Refusal::QueueFull { max: 1 });
        assert_eq!(wait(0, b"other", None, &ask, &mut key.node, at(0)), full);
        key.node.waiting.put_off(0, b"k", Refusal::WrongType, at(0).boot);
        assert!(key.node.waiting.is_empty() && key.node.waiting.next_due().is_none());
        assert_eq!(wait(0, b"other", None, &ask, &mut key.node, at(0)), Ok(Waited::Turn));
    }

    /// What the whole node cannot do is tried with one queue at a time, however many there are.
    #[test]
    fn a_node_that_cannot_grant_yet_looks_at_one_queue_at_a_time() {
        let mut node = node();
        for n in 0..100_u8 {
            let ttl = ttl(1_000);
            let want = Want::Lock { ttl, fence: None, retry: false };
            let waiter = Waiter::new(WaiterId(n.into()), owner("o"), Note::default(), want, at(0).boot, 60_000);
            node.waiting.join(0, &[n], waiter, None);
        }
        node.waiting.look_at_all();
        let mut looks = 0;
        for ms in 0..1_000 {
            while let Some((db, name)) = node.waiting.pop_due(at(ms).boot) {
                looks += 1;
                node.waiting.put_off(db, &name, Refusal::NotYet, at(ms).boot);
            }
        }
        assert_eq!(looks, 100, "one every 10 ms");
        let mut served = 0;
        while let Some((db, name)) = node.waiting.pop_due(at(2_000).boot) {
            let handed = hand_over(db, &name, None, &mut node, at(2_000));
            served += usize::from(matches!(handed, Ok(HandedOver::Granted(_))));
        }
        assert_eq!(served, 100, "and none was forgotten");
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
            if n == 0 {
                // A turn that is given back is not used either.
                key.release("x");
            }
            key.wait(&format!("x{n}"), 60_000, Some(0)).unwrap();
            key.now += 21;
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
            while let Some((db, name)) =
                key.node.waiting.pop_due(at(0).boot).or((looks == 0).then(|| (0, b"k"[..].into())))
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
        let ceiling = |key: &mut Key| {
            key.node.tokens.set_ceiling(u64::MAX);
            key.now += 11;
        };
        let want = Want::Lock { ttl: ttl(1_000), fence: None, retry: false };
        // The disk comes: the first gets the lock, the others hear that they do not.
        let mut key = Key::new();
        no_ceiling(&mut key);
        let first = key.acquire("a", 1_000, 0).unwrap().unwrap();
        assert_eq!(key.acquire("b", 1_000, 0), Ok(None), "another is before it");
        let ids = [first, key.wait_for_disk("b", want), key.wait_for_disk("c", want)];
        assert_eq!(key.settle(), []);
        ceiling(&mut key);
        let answers = key.settle();
        assert_eq!(granted(&answers), [ids[0]]);
        assert_eq!(answers[1..], [(ids[1], Answer::InVain(want)), (ids[2], Answer::InVain(want))]);
        assert_eq!((key.node.counters.contended, key.node.waiting.timeouts()), (3, 0));
        // It is held by another, or kept for one who was told: not for this one. Its own is its own.
        for (name, other) in [("a", "b"), ("b", "a")] {
            let id = key.wait_for_disk(other, want);
            let outcome = if key.holder() == Some(other.as_bytes()) {
                Answer::Refused(Refusal::Owned)
            } else {
                Answer::InVain(want)
            };
            assert_eq!(key.settle(), [(id, outcome)], "{name}");
        }
        key.release("a");
        assert_eq!(key.wait("t", 0, None).unwrap().0, Waited::Turn);
        let (other, own) = (key.wait_for_disk("u", want), key.wait_for_disk("t", want));
        let answers = key.settle();
        assert_eq!((granted(&answers), answers.len()), (vec![own], 2));
        assert!(answers.contains(&(other, Answer::InVain(want))));
        // A guard is told of, even if it would end before the disk is waited for in vain.
        let id = key.wait_for_disk("u", want);
        key.node.guard.arm(Cause::Operator, at(key.now).boot, at(key.now + 5).boot);
        assert!(matches!(key.settle()[..], [(told, Answer::Refused(Refusal::Guarded { .. }))] if told == id));
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

    /// Its client asks several nodes, over connections that others of its requests share, and repeats by itself.
    #[test]
    fn a_request_that_proposes_a_token_or_cannot_be_blocked_does_not_wait_for_the_disk() {
        let node = node();
        let mut ask = Acquire {
            owner: owner("a"),
            ttl: ttl(1_000),
            retry: false,
            fence: None,
            note: Note::default(),
            patience: Patience::NONE,
        };
        let later = |ask: &Acquire<'_>, refusal, may_block| acquire_later(0, b"k", ask, refusal, may_block, &node);
        assert_eq!(later(&ask, Refusal::NotYet, true), Ok(Acquired::WaitsForDisk));
        assert_eq!(later(&ask, Refusal::NotYet, false), Err(Refusal::NotYet));
        let guarded = Refusal::Guarded { left_ms: 1, cause: Cause::Restart };
        assert_eq!(later(&ask, guarded, true), Err(guarded));
        ask.fence = Some(token(9));
        assert_eq!(later(&ask, Refusal::NotYet, true), Err(Refusal::NotYet));
        ask.patience = Patience::new(Some(11)).unwrap();
        assert_eq!(later(&ask, Refusal::NotYet, true), Ok(Acquired::Queues));
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

    /// So few, that random steps get there.
    const UNUSED_MAX: u32 = 2;

    /// The rules once more, as plain as can be: a list, searched from its front.
    #[derive(Default)]
    struct Plain {
        lock: Option<(u8, u64)>,
        kept: Option<(u8, u64)>,
        /// Turns in a row that nobody used.
        unused: u32,
        /// Ticket, id, owner, ttl (0: a turn), until, and whose place it shares (an id).
        queue: Vec<(u64, u64, u8, u64, u64, u64)>,
    }

    impl Plain {
        fn serve(&mut self, now: u64) {
            loop {
                self.queue.retain(|waiter| now <= waiter.4);
                self.lock = self.lock.filter(|lock| now <= lock.1);
                self.end_turn(|kept| now > kept.1);
                if self.lock.is_some() || self.kept.is_some() || self.queue.is_empty() {
                    return;
                }
                let longest = self.queue.iter().min_by_key(|waiter| waiter.1).unwrap();
                let (_, _, owner, ..) = if self.unused < UNUSED_MAX { self.queue[0] } else { *longest };
                match self.queue.iter().find(|waiter| waiter.2 == owner && waiter.3 > 0) {
                    Some(&(_, _, _, ttl, ..)) => self.grant(owner, now, ttl),
                    None => {
                        self.queue.retain(|waiter| waiter.2 != owner);
                        self.kept = Some((owner, now + 20));
                    }
                }
            }
        }

        /// The lock is kept no longer, if it was kept for such a one.
        fn end_turn(&mut self, such: impl Fn((u8, u64)) -> bool) {
            if self.kept.take_if(|kept| such(*kept)).is_some() {
                self.unused += 1;
            }
            if self.queue.is_empty() {
                self.unused = 0;
            }
        }

        fn grant(&mut self, owner: u8, now: u64, ttl: u64) {
            let asked = self.queue.iter().filter(|waiter| waiter.2 == owner).map(|waiter| waiter.3);
            let until = now + asked.chain([ttl]).max().unwrap();
            self.queue.retain(|waiter| waiter.2 != owner);
            (self.lock, self.kept, self.unused) = (Some((owner, until)), None, 0);
        }

        fn join(&mut self, ticket: Option<u64>, id: u64, owner: u8, ttl: u64, until: u64) {
            let own = self.queue.iter().position(|waiter| waiter.2 == owner);
            let (ticket, at, place) = match (ticket, own) {
                (Some(ticket), _) => (ticket, self.queue.iter().take_while(|waiter| waiter.0 <= ticket).count(), id),
                (None, Some(own)) => {
                    let (ticket, _, _, _, _, place) = self.queue[own];
                    let same = self.queue[own..].iter().take_while(|waiter| waiter.5 == place);
                    (ticket, own + same.count(), place)
                }
                (None, None) => (self.queue.last().map_or(0, |last| last.0), self.queue.len(), id),
            };
            self.queue.insert(at, (ticket, id, owner, ttl, until, place));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Queue and lock against the plain list: the same holder, the same order, everybody answered once.
        #[test]
        fn as_a_plain_list_would(
            steps in prop::collection::vec((0u8..7, 0u8..5, 1u64..80, 0u64..120, prop::option::of(0u64..4)), 1..120)
        ) {
            let mut key = Key::new();
            key.node.waiting.unused_turns_max = UNUSED_MAX;
            let mut plain = Plain::default();
            let mut open = std::collections::HashSet::new();
            for (what, who, ttl_ms, wait_ms, ticket) in steps {
                let name = who.to_string();
                let now = key.now;
                match what {
                    0 | 1 => {
                        plain.serve(now);
                        let outcome = key.acquire(&name, ttl_ms, wait_ms);
                        match plain.lock {
                            Some((holder, _)) if holder == who => prop_assert_eq!(outcome, Err(Refusal::Owned)),
                            None if plain.kept.is_none_or(|kept| kept.0 == who) => {
                                plain.grant(who, now, ttl_ms);
                                prop_assert_eq!(outcome, Ok(None));
                            }
                            _ if wait_ms == 0 => prop_assert_eq!(outcome, Ok(None)),
                            _ => {
                                let id = outcome.unwrap().unwrap();
                                open.insert(id);
                                plain.join(None, id, who, ttl_ms, now + wait_ms);
                            }
                        }
                    }
                    2 => {
                        plain.serve(now);
                        let (waited, id) = key.wait(&name, wait_ms, ticket).unwrap();
                        let free = plain.lock.is_none() && plain.kept.is_none_or(|kept| kept.0 == who);
                        if plain.lock.is_some_and(|lock| lock.0 == who) || free {
                            prop_assert_eq!(waited, Waited::Turn);
                            if free && plain.kept.is_none() {
                                plain.kept = Some((who, now + 20));
                                plain.queue.retain(|waiter| waiter.2 != who || waiter.3 > 0);
                            }
                        } else if wait_ms == 0 {
                            prop_assert_eq!(waited, Waited::InVain);
                        } else {
                            open.insert(id);
                            plain.join(ticket, id, who, 0, now + wait_ms);
                        }
                    }
                    3 => {
                        key.release(&name);
                        plain.queue.retain(|waiter| waiter.2 != who);
                        plain.end_turn(|kept| kept.0 == who);
                        plain.lock = plain.lock.filter(|lock| lock.0 != who);
                    }
                    4 => {
                        key.del();
                        plain.lock = None;
                    }
                    5 => {
                        // A client goes away.
                        if let Some(&(_, id, ..)) = plain.queue.get(usize::from(who)) {
                            prop_assert!(key.node.waiting.leave(WaiterId(id)).is_some());
                            plain.queue.remove(usize::from(who));
                            open.remove(&id);
                        }
                    }
                    _ => key.now += ttl_ms,
                }
                plain.serve(key.now);
                for (id, _) in key.settle() {
                    prop_assert!(open.remove(&id), "answered, and once");
                }
                let holder = plain.lock.map(|(who, _)| who.to_string().into_bytes());
                prop_assert_eq!(key.holder(), holder.as_deref());
                let order: Vec<_> = plain.queue.iter().map(|waiter| waiter.1).collect();
                prop_assert_eq!(key.queue(), order);
                prop_assert_eq!(open.len(), plain.queue.len(), "nobody is forgotten");
                let due = key.node.next_due();
                prop_assert!(plain.queue.is_empty() || due.is_some(), "nobody sleeps for ever");
                prop_assert!(!plain.queue.is_empty() || plain.kept.is_some() || key.node.waiting.is_empty());
            }
        }
    }
}
