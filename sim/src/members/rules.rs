//! The rules of a set that changes: what the models find without each of them.

use super::{agreement, locks};
use crate::checker::Outcome;
use crate::rules::Rule;

/// Those rules.
pub const RULES: [Rule; 11] = [
    Rule::OneNodeAtATime,
    Rule::LeasesEndFirst,
    Rule::OlderClientsAreRefused,
    Rule::MajorityAccepts,
    Rule::TokensGoOn,
    Rule::VersionIsKept,
    Rule::MembersHaveIds,
    Rule::HeldByTheNewMajority,
    Rule::AcquisitionsBeginAnew,
    Rule::PromisesAreKept,
    Rule::EarlierIsCompleted,
];

/// Without `rule`, what is found in at most this many states.
pub fn broken(rule: Rule, states_max: usize) -> Outcome {
    match rule {
        Rule::PromisesAreKept | Rule::EarlierIsCompleted => {
            agreement::find(agreement::Bounds::without(rule), states_max)
        }
        rule => locks::find(locks::Bounds::without(rule), states_max),
    }
}
