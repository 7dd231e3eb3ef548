//! A master of a cluster dies while locks are held in its slots, and the slots are given to another: by SETSLOT, as by
//! hand, or by DELSLOTS and ADDSLOTS, as `redis-cli --cluster fix` does it. There is no replica, so the new owner knows
//! nothing of these locks.
//!
//! Three servers of their own, which nothing else happens to. The clock of the one that dies is ahead by the greatest skew.

use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::dice::{Dice, pause};
use crate::campaign::exam::{Exam, Second, starts_above};
use crate::campaign::faults::On;
use crate::campaign::machine::{Durability, Machine, PATIENCE, free_port};
use crate::campaign::world::World;

/// The slots of each.
const RANGES: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// The first slot that is not of the master that dies.
const DIES_BELOW: u64 = 5_461;

/// Keys that are looked at.
const KEYS: usize = 4;

/// A node without a memory starts so far above its clock and twice the skew, and a little less.
const AHEAD_MS: u64 = 500;

/// How often it is tried to make a cluster.
const TRIES: usize = 3;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// A cluster after the other.
pub async fn given_away(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(50, 1_000)).await;
        let fault = world.log.begin("slots of a dead master given away", On::Others, "");
        if let Err(why) = give_away(&world, &mut dice).await {
            world.log.found(format!("cluster: {why}"));
        }
        world.log.end(fault);
        pause(&world, dice.ms(2_000, 10_000)).await;
    }
}

/// A server of the cluster.
struct Member {
    machine: Machine,
    id: String,
}

impl Member {
    async fn say<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, String> {
        self.machine.ask(words).await.map_err(|why| format!("{}: {}: {why}", self.machine.name(), words.join(" ")))
    }
}

async fn give_away(world: &World, dice: &mut Dice) -> Result<(), String> {
    let folder = tempfile::Builder::new().prefix("palisade-chaos-cluster-").tempdir().map_err(|why| why.to_string())?;
    let begun = Instant::now();
    // Where a port was taken meanwhile, others are taken.
    let mut formed = form(world, dice, &folder).await;
    for _ in 1..TRIES {
        if formed.is_err() {
            formed = form(world, dice, &folder).await;
        }
    }
    let mut members = formed?;
    // Its tokens begin ahead of its clock, which is ahead: until another that starts anew would start above them.
    sleep(Duration::from_millis(world.settings.skew_ms + AHEAD_MS).saturating_sub(begun.elapsed())).await;
    let mut exams = vec![];
    for n in 0.. {
        let key = format!("slots:{n}");
        let slot: u64 = members[0].say(&["CLUSTER", "KEYSLOT", &key]).await?;
        if slot >= DIES_BELOW {
            continue;
        }
        let socket = members[0].machine.socket();
        let mut exam = loop {
            match Exam::take("", &socket, &key, world.settings.max_ttl_ms).await {
                Some(exam) => break exam,
                None if begun.elapsed() < PATIENCE => sleep(LOOK).await,
                None => return Err(format!("a new master grants nothing for {PATIENCE:?}")),
            }
        };
        // Of one that was given back the token counts.
        if dice.once_in(3) {
            exam.release(&socket).await;
        }
        let tokens = starts_above(world, exam.token);
        exams.push((slot.to_string(), exam, tokens));
        if exams.len() == KEYS {
            break;
        }
    }
    members[0].machine.kill().await;
    let target = 1 + dice.below(2);
    let how = dice.one_of(&["SETSLOT", "ADDSLOTS"]);
    for (slot, ..) in &exams {
        for member in &members[1..] {
            if how == "SETSLOT" {
                member.say::<()>(&["CLUSTER", "SETSLOT", slot, "NODE", &members[target].id]).await?;
            } else {
                member.say::<()>(&["CLUSTER", "DELSLOTS", slot]).await?;
            }
        }
        if how == "ADDSLOTS" {
            members[target].say::<()>(&["CLUSTER", "ADDSLOTS", slot]).await?;
        }
    }
    if how == "ADDSLOTS" {
        members[target].say::<String>(&["CLUSTER", "BUMPEPOCH"]).await?;
    }
    let after = format!("the new owner of a dead master's slots, by {how}");
    for (slot, exam, tokens) in &exams {
        let socket = members[target].machine.socket();
        if exam.examine(world, &socket, PATIENCE, *tokens, &after).await == Second::None {
            return Err(format!("{after}, grants nothing in slot {slot} for {PATIENCE:?}"));
        }
    }
    for member in &mut members {
        member.machine.kill().await;
    }
    Ok(())
}

/// Three masters that know each other and serve.
async fn form(world: &World, dice: &mut Dice, folder: &TempDir) -> Result<Vec<Member>, String> {
    let mut members: Vec<Member> = vec![];
    let number = dice.below(1_000_000);
    for (n, (first, last)) in RANGES.into_iter().enumerate() {
        let name = format!("cluster-{number}-{}", n + 1);
        let machine =
            Machine::new(&world.common, name, folder.path().join(format!("{number}-{n}")), Durability::AofAlways);
        let mut machine = machine.map_err(|why| why.to_string())?;
        let bus = free_port().map_err(|why| why.to_string())?.to_string();
        let options = ["cluster-enabled yes", "cluster-node-timeout 60000", "cluster-require-full-coverage no"];
        for option in options.into_iter().chain([&*format!("cluster-port {bus}")]) {
            let (name, value) = option.split_once(' ').unwrap_or_default();
            machine.options.extend([format!("--{name}"), value.to_owned()]);
        }
        if n == 0 {
            machine.clock.set((world.settings.skew_ms / 1_000).cast_signed());
        }
        machine.start(&world.common, None).await?;
        let mut member = Member { machine, id: String::new() };
        member.id = member.say(&["CLUSTER", "MYID"]).await?;
        member.say::<()>(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await?;
        if let Some(first) = members.first() {
            first.say::<()>(&["CLUSTER", "MEET", "127.0.0.1", &member.machine.port().to_string(), &bus]).await?;
        }
        members.push(member);
    }
    let expected = ["cluster_state:ok", "cluster_slots_assigned:16384", "cluster_known_nodes:3"];
    let begun = Instant::now();
    for member in &members {
        while !member
            .say::<String>(&["CLUSTER", "INFO"])
            .await
            .is_ok_and(|info| expected.iter().all(|line| info.contains(line)))
        {
            if begun.elapsed() > PATIENCE {
                return Err("it does not come about".to_owned());
            }
            sleep(LOOK).await;
        }
        // It is new.
        member.say::<redis::Value>(&["LOCK.GUARD", "LIFT"]).await?;
    }
    Ok(members)
}
