//! What a run came to.

use std::collections::BTreeMap;

use crate::history::HeldAs;
use crate::referee::Violation;
use crate::server::Wrong;

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Moments.
    pub moments: u64,
    /// Locks taken.
    pub held: u64,
    /// Tries that did not get it.
    pub refused: u64,
    /// Rounds that extended, and rises of tokens.
    pub extended: u64,
    /// Locks lost before they were given back.
    pub lost: u64,
    /// Writes that the register took, and refused.
    pub taken: u64,
    /// See `taken`.
    pub fenced_out: u64,
    /// Locks that clients asked for until a limit while nothing else went wrong, and had by then.
    pub had_in_time: u64,
    /// Locks that were kept, while nothing else went wrong, until they were given back.
    pub kept: u64,
    /// Locks taken by clients that lock on one node; those of them that were waited for; repeated requests; re-entries; and how often
    /// somebody who waited went away.
    pub single_held: u64,
    /// See `single_held`.
    pub single_waited: u64,
    /// See `single_held`.
    pub repeated: u64,
    /// See `single_held`.
    pub reentered: u64,
    /// See `single_held`.
    pub left: u64,
    /// Locks taken together with others, to read; permits; and conversions.
    pub shared: u64,
    /// See `shared`.
    pub permits: u64,
    /// See `shared`.
    pub converted: u64,
    /// Versions of the set that were decided; how often a client took one up, and did while it held a lock.
    pub versions: u64,
    /// See `versions`.
    pub learnt: u64,
    /// See `versions`.
    pub moved: u64,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// A lock was taken in `mode`.
    pub(super) fn counts(&mut self, mode: HeldAs) {
        self.shared += u64::from(mode == HeldAs::Shared);
        self.permits += u64::from(matches!(mode, HeldAs::Permit { .. }));
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.moments += other.moments;
        self.held += other.held;
        self.refused += other.refused;
        self.extended += other.extended;
        self.lost += other.lost;
        self.taken += other.taken;
        self.fenced_out += other.fenced_out;
        self.had_in_time += other.had_in_time;
        self.kept += other.kept;
        self.single_held += other.single_held;
        self.single_waited += other.single_waited;
        self.repeated += other.repeated;
        self.reentered += other.reentered;
        self.left += other.left;
        self.shared += other.shared;
        self.permits += other.permits;
        self.converted += other.converted;
        self.versions += other.versions;
        self.learnt += other.learnt;
        self.moved += other.moved;
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
        }
    }
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A law was broken.
    Broken(Violation),
    /// After all faults had ended a lock was not to be had.
    Stuck {
        /// Which.
        key: u32,
    },
    /// A client asked for a lock that nobody held, while nodes did not answer for moments at most, and gave up without it.
    GaveUp {
        /// Which client.
        client: u32,
        /// Which lock.
        key: u32,
    },
    /// A caller, or a holder, did what none does.
    Conduct {
        /// Which client.
        client: u32,
        /// What.
        wrong: &'static str,
    },
    /// A holder lost its lock, and nodes did not answer for moments at most.
    Lost {
        /// Which client.
        client: u32,
        /// Which lock.
        key: u32,
    },
    /// A version of the set was decided with two lists.
    TwoLists {
        /// Which version.
        version: u64,
    },
    /// Somebody waited for a lock that was free.
    Unserved {
        /// On which node.
        node: usize,
    },
    /// A node did something wrong for clients that lock on it alone.
    Wrong {
        /// Which node.
        node: usize,
        /// Which law it broke, and how.
        wrong: Wrong,
    },
    /// A client that locks on one node was answered what no right node answers.
    Answered {
        /// Which client.
        client: u32,
        /// What.
        wrong: &'static str,
    },
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
