//! What goes wrong in a campaign. Several hands work at once, each on its own, so faults overlap in every way; what each does
//! next comes from the seed.
//!
//! What the contract excepts is not done: see docs/chaos.md.

mod alone;
mod copies;
mod crowd;
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
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::cluster;
use super::kinds::Kind;
use super::world::World;

pub use flushes::flush_other;
pub use servers::start as restart;

/// The choices of one hand.
struct Dice(ChaCha8Rng);

impl Dice {
    fn of(seed: u64, hand: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(hand);
        Self(dice)
    }

    /// For a hand beside this one.
    fn other(&mut self) -> Self {
        Self(ChaCha8Rng::seed_from_u64(self.0.random()))
    }

    /// A time in milliseconds; short ones are as likely as long ones, by order of magnitude.
    fn ms(&mut self, from: u64, to: u64) -> Duration {
        let (from, to) = ((from as f64).ln(), (to as f64).ln());
        Duration::from_secs_f64(self.0.random_range(from..=to).exp() / 1_000.0)
    }

    fn once_in(&mut self, times: u32) -> bool {
        self.0.random_ratio(1, times)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Does faults until the storm is over, and returns when the last is healed. `era` tells this storm from others.
pub async fn storm(world: &Arc<World>, era: u64) {
    let mut hands = JoinSet::new();
    if world.settings.brief {
        brief(world, &mut hands);
    } else {
        all(world, era, &mut hands);
    }
    hands.join_all().await;
    world.heal_links();
    // A pause is timed by the wall clock: where that was set back meanwhile it would last for hours.
    join_all((0..world.slots.len()).map(|node| operators::say(world, node, &["CLIENT", "UNPAUSE"]))).await;
    if world.cluster.is_some() {
        cluster::settle(world).await;
    }
}

/// What a cluster alone does, under load: a master dies and its replica takes over, and slots move, one by one.
fn brief(world: &Arc<World>, hands: &mut JoinSet<()>) {
    let dice = |hand| Dice::of(world.settings.seed, hand);
    hands.spawn(network::links(Arc::clone(world), dice(1)));
    hands.spawn(crowd::processes(Arc::clone(world), dice(2)));
    hands.spawn(fail_overs::shards(Arc::clone(world), dice(3)));
    hands.spawn(resharding::slots(Arc::clone(world), dice(4)));
}

/// All hands that a campaign is asked for.
fn all(world: &Arc<World>, era: u64, hands: &mut JoinSet<()>) {
    let mut number = era * 100;
    let mut dice = || {
        number += 1;
        Dice::of(world.settings.seed, number)
    };
    for _ in 0..2 {
        hands.spawn(servers::one_by_one(Arc::clone(world), dice()));
        hands.spawn(network::links(Arc::clone(world), dice()));
        hands.spawn(crowd::processes(Arc::clone(world), dice()));
    }
    match world.cluster {
        Some(_) => {
            hands.spawn(fail_overs::shards(Arc::clone(world), dice()));
            hands.spawn(resharding::slots(Arc::clone(world), dice()));
        }
        None => {
            hands.spawn(crowd::agents(Arc::clone(world), dice()));
            hands.spawn(servers::all_at_once(Arc::clone(world), dice()));
        }
    }
    hands.spawn(operators::commands(Arc::clone(world), dice()));
    hands.spawn(operators::clocks(Arc::clone(world), dice()));
    // Each hand has its own choices, whichever of the others take part.
    let mut of = |kind| {
        let dice = dice();
        world.does(kind).then_some((Arc::clone(world), dice))
    };
    if let Some((world, mut dice)) = of(Kind::CopiedFolders) {
        hands.spawn(copies::put_back(Arc::clone(&world), dice.other()));
        hands.spawn(copies::put_back_alone(world, dice));
    }
    if let Some((world, mut dice)) = of(Kind::OtherStateFile) {
        hands.spawn(state_files::exchanged(Arc::clone(&world), dice.other()));
        hands.spawn(state_files::exchanged_alone(world, dice));
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

/// Waits for about so long, or until the storm is over.
async fn pause(world: &World, pause: Duration) {
    let mut left = pause;
    const STEP: Duration = Duration::from_millis(50);
    while world.storms() && !left.is_zero() {
        sleep(left.min(STEP)).await;
        left = left.saturating_sub(STEP);
    }
}
