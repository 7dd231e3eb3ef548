//! The nodes of a campaign as one cluster: three masters with a replica each, on disks of their own.
//!
//! Each server announces the port of its link (a proxy) as its own, so clients and its replica reach it through the
//! link. A shard consists of a master and its replica: the nodes `n` and `n + 3`, either of which may be the master.

pub mod bus;
pub mod shards;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::Value;

use super::link::Link;
use super::machine::{Machine, ask, free_port};
use super::patience::{PATIENCE, until};
use bus::Bus;

/// The number of shards.
pub const SHARDS: usize = 3;

/// The number of servers.
pub const NODES: usize = 2 * SHARDS;

/// The initial slots of each shard.
pub(super) const RANGES: [(u16, u16); SHARDS] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

/// The time of silence after which the other servers consider a master dead, in milliseconds.
const NODE_TIMEOUT_MS: u64 = 2_000;

/// The time of silence after which a master is considered dead in a brief campaign, in milliseconds.
const NODE_TIMEOUT_IN_BRIEF_MS: u64 = 1_000;

/// The longest time for a server to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// A cluster of servers.
#[derive(Debug)]
pub struct Cluster {
    /// The bus over which the servers reach each other.
    pub bus: Bus,
    /// The servers' node ids, by number.
    ids: Vec<String>,
    /// The shard of each slot that has moved from its first shard.
    moved: Mutex<BTreeMap<u16, usize>>,
}

/// Configures servers, which are started later, as members of a cluster. They announce the ports of proxies: of their
/// links for clients, and of the returned [`Bus`] for other servers.
///
/// # Errors
///
/// No port is free.
pub async fn announce(machines: &mut [Machine], links: &[Link], brief: bool) -> io::Result<Bus> {
    let node_timeout_ms = if brief { NODE_TIMEOUT_IN_BRIEF_MS } else { NODE_TIMEOUT_MS };
    let listen_on = machines.iter().map(|_| free_port()).collect::<io::Result<Vec<u16>>>()?;
    let bus = Bus::before(&listen_on).await?;
    for (node, machine) in machines.iter_mut().enumerate() {
        let options = [
            ("cluster-enabled", "yes".to_owned()),
            ("cluster-port", listen_on[node].to_string()),
            ("cluster-announce-ip", "127.0.0.1".to_owned()),
            ("cluster-announce-port", links[node].port().to_string()),
            ("cluster-announce-bus-port", bus.port(node).to_string()),
            ("bind-source-addr", bus::address_of(node).to_string()),
            ("cluster-node-timeout", node_timeout_ms.to_string()),
            // A shard that is down makes only its own slots unavailable.
            ("cluster-require-full-coverage", "no".to_owned()),
            // A replica may take over even if its link was down for long, and never moves to another master.
            ("cluster-replica-validity-factor", "0".to_owned()),
            ("cluster-allow-replica-migration", "no".to_owned()),
            // In a cluster, some servers prepare commands on these threads.
            ("io-threads", "2".to_owned()),
            // A replica whose link was cut reconnects soon.
            ("repl-timeout", "5".to_owned()),
        ];
        machine.options.extend(options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]));
    }
    Ok(bus)
}

impl Cluster {
    /// Makes the servers meet, the first three as masters.
    ///
    /// # Errors
    /// They do not meet.
    pub async fn form(machines: &[Machine], links: &[Link], bus: Bus) -> Result<Self, String> {
        let ports: Vec<_> = links.iter().enumerate().map(|(node, link)| (link.port(), bus.port(node))).collect();
        let ids = meet(machines, &ports).await?;
        for (id, replica) in ids.iter().zip(&machines[SHARDS..]) {
            let follow = ["CLUSTER", "REPLICATE", id];
            let follows = until!(PATIENCE, replica.ask::<()>(&follow).await.ok());
            follows.ok_or("the cluster: a replica does not hear of its master")?;
        }
        for machine in machines {
            let is_well = until!(PATIENCE, is_well(&machine.socket()).await.ok());
            is_well.ok_or("the cluster does not come about")?;
            // The cluster is new, so no lock is held in it.
            let _ = machine.ask::<Value>(&["LOCK.GUARD", "LIFT"]).await;
        }
        Ok(Self { bus, ids, moved: Mutex::default() })
    }

    /// Returns the node id of the server of this number.
    pub fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// Returns the shard that owns this slot.
    pub fn shard_of(&self, slot: u16) -> usize {
        let at_first = || RANGES.iter().position(|&(_, last)| slot <= last).unwrap_or(0);
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).get(&slot).copied().unwrap_or_else(at_first)
    }

    /// Records that the slot was given to this shard.
    pub fn moved(&self, slot: u16, shard: usize) {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, shard);
    }
}

/// Makes servers meet at these ports and bus ports. The first three get the slots. Returns their node ids.
pub(super) async fn meet(machines: &[Machine], ports: &[(u16, u16)]) -> Result<Vec<String>, String> {
    let mut ids = vec![];
    for machine in machines {
        ids.push(machine.ask(&["CLUSTER", "MYID"]).await?);
    }
    for (machine, (first, last)) in machines.iter().zip(RANGES) {
        machine.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
    }
    for (port, bus) in &ports[1..] {
        machines[0].ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]).await?;
    }
    Ok(ids)
}

/// Checks that the server at `socket` serves in a cluster of `nodes` nodes. The error says why not.
pub(super) async fn knows(socket: &std::path::Path, nodes: usize) -> Result<(), String> {
    let info = ask::<String>(socket, &["CLUSTER", "INFO"], ANSWER).await?;
    let known = format!("cluster_known_nodes:{nodes}");
    let is_well = ["cluster_state:ok", "cluster_slots_assigned:16384", &known].iter().all(|line| info.contains(line));
    if is_well { Ok(()) } else { Err(info) }
}

/// Checks that the server at `socket` sees all others, and that each master has a replica. If the server is a replica,
/// it must follow its master. The error says why not.
pub(super) async fn is_well(socket: &std::path::Path) -> Result<(), String> {
    let told = async |words: &[&str]| ask::<String>(socket, words, ANSWER).await;
    knows(socket, NODES).await?;
    let nodes = told(&["CLUSTER", "NODES"]).await?;
    if nodes.lines().filter(|line| line.contains("slave") && !line.contains("fail")).count() != SHARDS {
        return Err(nodes);
    }
    let replication = told(&["INFO", "replication"]).await?;
    if replication.contains("role:master") || replication.contains("master_link_status:up") {
        return Ok(());
    }
    Err(replication)
}
