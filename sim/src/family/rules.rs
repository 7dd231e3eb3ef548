//! The rules of shared locks and permits that can be switched off, and how the harm shows.

use clap::ValueEnum;

use super::state::{Bounds, Wants};
use crate::rules::sentence;

/// A rule of the family, by what is done where it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum FamilyRule {
    /// Permits have numbers, and each number is held by one majority: a node does not just count its holders.
    NumbersNotCounts,
    /// A permit's number is within the limits of those who hold others, not its own limit alone.
    BothLimits,
    /// Readers keep writers out.
    ReadersKeepWritersOut,
    /// A reader's token is above those of the writers and permits before it.
    ReadersAboveWriters,
    /// A permit's token is above the earlier ones of its number, also while others hold theirs.
    PermitsAboveTheirNumber,
    /// Whoever reads beside a writer that became a reader has a token above the writer's.
    ReadersAboveConverted,
    /// A grant counts once a majority has a token as large as the largest that a node of it gave.
    RaisedToTheLargest,
}

impl FamilyRule {
    /// Its sentence.
    pub fn sentence(self) -> String {
        sentence(self)
    }
}

/// Without each rule in turn, bounds within which the harm shows.
pub fn broken() -> Vec<(FamilyRule, Bounds)> {
    use FamilyRule::*;
    use Wants::{Exclusive, Permit, Shared};
    let bounds = |rule| match rule {
        // Nodes, clients, turns of each, proposals.
        NumbersNotCounts => (3, vec![Permit(2), Permit(2)], 1, 1),
        BothLimits => (3, vec![Permit(1), Permit(2)], 1, 1),
        ReadersKeepWritersOut => (3, vec![Shared, Exclusive], 1, 1),
        RaisedToTheLargest => (3, vec![Exclusive, Exclusive], 2, 2),
        ReadersAboveWriters | ReadersAboveConverted => (3, vec![Exclusive, Shared], 1, 2),
        PermitsAboveTheirNumber => (1, vec![Permit(2), Permit(2)], 2, 2),
    };
    let without = |&rule| {
        let (nodes, clients, turns, proposals) = bounds(rule);
        (rule, Bounds { nodes, clients, turns, proposals, without: Some(rule) })
    };
    FamilyRule::value_variants().iter().map(without).collect()
}
