//! What a run is made of: everything that is drawn from its seed before it begins.
//!
//! A plan can be written down, made smaller, and run again.

use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::history::TimeUs;
use crate::referee::Laws;

/// Microseconds in a millisecond and in a second.
const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// How far a clock's rate may be off, in parts per million: two are then apart by less than 1 %.
const DRIFT_PPM: i64 = 4_950;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Where the chances of its moments come from.
    pub seed: u64,
    /// Its nodes.
    pub nodes: Vec<Machine>,
    /// Its clients.
    pub clients: Vec<Machine>,
    /// A client's list names a server twice: which client, which of its names, and which server that leads to.
    pub alias: Option<(usize, usize, usize)>,
    /// How many locks there are.
    pub keys: u32,
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

/// What a server finds of its data after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeps {
    /// Nothing: it has no persistence.
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

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When it begins.
    pub at: TimeUs,
    /// For how long, in microseconds.
    pub for_us: u64,
    /// What.
    pub kind: Kind,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A server is killed, and starts again after that time.
    Crash {
        /// Which node.
        node: usize,
        /// The machine is started anew: its boot clock starts over.
        reboot: bool,
    },
    /// The same, with an empty disk: it is another node from then on.
    NewDisk {
        /// Which node.
        node: usize,
    },
    /// A server is shut down in order, and starts again after that time.
    Restart {
        /// Which node.
        node: usize,
        /// The machine is started anew.
        reboot: bool,
    },
    /// A server is killed, and its replica is made the master after that time.
    Failover {
        /// Which node.
        node: usize,
        /// How far the replica was behind, in microseconds.
        lag_us: u64,
    },
    /// A copy of a node's files is made, as they are on its disk; in the end the server is killed, and starts from the copy.
    OlderFiles {
        /// Which node.
        node: usize,
    },
    /// A server is shut down in order, and started on its data with another state file; in the end it is killed, and starts
    /// with the first one.
    OtherStateFile {
        /// Which node.
        node: usize,
    },
    /// A hostile client raises tokens of keys of its own on all nodes, at the beginning and in the end.
    RaisedTokens,
    /// All locks of a node are flushed.
    Flush {
        /// Which node.
        node: usize,
    },
    /// The slot of a key is given to another server of the node's cluster, which serves it from then on, and in the end it is given
    /// back: each time without its locks (CLUSTER SETSLOT).
    SlotGivenAway {
        /// Which node.
        node: usize,
        /// Which key.
        key: u32,
        /// Its server was killed before, and starts again before it is given back; if not, it serves its other slots meanwhile.
        dies: bool,
    },
    /// The slot of a key is emptied (CLUSTER FLUSHSLOT).
    FlushSlot {
        /// Which node.
        node: usize,
        /// Which key.
        key: u32,
    },
    /// A server does nothing.
    PauseNode {
        /// Which node.
        node: usize,
    },
    /// Moments in which a majority of the nodes does nothing, all at once, for up to two tenths of a second and a fifth of a lease:
    /// about one a second, and another majority each time.
    Stalls {
        /// The first of those that are stopped first.
        first: usize,
    },
    /// All clients that have nothing to do ask for locks at one moment, about once a second, and each goes on until a limit of many
    /// seconds.
    Bursts {
        /// For a lock each that nobody else wants; if not, all for one.
        apart: bool,
    },
    /// A client does nothing.
    PauseClient {
        /// Which client.
        client: usize,
    },
    /// A client is killed, and starts again after that time.
    KillClient {
        /// Which client.
        client: usize,
    },
    /// Messages are lost between nodes and clients.
    Cut {
        /// Which node; `None`: all.
        node: Option<usize>,
        /// Which client; `None`: all.
        client: Option<usize>,
        /// Requests are lost.
        there: bool,
        /// Answers are lost.
        back: bool,
    },
    /// Messages to and from a node take so much longer, in microseconds.
    Slow {
        /// Which node.
        node: usize,
        /// How much longer.
        by_us: u64,
    },
    /// A node's disk does not finish writing.
    DiskHangs {
        /// Which node.
        node: usize,
    },
    /// A node's wall clock is set, by so many microseconds. It stays so.
    NodeClockStep {
        /// Which node.
        node: usize,
        /// By how much.
        by_us: i64,
    },
    /// A client's wall clock is set, by so many microseconds. It stays so.
    ClientClockStep {
        /// Which client.
        client: usize,
        /// By how much.
        by_us: i64,
    },
}

impl Kind {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Crash { reboot: false, .. } => "crash",
            Self::Crash { reboot: true, .. } => "crash and reboot",
            Self::NewDisk { .. } => "new disk",
            Self::Restart { reboot: false, .. } => "restart",
            Self::Restart { reboot: true, .. } => "restart and reboot",
            Self::Failover { .. } => "fail-over",
            Self::OlderFiles { .. } => "older files",
            Self::OtherStateFile { .. } => "another state file",
            Self::RaisedTokens => "raised tokens",
            Self::Flush { .. } => "flush",
            Self::SlotGivenAway { dies: false, .. } => "slot given away",
            Self::SlotGivenAway { dies: true, .. } => "slot of a dead node given away",
            Self::FlushSlot { .. } => "flush of a slot",
            Self::PauseNode { .. } => "pause of a node",
            Self::Stalls { .. } => "stalls of majorities",
            Self::Bursts { .. } => "bursts of requests",
            Self::PauseClient { .. } => "pause of a client",
            Self::KillClient { .. } => "kill of a client",
            Self::Cut { there: true, back: true, .. } => "cut",
            Self::Cut { .. } => "one-way cut",
            Self::Slow { .. } => "slow network",
            Self::DiskHangs { .. } => "disk hangs",
            Self::NodeClockStep { .. } => "clock step of a node",
            Self::ClientClockStep { .. } => "clock step of a client",
        }
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let beyond = rng.random_ratio(1, 10);
        let drift_max = if beyond { 4 * DRIFT_PPM } else { DRIFT_PPM };
        let clocks_apart_us = *[0, 5 * MS, 500 * MS, 5 * SECOND, 3_600 * SECOND].choose(rng).unwrap_or(&0) as i64;
        let count = *[1, 3, 3, 3, 4, 5, 5].choose(rng).unwrap_or(&3);
        let machine = |rng: &mut ChaCha8Rng| Machine {
            drift_ppm: rng.random_range(-drift_max..=drift_max),
            ahead_us: rng.random_range(-clocks_apart_us..=clocks_apart_us),
            keeps: match rng.random_range(0..3) {
                0 => Keeps::Nothing,
                1 => Keeps::Snapshots { every_us: rng.random_range(100 * MS..10 * SECOND) },
                _ => Keeps::Everything,
            },
        };
        let nodes: Vec<_> = (0..count).map(|_| machine(rng)).collect();
        let clients: Vec<_> = (0..rng.random_range(2..=6)).map(|_| machine(rng)).collect();
        let ttl_ms = *[100, 500, 1_000, 3_000].choose(rng).unwrap_or(&1_000);
        let max_ttl_ms = *[ttl_ms, 5_000].choose(rng).unwrap_or(&5_000);
        let until = rng.random_range(10 * SECOND..60 * SECOND);
        // Nothing but moments in which much is asked and little answered: then more is promised than else.
        let moments_alone = rng.random_ratio(1, 10);
        let calm = moments_alone || rng.random_ratio(1, 4);
        let network = Network {
            // A round trip takes up to four times this: far less than a lease.
            delay_us: (*[100, 500, 5 * MS, 20 * MS].choose(rng).unwrap_or(&500))
                .min(u64::from(ttl_ms) * MS / if moments_alone { 80 } else { 20 }),
            slow_permille: if calm { 0 } else { rng.random_range(0..50) },
            lost_permille: if calm { 0 } else { rng.random_range(0..50) },
            doubled_permille: if calm { 0 } else { rng.random_range(0..50) },
        };
        let keys = rng.random_range(1..=3);
        let mut faults: Vec<_> = (0..rng.random_range(0..if moments_alone { 8 } else { 30 }))
            .map(|_| match moments_alone {
                true => moments(rng, until, count),
                false => fault(rng, until, count, clients.len(), keys, ttl_ms),
            })
            .collect();
        faults.sort_by_key(|fault| fault.at);
        let alias = (count > 2 && rng.random_ratio(1, 5)).then(|| (rng.random_range(0..clients.len()), 1, 0));
        let skew_ms = *[0, 100, 2_000].choose(rng).unwrap_or(&2_000);
        let round_trip_ms = 1 + (4 * network.delay_us / MS) as u32;
        let node_timeout_ms = rng.random_range(20..=200).clamp(round_trip_ms, ttl_ms / 2);
        let (hold_us, rest_us) = (rng.random_range(MS..3 * SECOND), rng.random_range(MS..SECOND));
        let extended_after_permille =
            if moments_alone { 333 } else { *[333, 600, 900, 970].choose(rng).unwrap_or(&333) };
        Self {
            seed,
            nodes,
            clients,
            alias,
            keys,
            ttl_ms,
            max_ttl_ms,
            skew_ms,
            node_timeout_ms,
            extended_after_permille,
            hold_us,
            rest_us,
            network,
            until,
            faults,
        }
    }

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
        slow_permille + lost_permille == 0
            && 4 * delay_us * 20 <= u64::from(self.ttl_ms) * MS
            && self.extends_in_background()
    }

    /// Holders extend as the client crate does it in the background: early, and again where a round was in vain. Where they do it by
    /// hand, and late, one round may be all.
    pub fn extends_in_background(&self) -> bool {
        self.extended_after_permille <= 333
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

    /// What must hold in it.
    pub fn laws(&self) -> Laws {
        let rates = || self.nodes.iter().chain(&self.clients).map(|machine| machine.drift_ppm);
        let apart = rates().max().unwrap_or(0) - rates().min().unwrap_or(0);
        if apart <= 2 * DRIFT_PPM { Laws::All } else { Laws::WithoutExclusion }
    }
}

fn fault(rng: &mut ChaCha8Rng, until: TimeUs, nodes: usize, clients: usize, keys: u32, ttl_ms: u32) -> Fault {
    let (node, client, key) = (rng.random_range(0..nodes), rng.random_range(0..clients), rng.random_range(0..keys));
    let ttl_us = u64::from(ttl_ms) * MS;
    let step = |rng: &mut ChaCha8Rng| {
        let far = *[10 * MS, SECOND, 10 * SECOND, 7_200 * SECOND].choose(rng).unwrap_or(&SECOND) as i64;
        rng.random_range(-far..=far)
    };
    let kind = match rng.random_range(0..24) {
        0..3 => Kind::Crash { node, reboot: rng.random_ratio(1, 4) },
        3 => Kind::NewDisk { node },
        4 => Kind::Restart { node, reboot: rng.random_ratio(1, 4) },
        5 => Kind::Failover { node, lag_us: rng.random_range(0..ttl_us) },
        6 => Kind::Flush { node },
        7 => Kind::PauseNode { node },
        8 => Kind::PauseClient { client },
        9 => Kind::KillClient { client },
        10..12 => {
            let (there, back) = *[(true, true), (true, false), (false, true)].choose(rng).unwrap_or(&(true, true));
            let (node, client) = *[(Some(node), None), (Some(node), Some(client)), (None, Some(client))]
                .choose(rng)
                .unwrap_or(&(None, None));
            Kind::Cut { node, client, there, back }
        }
        12 => Kind::Slow { node, by_us: rng.random_range(MS..ttl_us) },
        13 => Kind::DiskHangs { node },
        14 => Kind::NodeClockStep { node, by_us: step(rng) },
        15 => Kind::OlderFiles { node },
        16 => Kind::OtherStateFile { node },
        17 => Kind::RaisedTokens,
        18..20 => Kind::SlotGivenAway { node, key, dies: rng.random() },
        20 => Kind::FlushSlot { node, key },
        21..23 => return moments(rng, until, nodes),
        _ => Kind::ClientClockStep { client, by_us: step(rng) },
    };
    let longest = *[10 * MS, ttl_us, 3 * ttl_us, 10 * SECOND].choose(rng).unwrap_or(&ttl_us);
    Fault { at: rng.random_range(0..until), for_us: rng.random_range(0..=longest), kind }
}

/// Bursts of requests, or stalls of nodes, for some seconds.
fn moments(rng: &mut ChaCha8Rng, until: TimeUs, nodes: usize) -> Fault {
    let kind = match rng.random() {
        true => Kind::Stalls { first: rng.random_range(0..nodes) },
        false => Kind::Bursts { apart: rng.random() },
    };
    Fault { at: rng.random_range(0..until), for_us: rng.random_range(SECOND..20 * SECOND), kind }
}
