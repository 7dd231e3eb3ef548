//! Moves slots between the shards of a cluster while locks in them are held and waited for: key by key, or in one step
//! if the server supports that.
//!
//! No other fault happens to the servers of the two shards during a move: losing a server halfway, or deleting its
//! keys, takes locks away. Clients and links still fail. A move that has begun is always completed.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};

use super::dice::{Dice, pause};
use crate::campaign::cluster::shards::{roles, say};
use crate::campaign::cluster::{Cluster, SHARDS};
use crate::campaign::faults::On;
use crate::campaign::gated::trials::Over;
use crate::campaign::journal::now_us;
use crate::campaign::patience::{LOOK, PATIENCE, comes_true};
use crate::campaign::process::key_name;
use crate::campaign::resource::GATES;
use crate::campaign::world::{CLIENTS, CONTENDED_KEYS, World};

/// The longest time for one MIGRATE, in milliseconds.
const MIGRATE_MS: &str = "1000";

/// Moves one slot after another. About every second one moves back at once. The storm (the period of faults) does not
/// end before one slot has moved key by key and one has come back at once.
pub async fn slots(world: Arc<World>, mut dice: Dice) {
    let Some(cluster) = &world.cluster else { return };
    let (mut in_one_step, mut moved, mut returned) = (true, false, false);
    while world.storms() || !moved || !returned {
        pause(&world, dice.ms(200, 2_000)).await;
        sleep(LOOK).await;
        // At least half of the moves take a gate along.
        let keys = if dice.once_in(2) { GATES as usize } else { CONTENDED_KEYS as usize + CLIENTS };
        let key = key_name(dice.below(keys) as u32);
        let Ok(slot) = say::<u16>(&world, dice.below(world.slots.len()), &["CLUSTER", "KEYSLOT", &key]).await else {
            continue;
        };
        let from = cluster.shard_of(slot);
        let to = (from + 1 + dice.below(SHARDS - 1)) % SHARDS;
        let shards = [from, to, from + SHARDS, to + SHARDS].map(|node| world.slots[node].machine.try_lock());
        if shards.iter().any(Result::is_err) {
            continue;
        }
        let there = Move { world: &world, cluster, key, slot, from, to };
        let back = Move { from: to, to: from, key: there.key.clone(), ..there };
        let is_in_one_step = in_one_step && dice.once_in(2);
        let (open, returns) = (dice.ms(1, 500), dice.once_in(2) || !world.storms());
        for moving in [there, back].into_iter().take(if returns { 2 } else { 1 }) {
            let began = now_us();
            let is_back = moving.to == from;
            let _back = is_back.then(|| world.log.begin("slot back at once", On::Others, format!("slot {slot}")));
            if !is_in_one_step {
                if !moving.key_by_key(open).await {
                    // `key_by_key` has reported a finding.
                    return;
                }
                moved = true;
            } else {
                match moving.in_one_step().await {
                    Some(true) => {}
                    Some(false) => break,
                    None => {
                        in_one_step = false;
                        break;
                    }
                }
            }
            cluster.moved(slot, moving.to);
            let there = world.data.resources.iter().filter(|resource| resource.key == moving.key);
            world.data.trials.record(Over::SlotMove, there.map(|resource| resource.number), began);
            returned |= is_back;
        }
    }
}

struct Move<'a> {
    world: &'a World,
    cluster: &'a Cluster,
    /// A key that belongs to the slot.
    key: String,
    slot: u16,
    from: usize,
    to: usize,
}

impl Move<'_> {
    /// Moves the slot in one step. Returns true if it moved; `None` if this server does not support that.
    async fn in_one_step(&self) -> Option<bool> {
        let (source, target) = self.masters().await.unwrap_or_default();
        if source == target {
            return Some(false);
        }
        let slot = self.slot.to_string();
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", self.cluster.id(target)];
        match say::<Value>(self.world, source, &words).await {
            Err(why) if why.to_lowercase().contains("unknown subcommand") => return None,
            Err(_) => return Some(false),
            Ok(_) => {}
        }
        let fault = self.world.log.begin("slot moved in one step", On::Node(source), format!("slot {slot}"));
        let begun = Instant::now();
        let moved = loop {
            if self.is_served(target).await {
                break true;
            }
            // If one of the two servers gave up, the slot stays where it was.
            let jobs = say::<Value>(self.world, source, &["CLUSTER", "GETSLOTMIGRATIONS"]).await;
            let is_over = jobs.is_ok_and(|jobs| {
                let text = format!("{jobs:?}");
                text.contains("failed") || text.contains("cancelled")
            });
            if is_over
                && !self.is_served(target).await
                && self.is_served(source).await
                && begun.elapsed() > PATIENCE / 10
            {
                break false;
            }
            if begun.elapsed() > PATIENCE {
                self.world.log.found(format!("slot {slot} does not move in one step, and nothing tells why"));
                break false;
            }
            sleep(LOOK).await;
        };
        drop(fault);
        Some(moved)
    }

    /// Moves the slot key by key. Returns true if it moved. The slot stays open (migrating and importing) for `open`
    /// before its keys move.
    async fn key_by_key(&self, open: Duration) -> bool {
        let _fault = self.world.log.begin("slot moved key by key", On::Others, format!("slot {}", self.slot));
        let (mut last, mut opened) = (String::new(), false);
        let moved = comes_true!(PATIENCE, self.step(&mut opened, open).await.map_err(|why| last = why) == Ok(true));
        if !moved {
            self.world.log.found(format!("slot {} does not move, key by key: {last}", self.slot));
        }
        moved
    }

    /// Takes all steps that are possible now. Returns true if the move is complete.
    async fn step(&self, opened: &mut bool, open: Duration) -> Result<bool, String> {
        let (source, target) = self.masters().await.ok_or("a shard has no master")?;
        let slot = self.slot.to_string();
        let (source_id, target_id) = (self.cluster.id(source), self.cluster.id(target));
        if !self.is_served(target).await {
            say::<()>(self.world, target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", source_id]).await?;
            say::<()>(self.world, source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", target_id]).await?;
            if !std::mem::replace(opened, true) {
                sleep(open).await;
            }
            let keys: Vec<String> = say(self.world, source, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await?;
            let port = self.world.slots[target].port().to_string();
            for key in keys {
                say::<Value>(self.world, source, &["MIGRATE", "127.0.0.1", &port, &key, "0", MIGRATE_MS]).await?;
            }
            if say::<u64>(self.world, source, &["CLUSTER", "COUNTKEYSINSLOT", &slot]).await? > 0 {
                return Ok(false);
            }
            say::<()>(self.world, target, &["CLUSTER", "SETSLOT", &slot, "NODE", target_id]).await?;
        }
        // Nodes that this command does not reach learn of the move from the others.
        for node in [source].into_iter().chain(0..self.world.slots.len()) {
            let _ = say::<()>(self.world, node, &["CLUSTER", "SETSLOT", &slot, "NODE", target_id]).await;
        }
        Ok(true)
    }

    async fn masters(&self) -> Option<(usize, usize)> {
        Some((roles(self.world, self.from).await?.0, roles(self.world, self.to).await?.0))
    }

    /// Returns true if this master serves the slot without a redirection.
    async fn is_served(&self, node: usize) -> bool {
        say::<u64>(self.world, node, &["EXISTS", &self.key]).await.is_ok()
    }
}
