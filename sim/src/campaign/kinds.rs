//! The faults that can be left out of a campaign.

use std::fmt;

use clap::ValueEnum;

/// A fault; its name on the command line is the same in kebab case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// A server finds an older copy of its folder, or of a part of it.
    CopiedFolders,
    /// A server lives for a while with another state file, or with none.
    OtherStateFile,
    /// A client with access to some keys only raises their tokens as far as it can.
    HostileFence,
    /// A node's wall clock shows a year that tokens have no room for.
    #[value(name = "clock-beyond-2112")]
    ClockBeyond2112,
    /// A database without any of the campaign's locks is emptied on all nodes.
    FlushOneDatabase,
    /// An operator lifts the guard after a flush, and the server is killed.
    LiftAndCrash,
    /// One process takes hundreds of locks at once while a majority is stopped for moments.
    BurstsAndStalls,
    /// A majority is away for longer than the lease of a leader under `palisade elect`.
    OutagesUnderElect,
    /// An owner that lost its lock gives it back through an agent, while a minority of the nodes still has it.
    ReleaseOfALostLock,
    /// The slots of a dead master of a cluster are given to another.
    SlotsGivenAway,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
