//! The faults of a run.

// The doc comment of each kind describes its fields.
#![allow(missing_docs)]

use serde::{Deserialize, Serialize};

use crate::history::TimeUs;

/// The last time at which an operator broke a key's lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Break {
    pub(super) at: TimeUs,
    /// True if the operator breaks the lock on one node after another. The other nodes may have granted the lock to
    /// other clients before or afterwards.
    pub(super) in_turn: bool,
}

/// A fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The moment at which the fault begins.
    pub at: TimeUs,
    /// The length of the fault, in microseconds.
    pub for_us: u64,
    /// The kind of fault, with its parameters.
    pub kind: Kind,
}

/// A kind of fault, with its `node`, `client` or `key`. Times are in microseconds. A fault begins and ends as its
/// [`Fault`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A server is killed, and starts again when the fault ends. With `reboot`, its machine reboots, and the boot clock
    /// starts over.
    Crash { node: usize, reboot: bool },
    /// A server is killed, and starts when the fault ends, with an empty disk. It is another node from then on.
    NewDisk { node: usize },
    /// A server is shut down cleanly, and starts again when the fault ends.
    Restart { node: usize, reboot: bool },
    /// A server is killed, and its replica, whose data is `lag_us` old, becomes the master when the fault ends.
    Failover { node: usize, lag_us: u64 },
    /// The files on a node's disk are copied. In the end, the server is killed and started from the copy.
    OlderFiles { node: usize },
    /// A server is shut down cleanly, and started on its data with another state file. In the end, it is killed and
    /// started with its first state file.
    OtherStateFile { node: usize },
    /// A hostile client raises the tokens of its own keys on all nodes, at the beginning and at the end.
    RaisedTokens,
    /// All locks of a node are flushed.
    Flush { node: usize },
    /// An operator breaks a lock (LOCK.BREAK).
    Break { node: usize, key: u32 },
    /// Somebody deletes a key by hand (DEL).
    Delete { node: usize, key: u32 },
    /// A server evicts a key to make room.
    Evict { node: usize, key: u32 },
    /// An operator arms a node's guard, for the length of the fault (LOCK.GUARD).
    Arm { node: usize },
    /// The slot of a key is given to another server of the node's cluster, and given back in the end, each time without
    /// its locks (CLUSTER SETSLOT). With `dies`, the node's server is killed before, and starts again before the slot
    /// is given back. Otherwise, it continues to serve its other slots.
    SlotGivenAway { node: usize, key: u32, dies: bool },
    /// The slot of a key is emptied (CLUSTER FLUSHSLOT).
    FlushSlot { node: usize, key: u32 },
    /// A server is paused.
    PauseNode { node: usize },
    /// A majority of the nodes, at first from `first` on, stalls at the same time, for at most a quarter of a second
    /// and a fifth of a lease. This happens about once a second, each time to another majority. With `in_step`, it
    /// happens in each third of a lease, as rounds of extension begin, for a tenth of the lease.
    Stalls {
        first: usize,
        #[serde(default)]
        in_step: bool,
    },
    /// An operator breaks a lock on all nodes at once.
    BreakAll { key: u32 },
    /// An operator breaks a lock on one node after another, from `first` on, while the fault lasts. With `extends`, the
    /// holder extends the lock by hand in between.
    BreakInTurn { key: u32, first: usize, extends: bool },
    /// All idle clients ask for locks at one moment, about once a second, each with a time limit of many seconds. With
    /// `apart`, each asks for a lock that no other client wants; otherwise, all ask for the same lock.
    Bursts { apart: bool },
    /// An operator's program changes the set of nodes, step by step, at most until the fault ends. `wants` has a bit
    /// for the index of each node that the program wants. The program dies after `dies_after` messages.
    SetNodes { wants: u16, dies_after: Option<u16> },
    /// A client is paused.
    PauseClient { client: usize },
    /// A client is killed, and starts again when the fault ends.
    KillClient { client: usize },
    /// Messages between a node and a client are lost: requests (`there`), answers (`back`), or both. `None` stands for
    /// all nodes or all clients.
    Cut { node: Option<usize>, client: Option<usize>, there: bool, back: bool },
    /// Messages to and from a node take `by_us` longer.
    Slow { node: usize, by_us: u64 },
    /// Answers to a client take `by_us` longer.
    LateAnswers { client: usize, by_us: u64 },
    /// A node's disk does not complete its writes.
    DiskHangs { node: usize },
    /// A node's wall clock is stepped by `by_us`, and stays so.
    NodeClockStep { node: usize, by_us: i64 },
    /// A client's wall clock is stepped by `by_us`, and stays so.
    ClientClockStep { client: usize, by_us: i64 },
}

impl Kind {
    /// Returns the name of the kind, as in counts and in the story of a run.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Crash { reboot: false, .. } => "crash",
            Self::Crash { reboot: true, .. } => "crash and reboot",
            Self::NewDisk { .. } => "new disk",
            Self::Restart { reboot: false, .. } => "restart",
            Self::Restart { reboot: true, .. } => "restart and reboot",
            Self::Failover { .. } => "fail-over",
            Self::OlderFiles { .. } => "older files",
            Self::OtherStateFile { .. } => "another state file",
            Self::RaisedTokens => "raised tokens",
            Self::Flush { .. } => "flush",
            Self::Break { .. } => "break",
            Self::Delete { .. } => "deletion",
            Self::Evict { .. } => "eviction",
            Self::Arm { .. } => "armed guard",
            Self::SlotGivenAway { dies: false, .. } => "slot given away",
            Self::SlotGivenAway { dies: true, .. } => "slot of a dead node given away",
            Self::FlushSlot { .. } => "flush of a slot",
            Self::PauseNode { .. } => "pause of a node",
            Self::Stalls { .. } => "stalls of majorities",
            Self::BreakAll { .. } => "break on all nodes",
            Self::BreakInTurn { .. } => "break on one node after the other",
            Self::Bursts { .. } => "bursts of requests",
            Self::SetNodes { dies_after: None, .. } => "change of the set",
            Self::SetNodes { .. } => "change of the set that dies",
            Self::PauseClient { .. } => "pause of a client",
            Self::KillClient { .. } => "kill of a client",
            Self::Cut { there: true, back: true, .. } => "cut",
            Self::Cut { .. } => "one-way cut",
            Self::Slow { .. } => "slow network",
            Self::LateAnswers { .. } => "late answers",
            Self::DiskHangs { .. } => "disk hangs",
            Self::NodeClockStep { .. } => "clock step of a node",
            Self::ClientClockStep { .. } => "clock step of a client",
        }
    }
}
