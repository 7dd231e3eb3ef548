//! The faults that can be left out of a campaign.

use std::fmt;

use clap::ValueEnum;

/// A fault; its name on the command line is the same in kebab case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// A server starts on an older copy of its folder or of a part of it.
    CopiedFolders,
    /// A server runs for a while with another state file, or without one.
    OtherStateFile,
    /// A client with access to a few keys raises their tokens as far as it can.
    HostileFence,
    /// A node's wall clock shows a year that is too late for tokens.
    #[value(name = "clock-beyond-2112")]
    ClockBeyond2112,
    /// A database without any of the campaign's locks is emptied, on one node or on all.
    FlushOneDatabase,
    /// An operator lifts the guard after a flush, and the server is killed.
    LiftAndCrash,
    /// One process takes hundreds of locks at once while a majority is stopped for moments.
    BurstsAndStalls,
    /// A majority is away for longer than the lease of a leader under `palisade elect`.
    OutagesUnderElect,
    /// An owner that lost its lock releases it through an agent, while a minority of the nodes still has it.
    ReleaseOfALostLock,
    /// The slots of a cluster's dead master are given to another master.
    SlotsGivenAway,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
