//! The agenda of a run: coming events, in order of true time.

use palisade_core::quorum::NodeId;
use palisade_core::{BootTime, NodeState};

use super::changer::{Answers, ChangerRequest, Message};
use crate::history::{HeldAs, Holder};
use crate::messages::{Reply, Request};

/// A coming event.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// A request reaches a server.
    Arrives(usize, Request),
    /// An answer reaches a client.
    Returns(Reply),
    /// A node's timer fires.
    Timer(usize),
    /// A node checks itself, at regular intervals.
    Tick(usize),
    /// A node makes a snapshot of its data.
    Snapshot(usize),
    /// The disk has written a state of a node. The fields are the node, its incarnation, and the state's number and
    /// content.
    Written(usize, u32, u64, Box<NodeState>),
    /// A client takes a step of an acquisition that it planned for this time. No message causes that.
    Wakes(Holder, Wake),
    /// A client that locks on one node takes a step that it planned for this time.
    SingleWakes(Holder, SingleWake),
    /// A write reaches the register.
    Writes {
        key: u32,
        who: Holder,
        token: u64,
        mode: HeldAs,
    },
    /// A message of a program that changes the set reaches a node.
    ToMember(Box<Message<ChangerRequest>>),
    /// A node's answer reaches the program that changes the set.
    FromMember(NodeId, Box<Message<Answers>>),
    /// A program that changes the set stops waiting for answers.
    ChangerGoesOn(usize, u32),
    /// A program that changes the set starts a new round.
    ChangerLooks(usize, u32),
    /// An operator who breaks a lock on one node after another continues: the fault, the step, and the holders at the
    /// beginning.
    BreaksInTurn(usize, usize, Vec<Holder>),
    /// A holder must have noticed by now that an operator took its lock away.
    MustHaveLost(Holder),
    /// A client moves to a version of the set.
    Learns(u32, u64),
    /// A fault begins.
    Begins(usize),
    /// A fault repeats its action: the fault's number, and how often it has acted before.
    Again(usize, usize),
    Ends(usize),
}

/// An action that a client plans for a time.
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
    /// The client sends a write for this key, with this token.
    Sends(u32, u64, HeldAs),
    Shares,
    Leaves,
}

/// An action that a client that locks on one node plans for a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum SingleWake {
    Wants,
    Misses(u32),
    Doubts,
    Leaves,
    Acts,
    /// The client sends a write for this key, with this token.
    Sends(u32, u64, HeldAs),
    Looks,
    GivesBack,
}
