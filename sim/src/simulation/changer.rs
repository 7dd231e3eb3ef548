//! A program that changes the set of nodes (a changer): its knowledge, and its messages.

use std::collections::BTreeMap;

use palisade_core::Members;
use palisade_core::quorum::{Change, MemberRequest, MemberSays};

/// A running program that changes the set.
#[derive(Clone, Debug)]
pub(super) struct Changer {
    /// The nodes that the program wants in the set: a bit for each index of a node.
    pub(super) wants: u16,
    /// The number of messages after which the program dies.
    pub(super) dies_after: Option<u16>,
    /// The number of the current round. Messages of earlier rounds are ignored.
    pub(super) look: u32,
    /// The ids of the nodes that answered.
    pub(super) ids: BTreeMap<usize, u128>,
    /// The latest version that any node reported.
    pub(super) latest: Members,
    /// The current attempt to decide the next version, if there is one.
    pub(super) attempt: Option<Change>,
}

/// A program's question to a node.
#[derive(Clone, Debug)]
pub(super) enum ChangerRequest {
    /// A query of the server's id, and of the set that it knows: LOCK.NODE and LOCK.MEMBERS.
    Look,
    /// A step of an attempt to decide the next version: LOCK.SETMEMBERS with PROMISE or ACCEPT. The number is that of
    /// the member that it is meant for.
    Tell(usize, MemberRequest),
    /// The version that was decided: LOCK.SETMEMBERS with DECIDED.
    Decided(Members),
}

/// A node's answer to a program that changes the set.
#[derive(Clone, Debug)]
pub(super) enum Answers {
    /// The latest version that the node knows.
    Knows(Members),
    /// This member's answer to a message.
    Member(usize, MemberRequest, MemberSays),
}

/// A message to or from the program that the fault numbered `of` started.
#[derive(Clone, Debug)]
pub(super) struct Message<T> {
    pub(super) of: usize,
    pub(super) look: u32,
    pub(super) node: usize,
    pub(super) says: T,
}
