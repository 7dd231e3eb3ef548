//! For each rule of a set that changes, a model that is unsound without the rule.

use super::{agreement, bounds};
use crate::checker::Bounded;
use crate::rules::Rule;

/// Returns a model for each rule, without that rule, and with bounds within which its absence causes harm.
pub fn broken() -> Vec<Bounded<Rule>> {
    let of_locks = [
        Rule::OneNodeAtATime,
        Rule::LeasesEndFirst,
        Rule::OlderClientsAreRefused,
        Rule::MajorityAccepts,
        Rule::TokensGoOn,
        Rule::VersionIsKept,
        Rule::MembersHaveIds,
        Rule::HeldByTheNewMajority,
        Rule::AcquisitionsBeginAnew,
    ];
    let of_changers = [Rule::PromisesAreKept, Rule::EarlierIsCompleted];
    let locks = of_locks.map(|rule| Bounded::new(rule, move || bounds::Checked(bounds::Bounds::without(rule))));
    let without = agreement::Bounds::without;
    let changers = of_changers.map(|rule| Bounded::new(rule, move || agreement::Checked(without(rule))));
    locks.into_iter().chain(changers).collect()
}
