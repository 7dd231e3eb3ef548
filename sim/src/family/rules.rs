//! The rules of shared locks and permits that can be switched off in this model.

use clap::ValueEnum;

/// A rule of shared locks and permits, described by what happens while it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum FamilyRule {
    /// Each permit has a number that a majority grants to one holder: nodes do not just count holders.
    NumbersNotCounts,
    /// A permit's number is within the limits of all other holders too, not only within its own limit.
    BothLimits,
    /// Readers keep writers out.
    ReadersKeepWritersOut,
    /// A reader's token is above those of the writers and permits before it.
    ReadersAboveWriters,
    /// A permit's token is above all earlier tokens of its number, also while others hold permits.
    PermitsAboveTheirNumber,
    /// A reader beside a writer that became a reader has a token above the writer's.
    ReadersAboveConverted,
    /// A grant counts only once every node of a majority has a token as large as the largest that any of them issued.
    RaisedToTheLargest,
}
