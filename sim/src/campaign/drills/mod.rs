//! Drills: tests that run one at a time, once every fault is healed. They demand more than the checks under faults,
//! where no one can say which fault cost a holder its lock.
//!
//! The machine is busy even then, and a holder whose nodes do not answer has no promise. So a [`witness`] asks the
//! nodes continuously over its own connections, and a drill fails only for times in which the witness received answers.

mod bursts;
mod flush;
mod lost;
mod outages;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use palisade_client::{Guard, Options};
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::journal::now_us;
use super::kinds::Kind;
use super::world::World;
use witness::Witness;

/// The number of the random stream of the drills. The tasks that inject faults use streams with small numbers.
const STREAM: u64 = 1 << 40;

/// The drills, which run one after the other.
#[derive(Debug)]
pub struct Drills {
    kinds: Vec<Kind>,
    dice: ChaCha8Rng,
    /// The number of drills done.
    turn: usize,
}

impl Drills {
    /// Returns the drills that are part of the campaign.
    pub fn of(world: &World) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(world.settings.seed);
        dice.set_stream(STREAM);
        let kinds = [Kind::FlushOneDatabase, Kind::BurstsAndStalls, Kind::OutagesUnderElect, Kind::ReleaseOfALostLock];
        let mut kinds: Vec<Kind> = kinds.into_iter().filter(|&kind| world.does(kind)).collect();
        kinds.shuffle(&mut dice);
        Self { kinds, dice, turn: 0 }
    }

    /// Runs the next drill.
    pub async fn next(&mut self, world: &Arc<World>) {
        let Some(&kind) = self.kinds.get(self.turn % self.kinds.len().max(1)) else { return };
        self.turn += 1;
        match kind {
            Kind::BurstsAndStalls => bursts::take_hundreds(world, self.dice.random_range(150..300)).await,
            Kind::OutagesUnderElect => outages::under_elect(world).await,
            Kind::ReleaseOfALostLock => lost::release(world).await,
            _ => flush::other_database(world).await,
        }
    }

    /// Runs all drills that have not run yet.
    pub async fn rest(&mut self, world: &Arc<World>) {
        while self.turn < self.kinds.len() {
            self.next(world).await;
        }
    }
}

/// Returns client options whose leases are extended every third of their length.
fn options(world: &World) -> Options {
    Options::new().ttl(Duration::from_millis(world.settings.max_ttl_ms)).auto_extend(true).note("chaos")
}

/// Keeps a lock for `time`. Returns a finding if the lock is lost although its nodes answered.
async fn keep(world: &World, witness: &Witness, guard: Guard, time: Duration) -> Option<String> {
    tokio::select! {
        biased;
        _ = guard.lost() => {
            let now = now_us();
            witness.answered(now - world.settings.max_ttl_ms * 1_000, now).then(|| {
                let key = String::from_utf8_lossy(guard.key()).into_owned();
                format!("{key}, held with token {}, is lost, and its nodes answered", guard.token())
            })
        }
        () = sleep(time) => {
            guard.release().await;
            None
        }
    }
}

/// Reports all locks of a drill that failed as one finding, since they have one cause.
async fn tell(world: &World, drill: &str, all: usize, holders: JoinSet<Option<String>>) {
    let mut wrong: Vec<String> = holders.join_all().await.into_iter().flatten().collect();
    wrong.sort_unstable();
    if let Some(one) = wrong.first() {
        world.log.found(format!("{drill}: {} of {all} locks, for example: {one}", wrong.len()));
    }
}
