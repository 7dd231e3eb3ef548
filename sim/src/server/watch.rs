//! Somebody who watches what a node does for clients that lock on it alone, and knows nothing of how it decides: who waits and in
//! which order, whose lock it is, how many holds its owner has.
//!
//! What a node does wrong shows here at once; what comes of it among clients is for the referee.

use std::collections::BTreeMap;

use palisade_core::engine::Reply as Outcome;
use palisade_core::{Answer as Told, BootTime, Lock, Now, Refusal, WaiterId};

use crate::messages::{Command, Hears, Replied};
use crate::single_client;

/// What a node did wrong: the law, and how.
pub type Wrong = (&'static str, &'static str);

const ORDER: &str = "order of the queue";
const ANSWERED: &str = "answers to those who wait";
const HOLDS: &str = "holds";
const TAKEN_AWAY: &str = "end of a lock that was taken away";

/// A request that waits.
#[derive(Clone, Debug)]
struct Waits {
    id: WaiterId,
    key: u32,
    owner: Vec<u8>,
    /// Of one owner the first to come says where all of its requests stand.
    place: u64,
    until: BootTime,
    retry: bool,
    /// Its client is gone, and the node knows.
    is_gone: bool,
}

/// What was seen of one incarnation of a node.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    waits: Vec<Waits>,
    came: u64,
    /// By key: the largest token of a lock that an operator took away.
    taken_away: BTreeMap<u32, u64>,
    /// Who was granted what, until those who wait were told.
    granted: Vec<(u32, Vec<u8>)>,
    wrong: Option<Wrong>,
}

/// What the lock of a key is before and after a command, as far as its lease has not ended.
pub(super) struct Change<'a> {
    pub before: Option<&'a Lock>,
    pub after: Option<&'a Lock>,
}

impl Watch {
    /// What was wrong first.
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

    // Who waits.

    /// `owner` waits for `key`, by the name `id`. Whether a request that came before is answered already, and was not told yet,
    /// `is_answered` says.
    pub(super) fn joins(
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

    /// Whether another request of `owner` waits for `key`.
    pub(super) fn waits_already(&self, key: u32, owner: &[u8]) -> bool {
        self.waits.iter().any(|waits| waits.key == key && waits.owner == owner)
    }

    /// The client whose request waits by the name `id` is gone, and the node knows; `leaves`: the request is dropped.
    pub(super) fn is_gone(&mut self, id: WaiterId, leaves: bool) {
        self.waits.iter_mut().filter(|waits| waits.id == id).for_each(|waits| waits.is_gone = true);
        if leaves {
            self.waits.retain(|waits| waits.id != id);
        }
    }

    /// `key` is granted, as `lock`.
    pub(super) fn grants(&mut self, key: u32, lock: &Lock, now: Now) {
        if self.waits.is_empty() && self.taken_away.is_empty() {
            return;
        }
        let owner = single_client::owner_of(lock.first().owner());
        let in_time = self.waits.iter().filter(|waits| waits.key == key && !waits.is_gone && now.boot <= waits.until);
        if let Some(first) = in_time.min_by_key(|waits| waits.place)
            && first.owner != owner
        {
            self.is_wrong(ORDER, "the lock is granted, and somebody else waited longer");
        }
        self.granted.push((key, owner.to_vec()));
        self.holds(key, Some(lock), now);
    }

    /// Somebody was granted something since those who wait were told.
    pub(super) fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// What the request `id` hears; `None`: the lock is not served here.
    pub(super) fn hears(&mut self, id: WaiterId, told: Option<Told>) -> Hears {
        if !single_client::is_one(id) {
            return Hears::Told(told == Some(Told::Turn(1)));
        }
        let Some(at) = self.waits.iter().position(|waits| waits.id == id) else {
            self.is_wrong(ANSWERED, "a request is answered that does not wait");
            return Hears::Replied(Replied::Refused);
        };
        let waits = self.waits.remove(at);
        Hears::Replied(match told {
            Some(Told::Granted { token, waited_ms, .. }) => Replied::Granted { token: token.get(), waited_ms },
            Some(Told::Turn(_) | Told::TimedOut(_)) => Replied::Null,
            Some(Told::Refused(Refusal::Owned)) => {
                self.must(!waits.retry, ANSWERED, "who repeats its request is told that it has the lock already");
                Replied::Owned
            }
            Some(Told::Refused(_)) | None => Replied::Refused,
        })
    }

    /// All that were to be told were told.
    pub(super) fn has_told(&mut self) {
        for (key, owner) in std::mem::take(&mut self.granted) {
            if self.waits.iter().any(|waits| waits.key == key && waits.owner == owner && !waits.is_gone) {
                self.is_wrong(ORDER, "an owner waits for itself");
            }
        }
    }

    /// Whoever's time was up before `now` was answered.
    pub(super) fn forgets(&mut self, now: BootTime) {
        if self.waits.iter().any(|waits| waits.until < now) {
            self.is_wrong(ANSWERED, "somebody waits whose time is up");
        }
    }

    // Whose lock it is.

    /// An operator took the lock of `key` away that had this token.
    pub(super) fn was_taken_away(&mut self, key: u32, token: u64) {
        let largest = self.taken_away.entry(key).or_default();
        *largest = token.max(*largest);
    }

    /// `lock` is what `key` holds.
    pub(super) fn holds(&mut self, key: u32, lock: Option<&Lock>, now: Now) {
        let taken_away = self.taken_away.get(&key).copied().unwrap_or(0);
        if lock.is_some_and(|lock| !lock.is_expired(now.boot) && lock.first().token().get() <= taken_away) {
            self.is_wrong(TAKEN_AWAY, "it is held, or another one has no larger token");
        }
    }

    /// `owner` sent `command`, and this came of it.
    pub(super) fn answers(
        &mut self,
        command: Command,
        owner: &[u8],
        answer: &Result<Outcome, Refusal>,
        change: &Change<'_>,
        now: Now,
    ) {
        let Change { before, after } = *change;
        let own = before.filter(|lock| lock.first().owner() == owner);
        let lasts = |ttl_ms: u32| after.is_some_and(|lock| lock.first().deadline() >= now.boot.plus_ms(ttl_ms));
        let is_shorter =
            || own.zip(after).is_some_and(|(own, after)| after.first().deadline() < own.first().deadline());
        match (command, answer) {
            (Command::Acquire { ttl_ms, .. }, Ok(Outcome::Granted(token, _))) => {
                let is_its = after.is_some_and(|lock| lock.first().owner() == owner && lock.first().token() == *token);
                self.must(is_its && lasts(ttl_ms), HOLDS, "the lock that was granted is another one");
                self.must(!is_shorter(), HOLDS, "a repetition shortens the lease");
            }
            (Command::Acquire { retry, .. }, Err(Refusal::Owned)) => {
                self.must(!retry, ANSWERED, "who repeats its request is told that it has the lock already");
            }
            (Command::Reenter { level, ttl_ms }, Ok(Outcome::Holds(holds))) => {
                let meant =
                    own.map(|own| level.map_or(own.first().holds() + 1, |level| level.max(own.first().holds())));
                self.must(meant.is_some(), HOLDS, "somebody else re-enters the lock");
                let is_so = |lock: &Lock| {
                    lock.first().holds() == *holds && own.is_some_and(|own| lock.first().token() == own.first().token())
                };
                self.must(meant == Some(*holds) && after.is_some_and(is_so), HOLDS, "they are not what was asked for");
                self.must(ttl_ms.is_none_or(lasts) && !is_shorter(), HOLDS, "the lease is too short");
            }
            (Command::Extend { ttl_ms }, Ok(Outcome::Token(token))) => {
                self.must(
                    own.is_some_and(|own| own.first().token() == *token),
                    HOLDS,
                    "somebody else extends the lock",
                );
                self.must(lasts(ttl_ms) && !is_shorter(), HOLDS, "the lease is too short");
            }
            (Command::Release { level }, Ok(Outcome::Holds(holds))) => {
                let meant = own.map(|own| own.first().holds().min(level - 1));
                self.must(meant == Some(*holds), HOLDS, "others are left than were to be");
                let is_so =
                    match after.filter(|lock| own.is_some_and(|own| lock.first().token() == own.first().token())) {
                        Some(lock) => lock.first().holds() == *holds,
                        None => *holds == 0,
                    };
                self.must(is_so, HOLDS, "others are left than were said to be");
            }
            (Command::Reenter { .. } | Command::Extend { .. } | Command::Release { .. }, Ok(Outcome::Null)) => {
                self.must(own.is_none(), HOLDS, "the holder is told that it does not hold the lock");
            }
            _ => {}
        }
    }
}
