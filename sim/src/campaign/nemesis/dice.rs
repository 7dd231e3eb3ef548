//! The random choices and pauses of one task of the nemesis. Such a task is called a hand.

use std::time::Duration;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::campaign::world::World;

/// The random choices of one hand (a task of the nemesis).
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Returns the choices of the hand with this number, for this seed.
    pub fn of(seed: u64, hand: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(hand);
        Self(dice)
    }

    /// Returns random choices for another hand (task), derived from these.
    pub fn other(&mut self) -> Self {
        Self(ChaCha8Rng::seed_from_u64(self.0.random()))
    }

    /// Draws a time in milliseconds, with a logarithmic distribution.
    pub fn ms(&mut self, from: u64, to: u64) -> Duration {
        let (from, to) = ((from as f64).ln(), (to as f64).ln());
        Duration::from_secs_f64(self.0.random_range(from..=to).exp() / 1_000.0)
    }

    /// Returns true with a probability of one in `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.0.random_ratio(1, times)
    }

    /// Draws a number below the bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    /// Draws one of `choices`.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Waits for about `pause`, or until the storm (the period of faults) is over.
pub async fn pause(world: &World, pause: Duration) {
    let mut left = pause;
    const STEP: Duration = Duration::from_millis(50);
    while world.storms() && !left.is_zero() {
        sleep(left.min(STEP)).await;
        left = left.saturating_sub(STEP);
    }
}
