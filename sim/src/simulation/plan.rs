//! What a run is made of: everything that is drawn from its seed before it begins.
//!
//! A plan can be written down, made smaller, and run again.

use serde::{Deserialize, Serialize};

use super::kinds::{Fault, Kind};

use crate::history::TimeUs;
use crate::referee::Laws;
use crate::server::shares_stripe;

/// Microseconds in a millisecond.
const MS: u64 = 1_000;

/// How far a clock's rate may be off, in parts per million: two are then apart by less than 1 %.
pub(super) const DRIFT_PPM: i64 = 4_950;

/// Keys that are locked on one node begin here.
const FIRST_SINGLE: u32 = 2_000;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Where the chances of its moments come from.
    pub seed: u64,
    /// Its nodes.
    pub nodes: Vec<Machine>,
    /// Its clients.
    pub clients: Vec<Machine>,
    /// Its clients that lock on one node each.
    #[serde(default)]
    pub single_clients: Vec<SingleClient>,
    /// A client's list names a server twice: which client, which of its names, and which server that leads to.
    pub alias: Option<(usize, usize, usize)>,
    /// How many locks there are.
    pub keys: u32,
    /// The first so many nodes are the set that clients are configured with, and the set changes; zero: all are, and it does not.
    #[serde(default)]
    pub first_set: usize,
    /// A client that hears of a version of the set takes it up after up to so many microseconds.
    #[serde(default)]
    pub learns_after_us: u64,
    /// Clients take them in any mode, permits of about so many; zero: alone.
    #[serde(default)]
    pub limit: u16,
    /// Length of leases, in milliseconds.
    pub ttl_ms: u32,
    /// `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// How long a client gives a node to answer, in milliseconds.
    pub node_timeout_ms: u32,
    /// A lease is extended after so many thousandths of it.
    pub extended_after_permille: u64,
    /// How long a lock is held, on the average, in microseconds.
    pub hold_us: u64,
    /// How long a client rests before it wants the next one, on the average, in microseconds.
    pub rest_us: u64,
    /// The network when nothing is cut.
    pub network: Network,
    /// Clients start nothing after this, and every fault ends.
    pub until: TimeUs,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
}

/// A computer, with its two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its clocks run faster than true time, in parts per million.
    pub drift_ppm: i64,
    /// Its wall clock is ahead, in microseconds.
    pub ahead_us: i64,
    /// What its server keeps of its data over a crash.
    pub keeps: Keeps,
}

/// A client that locks on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SingleClient {
    /// Its computer.
    pub machine: Machine,
    /// Which node.
    pub node: usize,
    /// For how long it waits in the queue, at the longest, in milliseconds.
    pub wait_ms: u32,
    /// It takes locks in any mode, permits of about so many; zero: alone.
    #[serde(default)]
    pub limit: u16,
}

/// What a server finds of its data after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeps {
    /// Nothing: it has no persistence.
    #[default]
    Nothing,
    /// A snapshot, made every so many microseconds.
    Snapshots {
        /// How often.
        every_us: u64,
    },
    /// Everything: its AOF is synced at every command.
    Everything,
}

/// A network that is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Most messages take up to twice this, in microseconds.
    pub delay_us: u64,
    /// Of a thousand messages so many take up to a hundred times as long.
    pub slow_permille: u32,
    /// Of a thousand messages so many are lost.
    pub lost_permille: u32,
    /// Of a thousand messages so many arrive twice.
    pub doubled_permille: u32,
}

impl Plan {
    /// The promises do not cover `fault` in this run: a node that lost its state file, a replica that is promoted before
    /// everything reached it, or one that is given a slot, knows of the latest tokens only by its clock, so the clocks of the
    /// nodes must agree.
    pub fn is_excepted(&self, fault: &Fault) -> bool {
        let clocks = || self.nodes.iter().map(|node| node.ahead_us);
        let apart_us = clocks().max().unwrap_or(0) - clocks().min().unwrap_or(0);
        let stepped = self.faults.iter().any(|fault| matches!(fault.kind, Kind::NodeClockStep { .. }));
        let apart = stepped || apart_us > i64::from(self.skew_ms) * MS as i64;
        match fault.kind {
            Kind::NewDisk { .. }
            | Kind::OlderFiles { .. }
            | Kind::OtherStateFile { .. }
            | Kind::SlotGivenAway { .. } => apart,
            Kind::Failover { .. } => apart && self.nodes.len() > 1,
            _ => false,
        }
    }

    /// Nothing is lost or late in its network, an answer takes a small part of a lease, and holders extend early.
    pub fn is_calm(&self) -> bool {
        let Network { delay_us, slow_permille, lost_permille, .. } = self.network;
        !self.changes_set()
            && slow_permille + lost_permille == 0
            && 4 * delay_us * 20 <= u64::from(self.ttl_ms) * MS
            && self.extends_in_background()
    }

    /// Holders extend early, as the shipped keeper does it. Where they do it by hand, and late, one round may be all.
    pub fn extends_in_background(&self) -> bool {
        self.extended_after_permille <= 333
    }

    /// Whether the shipped keeper decides when `client` extends. The others begin a round at any time, also before the last is over: that
    /// needs rules which a keeper hides.
    pub fn is_in_background(&self, client: usize) -> bool {
        self.is_calm() || (self.extends_in_background() && client.is_multiple_of(2))
    }

    /// The set of nodes may change.
    pub fn changes_set(&self) -> bool {
        self.first_set > 0
    }

    /// So many nodes are those that clients are configured with.
    pub fn first_set(&self) -> usize {
        if self.changes_set() { self.first_set } else { self.nodes.len() }
    }

    /// A client that asks nodes until it has a lock: where the set changes, one whose list names no server twice. That one lacks a member.
    pub(super) fn has_every_node(&self) -> u32 {
        let is_first_short =
            self.changes_set() && self.clients.len() > 1 && self.alias.is_some_and(|(client, ..)| client == 0);
        u32::from(is_first_short)
    }

    /// Its nodes are parts of clusters.
    pub fn has_slots(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, Kind::SlotGivenAway { .. } | Kind::FlushSlot { .. }))
    }

    /// The plan that was written down as `text`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn from_text(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|why| why.to_string())
    }

    /// To write it down.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Which server a name of a client's list leads to.
    pub fn server(&self, client: usize, name: usize) -> usize {
        self.alias.filter(|alias| (alias.0, alias.1) == (client, name)).map_or(name, |alias| alias.2)
    }

    /// The keys that are locked on the node in this place alone. They share stripes of tokens with those that are locked on several:
    /// in that of a hostile client, whose tokens are far ahead, the order of tokens does not outlast a lost disk.
    pub fn keys_of(&self, node: usize) -> [u32; 2] {
        keys_of(self.keys, node)
    }

    /// What must hold in it.
    pub fn laws(&self) -> Laws {
        let rates =
            || self.nodes.iter().chain(&self.clients).chain(self.single_clients.iter().map(|client| &client.machine));
        let rates = || rates().map(|machine| machine.drift_ppm);
        let apart = rates().max().unwrap_or(0) - rates().min().unwrap_or(0);
        if apart <= 2 * DRIFT_PPM { Laws::All } else { Laws::WithoutExclusion }
    }
}

/// See [`Plan::keys_of`].
pub(super) fn keys_of(keys: u32, node: usize) -> [u32; 2] {
    let mut beside = (FIRST_SINGLE..).filter(|key| shares_stripe(*key, keys)).skip(2 * node);
    std::array::from_fn(|_| beside.next().unwrap_or(FIRST_SINGLE))
}
