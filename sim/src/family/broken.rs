//! Bounds within which the absence of each rule causes harm.

use clap::ValueEnum;

use super::rules::FamilyRule;
use super::state::{Bounds, Checked, LockMode};
use crate::checker::Bounded;

/// Returns a model for each rule, without that rule, and with bounds within which its absence causes harm.
pub fn broken() -> Vec<Bounded<FamilyRule>> {
    use FamilyRule::*;
    use LockMode::{Exclusive, Permit, Shared};
    let bounds = |rule| match rule {
        // The tuples have the number of nodes, the clients, the times that each client asks, and the largest proposed
        // token.
        NumbersNotCounts => (3, vec![Permit(2), Permit(2)], 1, 1),
        BothLimits => (3, vec![Permit(1), Permit(2)], 1, 1),
        ReadersKeepWritersOut => (3, vec![Shared, Exclusive], 1, 1),
        RaisedToTheLargest => (3, vec![Exclusive, Exclusive], 2, 2),
        ReadersAboveWriters | ReadersAboveConverted => (3, vec![Exclusive, Shared], 1, 2),
        PermitsAboveTheirNumber => (1, vec![Permit(2), Permit(2)], 2, 2),
    };
    let without = |&rule| {
        let (nodes, clients, turns, proposals) = bounds(rule);
        let bounds = Bounds { nodes, clients, turns, proposals, without: Some(rule) };
        Bounded::new(rule, move || Checked(bounds.clone()))
    };
    FamilyRule::value_variants().iter().map(without).collect()
}
