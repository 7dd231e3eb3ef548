//! Locks and nodes, as a majority shows them.

use std::time::Duration;

use palisade_quorum::Mode;

use crate::NodeError;
use crate::net::node::Reach;
use crate::net::nodes::Nodes;

/// A lock, by the answers of a majority of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The largest number of grants that one node lists, also of those that no majority has.
    pub listed: usize,
    /// The grants, oldest first. Empty if the lock is free.
    pub grants: Vec<ShownGrant>,
    /// Number of holders.
    pub holders: u64,
    /// Number of waiters, on the node with the most.
    pub waiters: u64,
    /// Number of waiters that clients report behind their requests in the queue, on the node with the most.
    pub waiters_behind: u64,
    /// The first waiters in the order of service, from the node that shows the most.
    pub queue: Vec<ShownWaiter>,
    /// The owner that the lock is reserved for, and for how long.
    pub reserved: Option<(Vec<u8>, Duration)>,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownGrant {
    /// The name of the owner.
    pub owner: Vec<u8>,
    /// The owner as the nodes know it: the name of the attempt that was granted.
    pub(crate) attempt: Vec<u8>,
    /// The fencing token: at least the one last reported to its owner. While the nodes' tokens are being raised to a
    /// common one, it is that one.
    pub token: u64,
    /// The tokens that identify this grant: its owner may have received any of them, and no earlier owner has.
    pub(crate) tokens: Vec<u64>,
    /// The places of the nodes that have this grant, each with the token there.
    pub(crate) at: Vec<(usize, u64)>,
    /// The mode of the grant.
    pub mode: Mode,
    /// Number of holds: how often the owner has entered the lock.
    pub holds: u32,
    /// Time for which a majority of the nodes still keeps the lease.
    pub ttl: Duration,
    /// Time since the owner was granted the lock.
    pub held: Duration,
    /// The owner's note for people.
    pub note: Vec<u8>,
    /// The sequence number of the note: a newer note has a larger one.
    pub sequence: u64,
    /// True if the grant is suspect: it keeps others out until its lease ends, but no owner may rely on it.
    pub is_suspect: bool,
    /// Time for which the server keeps extending the lease (KEEPALIVE).
    pub keepalive: Duration,
    /// Time since the lease was last extended, or began: the shortest on any node.
    pub extended: Duration,
}

/// A waiter for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownWaiter {
    /// The name of the waiter's owner.
    pub owner: Vec<u8>,
    /// Time for which the request has waited, on the node that shows it.
    pub waited: Duration,
    /// True if the request waits for a turn (LOCK.WAIT) instead of a grant.
    pub is_turn: bool,
    /// The waiter's note for people.
    pub note: Vec<u8>,
    /// The requested mode: `exclusive`, `shared` or `permit`.
    pub mode: String,
    /// Number of callers that wait behind the request in its client, as the client reports.
    pub behind: u64,
}

/// The state of the nodes as a set, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet {
    /// The id of the set, equal for every client of the same nodes, in whatever order.
    pub id: u128,
    /// Number of nodes in the set.
    pub nodes: usize,
    /// Number of nodes that grant locks now.
    pub serving: usize,
    /// Number of nodes that a majority needs.
    pub majority: usize,
    /// The remaining time of the guard and its cause, if too few nodes serve because too many are guarded.
    pub guarded: Option<(Duration, String)>,
    /// The longest lease that every node accepts, of those that answered.
    pub max_ttl: Option<Duration>,
    /// The median of the nodes' wall clocks, in microseconds since 1970.
    pub clock_us: u64,
    /// The nodes that do not count, each with the reason: it cannot be asked, or its server already counts as another
    /// node.
    pub unreachable: Vec<NodeError>,
}

impl ShownGrant {
    /// Returns whether `token` identifies this grant: its owner may have received it.
    pub fn is(&self, token: u64) -> bool {
        self.tokens.contains(&token)
    }
}

/// The set of nodes that this process works with, and which of them are reachable, without asking them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The version of the set; 0 for the set of the configured addresses.
    pub version: u64,
    /// The name of each node, without passwords, and its reachability.
    pub nodes: Vec<(String, Reach)>,
}

impl Standing {
    pub(super) fn of(nodes: &Nodes) -> Self {
        let each = nodes.list.iter().map(|node| (node.name().to_owned(), node.reach()));
        Self { version: nodes.set.news.version(), nodes: each.collect() }
    }
}
