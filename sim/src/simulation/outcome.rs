//! What a run came to.

// The fields of a failure, and counts that belong together, are told of in one place.
#![allow(missing_docs)]

use std::collections::BTreeMap;

use crate::history::HeldAs;
use crate::referee::Violation;
use crate::server::Wrong;

/// Declares what is counted in a run, and how the counts of several runs are added.
macro_rules! totals {
    ($($(#[$about:meta])* $count:ident,)+) => {
        /// How a run went.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$about])* pub $count: u64,)+
            /// Faults by name.
            pub faults: BTreeMap<&'static str, u64>,
        }

        impl Totals {
            /// Adds those of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$count += other.$count;)+
                other.faults.iter().for_each(|(name, count)| *self.faults.entry(name).or_default() += count);
            }
        }
    };
}

totals! {
    /// Moments.
    moments,
    /// Locks taken.
    held,
    /// Tries that did not get it.
    refused,
    /// Rounds that extended, and rises of tokens.
    extended,
    /// Locks lost before they were given back.
    lost,
    /// Writes that the register took, and refused.
    taken,
    fenced_out,
    /// Locks that clients asked for until a limit while nothing else went wrong, and had by then.
    had_in_time,
    /// Locks that were kept, while nothing else went wrong, until they were given back.
    kept,
    /// Locks taken by clients that lock on one node; those of them that were waited for; repeated requests; re-entries; and how often
    /// somebody who waited went away.
    single_held,
    single_waited,
    repeated,
    reentered,
    left,
    /// Locks taken together with others, to read; permits; and conversions.
    shared,
    permits,
    converted,
    /// Versions of the set that were decided; how often a client took one up, and did while it held a lock.
    versions,
    learnt,
    moved,
}

impl Totals {
    /// A lock was taken in `mode`.
    pub(super) fn counts(&mut self, mode: HeldAs) {
        self.shared += u64::from(mode == HeldAs::Shared);
        self.permits += u64::from(matches!(mode, HeldAs::Permit { .. }));
    }
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A law was broken.
    Broken(Violation),
    /// After all faults had ended a lock was not to be had.
    Stuck { key: u32 },
    /// A client asked for a lock that nobody held, while nodes did not answer for moments at most, and gave up without it.
    GaveUp { client: u32, key: u32 },
    /// A caller, or a holder, did what none does.
    Conduct { client: u32, wrong: &'static str },
    /// A holder lost its lock, and nodes did not answer for moments at most.
    Lost { client: u32, key: u32 },
    /// A version of the set was decided with two lists.
    TwoLists { version: u64 },
    /// Somebody waited for a lock that was free.
    Unserved { node: usize },
    /// A node did something wrong for clients that lock on it alone: which law it broke, and how.
    Wrong { node: usize, wrong: Wrong },
    /// A client that locks on one node was answered what no right node answers.
    Answered { client: u32, wrong: &'static str },
}

impl Failure {
    /// What was broken.
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
