//! Actions of people: commands that pause or flush a server, changed settings, and clocks that are set.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;
use tokio::time::sleep;

use super::dice::{Dice, pause};
use crate::campaign::faults::On;
use crate::campaign::machine::ask;
use crate::campaign::patience::PATIENCE;
use crate::campaign::world::{CLIENTS, World};

/// Commands and settings, each with its name in the report and the command that undoes it.
const COMMANDS: &[(&str, &[&str], &[&str])] = &[
    ("FLUSHALL", &["FLUSHALL"], &[]),
    ("FLUSHALL", &["FLUSHALL", "ASYNC"], &[]),
    ("DEBUG RELOAD", &["DEBUG", "RELOAD"], &[]),
    ("BGSAVE", &["BGSAVE"], &[]),
    ("BGREWRITEAOF", &["BGREWRITEAOF"], &[]),
    ("CLIENT KILL", &["CLIENT", "KILL", "TYPE", "normal"], &[]),
    ("LOCK.GUARD ARM", &["LOCK.GUARD", "ARM", "1500"], &[]),
    ("CONFIG SET", &["CONFIG", "SET", "appendfsync", "everysec"], &["CONFIG", "SET", "appendfsync", "always"]),
    (
        "CONFIG SET",
        &["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"],
        &["CONFIG", "SET", "no-appendfsync-on-rewrite", "no"],
    ),
    ("CONFIG SET", &["CONFIG", "SET", "appendonly", "no"], &["CONFIG", "SET", "appendonly", "yes"]),
    ("CONFIG SET", &["CONFIG", "SET", "hz", "1"], &["CONFIG", "SET", "hz", "100"]),
    ("CONFIG SET", &["CONFIG", "SET", "lock.handoff-window", "1"], &["CONFIG", "SET", "lock.handoff-window", "20"]),
    ("CONFIG SET", &["CONFIG", "SET", "lock.max-waiters", "2"], &["CONFIG", "SET", "lock.max-waiters", "65536"]),
];

/// Sends commands of operators to nodes, one at a time.
pub async fn commands(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(200, 2_500)).await;
        let node = dice.below(world.slots.len());
        // In a cluster, a server in use by another task is skipped: its shard moves slots or fails over, and a FLUSHALL
        // would delete locks of a slot that is on its way.
        let alone = world.slots[node].machine.try_lock();
        if alone.is_err() && world.cluster.is_some() {
            continue;
        }
        let _alone = alone.ok().filter(|_| world.cluster.is_some());
        match dice.below(10) {
            0 | 1 => {
                let ms = dice.ms(20, 2_500).as_millis().to_string();
                let which = dice.one_of(&["ALL", "WRITE"]);
                let _steady = world.slots[node].steady.lock().await;
                let _fault = world.log.begin("CLIENT PAUSE", On::Node(node), format!("{ms} ms {which}"));
                say(&world, node, &["CLIENT", "PAUSE", &ms, which]).await;
                pause(&world, std::time::Duration::from_millis(ms.parse().unwrap_or(0))).await;
            }
            2 | 3 => {
                let seconds = format!("{:.3}", dice.ms(20, 2_500).as_secs_f64());
                let _fault = world.log.begin("DEBUG SLEEP", On::Node(node), format!("{seconds} s"));
                say(&world, node, &["DEBUG", "SLEEP", &seconds]).await;
            }
            _ => {
                let (name, command, back) = dice.one_of(COMMANDS);
                // On a server without the AOF, undoing this command would enable the AOF.
                if command.contains(&"appendonly") && !has_aof(&world, node).await {
                    continue;
                }
                let _fault = world.log.begin(name, On::Node(node), command.join(" "));
                say(&world, node, command).await;
                if !back.is_empty() {
                    pause(&world, dice.ms(50, 3_000)).await;
                    say(&world, node, back).await;
                }
            }
        }
    }
}

async fn has_aof(world: &World, node: usize) -> bool {
    let asked = ask(&world.slots[node].socket(), &["CONFIG", "GET", "appendonly"], PATIENCE / 60).await;
    asked.is_ok_and(|told: HashMap<String, String>| told.get("appendonly").is_some_and(|on| on == "yes"))
}

/// Sends a command to a node. A node that is down or stopped does not receive it.
pub async fn say(world: &World, node: usize, words: &[&str]) {
    let _ = ask::<Value>(&world.slots[node].socket(), words, PATIENCE / 10).await;
}

/// Steps wall clocks: in the first half by at most `lock.max-clock-skew`, later by hours.
pub async fn clocks(world: Arc<World>, mut dice: Dice) {
    let skew_s = (world.settings.skew_ms / 1_000) as i64;
    while world.storms() {
        pause(&world, dice.ms(500, 4_000)).await;
        let wild = world.wild_clocks.load(std::sync::atomic::Ordering::Relaxed);
        let seconds = match (wild, dice.below(4)) {
            (_, 0) => 0,
            (false, _) => dice.one_of(&[0, skew_s]),
            (true, 1) => dice.one_of(&[-1, 1]) * dice.below(20) as i64,
            (true, _) => dice.one_of(&[-1, 1]) * dice.ms(1_000, 5 * 3_600_000).as_secs() as i64,
        };
        // Servers of a cluster decide by their wall clocks which master is dead, so only the clocks of clients are
        // stepped there.
        let (on, clock, _steady) = if world.cluster.is_some() || dice.once_in(4) {
            let Ok(client) = world.clients()[dice.below(CLIENTS)].try_lock() else { continue };
            (client.on, client.clock.clone(), None)
        } else {
            let node = dice.below(world.slots.len());
            let Ok(steady) = world.slots[node].steady.try_lock() else { continue };
            (On::Node(node), world.slots[node].clock(), Some(steady))
        };
        clock.set(seconds);
        world.log.moment("wall clock stepped", on, format!("to {seconds:+} s"));
        sleep(dice.ms(1, 100)).await;
    }
}
