//! Faults between clients and nodes.

use std::sync::Arc;
use std::time::Duration;

use super::dice::{Dice, pause};
use crate::campaign::faults::On;
use crate::campaign::link::{Link, Mode};
use crate::campaign::world::World;

/// Breaks some links at a time: one link, all links of a node, or all links of a client.
pub async fn links(world: Arc<World>, mut dice: Dice) {
    while world.storms() {
        pause(&world, dice.ms(100, 2_000)).await;
        let (client, node) = (dice.below(world.links.len()), dice.below(world.slots.len()));
        let (on, links): (On, Vec<&Link>) = match dice.below(5) {
            // All clients of a cluster share one link to each node.
            0 | 1 if world.cluster.is_none() => (On::Link { client, node }, vec![&world.links[client][node]]),
            0..=3 => (On::Node(node), world.links.iter().map(|row| &row[node]).collect()),
            _ if world.cluster.is_some() => (On::AllNodes, world.links[client].iter().collect()),
            _ => (On::Client(client), world.links[client].iter().collect()),
        };
        if dice.once_in(3) {
            let delay = dice.ms(1, 300);
            let fault = world.log.begin("delay", on, format!("{} ms each way", delay.as_millis()));
            links.iter().for_each(|link| link.delay(delay));
            pause(&world, dice.ms(200, 4_000)).await;
            links.iter().for_each(|link| link.delay(Duration::ZERO));
            drop(fault);
        } else {
            let mode = dice.one_of(&Mode::FAULTS);
            let _fault = world.log.begin(mode.name(), on, "");
            links.iter().for_each(|link| link.set(mode));
            let longest = if mode == Mode::Reset { 50 } else { 4_000 };
            pause(&world, dice.ms(20, longest)).await;
            links.iter().for_each(|link| link.set(Mode::Pass));
        }
    }
}
