//! Commands that are about a node, or about all of its locks.

use super::values::{GuardMs, ListedEntries, MembersVersion, TokenFloor};
use crate::grammar::declaration::command;
use crate::members::{Ballot, Member};

command! {
    name: "LOCK.NODE",
    summary: "Answers who this node is and whether it serves: identity, incarnation, guard, bounds, role, clock.",
    flags: "fast allow-stale",
    key: None,
    /// LOCK.NODE: who is this node, and does it serve?
    #[derive(Clone, Copy, Debug)]
    pub struct Node {}
}

command! {
    name: "LOCK.MEMBERS",
    summary: "Answers which nodes are the set of a quorum, as this one was told; with JOIN the connection is of a client that works with \
              this version of it, and ends once the node is told of a later one.",
    flags: "fast allow-stale",
    key: None,
    /// LOCK.MEMBERS: which nodes are the set?
    #[derive(Clone, Copy, Debug)]
    pub struct Members {
        [JOIN version]
        /// The version that the client works with.
        join: MembersVersion,
    }
}

command! {
    name: "LOCK.SETMEMBERS",
    summary: "Finds the next version of the set of nodes of a quorum, or tells this node of it. For operators' programs, which ask a \
              majority of the nodes: PROMISE, then ACCEPT, then DECIDED.",
    flags: "admin fast",
    key: None,
    /// LOCK.SETMEMBERS: one step of a change of the set of nodes.
    #[derive(Clone, Debug)]
    pub struct SetMembers {
        /// The version that is to be found, or was.
        version: MembersVersion,
        [PROMISE ballot]
        /// Asks for a promise.
        promise: Ballot,
        [ACCEPT ballot]
        /// Asks for a vote.
        accept: Ballot,
        [DECIDED]
        /// Tells what was decided.
        decided,
        [MEMBERS members]
        /// The nodes of the version.
        members: Vec<Member>,
        [FLOOR token]
        /// Where tokens are to start.
        floor: TokenFloor,
    }
}

command! {
    name: "LOCK.GUARD",
    summary: "Answers how many milliseconds the node still refuses to grant, after lifting or arming that if asked \
              to. For operators: LIFT is your word that nobody holds a lock here.",
    flags: "admin fast",
    key: None,
    /// LOCK.GUARD: the operator's word on the guard.
    #[derive(Clone, Copy, Debug)]
    pub enum Guard {
        [LIFT]
        /// It ends.
        Lift,
        [ARM ms]
        /// It begins, for so long.
        Arm: GuardMs,
    }
}

command! {
    name: "LOCK.FLOOR",
    summary: "Answers up to where this node issues no token, after raising that if asked to. For operators: it brings a node up \
              to others whose tokens ran ahead of the clock.",
    flags: "admin fast",
    key: None,
    /// LOCK.FLOOR: where the node's tokens start.
    #[derive(Clone, Copy, Debug)]
    pub struct Floor {
        [RAISE token]
        /// The token to raise it to.
        raise: TokenFloor,
    }
}

command! {
    name: "LOCK.LOG",
    summary: "Answers which grants that were held or waited for long ended on this node, and which long waits were in vain, the \
              newest first, all or those of one key; RESET forgets them. For operators.",
    flags: "admin allow-loading allow-stale",
    key: None,
    /// LOCK.LOG: which grants took long, and which waits failed?
    #[derive(Clone, Copy, Debug)]
    pub struct Log<'a> {
        [KEY key]
        /// Those of this key alone.
        key: &'a [u8],
        [COUNT n]
        /// How many to list.
        count: ListedEntries,
        [RESET]
        /// Forgets them instead.
        reset,
    }
}

command! {
    name: "LOCK.TOP",
    summary: "Answers the keys that most requests waited for on this node, and those that most were refused at once, each count with \
              its error; with RESET counts anew from then on. For operators.",
    flags: "admin allow-loading allow-stale",
    key: None,
    /// LOCK.TOP: which keys are contended most?
    #[derive(Clone, Copy, Debug)]
    pub struct Top {
        [COUNT n]
        /// How many to list.
        count: ListedEntries,
        [RESET]
        /// Counts anew.
        reset,
    }
}

command! {
    name: "LOCK.HELP",
    summary: "Answers this text.",
    flags: "fast allow-loading allow-stale",
    key: None,
    /// LOCK.HELP: what the commands are.
    #[derive(Clone, Copy, Debug)]
    pub struct Help {}
}
