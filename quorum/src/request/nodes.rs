//! Commands about a node, or about all of its locks.

use super::values::{GuardMs, ListedEntries, MembersVersion, TokenFloor};
use crate::grammar::declaration::command;
use crate::grammar::words::Words;
use crate::grammar::{Argument, Bounds, Shape, Spec};
use crate::members::{Ballot, Member};
use crate::refusal::Refusal;

command! {
    name: "LOCK.NODE",
    summary: "Shows who this node is and whether it serves: identity, incarnation, guard, bounds, role, clock. KEY names \
              a lock: in a cluster, the guard of its slot counts, too.",
    flags: "fast allow-stale",
    key: None,
    /// LOCK.NODE: shows this node's identity, and whether it grants locks.
    #[derive(Clone, Copy, Debug)]
    pub struct Node<'a> {
        [KEY key]
        /// Shows the guard of this key's slot as the node's, if it ends later.
        key: &'a [u8],
    }
}

command! {
    name: "LOCK.MEMBERS",
    summary: "Shows which nodes are the set of a quorum, as far as this node knows. JOIN names the version of the \
              set that the client works with: the node ends the connection when it knows a later one.",
    flags: "fast allow-stale",
    key: None,
    /// LOCK.MEMBERS: shows the nodes of the set.
    #[derive(Clone, Copy, Debug)]
    pub struct Members {
        [JOIN version]
        /// The version of the set that the client uses. The node then checks it with each request over this connection.
        join: MembersVersion,
    }
}

command! {
    name: "LOCK.SETMEMBERS",
    summary: "Decides the next version of the set of nodes of a quorum, or announces it to this node. For operators' \
              programs, which ask a majority of the nodes: PROMISE, then ACCEPT, then DECIDED.",
    flags: "admin fast",
    key: None,
    /// LOCK.SETMEMBERS: performs one step of a change of the set of nodes.
    #[derive(Clone, Debug)]
    pub struct SetMembers {
        /// The version that is to be decided, or was.
        version: MembersVersion,
        [PROMISE ballot]
        /// Asks the node to promise that it ignores attempts with smaller ballots.
        promise: Ballot,
        [ACCEPT ballot]
        /// Asks the node to accept the list `members` in the attempt with this ballot.
        accept: Ballot,
        [DECIDED]
        /// Tells the node that the list `members` is decided.
        decided,
        [MEMBERS members]
        /// The nodes of the version.
        members: Vec<Member>,
        [FLOOR token]
        /// The highest token that clients of earlier versions may have. The node issues only larger ones.
        floor: TokenFloor,
    }
}

/// LOCK.GUARD: ends or begins a guard for an operator.
#[derive(Clone, Copy, Debug)]
pub enum Guard {
    /// Ends the guard at once.
    Lift,
    /// Begins a guard of this length.
    Arm(GuardMs),
}

impl Guard {
    /// The description of the command. At most one of its options can be given.
    pub const SPEC: Spec = Spec {
        name: "LOCK.GUARD",
        summary: "Returns how many milliseconds the node still refuses to grant; LIFT ends that, ARM begins it. For \
                  operators: with LIFT you vouch that nobody holds a lock here.",
        flags: "admin fast",
        key: None,
        arguments: &[
            Argument { name: "LIFT", option: Some("LIFT"), shape: Shape::Word },
            Argument { name: "ms", option: Some("ARM"), shape: Shape::Integer },
        ],
    };

    /// Parses the words after the command's name; `None` if there are none, so that the guard is only shown.
    pub fn read<'w>(words: impl Iterator<Item = &'w [u8]>, bounds: Bounds) -> Result<Option<Self>, Refusal> {
        const UNKNOWN: Refusal = Refusal::UnknownOption { known: "LIFT or ARM ms" };
        let mut words = Words::new(words, bounds);
        let word = match words.next() {
            None => return Ok(None),
            Some(word) if word.eq_ignore_ascii_case(b"LIFT") => Self::Lift,
            Some(word) if word.eq_ignore_ascii_case(b"ARM") => Self::Arm(words.value("ARM")?),
            Some(_) => return Err(UNKNOWN),
        };
        if words.next().is_some() { Err(UNKNOWN) } else { Ok(Some(word)) }
    }
}

command! {
    name: "LOCK.FLOOR",
    summary: "Returns the floor: this node issues no token up to it. RAISE raises it. For operators: it brings a \
              node up to others whose tokens ran ahead of the clock.",
    flags: "admin fast",
    key: None,
    /// LOCK.FLOOR: shows or raises the floor of the node's tokens.
    #[derive(Clone, Copy, Debug)]
    pub struct Floor {
        [RAISE token]
        /// The new floor. The floor stays if this one is not higher.
        raise: TokenFloor,
    }
}

command! {
    name: "LOCK.LOG",
    summary: "Lists slow grants and slow waits that ended on this node, the newest first, of all keys or of one; \
              RESET deletes them. For operators.",
    flags: "admin allow-loading allow-stale",
    key: None,
    /// LOCK.LOG: shows which grants took long, and which waits failed.
    #[derive(Clone, Copy, Debug)]
    pub struct Log<'a> {
        [KEY key]
        /// Lists entries of this key only.
        key: &'a [u8],
        [COUNT n]
        /// The number of entries to list.
        count: ListedEntries,
        [RESET]
        /// Removes all entries instead of listing them.
        reset,
    }
}

command! {
    name: "LOCK.TOP",
    summary: "Lists the keys with the most requests that waited on this node, and with the most that were refused at \
              once, each count with its possible error. RESET begins new counts. For operators.",
    flags: "admin allow-loading allow-stale",
    key: None,
    /// LOCK.TOP: shows the most contended keys.
    #[derive(Clone, Copy, Debug)]
    pub struct Top {
        [COUNT n]
        /// The number of keys to list.
        count: ListedEntries,
        [RESET]
        /// Begins to count from zero again.
        reset,
    }
}

command! {
    name: "LOCK.HELP",
    summary: "Shows this text.",
    flags: "fast allow-loading allow-stale",
    key: None,
    /// LOCK.HELP: describes the commands.
    #[derive(Clone, Copy, Debug)]
    pub struct Help {}
}
