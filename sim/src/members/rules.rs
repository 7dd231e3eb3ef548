//! The rules of a set that changes, each of which can be switched off, and how the harm shows.

use clap::ValueEnum;

use super::{agreement, locks};
use crate::checker::Outcome;
use crate::rules::sentence;

/// A rule of a set that changes, by what is done where it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum MembersRule {
    /// Versions of the set that follow each other differ by one node.
    OneNodeAtATime,
    /// A node agrees to the next version only when leases of clients with older ones have ended there.
    LeasesEndFirst,
    /// A node takes nothing from clients of a version before the one that it was told.
    OlderClientsAreRefused,
    /// A version is decided once a majority of the one before it has accepted it.
    MajorityAccepts,
    /// Who accepts a version issues no token any more that clients of earlier versions had.
    TokensGoOn,
    /// A node knows its version after a restart.
    VersionIsKept,
    /// A node that lost its memory is no member any more.
    MembersHaveIds,
    /// A held lock is extended by a majority of the version that its client works with.
    HeldByTheNewMajority,
    /// An acquisition that is under way when its client learns of a version begins anew.
    AcquisitionsBeginAnew,
    /// A node takes part in no attempt with a smaller ballot than it promised.
    PromisesAreKept,
    /// A changer completes what may be decided already.
    EarlierIsCompleted,
}

impl MembersRule {
    /// Its sentence.
    pub fn sentence(self) -> String {
        sentence(self)
    }
}

/// Without each rule in turn, what is found in at most this many states.
pub fn broken(states_max: usize) -> impl Iterator<Item = (MembersRule, Outcome)> {
    use MembersRule::{EarlierIsCompleted, PromisesAreKept};
    MembersRule::value_variants().iter().map(move |&rule| {
        let outcome = match rule {
            PromisesAreKept | EarlierIsCompleted => agreement::find(agreement::Bounds::without(rule), states_max),
            rule => locks::find(locks::Bounds::without(rule), states_max),
        };
        (rule, outcome)
    })
}
