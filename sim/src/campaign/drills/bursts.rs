//! A process takes hundreds of locks, half of them at one moment and the other half at a later moment. No other client
//! wants their keys. The process keeps the locks for some leases. Now and then, a majority of the nodes is stopped for
//! much less than a lease.
//!
//! The process uses the crate's defaults except for the lease and the time to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Witness, keep, options, tell};
use crate::campaign::faults::On;
use crate::campaign::journal::now_us;
use crate::campaign::world::{NODES, World};

/// The time to wait for each lock.
const WAIT: Duration = Duration::from_secs(15);

/// A request may fail within this time before its deadline. An earlier failure is wrong.
const BEFORE: Duration = Duration::from_secs(1);

/// The time for which each lock is kept: at least three leases.
const KEPT: Duration = Duration::from_millis(6_500);

/// The times for which a majority is stopped, in turn.
const STOPPED: [Duration; 4] =
    [Duration::from_millis(150), Duration::from_millis(250), Duration::from_millis(200), Duration::from_millis(220)];

/// The time from the beginning of the first stop to the first request.
const SHORTLY: Duration = Duration::from_millis(20);

/// The time between two stops of a majority, during which all nodes answer.
const ANSWERS: Duration = Duration::from_millis(900);

/// Takes `locks` locks.
pub async fn take_hundreds(world: &Arc<World>, locks: usize) {
    let witness = Arc::new(Witness::of(world));
    let client = world.client();
    let _fault = world.log.begin("burst of locks", On::AllNodes, format!("{locks} in two halves"));
    let mut holders = JoinSet::new();
    for key in 0..locks {
        // The first half has a new client and meets a stopped majority. The second half meets nodes that answer.
        let begin = if key < locks / 2 { SHORTLY } else { STOPPED[0] + ANSWERS / 2 };
        let (world, witness, client) = (Arc::clone(world), Arc::clone(&witness), client.clone());
        holders.spawn(async move {
            sleep(begin).await;
            let begun = now_us();
            match client.with(&options(&world).wait(WAIT)).lock(format!("chaos:burst:{key}")).await {
                Ok(guard) => keep(&world, &witness, guard, KEPT).await,
                Err(why) => {
                    let took = Duration::from_micros(now_us() - begun);
                    let early = took + BEFORE < WAIT;
                    let when = if early { "before its deadline" } else { "and nobody else wanted it" };
                    let wrong = early || witness.answered(begun, now_us());
                    wrong.then(|| format!("waiting for {WAIT:?} failed after {took:?}, {when}: {why}"))
                }
            }
        });
    }
    let done = Arc::new(AtomicBool::new(false));
    let stops = tokio::spawn(stop_majorities(Arc::clone(world), Arc::clone(&done)));
    tell(world, "burst of locks", locks, holders).await;
    done.store(true, Ordering::Relaxed);
    let _ = stops.await;
}

async fn stop_majorities(world: Arc<World>, done: Arc<AtomicBool>) {
    for turn in 0.. {
        let time = STOPPED[turn % STOPPED.len()];
        let stopped = (0..=NODES / 2).map(|n| (turn + n) % NODES);
        let fault = world.log.begin("majority stopped for a moment", On::AllNodes, format!("{} ms", time.as_millis()));
        let stopped = world.stop(stopped).await;
        sleep(time).await;
        drop(stopped);
        drop(fault);
        sleep(ANSWERS).await;
        if done.load(Ordering::Relaxed) {
            return;
        }
    }
}
