//! The plan of a run: everything that is drawn from the seed before the run begins.
//!
//! A plan can be saved, reduced, and executed again.

use serde::{Deserialize, Serialize};

use super::kinds::{Fault, Kind};

use crate::history::TimeUs;
use crate::referee::Laws;
use crate::server::shares_stripe;

/// Microseconds in a millisecond.
const MS: u64 = 1_000;

/// The longest time for which tokens are ahead of the clock after a lost state file and a crash, in microseconds.
const TOKENS_AHEAD_US: TimeUs = 12_000_000;

/// The largest error of a clock's rate up to which exclusion is promised, in parts per million. Two such clocks differ
/// by less than 1 %.
pub(super) const DRIFT_PPM: i64 = 4_950;

/// The first of the keys that are locked on one node.
const FIRST_SINGLE: u32 = 2_000;

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed of the random events during the run.
    pub seed: u64,
    /// The nodes' computers.
    pub nodes: Vec<Machine>,
    /// The computers of the clients that lock on a quorum.
    pub clients: Vec<Machine>,
    /// The clients that lock on one node each.
    #[serde(default)]
    pub single_clients: Vec<SingleClient>,
    /// A server that appears twice in a client's list: the client, the name, and the server to which the name leads.
    pub alias: Option<(usize, usize, usize)>,
    /// The number of locks.
    pub keys: u32,
    /// The number of nodes, from the beginning of the list, in the clients' configuration if the set changes. 0 if the
    /// set does not change and the configuration has all nodes.
    #[serde(default)]
    pub first_set: usize,
    /// The longest delay, in microseconds, between the moment at which a client hears of a version and the moment at
    /// which it uses the version.
    #[serde(default)]
    pub learns_after_us: u64,
    /// The approximate limit of permits if clients take locks in any mode; 0 if they take only exclusive locks.
    #[serde(default)]
    pub limit: u16,
    /// The length of leases, in milliseconds.
    pub ttl_ms: u32,
    /// `lock.max-ttl`, in milliseconds.
    pub max_ttl_ms: u32,
    /// `lock.max-clock-skew`, in milliseconds.
    pub skew_ms: u32,
    /// The time that a client gives a node to answer, in milliseconds.
    pub node_timeout_ms: u32,
    /// The part of a lease, in thousandths, after which it is extended.
    pub extended_after_permille: u64,
    /// The average time that a lock is held, in microseconds.
    pub hold_us: u64,
    /// The average pause of a client before it wants the next lock, in microseconds.
    pub rest_us: u64,
    /// The network, except for the messages that a fault cuts off.
    pub network: Network,
    /// The time at which every fault ends, and after which clients begin nothing.
    pub until: TimeUs,
    /// The faults.
    pub faults: Vec<Fault>,
}

/// A computer, with its two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The excess rate of the clocks over true time, in parts per million.
    pub drift_ppm: i64,
    /// The lead of the wall clock, in microseconds.
    pub ahead_us: i64,
    /// The data that survives a crash of the server.
    pub keeps: Keeps,
}

/// A client that locks on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SingleClient {
    /// The client's computer.
    pub machine: Machine,
    /// The number of the node on which the client locks.
    pub node: usize,
    /// The longest wait in the queue, in milliseconds.
    pub wait_ms: u32,
    /// The approximate limit of permits if the client takes locks in any mode; 0 if it takes only exclusive locks.
    #[serde(default)]
    pub limit: u16,
}

/// The data that a server finds after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeps {
    /// Nothing: the server has no persistence.
    #[default]
    Nothing,
    /// A snapshot, made at intervals.
    Snapshots {
        /// The time between two snapshots, in microseconds.
        every_us: u64,
    },
    /// Everything: the AOF is synced at every command.
    Everything,
}

/// A network in its normal state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Half of the longest time that most messages take, in microseconds.
    pub delay_us: u64,
    /// The share of messages, in thousandths, that take up to 100 times `delay_us`.
    pub slow_permille: u32,
    /// The share of messages, in thousandths, that are lost.
    pub lost_permille: u32,
    /// The share of messages, in thousandths, that arrive twice.
    pub doubled_permille: u32,
}

impl Plan {
    /// Returns true if the promises do not cover `fault` in this run. A node without its state file, a replica that was
    /// promoted before it received everything, and a node that receives a slot know the latest tokens only from the
    /// clock. So they are covered only if the clocks of the nodes agree.
    pub fn is_excepted(&self, fault: &Fault) -> bool {
        let clocks = || self.nodes.iter().map(|node| node.ahead_us);
        let apart_us = clocks().max().unwrap_or(0) - clocks().min().unwrap_or(0);
        let stepped = self.faults.iter().any(|fault| matches!(fault.kind, Kind::NodeClockStep { .. }));
        let apart = stepped || apart_us > i64::from(self.skew_ms) * MS as i64;
        match fault.kind {
            Kind::NewDisk { .. } | Kind::OlderFiles { .. } | Kind::OtherStateFile { .. } => apart,
            Kind::SlotGivenAway { .. } => apart || self.tokens_run_ahead(fault.at),
            Kind::Failover { .. } => apart && self.nodes.len() > 1,
            _ => false,
        }
    }

    /// Returns true if tokens may be far ahead of the clock at `at`, because a node lost its state file before. That
    /// node's tokens start about five seconds ahead of its clock, and other nodes follow. If one of these crashes, it
    /// starts above its ceiling, which is some seconds higher still.
    fn tokens_run_ahead(&self, at: TimeUs) -> bool {
        let loses_file = |kind: &Kind| matches!(kind, Kind::NewDisk { .. } | Kind::OtherStateFile { .. });
        self.faults.iter().any(|fault| loses_file(&fault.kind) && (fault.at..fault.at + TOKENS_AHEAD_US).contains(&at))
    }

    /// Returns true if the set of nodes does not change, the network loses and delays nothing, an answer takes a small
    /// part of a lease, and holders extend early.
    pub fn is_calm(&self) -> bool {
        let Network { delay_us, slow_permille, lost_permille, .. } = self.network;
        !self.changes_set()
            && slow_permille + lost_permille == 0
            && 4 * delay_us * 20 <= u64::from(self.ttl_ms) * MS
            && self.extends_in_background()
    }

    /// Returns true if holders extend early, as the shipped keeper does. A holder that extends late, by hand, may have
    /// time for a single round only.
    pub fn extends_in_background(&self) -> bool {
        self.extended_after_permille <= 333
    }

    /// Returns true if the shipped keeper decides when `client` extends. The other clients begin a round at any time,
    /// even before the previous one is over, which exercises rules that a keeper never reaches.
    pub fn is_in_background(&self, client: usize) -> bool {
        self.is_calm() || (self.extends_in_background() && client.is_multiple_of(2))
    }

    /// Returns true if the set of nodes may change.
    pub fn changes_set(&self) -> bool {
        self.first_set > 0
    }

    /// Returns the number of nodes that clients are configured with.
    pub fn first_set(&self) -> usize {
        if self.changes_set() { self.first_set } else { self.nodes.len() }
    }

    /// Returns the number of the client that takes each key at the end of a run, to check that every lock is available.
    /// If the set changes, this client's list must not name a server twice, since the list would then lack a member.
    pub(super) fn has_every_node(&self) -> u32 {
        let is_first_short =
            self.changes_set() && self.clients.len() > 1 && self.alias.is_some_and(|(client, ..)| client == 0);
        u32::from(is_first_short)
    }

    /// Returns true if each node is part of a cluster.
    pub fn has_slots(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, Kind::SlotGivenAway { .. } | Kind::FlushSlot { .. }))
    }

    /// Reads a saved plan.
    ///
    /// # Errors
    ///
    /// The text is not a plan; the error says why.
    pub fn from_text(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|why| why.to_string())
    }

    /// Returns the plan as text.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Returns the server to which a name in a client's list leads.
    pub fn server(&self, client: usize, name: usize) -> usize {
        self.alias.filter(|alias| (alias.0, alias.1) == (client, name)).map_or(name, |alias| alias.2)
    }

    /// Returns the keys that are locked only on the node with this index. They share stripes of tokens with keys that
    /// are locked on several nodes. They share no stripe with a hostile client's keys: the tokens of these are so far
    /// ahead of the clock that a node that lost its disk issues smaller ones.
    pub fn keys_of(&self, node: usize) -> [u32; 2] {
        keys_of(self.keys, node)
    }

    /// Returns the laws of the run.
    pub fn laws(&self) -> Laws {
        let rates =
            || self.nodes.iter().chain(&self.clients).chain(self.single_clients.iter().map(|client| &client.machine));
        let rates = || rates().map(|machine| machine.drift_ppm);
        let apart = rates().max().unwrap_or(0) - rates().min().unwrap_or(0);
        if apart <= 2 * DRIFT_PPM { Laws::All } else { Laws::WithoutExclusion }
    }
}

/// Returns the keys of a node; see [`Plan::keys_of`].
pub(super) fn keys_of(keys: u32, node: usize) -> [u32; 2] {
    let mut beside = (FIRST_SINGLE..).filter(|key| shares_stripe(*key, keys)).skip(2 * node);
    std::array::from_fn(|_| beside.next().unwrap_or(FIRST_SINGLE))
}
