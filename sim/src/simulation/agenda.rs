//! What happens next: moments in the order of true time.

use palisade_core::quorum::NodeId;
use palisade_core::{BootTime, NodeState};

use super::changer::{Answers, Asks, Message};
use crate::history::{HeldAs, Holder};
use crate::messages::{Reply, Request};

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// A request reaches a server.
    Arrives(usize, Request),
    /// An answer reaches a client.
    Returns(Reply),
    /// A node's timer, and its regular look after itself.
    Timer(usize),
    Tick(usize),
    /// A node's snapshot of its data.
    Snapshot(usize),
    /// A state is on a node's disk: of this incarnation, with this number.
    Written(usize, u32, u64, Box<NodeState>),
    /// Something comes to a client's mind, in an acquisition.
    Wakes(Holder, Wake),
    /// The same, of one that locks on one node.
    SingleWakes(Holder, SingleWake),
    /// A write reaches the register.
    Writes {
        key: u32,
        who: Holder,
        token: u64,
        mode: HeldAs,
    },
    /// A program that changes the set asks a node, hears its answer, has waited for answers, and looks anew.
    ToMember(Box<Message<Asks>>),
    FromMember(NodeId, Box<Message<Answers>>),
    ChangerGoesOn(usize, u32),
    ChangerLooks(usize, u32),
    /// A holder must have noticed by now that its lock was taken away.
    MustHaveLost(Holder),
    /// A client takes up a version of the set.
    Learns(u32, u64),
    /// A fault begins, does again what it does, for the so manieth time, and ends.
    Begins(usize),
    Again(usize, usize),
    Ends(usize),
}

/// What comes to a client's mind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    Wants,
    Misses(u32),
    Extends,
    Keeps(BootTime),
    AsksAgain,
    StopsAsking,
    StopsLining,
    Looks,
    GivesBack,
    Checks,
    /// Sends a write for this key, with this token.
    Sends(u32, u64, HeldAs),
    Shares,
    Leaves,
}

/// What comes to the mind of a client that locks on one node.
#[derive(Clone, Copy, Debug)]
pub(super) enum SingleWake {
    Wants,
    Misses(u32),
    Doubts,
    Leaves,
    Acts,
    /// Sends a write for this key, with this token.
    Sends(u32, u64, HeldAs),
    Looks,
    GivesBack,
}
