//! The nemesis: injects the faults of a campaign. Several tasks, called hands, work at once and independently, so
//! faults overlap in all ways. The seed determines the choices of each.
//!
//! The nemesis injects none of the faults that the promises exclude: see docs/chaos.md.

mod alone;
mod copies;
mod crowd;
mod data;
mod dice;
mod fail_overs;
mod flushes;
mod hostile;
mod network;
mod operators;
mod resharding;
mod servers;
mod slots;
mod state_files;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::task::JoinSet;

use self::copies::Copy;
use self::dice::Dice;
use self::state_files::Between;
use super::cluster::shards;
use super::kinds::Kind;
use super::world::World;

pub use flushes::flush_other;

/// Injects faults until the storm (the period of faults) is over. Returns when the last fault is healed. `era` is the
/// number of the storm.
pub async fn storm(world: &Arc<World>, era: u64) {
    let mut hands = JoinSet::new();
    if world.settings.brief {
        brief(world, &mut hands);
    } else {
        all(world, era, &mut hands);
    }
    hands.join_all().await;
    world.heal_links();
    // The server measures a pause by its wall clock. If that clock was set back during the pause, the pause would last
    // for hours.
    join_all((0..world.slots.len()).map(|node| operators::say(world, node, &["CLIENT", "UNPAUSE"]))).await;
    if world.cluster.is_some() {
        shards::settle(world).await;
    }
}

/// Starts the hands (tasks that inject faults) of a brief campaign on a cluster, under load: a master dies and its
/// replica takes over, and slots move one by one.
fn brief(world: &Arc<World>, hands: &mut JoinSet<()>) {
    let dice = |hand| Dice::of(world.settings.seed, hand);
    hands.spawn(network::links(Arc::clone(world), dice(1)));
    hands.spawn(crowd::processes(Arc::clone(world), dice(2), crowd::CLIENTS));
    hands.spawn(fail_overs::shards(Arc::clone(world), dice(3)));
    hands.spawn(resharding::slots(Arc::clone(world), dice(4)));
}

/// Starts all hands (the tasks that inject faults) that the settings ask for.
fn all(world: &Arc<World>, era: u64, hands: &mut JoinSet<()>) {
    let mut number = era * 100;
    let mut dice = || {
        number += 1;
        Dice::of(world.settings.seed, number)
    };
    for _ in 0..2 {
        hands.spawn(servers::one_by_one(Arc::clone(world), dice()));
        hands.spawn(network::links(Arc::clone(world), dice()));
        hands.spawn(crowd::processes(Arc::clone(world), dice(), crowd::CLIENTS));
    }
    match world.cluster {
        Some(_) => {
            hands.spawn(fail_overs::shards(Arc::clone(world), dice()));
            hands.spawn(resharding::slots(Arc::clone(world), dice()));
        }
        None => {
            hands.spawn(crowd::processes(Arc::clone(world), dice(), crowd::AGENTS));
            hands.spawn(servers::all_at_once(Arc::clone(world), dice()));
            hands.spawn(data::servers(Arc::clone(world), dice()));
            hands.spawn(data::postgresql(Arc::clone(world), dice()));
        }
    }
    hands.spawn(operators::commands(Arc::clone(world), dice()));
    hands.spawn(operators::clocks(Arc::clone(world), dice()));
    // The choices of a hand do not depend on which other hands run.
    let mut of = |kind| {
        let dice = dice();
        world.does(kind).then_some((Arc::clone(world), dice))
    };
    if let Some((world, mut dice)) = of(Kind::CopiedFolders) {
        hands.spawn(alone::change_nodes::<Copy>(Arc::clone(&world), dice.other()));
        hands.spawn(alone::change_others::<Copy>(world, dice));
    }
    if let Some((world, mut dice)) = of(Kind::OtherStateFile) {
        hands.spawn(alone::change_nodes::<Between>(Arc::clone(&world), dice.other()));
        hands.spawn(alone::change_others::<Between>(world, dice));
    }
    if let Some((world, dice)) = of(Kind::HostileFence) {
        hands.spawn(hostile::fences(world, dice));
    }
    if let Some((world, dice)) = of(Kind::ClockBeyond2112) {
        hands.spawn(hostile::clocks_beyond_2112(world, dice));
    }
    if let Some((world, dice)) = of(Kind::FlushOneDatabase) {
        hands.spawn(flushes::of_another_database(world, dice));
    }
    if let Some((world, dice)) = of(Kind::LiftAndCrash) {
        hands.spawn(flushes::lifted_and_killed(world, dice));
    }
    if let Some((world, dice)) = of(Kind::SlotsGivenAway) {
        hands.spawn(slots::given_away(world, dice));
    }
}
