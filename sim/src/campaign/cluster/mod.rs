//! The nodes of a campaign as one cluster: three masters, and a replica of each, on disks of their own.
//!
//! Each announces its link as its address, so clients reach it by that, and its replica does too. A shard is a master and its replica,
//! whichever of the two is which: nodes `n` and `n + 3`.

pub mod bus;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, Value};
use tokio::time::{Instant, sleep};

use super::faults::On;
use super::link::Link;
use super::machine::{Machine, PATIENCE, ask, free_port};
use super::world::World;
use bus::Bus;

/// Shards of the cluster.
pub const SHARDS: usize = 3;

/// Its servers.
pub const NODES: usize = 2 * SHARDS;

/// The slots of each shard at first.
const RANGES: [(u16, u16); SHARDS] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

/// For how long a master is silent before the others take it for dead.
const NODE_TIMEOUT_MS: u64 = 2_000;

/// The same in brief.
const NODE_TIMEOUT_IN_BRIEF_MS: u64 = 1_000;

/// A guard that is longer is that of a replica which was promoted before its master had told it how long leases are: a day.
const LONG_GUARD_MS: u64 = 60_000;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// What makes servers one cluster.
#[derive(Debug)]
pub struct Cluster {
    /// How they hear each other.
    pub bus: Bus,
    /// Who they are, by number.
    ids: Vec<String>,
    /// The shard of each slot that is not where it was at first.
    moved: Mutex<BTreeMap<u16, usize>>,
}

/// Makes servers that are started after this ones of a cluster, which announce their links.
///
/// # Errors
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
            // One shard that is down concerns its own slots.
            ("cluster-require-full-coverage", "no".to_owned()),
            // A replica takes over however long it heard nothing, and stays where it is.
            ("cluster-replica-validity-factor", "0".to_owned()),
            ("cluster-allow-replica-migration", "no".to_owned()),
            // A replica whose link was cut asks again soon.
            ("repl-timeout", "5".to_owned()),
        ];
        machine.options.extend(options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]));
    }
    Ok(bus)
}

impl Cluster {
    /// Has the servers know each other, the first three as masters.
    ///
    /// # Errors
    /// They do not.
    pub async fn form(machines: &[Machine], links: &[Link], bus: Bus) -> Result<Self, String> {
        let mut ids: Vec<String> = vec![];
        for machine in machines {
            ids.push(machine.ask(&["CLUSTER", "MYID"]).await?);
        }
        for (machine, (first, last)) in machines.iter().zip(RANGES) {
            machine.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
        }
        for (node, link) in links.iter().enumerate().skip(1) {
            let (port, bus) = (link.port().to_string(), bus.port(node).to_string());
            machines[0].ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
        }
        let begun = Instant::now();
        for shard in 0..SHARDS {
            while machines[SHARDS + shard].ask::<()>(&["CLUSTER", "REPLICATE", &ids[shard]]).await.is_err() {
                is_late(begun, "a replica does not hear of its master")?;
                sleep(LOOK).await;
            }
        }
        for machine in machines {
            while is_well(&machine.socket()).await.is_err() {
                is_late(begun, "it does not come about")?;
                sleep(LOOK).await;
            }
            // It is new: nobody holds anything in it.
            let _ = machine.ask::<Value>(&["LOCK.GUARD", "LIFT"]).await;
        }
        Ok(Self { bus, ids, moved: Mutex::default() })
    }

    /// Who the server of this number is.
    pub fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// The shard that this slot was given to.
    pub fn shard_of(&self, slot: u16) -> usize {
        let at_first = || RANGES.iter().position(|&(_, last)| slot <= last).unwrap_or(0);
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).get(&slot).copied().unwrap_or_else(at_first)
    }

    /// The slot was given to this shard.
    pub fn moved(&self, slot: u16, shard: usize) {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, shard);
    }
}

/// Everything is healed: waits until each shard has one master and one replica, which follows it, and all agree.
pub async fn settle(world: &World) {
    let begun = Instant::now();
    while let Err(why) = is_at_rest(world).await {
        if begun.elapsed() > PATIENCE {
            let late = format!("the cluster is not at rest {PATIENCE:?} after the last fault was healed");
            world.log.found(format!("{late}: {why}"));
            return;
        }
        sleep(LOOK).await;
    }
    // Where a replica was promoted before it was told how long leases are, an operator has to say that all of them are over.
    let mut guarded = vec![];
    for node in 0..NODES {
        if guard_ms(world, node).await > LONG_GUARD_MS {
            guarded.push(node);
        }
    }
    if !guarded.is_empty() {
        sleep(Duration::from_millis(world.settings.max_ttl_ms * 2 + world.settings.skew_ms)).await;
    }
    for node in guarded {
        say::<Value>(world, node, &["LOCK.GUARD", "LIFT"]).await.ok();
        world.log.moment("guard of a day lifted", On::Node(node), "");
    }
}

/// For how long this node is guarded still. A busy machine is asked again: who is taken for unguarded stays guarded for a day.
async fn guard_ms(world: &World, node: usize) -> u64 {
    let begun = Instant::now();
    loop {
        let told: Result<HashMap<String, String>, String> = say(world, node, &["LOCK.NODE"]).await;
        let guard_ms = told.ok().and_then(|told| told.get("guard_ms")?.parse().ok());
        if guard_ms.is_some() || begun.elapsed() > PATIENCE {
            return guard_ms.unwrap_or(0);
        }
        sleep(LOOK).await;
    }
}

/// Why the cluster is not at rest.
async fn is_at_rest(world: &World) -> Result<(), String> {
    for shard in 0..SHARDS {
        roles(world, shard).await.ok_or_else(|| format!("shard {} has no master, or two", shard + 1))?;
    }
    for (node, slot) in world.slots.iter().enumerate() {
        is_well(&slot.socket()).await.map_err(|why| format!("node {}: {why}", node + 1))?;
    }
    Ok(())
}

fn is_late(begun: Instant, what: &str) -> Result<(), String> {
    if begun.elapsed() > PATIENCE { Err(format!("the cluster: {what}")) } else { Ok(()) }
}

/// Why the server at `socket` does not see all others, each master with a replica, or, where it is a replica, does not follow.
async fn is_well(socket: &std::path::Path) -> Result<(), String> {
    let told = async |words: &[&str]| ask::<String>(socket, words, ANSWER).await;
    let info = told(&["CLUSTER", "INFO"]).await?;
    let known = format!("cluster_known_nodes:{NODES}");
    if ["cluster_state:ok", "cluster_slots_assigned:16384", &known].iter().any(|line| !info.contains(line)) {
        return Err(info);
    }
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

/// The node of this shard that is its master, and the one that is its replica; `None`: both or none say that they are the master.
pub async fn roles(world: &World, shard: usize) -> Option<(usize, usize)> {
    let (one, other) = (shard, shard + SHARDS);
    match (is_master(world, one).await?, is_master(world, other).await?) {
        (true, false) => Some((one, other)),
        (false, true) => Some((other, one)),
        _ => None,
    }
}

/// Whether this node says that it is a master; `None`: it does not answer.
pub async fn is_master(world: &World, node: usize) -> Option<bool> {
    let role: Vec<Value> = say(world, node, &["ROLE"]).await.ok()?;
    Some(String::from_redis_value(role.into_iter().next()?).ok()? == "master")
}

/// Says it to a node.
///
/// # Errors
/// It does not answer, or refuses.
pub async fn say<T: FromRedisValue>(world: &World, node: usize, words: &[&str]) -> Result<T, String> {
    ask(&world.slots[node].socket(), words, ANSWER).await
}
