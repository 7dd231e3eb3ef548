//! Keeps a lock in one of two ways: by the shipped [`Keeper`], or by hand. By hand, a round of extension begins when
//! the client's driver says so, even before the last round is over.

use palisade_core::BootTime;
use palisade_core::quorum::{Answer, Auto, Call, Held, Keeper, News, NodeId, ROUNDS_A_LEASE, WhyLost, Work};

use crate::rules::{Rule, Without};

/// The way in which a held lock is extended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Keeping {
    ByHand(Held),
    InBackground {
        keeper: Keeper,
        /// The beginning of the last round.
        began: BootTime,
        /// True once the keeper has reported that the lock was taken away.
        is_taken_away: bool,
    },
}

impl Keeping {
    /// Begins to keep a lock in the background.
    pub(super) fn in_background(held: Held, now: BootTime, random: u64) -> Self {
        let auto = Auto { until: BootTime::MAX, ttl_ms: held.ttl_ms() };
        let keeper = Keeper::begin(held, Some(auto), None, now, random);
        Self::InBackground { keeper, began: now, is_taken_away: false }
    }

    pub(super) fn held(&self) -> &Held {
        match self {
            Self::ByHand(held) => held,
            Self::InBackground { keeper, .. } => keeper.held(),
        }
    }

    /// Returns true if the lock was taken away although its lease has not ended.
    pub(super) fn is_taken_away(&self) -> bool {
        matches!(self, Self::InBackground { is_taken_away: true, .. }) || self.held().is_lost()
    }

    /// Returns the moment to wake the keeper. With a rule switched off it is later: without `RoundsRepeated` when the
    /// next regular round begins, without `RoundsInTime` when most of the lease is over.
    pub(super) fn wake_at(&self, without: Without) -> Option<BootTime> {
        let Self::InBackground { keeper, began, .. } = self else { return None };
        let part = began.plus_ms(keeper.held().ttl_ms() / ROUNDS_A_LEASE);
        let late = began.plus_ms(keeper.held().ttl_ms() / 10 * 9);
        keeper.wake_at().map(|wake| match without.0 {
            Some(Rule::RoundsRepeated) => wake.max(part),
            Some(Rule::RoundsInTime) => wake.max(late).min(keeper.held().valid_until()),
            _ => wake,
        })
    }

    pub(super) fn wake(&mut self, now: BootTime, random: u64) -> Vec<Call> {
        self.keeps(now, |keeper| keeper.on_wake(now, random), |_| vec![])
    }

    pub(super) fn extend(&mut self, ttl_ms: u32, now: BootTime, random: u64) -> Vec<Call> {
        self.keeps(now, |keeper| keeper.extend(ttl_ms, now, random), |held| held.extend(ttl_ms, now))
    }

    pub(super) fn share(&mut self, now: BootTime, random: u64) -> Vec<Call> {
        self.keeps(now, |keeper| keeper.share(now, random), Held::share)
    }

    pub(super) fn move_to(&mut self, ids: &[Option<NodeId>], now: BootTime, random: u64) -> Vec<Call> {
        self.keeps(now, |keeper| keeper.move_to(ids, now, random), |held| held.move_to(ids))
    }

    pub(super) fn on_answer(
        &mut self,
        round: u64,
        call: Call,
        id: Option<NodeId>,
        answer: Answer,
        now: BootTime,
        random: u64,
    ) -> Vec<Call> {
        self.keeps(
            now,
            |keeper| keeper.on_answer(round, call, id, answer, now, random),
            |held| held.on_answer(round, call.node, id, call.ask, answer, now),
        )
    }

    fn keeps(
        &mut self,
        now: BootTime,
        kept: impl FnOnce(&mut Keeper) -> Work,
        by_hand: impl FnOnce(&mut Held) -> Vec<Call>,
    ) -> Vec<Call> {
        match self {
            Self::ByHand(held) => by_hand(held),
            Self::InBackground { keeper, began, is_taken_away } => {
                let Work { calls, begins, news } = kept(keeper);
                if begins {
                    *began = now;
                }
                *is_taken_away |= news.iter().any(|news| matches!(news, News::Lost { why: WhyLost::TakenAway, .. }));
                calls
            }
        }
    }
}
