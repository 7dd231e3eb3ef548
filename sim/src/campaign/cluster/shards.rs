//! The state that the shards of a cluster report: the master of each shard, and whether the cluster is stable.

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value};
use tokio::time::sleep;

use super::{ANSWER, NODES, SHARDS, is_well};
use crate::campaign::faults::On;
use crate::campaign::machine::ask;
use crate::campaign::patience::{PATIENCE, comes_true, until};
use crate::campaign::world::World;

/// A longer guard than this, in milliseconds, means that a replica was promoted before its master had told it the
/// longest lease. The guard is then a day.
const LONG_GUARD_MS: u64 = 60_000;

/// Waits, once everything is healed, until each shard has one master and one replica that follows it, and all servers
/// agree on that.
pub async fn settle(world: &World) {
    let mut why = String::new();
    if !comes_true!(PATIENCE, is_at_rest(world).await.map_err(|is_not| why = is_not).is_ok()) {
        let late = format!("the cluster is not at rest {PATIENCE:?} after the last fault was healed");
        return world.log.found(format!("{late}: {why}"));
    }
    // If a replica was promoted before its master told it the longest lease, an operator has to confirm that all leases
    // have ended. The same holds for slots that moved away from such a replica, since they took its guard along.
    let mut guarded = vec![];
    for node in 0..NODES {
        if guard_ms(world, node).await > LONG_GUARD_MS || guarded_slots(world, node).await > 0 {
            guarded.push(node);
        }
    }
    if !guarded.is_empty() {
        sleep(Duration::from_millis(world.settings.max_ttl_ms * 2 + world.settings.skew_ms)).await;
    }
    for node in guarded {
        say::<Value>(world, node, &["LOCK.GUARD", "LIFT"]).await.ok();
        world.log.moment("guard lifted", On::Node(node), "");
    }
}

/// Returns the remaining guard of this node, in milliseconds. Asks until the node answers, however busy the machine is:
/// without an answer the caller would take the node for unguarded, and leave a guard of a day in place.
pub async fn guard_ms(world: &World, node: usize) -> u64 {
    let told = until!(PATIENCE, {
        let told: HashMap<String, String> = say(world, node, &["LOCK.NODE"]).await.unwrap_or_default();
        told.get("guard_ms").and_then(|ms| ms.parse().ok())
    });
    told.unwrap_or(0)
}

/// Returns the number of slots that are guarded at this node.
async fn guarded_slots(world: &World, node: usize) -> u64 {
    let told = until!(PATIENCE, {
        let info: String = say(world, node, &["INFO", "lock"]).await.unwrap_or_default();
        info.lines().find_map(|line| line.strip_prefix("lock_guarded_slots:")?.parse().ok())
    });
    told.unwrap_or(0)
}

/// Checks that the cluster is stable. The error says why not.
async fn is_at_rest(world: &World) -> Result<(), String> {
    for shard in 0..SHARDS {
        roles(world, shard).await.ok_or_else(|| format!("shard {} has no master, or two", shard + 1))?;
    }
    for (node, slot) in world.slots.iter().enumerate() {
        is_well(&slot.socket()).await.map_err(|why| format!("node {}: {why}", node + 1))?;
    }
    Ok(())
}

/// Returns the master and the replica of this shard; `None` unless exactly one of the two says that it is the master.
pub async fn roles(world: &World, shard: usize) -> Option<(usize, usize)> {
    let (one, other) = (shard, shard + SHARDS);
    match (is_master(world, one).await?, is_master(world, other).await?) {
        (true, false) => Some((one, other)),
        (false, true) => Some((other, one)),
        _ => None,
    }
}

/// Returns true if this node says that it is a master; `None` if it does not answer.
pub async fn is_master(world: &World, node: usize) -> Option<bool> {
    let role: Vec<Value> = say(world, node, &["ROLE"]).await.ok()?;
    Some(String::from_redis_value(role.into_iter().next()?).ok()? == "master")
}

/// Sends a command to a node.
///
/// # Errors
/// The node does not answer, or refuses.
pub async fn say<T: FromRedisValue>(world: &World, node: usize, words: &[&str]) -> Result<T, String> {
    ask(&world.slots[node].socket(), words, ANSWER).await
}
