//! An owner loses its lock while its extension reaches only a minority of the nodes. Another owner then acquires the
//! lock from a majority, of which one node stops. If the first owner then sends RELEASE to an agent, the agent must not
//! answer that this owner held the lock until now.

use std::sync::Arc;
use std::time::Duration;

use palisade_core::quorum::majority;
use redis::RedisResult;
use tokio::time::sleep;

use crate::campaign::connection::{Connection, Reply};
use crate::campaign::faults::On;
use crate::campaign::journal::now_us;
use crate::campaign::through::{PATIENCE, valid_until};
use crate::campaign::world::{NODES, World};

/// The key of the lock that the owner loses.
const KEY: &str = "chaos:lost";

/// The first lease of the owner that loses the lock, and the extra time for which the minority keeps the lock, in
/// milliseconds.
const LEASE_MS: u64 = 500;
const LONGER_MS: u64 = 50;

/// The number of repetitions. On a busy machine, the extension may end too soon, and that repetition then shows
/// nothing.
const TIMES: usize = 3;

/// Runs the drill several times, and reports each wrong answer.
pub async fn release(world: &Arc<World>) {
    for turn in 1..=TIMES {
        let fault = world.log.begin("release of a lost lock", On::AllNodes, "");
        // Without an answer of the agent, this repetition shows nothing.
        let told = once(world, turn).await.unwrap_or(false);
        drop(fault);
        if told {
            world.log.found(
                "release: an owner was told that it held a lock until now, and another one held it all the time",
            );
        }
    }
}

/// Returns true if the agent answered the first owner's RELEASE wrongly: that this owner held the lock until now,
/// although the second owner holds it.
async fn once(world: &World, turn: usize) -> RedisResult<bool> {
    let open = async |agent| Connection::open(&world.agent_url(agent)).await;
    let (mut first, mut second) = (open(0).await?, open(1).await?);
    let (ann, bob) = (format!("ann {turn}"), format!("bob {turn}"));
    let (lease, longest) = (LEASE_MS.to_string(), world.settings.max_ttl_ms.to_string());
    let taken = first.ask(&["LOCK.ACQUIRE", KEY, &ann, &lease, "WAIT", "1000"], PATIENCE).await?;
    let until = now_us() + (LEASE_MS + LONGER_MS) * 1_000;
    if taken == Reply::Null {
        return Ok(false);
    }
    let away = world.stop(NODES - majority(NODES)..NODES).await;
    // The extension fails with NOQUORUM.
    let _ = first.ask(&["LOCK.EXTEND", KEY, &ann, &longest], PATIENCE).await;
    sleep(Duration::from_micros(until.saturating_sub(now_us()))).await;
    drop(away);
    let asked = now_us();
    let taken = second.ask(&["LOCK.ACQUIRE", KEY, &bob, &longest, "WAIT", "1000"], PATIENCE).await?;
    let Reply::List(taken) = taken else { return Ok(false) };
    let bobs_until = valid_until(asked, taken[1], world.settings.max_ttl_ms);
    let away = world.stop(NODES - 1..NODES).await;
    let told = first.ask(&["LOCK.RELEASE", KEY, &ann, "LEVEL", "1"], PATIENCE).await;
    let is_bobs = now_us() < bobs_until;
    drop(away);
    second.ask(&["LOCK.RELEASE", KEY, &bob, "LEVEL", "1"], PATIENCE).await?;
    Ok(is_bobs && matches!(told, Ok(Reply::Number(0))))
}
