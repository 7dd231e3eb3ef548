//! The outcome of a run.

// The doc comment of each failure describes its fields.
#![allow(missing_docs)]

use std::collections::BTreeMap;

use crate::history::HeldAs;
use crate::referee::Violation;
use crate::server::Wrong;

/// Declares the counts of a run, and the addition of the counts of several runs.
macro_rules! totals {
    ($($(#[$about:meta])* $count:ident,)+) => {
        /// The counts of a run, or the sums over several runs.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$about])* pub $count: u64,)+
            /// The number of injected faults of each name.
            pub faults: BTreeMap<&'static str, u64>,
        }

        impl Totals {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$count += other.$count;)+
                other.faults.iter().for_each(|(name, count)| *self.faults.entry(name).or_default() += count);
            }
        }
    };
}

totals! {
    /// Events that the run performed.
    moments,
    /// The number of locks taken.
    held,
    /// Attempts that did not get the lock.
    refused,
    /// Rounds that extended a lease, and rises of tokens.
    extended,
    /// The number of locks lost before their release.
    lost,
    /// Writes that the register accepted.
    taken,
    /// Writes that the register refused.
    fenced_out,
    /// Locks that a client with a long time limit asked for, and got within it, while there were no other faults than
    /// bursts of requests and stalls of majorities.
    had_in_time,
    /// Locks that were held until their release, while nothing but bursts and stalls happened.
    kept,
    /// Holders whose lock an operator broke on all nodes, and who soon stopped relying on it.
    noticed,
    /// Locks taken by clients that lock on one node.
    single_held,
    /// The number of locks for which a client that locks on one node had to wait.
    single_waited,
    /// The number of requests that a client that locks on one node repeated.
    repeated,
    /// The number of re-entries by a client that locks on one node.
    reentered,
    /// The number of waiters that gave up.
    left,
    /// Locks taken by readers, who share them.
    shared,
    /// The number of permits taken.
    permits,
    /// The number of conversions to another mode.
    converted,
    /// Versions of the set that were decided.
    versions,
    /// Times that a client moved to a new version.
    learnt,
    /// Times that a client moved to a new version of the set while it held a lock.
    moved,
}

impl Totals {
    /// Counts a lock that was taken in `mode`.
    pub(super) fn counts(&mut self, mode: HeldAs) {
        self.shared += u64::from(mode == HeldAs::Shared);
        self.permits += u64::from(matches!(mode, HeldAs::Permit { .. }));
    }
}

/// The reason why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The run broke one of the laws that the referee checks.
    Broken(Violation),
    /// A lock could not be acquired after all faults had ended.
    Stuck { key: u32 },
    /// A client that asked for a free lock gave up without it, although nodes failed to answer only for moments.
    GaveUp { client: u32, key: u32 },
    /// A caller or a holder did something that it must not do.
    Conduct { client: u32, wrong: &'static str },
    /// A holder lost its lock, although nodes failed to answer only for moments.
    Lost { client: u32, key: u32 },
    /// A version of the set was decided with two lists.
    TwoLists { version: u64 },
    /// A request waited for a free lock.
    Unserved { node: usize },
    /// A node treated clients that lock on it alone wrongly: the law that it broke, and how.
    Wrong { node: usize, wrong: Wrong },
    /// A client that locks on one node received an answer that no correct node gives.
    Answered { client: u32, wrong: &'static str },
}

impl Failure {
    /// Returns the law that was broken.
    pub fn law(&self) -> &'static str {
        match self {
            Self::Broken(violation) => violation.law(),
            Self::Wrong { wrong: (law, _), .. } => law,
            Self::TwoLists { .. } => "agreement",
            Self::Answered { .. } => "answers to those who wait",
            Self::Conduct { .. } => "conduct",
            Self::Stuck { .. } | Self::GaveUp { .. } | Self::Lost { .. } | Self::Unserved { .. } => "progress",
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(violation) => violation.fmt(f),
            Self::Stuck { key } => write!(f, "progress: after all faults had ended key {key} was not to be had"),
            Self::GaveUp { client, key } => {
                write!(
                    f,
                    "progress: client {client} did not get key {key}, which nobody held, and nodes answered but for moments"
                )
            }
            Self::Lost { client, key } => {
                write!(f, "progress: client {client} lost key {key}, and nodes answered but for moments")
            }
            Self::Conduct { client, wrong } => write!(f, "conduct: client {client}: {wrong}"),
            Self::Wrong { node, wrong: (law, how) } => write!(f, "{law}: on node {node}: {how}"),
            Self::Answered { client, wrong } => write!(f, "{law}: client {client}: {wrong}", law = self.law()),
            Self::TwoLists { version } => write!(f, "agreement: version {version} of the set has two lists"),
            Self::Unserved { node } => {
                write!(f, "progress: somebody waits on node {node} for a lock that is free")
            }
        }
    }
}
