//! Random storms: many calls at once on a few keys, some of them dropped, while nodes stall and connections end. Every
//! call that is not dropped ends, and no lock or request is left.

use std::time::{Duration, Instant};

use palisade_client::{Client, Guard, Options};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fixture::{Nodes, ms, until};
use crate::harness::{Frozen, patience, seed};

/// The number of calls in a storm, and of the keys of each kind that they use.
const CALLS: usize = 60;
const KEYS: u32 = 3;

/// The number of storms, if no time is set.
const STORMS: u64 = 5;

/// Runs storms for `PALISADE_STORM_MINUTES`, on one client, in runtimes that come and go. Every call ends, and nothing
/// stays locked.
#[test]
fn every_call_ends() {
    let minutes = std::env::var("PALISADE_STORM_MINUTES").map_or(0, |minutes| minutes.parse().unwrap());
    let (start, mut random) = (Instant::now(), StdRng::seed_from_u64(seed()));
    let nodes = Nodes::start(5);
    let locks = Builder::new_current_thread().enable_all().build().unwrap().block_on(nodes.client());
    let mut storms = 0;
    while storms < STORMS || start.elapsed() < Duration::from_secs(60 * minutes) {
        let mut runtime = if random.random() { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(storm(&nodes, &locks, &mut random));
        storms += 1;
    }
    println!("{storms} storms of {CALLS} calls, each of which ended");
}

async fn storm(nodes: &Nodes, locks: &Client, random: &mut StdRng) {
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (locks, mut random) = (locks.clone(), StdRng::from_rng(random));
        let begins = ms(random.random_range(0..200));
        let is_dropped_after = random.random_bool(0.3).then(|| ms(random.random_range(0..50)));
        calls.spawn(async move {
            sleep(begins).await;
            match is_dropped_after {
                Some(after) => drop(timeout(after, call(&locks, random)).await),
                None => call(&locks, random).await,
            }
        });
    }
    for _ in 0..random.random_range(0..4) {
        disturb(nodes, random).await;
    }
    while let Some(ended) = timeout(patience(), calls.join_next()).await.expect("a call has no answer") {
        ended.unwrap();
    }
    until("nothing is left", async || {
        nodes.0.iter().all(|server| server.info("held") == 0 && server.info("waiters") == 0)
    })
    .await;
}

/// Stalls some of the nodes for a moment, or ends all connections to them.
async fn disturb(nodes: &Nodes, random: &mut StdRng) {
    let some: Vec<_> = nodes.0.iter().filter(|_| random.random_bool(0.4)).collect();
    if random.random() {
        let frozen: Vec<_> = some.into_iter().map(Frozen::new).collect();
        sleep(ms(random.random_range(1..400))).await;
        drop(frozen);
    } else {
        some.into_iter().for_each(|server| drop(server.client().say("CLIENT KILL TYPE normal")));
        sleep(ms(random.random_range(1..100))).await;
    }
}

/// Takes a lock in some mode, if it is free, keeps it for a moment, and releases it in some way.
async fn call(locks: &Client, mut random: StdRng) {
    let mut options = Options::new().ttl(ms(2_000));
    if random.random() {
        options = options.wait(ms(random.random_range(1..1_000)));
    }
    let (locks, n) = (locks.with(&options), random.random_range(0..KEYS));
    let stay = ms(random.random_range(0..30));
    match random.random_range(0..5) {
        0 => {
            if let Ok(guard) = locks.try_lock(format!("lock-{n}")).await {
                hold(guard, random).await;
            }
        }
        1 => {
            if let Ok(guard) = locks.lock(format!("lock-{n}")).await {
                hold(guard, random).await;
            }
        }
        2 => {
            let reading = locks.rw_lock(format!("shared-{n}")).read().await;
            sleep(stay).await;
            drop(reading);
        }
        3 => {
            if let Ok(writing) = locks.rw_lock(format!("shared-{n}")).write().await {
                let reading = writing.downgrade().await;
                sleep(stay).await;
                drop(reading);
            }
        }
        _ => {
            let permit = locks.semaphore(format!("permits-{n}"), 2).acquire().await;
            sleep(stay).await;
            drop(permit);
        }
    }
}

async fn hold(guard: Guard, mut random: StdRng) {
    match random.random_range(0..4) {
        0 => drop(guard.extend().await),
        1 => drop(guard.reenter().await),
        2 => drop(timeout(ms(20), guard.lost()).await),
        _ => {}
    }
    if random.random() {
        guard.release().await;
    }
}
