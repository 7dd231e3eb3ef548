//! The queue and its lock once more, as plain as can be, against the engine.

use proptest::prelude::*;

use super::Reply;
use super::fixture::Key;
use crate::queue::of_key::WaiterId;
use crate::refusal::Refusal;

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
                        prop_assert_eq!(waited, Reply::Turn(true));
                        if free && plain.kept.is_none() {
                            plain.kept = Some((who, now + 20));
                            plain.queue.retain(|waiter| waiter.2 != who || waiter.3 > 0);
                        }
                    } else if wait_ms == 0 {
                        prop_assert_eq!(waited, Reply::Turn(false));
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
