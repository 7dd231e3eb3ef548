//! Locks and nodes, as a majority shows them.

use std::time::Duration;

use palisade_quorum::Mode;

use crate::NodeError;
use crate::net::node::Reach;
use crate::net::nodes::Nodes;

/// A lock as a majority of the nodes has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Who holds it: the oldest grants first. Empty: it is free.
    pub grants: Vec<ShownGrant>,
    /// How many hold it.
    pub holders: u64,
    /// How many wait for it, on the node where most do.
    pub waiters: u64,
    /// How many wait behind those in their clients, as far as they say, on the node where most do.
    pub waiters_behind: u64,
    /// The first of them.
    pub queue: Vec<ShownWaiter>,
    /// For whom it is kept, and for how long.
    pub reserved: Option<(Vec<u8>, Duration)>,
}

/// One who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownGrant {
    /// The name that it was taken under.
    pub owner: Vec<u8>,
    /// What the nodes call it.
    pub(crate) attempt: Vec<u8>,
    /// The fencing token: at least the one that its owner was told last. While its nodes are brought together it is the one to which they are brought.
    pub token: u64,
    /// Those that name it: its owner may have been told one of them, and nobody before it.
    pub(crate) tokens: Vec<u64>,
    /// In which mode.
    pub mode: Mode,
    /// How many holds there are.
    pub holds: u32,
    /// What is left of the lease on a majority.
    pub ttl: Duration,
    /// Since when.
    pub held: Duration,
    /// For people.
    pub note: Vec<u8>,
    /// The number of the note.
    pub sequence: u64,
    /// It keeps others out until its lease ends, and is nobody's.
    pub is_suspect: bool,
    /// For how long it is extended by itself.
    pub keepalive: Duration,
    /// Time since its lease was last extended, or begun, on the node where that is least.
    pub extended: Duration,
}

/// One who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownWaiter {
    /// The name that it waits under.
    pub owner: Vec<u8>,
    /// For how long.
    pub waited: Duration,
    /// It waits to be told that the lock is free (LOCK.WAIT), not to be granted it.
    pub is_turn: bool,
    /// For people.
    pub note: Vec<u8>,
    /// `exclusive`, `shared` or `permit`.
    pub mode: String,
    /// How many wait behind it in its client, as it says.
    pub behind: u64,
}

/// What the nodes are together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet {
    /// The same for every client of the same nodes, in whatever order.
    pub id: u128,
    /// How many there are.
    pub nodes: usize,
    /// How many grant locks now.
    pub serving: usize,
    /// How many are needed.
    pub majority: usize,
    /// If too few serve since too many are guarded: for how long, and why.
    pub guarded: Option<(Duration, String)>,
    /// The longest lease that all nodes take, of those that answered.
    pub max_ttl: Option<Duration>,
    /// Their wall clock, the one in the middle, in microseconds since 1970.
    pub clock_us: u64,
    /// Those that cannot be asked, or are a server that counts already, and why.
    pub unreachable: Vec<NodeError>,
}

impl ShownGrant {
    /// Whether it is the grant with this token.
    pub fn is(&self, token: u64) -> bool {
        self.tokens.contains(&token)
    }
}

/// The set of nodes that this process works with, and which of them can be asked, as it knows without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The version of the set; 0: it is that of the addresses that were given.
    pub version: u64,
    /// Each node by its name, without passwords.
    pub nodes: Vec<(String, Reach)>,
}

impl Standing {
    pub(super) fn of(nodes: &Nodes) -> Self {
        let each = nodes.list.iter().map(|node| (node.name().to_owned(), node.reach()));
        Self { version: nodes.set.news.version(), nodes: each.collect() }
    }
}
