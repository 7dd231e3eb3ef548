//! What the nodes said of a lock.

use jiff::tz::TimeZone;
use palisade_client::Why;

use crate::lock_log::Event;
use crate::lock_view::{LockView, Together};
use crate::show::{printable, time};

/// What the nodes said.
#[derive(Clone, Debug)]
pub struct Facts {
    pub key: String,
    /// Each of the list.
    pub nodes: Vec<NodeSaid>,
    /// What they tell together.
    pub together: Together,
    /// The last ends of grants and waits, the newest first.
    pub log: Vec<Event>,
    /// Why nodes that can be asked do not tell their logs; empty: all do.
    pub log_untold: String,
    /// The wall clock when they were asked.
    pub now_ms: u64,
    /// How moments are told.
    pub zone: TimeZone,
}

/// What one node said.
#[derive(Clone, Debug)]
pub struct NodeSaid {
    pub name: String,
    pub told: Result<Told, Why>,
}

/// What a node that can be asked told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// For how many milliseconds it is guarded, and why.
    pub guard: Option<(u64, String)>,
    /// How many hold the lock there.
    pub grants: usize,
    /// The longest of their leases, in milliseconds.
    pub lease_ms: u64,
    /// Slots of its cluster that are guarded there; which ones it does not tell.
    pub guarded_slots: u64,
    /// For whom the lock is kept there, and for how many milliseconds.
    pub kept: Option<(String, u64)>,
}

impl Facts {
    /// How many nodes are a majority.
    pub fn majority(&self) -> usize {
        palisade_quorum::majority(self.nodes.len())
    }

    /// What those told that can be asked.
    pub fn told(&self) -> impl Iterator<Item = &Told> {
        self.nodes.iter().filter_map(|node| node.told.as_ref().ok())
    }

    /// Nodes that grant, if nobody holds the lock there.
    pub fn serving(&self) -> usize {
        self.told().filter(|told| told.guard.is_none()).count()
    }

    /// The lock, as those who hold it on a majority have it.
    pub fn held(&self) -> Option<LockView> {
        let first = self.together.grants.first().filter(|grant| grant.is_held)?.clone();
        Some(LockView::with(self.key.clone(), vec![], first, self.together.clone()))
    }

    /// How long until `missing` of these times have passed.
    pub fn until(&self, mut times: Vec<u64>, missing: usize) -> String {
        times.sort_unstable();
        time(times.get(missing.saturating_sub(1)).or(times.last()).copied().unwrap_or(0))
    }

    /// How long the last holders had it.
    pub fn pace(&self) -> Option<String> {
        let held: Vec<u64> = self.log.iter().filter(|event| event.token > 0).map(|event| event.held_ms).collect();
        Some(time(held.iter().sum::<u64>().checked_div(held.len() as u64)?))
    }

    /// Who has this owner, as people know it.
    pub fn waiter(&self, owner: &str) -> String {
        let known = self.together.queue.iter().find(|waiter| waiter.owner == owner && !waiter.note.is_empty());
        known.map_or(format!("owner {owner}"), |waiter| printable(waiter.note.as_bytes()))
    }
}
