//! A program that changes the set of nodes: what it knows, and what it says.

use std::collections::BTreeMap;

use palisade_core::Members;
use palisade_core::quorum::{Change, MemberSays, TellMember};

/// A program that runs.
#[derive(Clone, Debug)]
pub(super) struct Changer {
    /// The places of the nodes that it wants, a bit each.
    pub(super) wants: u16,
    /// It dies when it has sent so many messages more.
    pub(super) dies_after: Option<u16>,
    /// Which look it is at: what belongs to an earlier one comes too late.
    pub(super) look: u32,
    /// Who answered, and the latest version that was told of.
    pub(super) ids: BTreeMap<usize, u128>,
    pub(super) latest: Members,
    pub(super) attempt: Option<Change>,
}

/// What a program asks a node.
#[derive(Clone, Debug)]
pub(super) enum Asks {
    /// LOCK.NODE and LOCK.MEMBERS.
    Look,
    /// LOCK.SETMEMBERS with PROMISE or ACCEPT: which member is meant.
    Tell(usize, TellMember),
    /// LOCK.SETMEMBERS with DECIDED.
    Decided(Members),
}

/// What it is answered.
#[derive(Clone, Debug)]
pub(super) enum Answers {
    /// The version that the node was told last.
    Knows(Members),
    /// Of this member, to what it was told.
    Says(usize, TellMember, MemberSays),
}

/// A message of the program of fault `of`, or to it.
#[derive(Clone, Debug)]
pub(super) struct Message<T> {
    pub(super) of: usize,
    pub(super) look: u32,
    pub(super) node: usize,
    pub(super) says: T,
}
