//! Faults of server processes and their disks.

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::time::sleep;

use super::dice::{Dice, pause};
use super::operators;
use crate::campaign::faults::On;
use crate::campaign::journal::wall_us;
use crate::campaign::judge::LAG;
use crate::campaign::link::{Link, Mode};
use crate::campaign::machine::{Durability, Machine};
use crate::campaign::patience::{PATIENCE, comes_true};
use crate::campaign::world::{NODES, World};

/// The time for a server to end by itself. Afterwards it is killed.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// A line in a replica's INFO: its master has not told it the longest lease, so the replica assumes a day.
const UNINFORMED: &str = "lock_outstanding_ttl_ms:86400000\r\n";

/// The longest wait, after the loss of a disk, until a new node's first token is above all issued tokens.
const TOKENS_OVERTAKEN: Duration = Duration::from_secs(15);

/// The content of the disk on which a killed server restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    All,
    /// The state file is left, the data is lost.
    State,
    /// The data is left, the state file is lost.
    Data,
    /// Nothing is left: the disk is a new one.
    Nothing,
}

/// Injects faults on one server at a time. If another task acts on the drawn server, draws again.
pub async fn one_by_one(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(100, 2_000)).await;
        let node = dice.below(world.slots.len());
        let Some(mut machine) = world.take_machine(node).await else { continue };
        match dice.below(20) {
            0..7 => killed(&world, node, &mut machine, &mut dice, Left::All).await,
            7 | 8 => killed(&world, node, &mut machine, &mut dice, Left::State).await,
            9 => killed(&world, node, &mut machine, &mut dice, Left::Data).await,
            10 => killed(&world, node, &mut machine, &mut dice, Left::Nothing).await,
            11..13 => shut_down(&world, node, &mut machine, &mut dice).await,
            13..17 => stopped(&world, node, &mut machine, &mut dice).await,
            17 | 18 => disk_full(&world, node, &mut machine, &mut dice).await,
            // In a cluster, another task fails servers over.
            _ if world.cluster.is_some() => {}
            _ => failed_over(&world, node, &mut machine, &mut dice).await,
        }
        drop(machine);
        // Usually a majority should serve, so the next fault waits until the guard of this node is over.
        if !dice.once_in(3) {
            let guard = Duration::from_millis(world.settings.max_ttl_ms + world.settings.skew_ms);
            pause(&world, guard).await;
        }
    }
}

/// A fault of all nodes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToAll {
    Killed,
    FailedOver,
    KilledDataLost,
    Emptied,
}

/// Injects faults on all nodes at once. A grant that one node forgets may be known to other nodes, but a grant that all
/// forget is lost.
pub async fn all_at_once(world: Arc<World>, mut dice: Dice) {
    // The kinds take turns, so that each occurs even in a short storm.
    let kinds = [ToAll::Killed, ToAll::FailedOver, ToAll::KilledDataLost, ToAll::FailedOver, ToAll::Emptied];
    for turn in dice.below(kinds.len()).. {
        pause(&world, dice.ms(3_000, 9_000)).await;
        if !world.storms() {
            return;
        }
        let kind = kinds[turn % kinds.len()];
        if kind == ToAll::Emptied {
            let fault = world.log.begin("all nodes: FLUSHALL", On::AllNodes, "");
            join_all((0..NODES).map(|node| operators::say(&world, node, &["FLUSHALL"]))).await;
            drop(fault);
            continue;
        }
        let mut machines = vec![];
        for slot in &world.slots {
            machines.push(slot.machine.lock().await);
        }
        if kind == ToAll::FailedOver {
            let fault = world.log.begin("all nodes: failed over to replicas", On::AllNodes, "");
            let how = FailOver::draw(&mut dice);
            let each = machines.iter_mut().enumerate();
            join_all(each.map(|(node, machine)| how.run(&world, node, machine))).await;
            drop(fault);
            continue;
        }
        let (name, left) = match kind {
            ToAll::KilledDataLost => ("all nodes: killed (-9), data lost", Left::State),
            _ => ("all nodes: killed (-9)", Left::All),
        };
        let _fault = world.log.begin(name, On::AllNodes, "");
        machines.iter().for_each(|machine| machine.signal(Signal::KILL));
        for machine in &mut machines {
            machine.kill().await;
            lose(machine, left);
        }
        sleep(dice.ms(1, 800)).await;
        let started = machines.iter_mut().enumerate().map(|(node, machine)| world.start(node, machine));
        join_all(started).await;
    }
}

async fn killed(world: &World, node: usize, machine: &mut Machine, dice: &mut Dice, left: Left) {
    let forgets_tokens = matches!(left, Left::Data | Left::Nothing);
    let left = if forgets_tokens && world.is_wild() { Left::State } else { left };
    let kind = match left {
        Left::All => "killed (-9)",
        Left::State => "killed (-9), data lost",
        Left::Data => "killed (-9), state file lost",
        Left::Nothing => "killed (-9), disk lost",
    };
    let _fault = world.log.begin(kind, On::Node(node), machine.durability.name());
    if dice.once_in(4) {
        machine.signal(Signal::STOP);
        sleep(dice.ms(10, 500)).await;
    }
    machine.kill().await;
    lose(machine, left);
    sleep(dice.ms(1, 1_500)).await;
    if forgets_tokens && left != Left::State && !world.settings.lose_disks_at_any_time {
        overtaken(world, machine).await;
    }
    if dice.once_in(6) {
        machine.durability = dice.one_of(&Durability::ALL);
    }
    world.start(node, machine).await;
}

/// Waits until the first token of a new node would be above all issued tokens. A new node knows none of them, and
/// starts at its clock plus the greatest skew.
async fn overtaken(world: &World, machine: &Machine) {
    // The record of tokens may not have the grants just before the kill yet.
    sleep(2 * LAG).await;
    let floor = || wall_us() + world.settings.skew_ms * 1_000;
    let _ = comes_true!(TOKENS_OVERTAKEN, world.highest_token.load(Ordering::Relaxed) <= floor());
    // A new machine's clock is correct.
    machine.clock.set(0);
}

fn lose(machine: &Machine, left: Left) {
    let is_state = |name: &str| name.starts_with("lock-node-");
    // This file has the server's identity in its cluster. Without it, the server would be another one.
    let is_identity = |name: &str| name == "nodes.conf";
    let entries = fs::read_dir(machine.dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let state = is_state(&name);
        let goes = match left {
            Left::All => false,
            Left::State => !state,
            Left::Data => state,
            Left::Nothing => true,
        };
        if goes && !is_identity(&name) {
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
    }
}

async fn shut_down(world: &World, node: usize, machine: &mut Machine, dice: &mut Dice) {
    let _fault = world.log.begin("shut down", On::Node(node), machine.durability.name());
    end_clean(machine, dice).await;
    sleep(dice.ms(1, 1_000)).await;
    if dice.once_in(6) {
        machine.durability = dice.one_of(&Durability::ALL);
    }
    world.start(node, machine).await;
}

/// Makes a server end by itself, in one of several ways.
pub async fn end_clean(machine: &mut Machine, dice: &mut Dice) {
    match dice.one_of(&["", "SAVE", "NOSAVE"]) {
        "" => machine.signal(Signal::TERM),
        save => drop(machine.ask::<redis::Value>(&["SHUTDOWN", save]).await),
    }
    if !machine.wait_ended(SHUTDOWN).await {
        machine.kill().await;
    }
}

async fn stopped(world: &World, node: usize, machine: &mut Machine, dice: &mut Dice) {
    let time = dice.ms(30, 5_000);
    let _fault = world.log.begin("stopped", On::Node(node), format!("{} ms", time.as_millis()));
    machine.signal(Signal::STOP);
    sleep(time).await;
    machine.signal(Signal::CONT);
}

/// Fills the disk for a while. A server that cannot write its AOF ends by itself, as Redis does with `appendfsync
/// always`. Only here is such an end not a finding.
async fn disk_full(world: &World, node: usize, machine: &mut Machine, dice: &mut Dice) {
    let disk = &world.slots[node].disk;
    if !disk.can_be_full() {
        return;
    }
    let _fault = world.log.begin("disk full", On::Node(node), machine.durability.name());
    disk.fill();
    pause(world, dice.ms(300, 7_000)).await;
    if dice.once_in(3) {
        world.log.moment("killed (-9)", On::Node(node), "while its disk was full");
        machine.kill().await;
    }
    disk.empty();
    if machine.ended().is_some() {
        world.start(node, machine).await;
    }
}

async fn failed_over(world: &World, node: usize, machine: &mut Machine, dice: &mut Dice) {
    let _fault = world.log.begin("failed over to a replica", On::Node(node), machine.durability.name());
    FailOver::draw(dice).run(world, node, machine).await;
}

/// A failover: a replica replaces its master. The master is dead by then, as operators must ensure before a promotion.
#[derive(Clone, Copy, Debug)]
struct FailOver {
    /// The time for which the replica keeps up with its master.
    follows: Duration,
    /// The time for which no data reaches the replica, so that it does not learn of the grants in that time.
    lags: Duration,
    /// The time without a master.
    down: Duration,
}

impl FailOver {
    fn draw(dice: &mut Dice) -> Self {
        // The replica's own start arms a guard, which would still run at the promotion if this time were shorter.
        // Usually it is longer.
        Self { follows: dice.ms(1_000, 7_000), lags: dice.ms(50, 800), down: dice.ms(1, 100) }
    }

    async fn run(self, world: &World, node: usize, machine: &mut Machine) {
        let Ok(mut replica) = world.new_machine(node, machine.durability) else { return };
        let Ok(link) = Link::to(Arc::new(Mutex::new(machine.socket()))).await else { return };
        if let Err(why) = replica.start(&world.common, Some(link.port())).await {
            world.log.found(format!("node {}, a replica: {why}", node + 1));
            return;
        }
        // A replica that is promoted before its master has told it the longest lease is guarded for a day.
        let is_informed = comes_true!(PATIENCE / 4, {
            let info = replica.ask::<String>(&["INFO", "everything"]).await.unwrap_or_default();
            info.contains("master_link_status:up") && !info.contains(UNINFORMED)
        });
        if is_informed {
            sleep(self.follows).await;
            link.set(Mode::Swallow);
            sleep(self.lags).await;
            machine.kill().await;
            sleep(self.down).await;
            if let Err(why) = replica.ask::<String>(&["REPLICAOF", "NO", "ONE"]).await {
                world.log.found(format!("node {}: a replica cannot be promoted: {why}", node + 1));
            }
            world.slots[node].reach(&replica);
            std::mem::swap(machine, &mut replica);
        }
        // The server that was replaced is killed, and its disk removed.
        replica.kill().await;
        let _ = fs::remove_dir_all(replica.dir());
    }
}
