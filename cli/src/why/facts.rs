//! The nodes' answers about a lock, from which `palisade why` makes its diagnosis.

use jiff::tz::TimeZone;
use palisade_client::Why;

use crate::lock_log::Event;
use crate::lock_view::{LockView, Together};
use crate::refusing::Refusing;
use crate::show::{printable, time};

/// The nodes' answers about a lock.
#[derive(Clone, Debug)]
pub struct Facts {
    pub key: String,
    /// The answer of each node of the list.
    pub nodes: Vec<NodeSaid>,
    /// The holders and waiters, merged from the nodes' answers.
    pub together: Together,
    /// The most recent ends of grants and waits, newest first.
    pub log: Vec<Event>,
    /// The reason why nodes that can be asked do not show their logs; empty if all do.
    pub log_untold: String,
    /// The wall clock at the time of the questions, in milliseconds.
    pub now_ms: u64,
    /// The time zone of the output.
    pub zone: TimeZone,
}

/// A node's answer, or the reason why the node cannot be asked.
#[derive(Clone, Debug)]
pub struct NodeSaid {
    pub name: String,
    pub told: Result<NodeFacts, Why>,
}

/// The answer of a node that can be asked.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Why the node refuses every lock, apart from its guard.
    pub refusing: Option<Refusing>,
    /// The remaining guard in milliseconds, and its reason.
    pub guard: Option<(u64, String)>,
    /// The number of grants of the lock on this node.
    pub grants: usize,
    /// The longest lease of the grants on this node, in milliseconds.
    pub lease_ms: u64,
    /// The number of guarded slots of the node's cluster; the server does not report which.
    pub guarded_slots: u64,
    /// The owner for which this node reserves the lock, and the remaining time in milliseconds.
    pub kept: Option<(String, u64)>,
}

impl NodeFacts {
    /// Returns whether the node would grant the lock if nobody held it there.
    pub fn grants_locks(&self) -> bool {
        self.guard.is_none() && self.refusing.is_none()
    }
}

impl Facts {
    /// Returns the number of nodes in a majority.
    pub fn majority(&self) -> usize {
        palisade_quorum::majority(self.nodes.len())
    }

    /// Returns the answers of the nodes that could be asked.
    pub fn answers(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.iter().filter_map(|node| node.told.as_ref().ok())
    }

    /// Returns the number of nodes that would grant the lock if nobody held it there.
    pub fn serving(&self) -> usize {
        self.answers().filter(|told| told.grants_locks()).count()
    }

    /// Returns the lock, if a majority holds it for one owner.
    pub fn held(&self) -> Option<LockView> {
        let first = self.together.grants.first().filter(|grant| grant.is_held)?.clone();
        Some(LockView::with(self.key.clone(), vec![], first, self.together.clone()))
    }

    /// Returns the time until `missing` of the events at these `times` have happened, formatted for people.
    pub fn until(&self, mut times: Vec<u64>, missing: usize) -> String {
        times.sort_unstable();
        time(times.get(missing.saturating_sub(1)).or(times.last()).copied().unwrap_or(0))
    }

    /// Returns the average time for which the last holders had the lock, for people.
    pub fn pace(&self) -> Option<String> {
        let held: Vec<u64> = self.log.iter().filter(|event| event.token > 0).map(|event| event.held_ms).collect();
        Some(time(held.iter().sum::<u64>().checked_div(held.len() as u64)?))
    }

    /// Returns the name of the waiter with this owner, for people.
    pub fn waiter(&self, owner: &str) -> String {
        let known = self.together.queue.iter().find(|waiter| waiter.owner == owner && !waiter.note.is_empty());
        known.map_or(format!("owner {owner}"), |waiter| printable(waiter.note.as_bytes()))
    }
}
