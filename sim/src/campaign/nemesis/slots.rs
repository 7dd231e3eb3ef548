//! A master of a cluster dies while locks are held in its slots, and its slots are given to another master. That is
//! done by SETSLOT, as a person does, or by DELSLOTS and ADDSLOTS, as `redis-cli --cluster fix` does. The cluster has
//! no replica, so the new owner does not know these locks.
//!
//! No other fault happens to the three servers of this cluster. The clock of the master that dies is ahead by the
//! greatest skew.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::dice::{Dice, pause};
use crate::campaign::cluster::{RANGES, SHARDS, knows, meet};
use crate::campaign::exam::{Exam, Second, starts_above};
use crate::campaign::faults::On;
use crate::campaign::machine::{Durability, Machine, free_port};
use crate::campaign::patience::{PATIENCE, until};
use crate::campaign::world::World;

/// The number of keys that are checked.
const KEYS: usize = 4;

/// The least time between the start of the cluster and its first grants, in milliseconds, on top of the largest skew.
/// Tokens follow the clock, so a node that starts after the grants begins with tokens above those of the node that dies.
const AHEAD_MS: u64 = 500;

/// The number of attempts to form a cluster.
const TRIES: usize = 3;

/// Forms one cluster after another, and gives away the slots of a dead master in each.
pub async fn given_away(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(50, 1_000)).await;
        let fault = world.log.begin("slots of a dead master given away", On::Others, "");
        if let Err(why) = give_away(&world, &mut dice).await {
            world.log.found(format!("cluster: {why}"));
        }
        drop(fault);
        pause(&world, dice.ms(2_000, 10_000)).await;
    }
}

async fn give_away(world: &World, dice: &mut Dice) -> Result<(), String> {
    let folder = tempfile::Builder::new().prefix("palisade-chaos-cluster-").tempdir().map_err(|why| why.to_string())?;
    let begun = Instant::now();
    // If another process took a port in between, the next attempt uses other ports.
    let mut formed = form(world, dice, &folder).await;
    for _ in 1..TRIES {
        if formed.is_err() {
            formed = form(world, dice, &folder).await;
        }
    }
    let (mut masters, ids) = formed?;
    // The node's tokens begin ahead of its clock, which is itself ahead. The sleep lasts until a new node would start
    // above these tokens.
    sleep(Duration::from_millis(world.settings.skew_ms + AHEAD_MS).saturating_sub(begun.elapsed())).await;
    let mut exams = vec![];
    for n in 0.. {
        let key = format!("slots:{n}");
        let slot: u16 = masters[0].ask(&["CLUSTER", "KEYSLOT", &key]).await?;
        if slot > RANGES[0].1 {
            continue;
        }
        let socket = masters[0].socket();
        let taken = until!(PATIENCE, Exam::take("", &socket, &key, world.settings.max_ttl_ms).await);
        let mut exam = taken.ok_or_else(|| format!("a new master grants nothing for {PATIENCE:?}"))?;
        // Once a lock is released, only the order of tokens remains to be checked.
        if dice.once_in(3) {
            exam.release(&socket).await;
        }
        let tokens = starts_above(world, exam.token);
        exams.push((slot.to_string(), exam, tokens));
        if exams.len() == KEYS {
            break;
        }
    }
    masters[0].kill().await;
    let target = 1 + dice.below(2);
    let how = dice.one_of(&["SETSLOT", "ADDSLOTS"]);
    for (slot, ..) in &exams {
        let words = match how {
            "SETSLOT" => vec!["CLUSTER", "SETSLOT", slot, "NODE", &ids[target]],
            _ => vec!["CLUSTER", "DELSLOTS", slot],
        };
        for master in &masters[1..] {
            master.ask::<()>(&words).await?;
        }
        if how == "ADDSLOTS" {
            masters[target].ask::<()>(&["CLUSTER", "ADDSLOTS", slot]).await?;
        }
    }
    if how == "ADDSLOTS" {
        masters[target].ask::<String>(&["CLUSTER", "BUMPEPOCH"]).await?;
    }
    let after = format!("the new owner of a dead master's slots, by {how}");
    for (slot, exam, tokens) in &exams {
        let socket = masters[target].socket();
        if exam.examine(world, &socket, PATIENCE, *tokens, &after).await == Second::None {
            return Err(format!("{after}, grants nothing in slot {slot} for {PATIENCE:?}"));
        }
    }
    for master in &mut masters {
        master.kill().await;
    }
    Ok(())
}

/// Returns three masters that know each other and serve, with their node ids.
async fn form(world: &World, dice: &mut Dice, folder: &TempDir) -> Result<(Vec<Machine>, Vec<String>), String> {
    let (mut machines, mut ports) = (vec![], vec![]);
    let number = dice.below(1_000_000);
    for n in 0..SHARDS {
        let (name, dir) = (format!("cluster-{number}-{}", n + 1), folder.path().join(format!("{number}-{n}")));
        let machine = Machine::new(&world.common, name, dir, Durability::AofAlways);
        let mut machine = machine.map_err(|why| why.to_string())?;
        let bus = free_port().map_err(|why| why.to_string())?;
        let options =
            ["--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no"];
        machine.options.extend(options.map(str::to_owned));
        machine.options.extend(["--cluster-port".to_owned(), bus.to_string()]);
        if n == 0 {
            machine.clock.set((world.settings.skew_ms / 1_000).cast_signed());
        }
        machine.start(&world.common, None).await?;
        ports.push((machine.port(), bus));
        machines.push(machine);
    }
    let ids = meet(&machines, &ports).await?;
    for machine in &machines {
        let known = until!(PATIENCE, knows(&machine.socket(), SHARDS).await.ok());
        known.ok_or("it does not come about")?;
        // The server is new, so no lock is held on it.
        machine.ask::<redis::Value>(&["LOCK.GUARD", "LIFT"]).await?;
    }
    Ok((machines, ids))
}
