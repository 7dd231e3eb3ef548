//! Messages between clients and nodes.

use std::fmt;

use palisade_core::quorum::{Answer, Ask, NodeId};
use palisade_core::{WaiterId, Wanted};

use crate::history::Holder;

/// A request from a client to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// The acquisition that sent the message.
    pub who: Holder,
    /// The key of the lock.
    pub key: u32,
    /// The node, by its place in the client's list.
    pub node: usize,
    /// The request's number, unique within the client.
    pub number: u32,
    /// The mode, if the request asks for the lock.
    pub wanted: Wanted,
    /// The version of the node set with which the client's connection joined the node; `None` if it did not join.
    pub joined: Option<u64>,
    /// The id of the server that the request is meant for. A connection to another server does not send the request.
    /// `None` stands for any server.
    pub meant: Option<NodeId>,
    /// The command or question that is sent, with its arguments.
    pub says: Payload,
}

impl Request {
    /// Returns the id by which a node knows the request while it waits.
    pub fn waiter(&self) -> WaiterId {
        WaiterId(u64::from(self.who.client) << 32 | u64::from(self.number))
    }

    /// Returns true if a node that does not know the request's owner learns of it from the request.
    pub fn makes_known(&self) -> bool {
        matches!(self.says, Payload::Ask(Ask::Acquire { .. }) | Payload::Wait { .. })
    }

    /// Returns true if a node answers the request and the client needs the answer.
    pub fn is_answered(&self) -> bool {
        self.says != Payload::Release
    }
}

/// The command or question in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payload {
    /// A question of the state machines of `palisade-quorum`.
    Ask(Ask),
    /// LOCK.RELEASE.
    Release,
    /// LOCK.WAIT for `ms` milliseconds. The ticket determines the place in the queue.
    Wait { ms: u32, ticket: u64 },
    /// LOCK.INFO: asks which permits are free.
    Look,
    /// A command of a client that locks on one node.
    Command(Command),
}

/// A command of a client that locks on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// LOCK.ACQUIRE, which waits up to `wait_ms`, or not at all if that is zero. `retry` marks a repetition.
    Acquire { ttl_ms: u32, wait_ms: u32, retry: bool },
    /// LOCK.EXTEND. Afterwards, the lease lasts at least `ttl_ms`.
    Extend { ttl_ms: u32 },
    /// LOCK.REENTER. Afterwards, the owner has at least `level` holds (one more than now if absent), and the lease
    /// lasts at least `ttl_ms`.
    Reenter { level: Option<u32>, ttl_ms: Option<u32> },
    /// LOCK.CONVERT to a reader if `shares`, otherwise to a writer.
    Convert { shares: bool },
    /// LOCK.RELEASE, which leaves `level` - 1 holds.
    Release { level: u32 },
    /// The end of the connection on which request `number` waits (not a command).
    Closed { number: u32 },
}

/// A node's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reply {
    /// The acquisition whose request is answered.
    pub who: Holder,
    /// The request's number.
    pub number: u32,
    /// The server that answers.
    pub id: NodeId,
    /// The answer itself.
    pub says: Hears,
}

impl Reply {
    /// Returns an answer that comes later, to the request that waits on server `id` as `waiter`.
    pub fn later(waiter: WaiterId, id: NodeId, says: Hears) -> Self {
        let who = Holder { client: (waiter.0 >> 32) as u32, acquisition: 0 };
        Self { who, number: waiter.0 as u32, id, says }
    }
}

/// The answer in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hears {
    /// The answer to a question of these state machines.
    Answer(Answer),
    /// The answer to a wait: the reserved permit's number, 1 for the whole lock, or 0 if it is not the request's turn.
    Told(u16),
    /// The free permits, one bit each.
    Free(u64),
    /// The refusal of a request that was meant for another server.
    Another,
    /// The end of the connection, because the node knows this later version of the node set.
    Later(u64),
    /// The answer to a command of a client that locks on one node.
    Replied(Replied),
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Replied {
    /// The caller has the lock, with the grant's token, the permit's number, and the time that the request waited.
    Granted { token: u64, number: u16, waited_ms: u64 },
    /// The lock is in the requested mode, with this token.
    Converted { token: u64 },
    /// The lease was extended.
    Extended,
    /// The caller has this number of holds.
    Holds(u32),
    /// Another owner holds the lock, or the caller does not hold it.
    Null,
    /// The caller holds the lock already.
    Owned,
    /// Any other refusal.
    Refused,
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(Ask::Acquire { proposal, retry, .. }) => {
                write!(f, "ACQUIRE FENCE {}{}", proposal.get(), if *retry { " RETRY" } else { "" })
            }
            Self::Ask(Ask::Fence { token }) => write!(f, "FENCE {}", token.get()),
            Self::Ask(Ask::Extend { token, .. }) => write!(f, "EXTEND TOKEN {}", token.get()),
            Self::Ask(Ask::Share) => f.write_str("CONVERT SHARED"),
            Self::Release => f.write_str("RELEASE"),
            Self::Look => f.write_str("INFO"),
            Self::Wait { ticket, .. } => write!(f, "WAIT TICKET {ticket}"),
            Self::Command(command) => write!(f, "{command:?}"),
        }
    }
}

impl fmt::Display for Hears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(Answer::Token(token)) => write!(f, "{}", token.get()),
            Self::Answer(Answer::No) => f.write_str("Null"),
            Self::Answer(Answer::Guarded { ms }) => write!(f, "GUARDED {ms}"),
            Self::Answer(Answer::NotYet { ms }) => write!(f, "NOTYET {ms}"),
            Self::Answer(Answer::Failed) => f.write_str("an error"),
            Self::Told(free) => write!(f, "{free}"),
            Self::Free(numbers) => write!(f, "free numbers {numbers:#b}"),
            Self::Another => f.write_str("as another server"),
            Self::Later(version) => write!(f, "that the set is at version {version}"),
            Self::Replied(replied) => write!(f, "{replied:?}"),
        }
    }
}
