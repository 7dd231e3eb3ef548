//! The rules of a queue, each of which can be switched off: where its inputs and outputs pass, not in `palisade-core`.

use clap::ValueEnum;

use super::state::Bounds;
use crate::rules::sentence;

/// A rule of a queue, by what is done where it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum QueueRule {
    /// Waiters are served first in, first out.
    FirstInFirstOut,
    /// A request for a free lock does not pass those who wait for it.
    NoBarging,
    /// A waiter whose client is gone leaves the queue, and the next is served.
    DeadHeadPasses,
    /// The requests of one owner share a place: all of them are answered by its grant.
    OwnersShareAPlace,
    /// What is kept free for one who was told is kept for a moment only.
    ReservationEnds,
    /// When the guard ends, those who wait are served.
    GuardEndServes,
}

impl QueueRule {
    /// Its sentence.
    pub fn sentence(self) -> String {
        sentence(self)
    }
}

/// Without each rule in turn, bounds within which the harm shows.
pub fn broken() -> Vec<(QueueRule, Bounds)> {
    let without = |&rule| (rule, Bounds { without: Some(rule), ..Bounds::default() });
    QueueRule::value_variants().iter().map(without).collect()
}
