//! What clients and nodes say to each other.

use std::fmt;

use palisade_core::WaiterId;
use palisade_core::quorum::{Answer, Ask, NodeId};

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
    /// LOCK.WAIT.
    Wait {
        /// For how long.
        ms: u32,
        /// Where it wants to stand.
        ticket: u64,
    },
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
    /// To the request that waits on server `id` by the name `waiter`: whether the lock is free.
    pub fn told(waiter: WaiterId, id: NodeId, free: bool) -> Self {
        let who = Holder { client: (waiter.0 >> 32) as u32, acquisition: 0 };
        Self { who, number: waiter.0 as u32, id, says: Hears::Told(free) }
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hears {
    /// To a question of the machines.
    Answer(Answer),
    /// To a wait: whether it is free.
    Told(bool),
}

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(Ask::Acquire { proposal, retry, .. }) => {
                write!(f, "ACQUIRE FENCE {}{}", proposal.get(), if *retry { " RETRY" } else { "" })
            }
            Self::Ask(Ask::Fence { token }) => write!(f, "FENCE {}", token.get()),
            Self::Ask(Ask::Extend { token, .. }) => write!(f, "EXTEND TOKEN {}", token.get()),
            Self::Release => f.write_str("RELEASE"),
            Self::Wait { ticket, .. } => write!(f, "WAIT TICKET {ticket}"),
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
            Self::Told(free) => write!(f, "{}", u8::from(*free)),
        }
    }
}
