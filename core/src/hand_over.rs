//! Whose a lock is that got free: the first in its queue.

use crate::guard::vouched;
use crate::lock::live;
use crate::request::{Acquire, Owner};
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
        node.waiting.held_by(db, name, owner, lock.token(), vouched);
        return Ok(HandedOver::Held);
    }
    if let Some(until) = node.waiting.reserved_until(db, name, now.boot) {
        node.waiting.look_at(db, name, until.plus_us(1));
        return Ok(HandedOver::Free);
    }
    node.waiting.end_reservation(db, name, now.boot);
    let Some(first) = node.waiting.first_in_time(db, name, now.boot).cloned() else { return Ok(HandedOver::Free) };
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
    Lock::new(ask.owner, ask.note, token, now.boot, longest.unwrap_or(ask.ttl))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Cause;
    use crate::lock::fixture::*;
    use crate::request::{Note, Patience, Release, Ticket, Wait};
    use crate::{Acquired, Answer, Waited, Waiter, WaiterId, acquire, release, wait};
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
            match acquired.or_else(|refusal| refusal.or_queue(patience, &self.node, Acquired::Queues))? {
                Acquired::Granted(lock) => {
                    self.store(lock);
                    Ok(None)
                }
                Acquired::Queues => Ok(Some(self.join(name, Want::Lock { ttl, fence: None, retry }, wait_ms, None))),
                _ => Ok(None),
            }
        }

        fn wait(&mut self, name: &str, wait_ms: u64, ticket: Option<u64>) -> Result<(Waited, u64), Refusal> {
            let patience = Patience::new(Some(wait_ms)).unwrap();
            let ticket = ticket.map(|ticket| Ticket::new(Some(ticket)).unwrap());
            let ask = Wait { owner: owner(name), patience, ticket };
            let waited = wait(0, b"k", self.lock.as_ref(), &ask, &mut self.node, at(self.now));
            let waited = waited.or_else(|refusal| refusal.or_queue(patience, &self.node, Waited::Queues))?;
            let id = if waited == Waited::Queues { self.join(name, Want::Turn, wait_ms, ticket) } else { 0 };
            Ok((waited, id))
        }

        fn join(&mut self, name: &str, want: Want, wait_ms: u64, ticket: Option<Ticket>) -> u64 {
            let id = WaiterId(self.next_id);
            self.next_id += 1;
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
            self.node.waiting.take_answers().into_iter().map(|(id, answer)| (id.0, answer)).collect()
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
        for direct in [false, true] {
            let mut key = Key::new();
            key.acquire("a", 1_000, 0).unwrap();
            if !direct {
                key.acquire("b", 300, 5_000).unwrap().unwrap();
            }
            key.acquire("b", 30_000, 5_000).unwrap().unwrap();
            if direct {
                // The lock is gone, and its owner asks for it before the queue is looked at.
                key.end_entry();
                key.node.waiting.reserve(0, b"k", owner("b"), at(0).boot);
                key.acquire("b", 300, 0).unwrap();
            } else {
                key.release("a");
            }
            assert_eq!(granted(&key.settle()).len(), if direct { 1 } else { 2 });
            assert_eq!(key.lock.as_ref().unwrap().deadline(), at(30_000).boot);
        }
    }

    /// The guard kept a repetition of the holder's own request waiting: when it ends the holder is told what it has.
    #[test]
    fn the_holder_does_not_wait_for_itself() {
        let mut key = Key::new();
        key.acquire("a", 10_000, 0).unwrap();
        let ttl = ttl(1_000);
        let again = key.join("a", Want::Lock { ttl, fence: None, retry: true }, 5_000, None);
        let plain = key.join("a", Want::Lock { ttl, fence: None, retry: false }, 5_000, None);
        let token = key.lock.as_ref().unwrap().token();
        let answers = key.settle();
        assert!(answers.contains(&(again, Answer::Granted { token, waited_ms: 0 })), "{answers:?}");
        assert!(answers.contains(&(plain, Answer::Refused(Refusal::Owned))));
        assert!(key.node.waiting.is_empty());
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

    /// The rules once more, as plain as can be: a list, searched from its front.
    #[derive(Default)]
    struct Plain {
        lock: Option<(u8, u64)>,
        kept: Option<(u8, u64)>,
        /// Ticket, id, owner, ttl (0: a turn), until, and whose place it shares (an id).
        queue: Vec<(u64, u64, u8, u64, u64, u64)>,
    }

    impl Plain {
        fn serve(&mut self, now: u64) {
            loop {
                self.queue.retain(|waiter| now <= waiter.4);
                self.lock = self.lock.filter(|lock| now <= lock.1);
                self.kept = self.kept.filter(|kept| now <= kept.1);
                if self.lock.is_some() || self.kept.is_some() || self.queue.is_empty() {
                    return;
                }
                let (_, _, owner, ttl, ..) = self.queue[0];
                if ttl > 0 {
                    self.grant(owner, now, ttl);
                } else {
                    self.queue.retain(|waiter| waiter.2 != owner || waiter.3 > 0);
                    self.kept = Some((owner, now + 20));
                }
            }
        }

        fn grant(&mut self, owner: u8, now: u64, ttl: u64) {
            let asked = self.queue.iter().filter(|waiter| waiter.2 == owner).map(|waiter| waiter.3);
            let until = now + asked.chain([ttl]).max().unwrap();
            self.queue.retain(|waiter| waiter.2 != owner);
            (self.lock, self.kept) = (Some((owner, until)), None);
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
                        plain.kept = plain.kept.filter(|kept| kept.0 != who);
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
