//! A [`Keeper`] whose promises are checked at each input.

use palisade_core::BootTime;
use palisade_core::quorum::{Keeper, News, ROUNDS_A_LEASE, Work};

/// The longest pause before a failed round is repeated, as a part of a lease: a tenth.
const AGAIN_OF_TTL: u64 = 10;

/// The shortest pause before a round is repeated, in microseconds.
const AGAIN_LEAST_US: u64 = 5_000;

/// A keeper, with the facts by which its promises are checked.
pub struct Watched {
    keeper: Keeper,
    /// True if nodes hang only for short moments and the lock is extended in the background.
    is_calm: bool,
    pub is_taken_away: bool,
    is_lost: bool,
    awake_at: Option<BootTime>,
}

impl Watched {
    pub fn new(keeper: Keeper, is_calm: bool) -> Self {
        Self { keeper, is_calm, is_taken_away: false, is_lost: false, awake_at: None }
    }

    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Returns true if the owner may rely on holding the lock alone at `now`.
    pub fn relies(&self, now: BootTime) -> bool {
        !self.is_lost && !self.is_taken_away && now < self.keeper.held().valid_until()
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the time at which to wake the keeper, if that has changed since the last call.
    pub fn new_wake(&mut self) -> Option<BootTime> {
        let wake = self.keeper.wake_at().filter(|wake| self.awake_at != Some(*wake));
        self.awake_at = self.keeper.wake_at();
        wake
    }

    /// Passes an input to the keeper at `now`, and checks what the keeper then does.
    pub fn keep(&mut self, now: BootTime, input: impl FnOnce(&mut Keeper) -> Work) -> Work {
        if self.awake_at.is_some_and(|at| at <= now) {
            self.awake_at = None;
        }
        let held = self.keeper.held();
        let (until, token, round, outcome) = (held.valid_until(), held.token(), held.round(), held.outcome());
        let work = input(&mut self.keeper);
        crate::tell(&(&work, self.keeper.wake_at()));
        let held = self.keeper.held();
        assert!(held.valid_until() >= until, "validity moved back");
        assert!(held.token() >= token, "the token fell");
        assert!(held.valid_until() == until || now < until, "extended after its end");
        if self.is_lost {
            assert_eq!((&work, self.keeper.wake_at()), (&Work::default(), None), "there is nothing to come");
            return work;
        }
        if let Some(News::Lost { why, .. }) = work.news.iter().find(|news| matches!(news, News::Lost { .. })) {
            self.is_lost = true;
            assert_eq!((work.calls.len(), work.begins, work.news.len()), (0, false, 1), "{work:?}");
            assert!(!self.is_calm, "lost though nodes answer: {why:?}");
            return work;
        }
        // A move to another version of the set gives up the round that was under way.
        assert!(!work.begins || outcome.is_some() || held.round() > round + 1, "begun while one was under way");
        let wake = self.keeper.wake_at().expect("nothing wakes it");
        assert!(wake <= held.valid_until(), "it sleeps through its end");
        let period_us = u64::from(held.ttl_ms()) * 1_000 / u64::from(ROUNDS_A_LEASE);
        assert!(!self.is_calm || wake <= now.plus_us(period_us), "the next round is too late");
        if self.is_calm && work.news.contains(&News::NotExtended) {
            let soon_us = (u64::from(held.ttl_ms()) * 1_000 / AGAIN_OF_TTL).max(AGAIN_LEAST_US);
            assert!(wake <= now.plus_us(soon_us), "not begun again in time");
        }
        work
    }
}
