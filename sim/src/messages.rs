//! What clients and nodes say to each other.

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

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hears {
    /// To a question of the machines.
    Answer(Answer),
    /// To a wait: whether it is free.
    Told(bool),
}
