//! Compares the engine with a second, deliberately simple implementation of lock and queue.

use std::collections::HashSet;

use proptest::prelude::*;

use super::Reply;
use super::fixture::Key;
use crate::fixture::at;
use crate::lock::grant::Grant;
use crate::queue::of_key::WaiterId;
use crate::refusal::Refusal;
use crate::request::{Conversion, Known};
use crate::values::mode::{Mode, Wanted};

/// After this number of consecutive unused turns the request that has waited longest comes first. Small, so that random
/// steps reach it.
const UNUSED_MAX: u32 = 2;

/// The length of a reservation in these tests, in milliseconds.
const KEPT_MS: u64 = 20;

/// The modes that requests ask for; a run uses the first few of them.
const WANTED: [Wanted; 6] = [
    Wanted::Exclusive,
    Wanted::Shared,
    Wanted::Shared,
    Wanted::Permit { limit: 3, number: None },
    Wanted::Permit { limit: 2, number: None },
    Wanted::Permit { limit: 3, number: Some(2) },
];

/// A grant or a reservation in the simple implementation, [`Plain`].
#[derive(Clone, Copy, Debug)]
struct ListedGrant {
    owner: u8,
    mode: Mode,
    until: u64,
}

#[derive(Clone, Copy, Debug)]
struct ListedWaiter {
    ticket: u64,
    id: u64,
    owner: u8,
    wanted: Wanted,
    /// The ttl in milliseconds; 0 for a LOCK.WAIT.
    ttl: u64,
    until: u64,
    /// The id of the owner's earlier request whose place this one shares, otherwise its own.
    place: u64,
}

/// The simple implementation: grants, reservations and requests in lists that are searched from the front.
#[derive(Default)]
struct Plain {
    grants: Vec<ListedGrant>,
    kept: Vec<ListedGrant>,
    /// The number of consecutive turns that nobody used.
    unused: u32,
    queue: Vec<ListedWaiter>,
}

impl Plain {
    fn serve(&mut self, now: u64) {
        loop {
            self.queue.retain(|waiter| now <= waiter.until);
            self.grants.retain(|grant| now <= grant.until);
            self.end_turns(|kept| now > kept.until);
            let of_turn = self.queue.iter().find_map(|waiter| {
                let mode = self.turn_of(waiter.owner).filter(|&mode| waiter.ttl > 0 && waiter.wanted.is(mode))?;
                self.goes_with(mode, &self.grants).then_some((*waiter, mode))
            });
            let Some((next, mode)) = of_turn.or_else(|| self.first()) else { return };
            if next.ttl > 0 {
                self.grant(next.owner, mode, now, next.ttl);
            } else {
                self.keep(next.owner, mode, now);
            }
        }
    }

    /// Returns the first request without a reservation, with its mode, if it can have the lock now.
    fn first(&self) -> Option<(ListedWaiter, Mode)> {
        let longest = self.queue.iter().min_by_key(|waiter| waiter.id)?;
        let first = if self.unused < UNUSED_MAX { &self.queue[0] } else { longest };
        let same =
            |waiter: &&ListedWaiter| waiter.owner == first.owner && waiter.wanted == first.wanted && waiter.ttl > 0;
        let next = self.queue.iter().find(same).unwrap_or(first);
        if next.ttl == 0 && self.turn_of(next.owner).is_some() {
            return None;
        }
        Some((*next, self.admitted(next.owner, next.wanted)?))
    }

    fn turn_of(&self, owner: u8) -> Option<Mode> {
        self.kept.iter().find(|kept| kept.owner == owner).map(|kept| kept.mode)
    }

    fn goes_with(&self, mode: Mode, all: &[ListedGrant]) -> bool {
        all.iter().all(|other| other.mode.is_compatible(mode))
    }

    fn admitted(&self, owner: u8, wanted: Wanted) -> Option<Mode> {
        let others: Vec<_> = self.kept.iter().copied().filter(|kept| kept.owner != owner).collect();
        wanted.modes().find(|&mode| self.goes_with(mode, &self.grants) && self.goes_with(mode, &others))
    }

    /// Returns the mode in which a new request of `owner` would get the lock at once; `None` if it would not.
    fn claim(&self, owner: u8, wanted: Wanted) -> Option<Mode> {
        match self.turn_of(owner) {
            Some(mode) if wanted.is(mode) => self.goes_with(mode, &self.grants).then_some(mode),
            _ if !self.queue.is_empty() => None,
            _ => self.admitted(owner, wanted),
        }
    }

    fn held_by(&self, owner: u8) -> Option<Mode> {
        self.grants.iter().find(|grant| grant.owner == owner).map(|grant| grant.mode)
    }

    /// Ends the reservations for which `such` returns true.
    fn end_turns(&mut self, such: impl Fn(&ListedGrant) -> bool) {
        let before = self.kept.len();
        self.kept.retain(|kept| !such(kept));
        self.unused += (before - self.kept.len()) as u32;
        if self.queue.is_empty() {
            self.unused = 0;
        }
    }

    fn keep(&mut self, owner: u8, mode: Mode, now: u64) {
        self.kept.retain(|kept| kept.owner != owner);
        self.kept.push(ListedGrant { owner, mode, until: now + KEPT_MS });
        self.queue.retain(|waiter| waiter.owner != owner || waiter.ttl > 0 || !waiter.wanted.is(mode));
        if self.queue.is_empty() {
            self.unused = 0;
        }
    }

    fn grant(&mut self, owner: u8, mode: Mode, now: u64, ttl: u64) {
        let own = self.queue.iter().filter(|waiter| waiter.owner == owner && waiter.wanted.is(mode));
        let until = now + own.map(|waiter| waiter.ttl).chain([ttl]).max().unwrap();
        self.queue.retain(|waiter| waiter.owner != owner);
        self.kept.retain(|kept| kept.owner != owner);
        self.grants.push(ListedGrant { owner, mode, until });
        self.unused = 0;
    }

    fn join(&mut self, ticket: Option<u64>, id: u64, owner: u8, wanted: Wanted, ttl: u64, until: u64) {
        let own = self.queue.iter().position(|waiter| waiter.owner == owner && waiter.wanted.word() == wanted.word());
        let (ticket, at, place) = match (ticket, own) {
            (Some(ticket), _) => (ticket, self.queue.iter().take_while(|waiter| waiter.ticket <= ticket).count(), id),
            (None, Some(own)) => {
                let ListedWaiter { ticket, place, .. } = self.queue[own];
                let same = self.queue[own..].iter().take_while(|waiter| waiter.place == place);
                (ticket, own + same.count(), place)
            }
            (None, None) => (self.queue.last().map_or(0, |last| last.ticket), self.queue.len(), id),
        };
        self.queue.insert(at, ListedWaiter { ticket, id, owner, wanted, ttl, until, place });
    }

    /// Converts the grant of `owner` if possible; returns whether it did.
    fn convert(&mut self, owner: u8, to: Conversion) -> bool {
        let is_alone = self.grants.len() == 1 && self.kept.iter().all(|kept| kept.owner == owner);
        let Some(own) = self.grants.iter_mut().find(|grant| grant.owner == owner) else { return false };
        match (own.mode, to) {
            (Mode::Exclusive, Conversion::Shared) => own.mode = Mode::Shared,
            (Mode::Shared, Conversion::Exclusive) if is_alone => {
                own.mode = Mode::Exclusive;
                self.kept.clear();
            }
            (Mode::Exclusive, Conversion::Exclusive) | (Mode::Shared, Conversion::Shared) => {}
            _ => return false,
        }
        true
    }
}

/// The engine and the simple implementation, which perform the same steps. Also the open requests, and for each watcher
/// its id, the state that it knows, and the end of its wait.
struct Both {
    key: Key,
    plain: Plain,
    open: HashSet<u64>,
    watchers: Vec<(u64, Known, u64)>,
}

type Checked = Result<(), TestCaseError>;

/// A random step: a number for the action and one for the owner; times in milliseconds.
#[derive(Clone, Copy)]
struct Does {
    what: u8,
    who: u8,
    ttl_ms: u64,
    wait_ms: u64,
    ticket: Option<u64>,
}

impl Both {
    fn new() -> Self {
        let mut key = Key::new();
        key.node.waiting.unused_turns_max = UNUSED_MAX;
        Self { key, plain: Plain::default(), open: HashSet::new(), watchers: vec![] }
    }

    fn step(&mut self, does: Does) -> Checked {
        let Does { what, who, ttl_ms, wait_ms, .. } = does;
        let (key, plain) = (&mut self.key, &mut self.plain);
        match what {
            0 | 1 => self.acquire(does)?,
            2 => self.wait(does)?,
            3 => {
                key.release(&who.to_string());
                plain.queue.retain(|waiter| waiter.owner != who);
                plain.end_turns(|kept| kept.owner == who);
                plain.grants.retain(|grant| grant.owner != who);
            }
            4 if ttl_ms < 20 => {
                key.del();
                plain.grants.clear();
            }
            4 => {
                plain.serve(key.now);
                let to = if ttl_ms < 60 { Conversion::Shared } else { Conversion::Exclusive };
                let converted = key.convert(&who.to_string(), to).unwrap();
                prop_assert_eq!(converted != Reply::Null, plain.convert(who, to));
            }
            5 => self.go_away(usize::from(who), ttl_ms < 40)?,
            6 => {
                let held = plain.held_by(who).is_some() && key.lock.is_some();
                prop_assert_eq!(key.annotate(&who.to_string()).unwrap() != Reply::Null, held);
            }
            7 => {
                // Names a present grant, or one that has ended.
                let grant = key.lock.as_ref().map(|lock| lock.grants().nth(usize::from(who) % lock.len()).unwrap().1);
                let sequence = |grant: &Grant| (ttl_ms < 40).then(|| grant.note_sequence());
                let known = grant.map_or(Known::Free, |grant| Known::Grant(grant.token(), sequence(grant)));
                if let Some(id) = key.watch(known, wait_ms).unwrap() {
                    self.watchers.push((id, known, key.now + wait_ms));
                }
            }
            _ => key.now += ttl_ms,
        }
        self.plain.serve(self.key.now);
        for (id, _) in self.key.settle() {
            prop_assert!(self.open.remove(&id), "answered, and once");
        }
        Ok(())
    }

    fn acquire(&mut self, Does { who, ttl_ms, wait_ms, .. }: Does) -> Checked {
        let (key, plain) = (&mut self.key, &mut self.plain);
        plain.serve(key.now);
        let outcome = key.acquire(&who.to_string(), ttl_ms, wait_ms);
        match (plain.held_by(who), plain.claim(who, key.wanted)) {
            (Some(_), _) => prop_assert_eq!(outcome, Err(Refusal::Owned)),
            (None, Some(mode)) => {
                plain.grant(who, mode, key.now, ttl_ms);
                prop_assert_eq!(outcome, Ok(None));
            }
            _ if wait_ms == 0 => prop_assert_eq!(outcome, Ok(None)),
            _ => {
                let id = outcome.unwrap().unwrap();
                self.open.insert(id);
                plain.join(None, id, who, key.wanted, ttl_ms, key.now + wait_ms);
            }
        }
        Ok(())
    }

    fn wait(&mut self, Does { who, wait_ms, ticket, .. }: Does) -> Checked {
        let (key, plain) = (&mut self.key, &mut self.plain);
        plain.serve(key.now);
        let outcome = key.wait(&who.to_string(), wait_ms, ticket);
        match (plain.held_by(who), plain.claim(who, key.wanted)) {
            (Some(mode), _) if key.wanted.is(mode) => {
                prop_assert_eq!(outcome, Ok((Reply::Turn(mode.number()), 0)));
            }
            (Some(_), _) => prop_assert_eq!(outcome, Err(Refusal::Owned)),
            (None, Some(mode)) => {
                prop_assert_eq!(outcome, Ok((Reply::Turn(mode.number()), 0)));
                if plain.turn_of(who) != Some(mode) {
                    plain.keep(who, mode, key.now);
                }
            }
            _ if wait_ms == 0 => prop_assert_eq!(outcome, Ok((Reply::Turn(0), 0))),
            _ => {
                let (_, id) = outcome.unwrap();
                self.open.insert(id);
                plain.join(ticket, id, who, key.wanted, 0, key.now + wait_ms);
            }
        }
        Ok(())
    }

    /// Disconnects a client: with `watches` the one at `place` among the watchers, otherwise the one at `place` in the
    /// queue.
    fn go_away(&mut self, place: usize, watches: bool) -> Checked {
        if watches && let Some((id, ..)) = self.watchers.get(place).copied() {
            prop_assert!(self.key.node.stop_watching(WaiterId(id)));
            self.watchers.remove(place);
        } else if !watches && let Some(&ListedWaiter { id, .. }) = self.plain.queue.get(place) {
            prop_assert!(self.key.node.leave_queue(WaiterId(id), at(self.key.now).boot).is_some());
            self.plain.queue.remove(place);
            self.open.remove(&id);
        }
        Ok(())
    }

    /// Returns whether the lock is still in the state that a watcher knows.
    fn is_known(&self, known: Known) -> bool {
        let grants = self.key.lock.iter().flat_map(|lock| lock.grants()).map(|(_, grant)| grant);
        let mut live = grants.filter(|grant| at(self.key.now).boot <= grant.deadline());
        match known {
            Known::Free => live.next().is_none(),
            Known::Grant(token, sequence) => {
                // Readers may share a token: the grant that lasts longest counts.
                let grant = live.filter(|grant| grant.token() == token).max_by_key(|grant| grant.deadline());
                grant.is_some_and(|grant| sequence.is_none_or(|sequence| grant.note_sequence() <= sequence))
            }
        }
    }

    /// Checks that each watcher received one answer, and the right one.
    fn check_watchers(&mut self) -> Checked {
        let (mut told, mut told_nothing, mut left) = (vec![], vec![], vec![]);
        for (id, known, until) in std::mem::take(&mut self.watchers) {
            match (self.is_known(known), self.key.now > until) {
                (_, true) => told_nothing.push(id),
                (false, false) => told.push(id),
                (true, false) => left.push((id, known, until)),
            }
        }
        self.watchers = left;
        let key = &mut self.key;
        prop_assert_eq!(key.node.watching().len(), self.watchers.len());
        // If a watcher's time ended in this step, it may have received a change or the end of its time.
        let all = |mut one: Vec<u64>, other: &[u64]| {
            one.extend(other);
            one.sort();
            one
        };
        prop_assert!(told.iter().all(|id| key.told.contains(id)), "{told:?} of {:?}", key.told);
        let told_by_key = all(std::mem::take(&mut key.told), &std::mem::take(&mut key.told_nothing));
        prop_assert_eq!(told_by_key, all(told, &told_nothing));
        prop_assert!(self.watchers.is_empty() || key.node.next_due().is_some());
        Ok(())
    }

    /// Checks holders and order, and that the node has planned when to serve the requests that are left.
    fn check(&self) -> Checked {
        let (key, plain) = (&self.key, &self.plain);
        let mut holders: Vec<_> =
            plain.grants.iter().map(|grant| (grant.owner.to_string().into_bytes(), grant.mode)).collect();
        holders.sort_by(|one, other| one.0.cmp(&other.0));
        prop_assert_eq!(key.holders(), holders);
        let order: Vec<_> = plain.queue.iter().map(|waiter| waiter.id).collect();
        prop_assert_eq!(key.queue(), order);
        prop_assert_eq!(self.open.len(), plain.queue.len(), "nobody is forgotten");
        prop_assert!(plain.queue.is_empty() || key.node.next_due().is_some(), "nobody sleeps for ever");
        prop_assert!(!plain.queue.is_empty() || !plain.kept.is_empty() || key.node.waiting.is_empty());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Compares the engine with the simple implementation: the holders, the order of the queue, and one answer for each
    /// request are the same.
    #[test]
    fn as_a_plain_list_would(
        modes in 1..=WANTED.len(),
        steps in prop::collection::vec(
            (0u8..10, 0u8..5, 1u64..80, 0u64..120, prop::option::of(0u64..4), 0..WANTED.len()), 1..120,
        )
    ) {
        let mut both = Both::new();
        for (what, who, ttl_ms, wait_ms, ticket, wanted) in steps {
            both.key.wanted = WANTED[wanted % modes];
            // The engine notices the end of a lease up to a tick later than the lists do. So all times are even, and
            // leases end two milliseconds before other events.
            both.step(Does { what, who, ttl_ms: 2 * ttl_ms, wait_ms: 2 * wait_ms, ticket })?;
            both.check_watchers()?;
            both.check()?;
        }
    }
}
