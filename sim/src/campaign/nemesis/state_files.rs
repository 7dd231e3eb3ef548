//! A server lives for a while with another state file: under another name, on another port, which is another name unless it
//! is set, or with none. Then it has its first one again, which knows nothing of that incarnation.
//!
//! The operator is honest: the incarnation between sits out its guard, if it has one. What it then grants no file of the first
//! incarnation knows, unless it is in the AOF.

use std::sync::Arc;

use tokio::time::sleep;

use super::dice::{Dice, pause};
use super::{alone, servers};
use crate::campaign::exam::{Exam, GUARD, starts_above, starts_above_all};
use crate::campaign::faults::On;
use crate::campaign::machine::{Durability, Machine, free_port};
use crate::campaign::watch;
use crate::campaign::world::{NODES, World};

/// What the incarnation between has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    OtherName,
    OtherPort,
    NoFile,
}

impl Between {
    fn name(self) -> &'static str {
        match self {
            Self::OtherName => "an incarnation with another state file",
            Self::OtherPort => "an incarnation on another port",
            Self::NoFile => "an incarnation without a state file",
        }
    }
}

/// One server at a time.
pub async fn exchanged(world: Arc<World>, mut dice: Dice) {
    // In turn, so that each comes about also in short storms.
    let kinds = [Between::OtherName, Between::NoFile, Between::OtherPort];
    for turn in dice.below(kinds.len()).. {
        pause(&world, dice.ms(300, 2_000)).await;
        if !world.storms() {
            return;
        }
        let node = dice.below(NODES);
        let Ok(mut machine) = world.slots[node].machine.try_lock() else { continue };
        if let Some(status) = machine.ended() {
            watch::ended_by_itself(&world, &machine, status);
            world.start(node, &mut machine).await;
        }
        // A node that finds no state file knows tokens by its clock alone.
        if !starts_above_all(&world) {
            continue;
        }
        let between = kinds[turn % kinds.len()];
        let fault = world.log.begin(between.name(), On::Node(node), machine.durability.name());
        exchange(&world, &format!("node {}", node + 1), &mut machine, &mut dice, between).await;
        world.log.end(fault);
    }
}

/// One server after the other, to which nothing else happens.
pub async fn exchanged_alone(world: Arc<World>, mut dice: Dice) {
    let kinds = [Between::NoFile, Between::OtherPort, Between::OtherName];
    for turn in dice.below(kinds.len()).. {
        if !world.storms() {
            return;
        }
        let between = kinds[turn % kinds.len()];
        let durability = dice.one_of(&Durability::ALL);
        let Some((_folder, mut machine)) = alone::server(&world, &mut dice, durability).await else { return };
        let fault = world.log.begin(between.name(), On::Others, durability.name());
        exchange(&world, machine.name().to_owned().as_str(), &mut machine, &mut dice, between).await;
        world.log.end(fault);
        machine.kill().await;
        pause(&world, dice.ms(50, 2_000)).await;
    }
}

async fn exchange(world: &World, who: &str, machine: &mut Machine, dice: &mut Dice, between: Between) {
    let (key, ttl_ms) = ("exam", world.settings.max_ttl_ms);
    let said =
        |what: &str, machine: &Machine| format!("{who}, {what} {}, {}", between.name(), machine.durability.name());
    let first = Exam::take("", &machine.socket(), key, ttl_ms).await;
    servers::end_clean(machine, dice).await;
    let port = machine.port();
    match between {
        Between::OtherName => machine.state_file = Some("lock-node-other.state"),
        Between::NoFile => machine.state_file = Some(""),
        // Where no port is free it is a clean end like others.
        Between::OtherPort => machine.listen_on(free_port().unwrap_or(port)),
    }
    sleep(dice.ms(1, 200)).await;
    machine.clock.set(0);
    let known = first.as_ref().is_some_and(|first| starts_above(world, first.token));
    world.start_as(who, machine).await;
    if let Some(first) = first {
        let tokens = known && machine.clock.is_right();
        first.examine(world, &machine.socket(), GUARD, tokens, &said("in", machine)).await;
    }
    pause(world, dice.ms(100, 1_500)).await;
    // It grants as soon as it serves: then it is killed.
    let mut second = None;
    while world.storms() && second.is_none() {
        second = Exam::take("", &machine.socket(), key, ttl_ms).await;
        sleep(dice.ms(5, 20)).await;
    }
    machine.kill().await;
    machine.state_file = None;
    machine.listen_on(port);
    sleep(dice.ms(1, 200)).await;
    machine.clock.set(0);
    let known = second.as_ref().is_some_and(|second| starts_above(world, second.token));
    world.start_as(who, machine).await;
    if let Some(second) = second {
        let tokens = known && machine.clock.is_right();
        second.examine(world, &machine.socket(), GUARD, tokens, &said("after", machine)).await;
    }
}
