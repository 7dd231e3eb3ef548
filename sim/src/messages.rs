//! What clients and nodes say to each other.

use std::fmt;

use palisade_core::quorum::{Answer, Ask, NodeId};
use palisade_core::{WaiterId, Wanted};

use crate::history::Holder;

/// What a client sends to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Whose it is.
    pub who: Holder,
    /// Which lock.
    pub key: u32,
    /// Which node, by its place in the client's list.
    pub node: usize,
    /// Told from the client's other requests.
    pub number: u32,
    /// In which mode it is about the lock, where it asks for it.
    pub wanted: Wanted,
    /// The version of the set of nodes with which the connection joined that it comes over; `None`: it never did.
    pub joined: Option<u64>,
    /// The server that is meant: whoever has connected to another one sends nothing. `None`: whichever is there.
    pub meant: Option<NodeId>,
    /// What it says.
    pub says: Says,
}

impl Request {
    /// The name by which a node knows it if it waits.
    pub fn waiter(&self) -> WaiterId {
        WaiterId(u64::from(self.who.client) << 32 | u64::from(self.number))
    }

    /// It can make its owner known to a node that knows nothing of it.
    pub fn makes_known(&self) -> bool {
        matches!(self.says, Says::Ask(Ask::Acquire { .. }) | Says::Wait { .. })
    }

    /// A node answers it, and the answer matters.
    pub fn is_answered(&self) -> bool {
        self.says != Says::Release
    }
}

/// What a request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Says {
    /// A question of the machines.
    Ask(Ask),
    /// LOCK.RELEASE.
    Release,
    /// LOCK.WAIT for so long; the ticket says where it wants to stand.
    Wait { ms: u32, ticket: u64 },
    /// LOCK.INFO: which permits are free.
    Look,
    /// A command of a client that locks on one node.
    Command(Command),
}

/// A command of a client that locks on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// LOCK.ACQUIRE, which waits for so long (zero: not at all), and may repeat itself.
    Acquire { ttl_ms: u32, wait_ms: u32, retry: bool },
    /// LOCK.EXTEND, to at least this long from now.
    Extend { ttl_ms: u32 },
    /// LOCK.REENTER: at least this many holds, one hold more where absent; and at least this long from now.
    Reenter { level: Option<u32>, ttl_ms: Option<u32> },
    /// LOCK.CONVERT, to a reader; else to a writer.
    Convert { shares: bool },
    /// LOCK.RELEASE, down to one hold less than this.
    Release { level: u32 },
    /// No command: the connection is closed on which the request of this number waits.
    Closed { number: u32 },
}

/// What a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reply {
    /// Whose request it was.
    pub who: Holder,
    /// Which.
    pub number: u32,
    /// Which server answers.
    pub id: NodeId,
    /// What.
    pub says: Hears,
}

impl Reply {
    /// To the request that waits on server `id` by the name `waiter`.
    pub fn later(waiter: WaiterId, id: NodeId, says: Hears) -> Self {
        let who = Holder { client: (waiter.0 >> 32) as u32, acquisition: 0 };
        Self { who, number: waiter.0 as u32, id, says }
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hears {
    /// To a question of the machines.
    Answer(Answer),
    /// To a wait: the number of the permit that is kept, 1 for the whole lock; 0 if it is not its turn.
    Told(u16),
    /// To a look: the permits that are free, a bit each.
    Free(u64),
    /// To nothing: this is not the server that is meant.
    Another,
    /// To nothing: the connection is ended, for the node knows this later version of the set of nodes.
    Later(u64),
    /// To a command of a client that locks on one node.
    Replied(Replied),
}

/// What a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Replied {
    /// The lock is the caller's: the token of the grant, the number of its permit, and how long it waited.
    Granted { token: u64, number: u16, waited_ms: u64 },
    /// It is in the mode that was asked for, with this token.
    Converted { token: u64 },
    /// It lasts longer.
    Extended,
    /// The caller has so many holds.
    Holds(u32),
    /// Somebody else holds it, or the caller does not.
    Null,
    /// The caller holds it already.
    Owned,
    /// Another refusal.
    Refused,
}

impl fmt::Display for Says {
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
