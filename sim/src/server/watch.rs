//! Watches how a node serves clients that lock on it alone. The watch does not know how the node decides. It knows only
//! which requests wait in which order, who holds which lock, and how many holds an owner has.
//!
//! The watch detects a node's error at once, while the referee judges its consequences for clients.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::engine::Reply as Outcome;
use palisade_core::request::Owner;
use palisade_core::{Answer as Told, BootTime, Grant, Lock, Mode, Now, Refusal, WaiterId};

use crate::messages::{Command, Hears, Replied};
use crate::single_client;

/// A node's error: the name of the broken law, and a description.
pub type Wrong = (&'static str, &'static str);

const ORDER: &str = "order of the queue";
const ANSWERED: &str = "answers to those who wait";
const HOLDS: &str = "holds";
const CONVERTED: &str = "conversion";
const TOLD: &str = "what replicas know";
const TAKEN_AWAY: &str = "end of a lock that was taken away";

/// A waiting request, as its client knows it.
#[derive(Clone, Debug)]
struct Waits {
    id: WaiterId,
    key: u32,
    owner: Vec<u8>,
    /// The number of the owner's first request, which determines the place of all its requests.
    place: u64,
    until: BootTime,
    retry: bool,
    /// True if the request's client has disconnected and the node has noticed.
    is_gone: bool,
}

/// The record of one incarnation of a node.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    waits: Vec<Waits>,
    came: u64,
    /// The largest token of each key's lock that an operator broke as a whole.
    taken_away: BTreeMap<u32, u64>,
    /// Keys and tokens of single grants that an operator broke, while the other grants of the lock stayed.
    broken: BTreeSet<(u32, u64)>,
    /// The keys and owners that were granted a lock since waiters were last answered.
    granted: Vec<(u32, Vec<u8>)>,
    /// Keys and owners whose grant was converted to another mode. A request for the original mode is then not a
    /// repetition.
    converted: BTreeSet<(u32, Vec<u8>)>,
    wrong: Option<Wrong>,
}

/// A key's lock before and after a command; `None` if its lease has ended.
pub(super) struct Change<'a> {
    pub before: Option<&'a Lock>,
    pub after: Option<&'a Lock>,
}

impl Watch {
    /// Returns the first error of the node that the watch detected, if any.
    pub fn wrong(&self) -> Option<Wrong> {
        self.wrong
    }

    fn is_wrong(&mut self, law: &'static str, how: &'static str) {
        self.wrong.get_or_insert((law, how));
    }

    fn must(&mut self, holds: bool, law: &'static str, how: &'static str) {
        if !holds {
            self.is_wrong(law, how);
        }
    }

    // Waiting requests.

    /// Records that `owner` waits for `key`, with the id `id`. `is_answered` returns true for an earlier request that
    /// is decided but not yet answered.
    pub(super) fn join(
        &mut self,
        id: WaiterId,
        key: u32,
        owner: &[u8],
        (until, retry): (BootTime, bool),
        is_answered: impl Fn(WaiterId) -> bool,
    ) {
        self.came += 1;
        let own = self.waits.iter().filter(|waits| waits.key == key && waits.owner == owner && !waits.is_gone);
        let own = own.filter(|waits| !is_answered(waits.id));
        let place = own.map(|waits| waits.place).min().unwrap_or(self.came);
        self.waits.push(Waits { id, key, owner: owner.to_vec(), place, until, retry, is_gone: false });
    }

    /// Returns true if another request of `owner` waits for `key`.
    pub(super) fn waits_already(&self, key: u32, owner: &[u8]) -> bool {
        self.waits.iter().any(|waits| waits.key == key && waits.owner == owner)
    }

    /// Records that the client of the waiting request `id` has disconnected, and that the node has noticed. With
    /// `leaves`, the request is dropped.
    pub(super) fn is_gone(&mut self, id: WaiterId, leaves: bool) {
        self.waits.iter_mut().filter(|waits| waits.id == id).for_each(|waits| waits.is_gone = true);
        if leaves {
            self.waits.retain(|waits| waits.id != id);
        }
    }

    /// Records a grant of `key`, alone or beside others.
    pub(super) fn grants(&mut self, key: u32, grant: &Grant, now: Now) {
        self.is_its_own(key, grant);
        if self.waits.is_empty() {
            return;
        }
        let owner = single_client::owner_of(grant.owner());
        let is_answered = |waits: &Waits| self.granted.iter().any(|(of, to)| *of == key && *to == waits.owner);
        let in_time = self.waits.iter().filter(|waits| waits.key == key && !waits.is_gone && now.boot <= waits.until);
        let in_time = in_time.filter(|waits| !is_answered(waits));
        if let Some(first) = in_time.min_by_key(|waits| waits.place)
            && first.owner != owner
        {
            self.is_wrong(ORDER, "the lock is granted, and somebody else waited longer");
        }
        self.granted.push((key, owner.to_vec()));
    }

    /// Returns true if anything was granted since waiters were last answered.
    pub(super) fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Returns the answer that request `id` receives. `told` is `None` if the node no longer serves the lock.
    pub(super) fn hears(&mut self, id: WaiterId, told: Option<Told>) -> Hears {
        if !single_client::is_one(id) {
            return Hears::Told(if let Some(Told::Turn(number)) = told { number } else { 0 });
        }
        let Some(at) = self.waits.iter().position(|waits| waits.id == id) else {
            self.is_wrong(ANSWERED, "a request is answered that does not wait");
            return Hears::Replied(Replied::Refused);
        };
        let waits = self.waits.remove(at);
        Hears::Replied(match told {
            Some(Told::Granted { token, number, waited_ms, .. }) => {
                Replied::Granted { token: token.get(), number, waited_ms }
            }
            // `Broken` would answer a BREAK that waits. No client in this crate sends one.
            Some(Told::Turn(_) | Told::TimedOut(_) | Told::Broken(_)) => Replied::Null,
            Some(Told::Refused(Refusal::Owned)) => {
                let repeats = waits.retry && !self.converted.contains(&(waits.key, waits.owner));
                self.must(!repeats, ANSWERED, "who repeats its request is told that it has the lock already");
                Replied::Owned
            }
            Some(Told::Refused(_)) | None => Replied::Refused,
        })
    }

    /// Records that all due answers were sent.
    pub(super) fn has_told(&mut self) {
        for (key, owner) in std::mem::take(&mut self.granted) {
            if self.waits.iter().any(|waits| waits.key == key && waits.owner == owner && !waits.is_gone) {
                self.is_wrong(ORDER, "an owner waits for itself");
            }
        }
    }

    /// Checks that every request whose time was up before `now` was answered.
    pub(super) fn check_overdue(&mut self, now: BootTime) {
        if self.waits.iter().any(|waits| waits.until < now) {
            self.is_wrong(ANSWERED, "somebody waits whose time is up");
        }
    }

    /// Checks that replicas know the grants of a lock that several clients hold.
    pub(super) fn replicas_know(&mut self, is_same: bool) {
        self.must(is_same, TOLD, "they know of other grants than there are");
    }

    // Ownership of locks.

    /// Records that an operator broke the lock of `key` with this token.
    pub(super) fn was_taken_away(&mut self, key: u32, token: u64) {
        let largest = self.taken_away.entry(key).or_default();
        *largest = token.max(*largest);
    }

    /// Records that an operator broke the grants of `key` with this token; the other grants stayed.
    pub(super) fn was_broken(&mut self, key: u32, token: u64) {
        self.broken.insert((key, token));
    }

    /// Checks that no holder of `key` has a grant that an operator broke.
    pub(super) fn holds(&mut self, key: u32, lock: Option<&Lock>, now: Now) {
        let live = lock.into_iter().flat_map(Lock::grants).filter(|(_, grant)| !grant.is_expired(now.boot));
        live.for_each(|(_, grant)| self.is_its_own(key, grant));
    }

    fn is_its_own(&mut self, key: u32, grant: &Grant) {
        let (token, taken_away) = (grant.token().get(), self.taken_away.get(&key).copied().unwrap_or(0));
        if token <= taken_away || self.broken.contains(&(key, token)) {
            self.is_wrong(TAKEN_AWAY, "it is held, or another one has no larger token");
        }
    }

    /// Checks the result of a `command` that `owner` sent.
    pub(super) fn answers(
        &mut self,
        command: Command,
        (key, owner): (u32, &[u8]),
        answer: &Result<Outcome, Refusal>,
        change: &Change<'_>,
        now: Now,
    ) {
        let Change { before, after } = *change;
        let others = |lock: &Lock| lock.live_len(now.boot) > 1;
        let (own, after) = (grant_of(before, owner, now), grant_of(after, owner, now));
        let lasts = |ttl_ms: u32| after.is_some_and(|(_, after)| after.deadline() >= now.boot.plus_ms(ttl_ms));
        let is_shorter = || own.zip(after).is_some_and(|((_, own), (_, after))| after.deadline() < own.deadline());
        let is_same = || own.zip(after).is_some_and(|((_, own), (_, after))| after.token() == own.token());
        match (command, answer) {
            (Command::Acquire { ttl_ms, .. }, Ok(Outcome::Granted(token, number))) => {
                let is_its = |(mode, grant): (Mode, &Grant)| grant.token() == *token && mode.number() == *number;
                self.must(
                    after.is_some_and(is_its) && lasts(ttl_ms),
                    HOLDS,
                    "the lock that was granted is another one",
                );
                self.must(!is_shorter(), HOLDS, "a repetition shortens the lease");
            }
            (Command::Acquire { retry, .. }, Err(Refusal::Owned)) => {
                let repeats = retry && !self.converted.contains(&(key, owner.to_vec()));
                self.must(!repeats, ANSWERED, "who repeats its request is told that it has the lock already");
            }
            (Command::Reenter { level, ttl_ms }, Ok(Outcome::Holds(holds))) => {
                let meant = own.map(|(_, own)| level.map_or(own.holds() + 1, |level| level.max(own.holds())));
                self.must(meant.is_some(), HOLDS, "somebody else re-enters the lock");
                let is_so = is_same() && after.is_some_and(|(_, after)| after.holds() == *holds);
                self.must(meant == Some(*holds) && is_so, HOLDS, "they are not what was asked for");
                self.must(ttl_ms.is_none_or(lasts) && !is_shorter(), HOLDS, "the lease is too short");
            }
            (Command::Extend { ttl_ms }, Ok(Outcome::Token(token))) => {
                self.must(own.is_some_and(|(_, own)| own.token() == *token), HOLDS, "somebody else extends the lock");
                self.must(lasts(ttl_ms) && !is_shorter(), HOLDS, "the lease is too short");
            }
            (Command::Convert { shares }, Ok(Outcome::Token(token))) => {
                self.converted.insert((key, owner.to_vec()));
                let was = own.map(|(mode, _)| mode);
                let is_alone = shares || was == Some(Mode::Exclusive) || !before.is_some_and(others);
                self.must(is_alone, CONVERTED, "a reader becomes a writer beside others");
                let mode = if shares { Mode::Shared } else { Mode::Exclusive };
                let is_so = after.is_some_and(|(is, after)| is == mode && after.token() == *token);
                self.must(is_so && !is_shorter(), CONVERTED, "the grant is another one than was said");
            }
            (Command::Convert { shares }, Ok(Outcome::Null)) => {
                let may_be = match own.map(|(mode, _)| mode) {
                    None | Some(Mode::Permit(_)) => false,
                    Some(Mode::Exclusive) => true,
                    Some(Mode::Shared) => shares || !before.is_some_and(others),
                };
                self.must(!may_be, CONVERTED, "nobody else is in its way, and it is not done");
            }
            (Command::Release { level }, Ok(Outcome::Holds(holds))) => {
                let meant = own.map(|(_, own)| own.holds().min(level - 1));
                self.must(meant == Some(*holds), HOLDS, "others are left than were to be");
                let left = after.filter(|_| is_same()).map_or(0, |(_, after)| after.holds());
                self.must(left == *holds, HOLDS, "others are left than were said to be");
            }
            (Command::Reenter { .. } | Command::Extend { .. } | Command::Release { .. }, Ok(Outcome::Null)) => {
                self.must(own.is_none(), HOLDS, "the holder is told that it does not hold the lock");
            }
            _ => {}
        }
    }
}

/// Returns the grant of `owner` in `lock`, and its mode.
fn grant_of<'a>(lock: Option<&'a Lock>, owner: &[u8], now: Now) -> Option<(Mode, &'a Grant)> {
    let lock = lock?;
    let id = lock.find(Owner::new(owner).ok()?)?;
    Some((lock.mode(id), lock.grant(id))).filter(|(_, grant)| !grant.is_expired(now.boot))
}
