//! What goes wrong in a campaign. Several hands work at once, each on its own, so faults overlap in every way; what each does
//! next comes from the seed.
//!
//! What the contract excepts is not done: see docs/chaos.md.

mod crowd;
mod network;
mod operators;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::world::World;

pub use servers::start as restart;

/// The choices of one hand.
struct Dice(ChaCha8Rng);

impl Dice {
    fn of(seed: u64, hand: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(hand);
        Self(dice)
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
    hands.spawn(servers::all_at_once(Arc::clone(world), dice()));
    hands.spawn(operators::commands(Arc::clone(world), dice()));
    hands.spawn(operators::clocks(Arc::clone(world), dice()));
    hands.join_all().await;
    world.heal_links();
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
