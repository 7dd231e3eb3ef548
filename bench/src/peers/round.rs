//! Clients in this process among which a lock goes round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use rand::RngExt;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::waiters::{Waiter, Way};

/// The shortest hold: by then, a client that queues again has asked once more and found the lock taken. With a shorter
/// one, a client that has just returned would overtake those that sleep, and the lock would alternate between two of
/// them.
pub const HOLD_MIN: Duration = Duration::from_millis(1);

/// The number of connections that are made at once.
const CONNECTING: usize = 64;

/// Clients that take one lock, one after another, again and again.
pub struct Round {
    /// The start signal: true starts the clients.
    pub go: watch::Sender<bool>,
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    hold_max: Duration,
    /// The time of the last release, in nanoseconds since `start`; 0 if there was none.
    released_ns: AtomicU64,
    /// The number of times that the lock was taken.
    taken: watch::Sender<u64>,
    turns: Vec<AtomicU64>,
    delays_ns: Mutex<Vec<u64>>,
}

impl Round {
    /// Starts one client more than there are waiters; the first one holds the lock until the start.
    pub async fn start(way: Way, ports: &[u16], key: &str, waiters: usize, hold_max: Duration) -> Self {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            hold_max,
            released_ns: AtomicU64::new(0),
            taken: watch::Sender::new(0),
            turns: (0..=waiters).map(|_| AtomicU64::new(0)).collect(),
            delays_ns: Mutex::new(Vec::new()),
        });
        let go = watch::Sender::new(false);
        let connected: Vec<Waiter> =
            stream::iter(0..=waiters).map(|n| Waiter::new(way, ports, key, n)).buffered(CONNECTING).collect().await;
        let mut clients = Vec::new();
        for (n, waiter) in connected.into_iter().enumerate() {
            clients.push(tokio::spawn(client(waiter, n, Arc::clone(&shared), go.subscribe())));
            if n == 0 {
                shared.taken.subscribe().wait_for(|taken| *taken > 0).await.unwrap();
            }
        }
        Self { go, shared, clients }
    }

    /// Returns the times from a release to the next holder's answer, sorted, and each client's turns.
    pub async fn stop(self) -> (Vec<u64>, Vec<u64>) {
        let mut delays = self.shared.delays_ns.lock().await.clone();
        let turns = self.shared.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect();
        for client in &self.clients {
            client.abort();
        }
        for client in self.clients {
            if let Err(why) = client.await {
                assert!(why.is_cancelled(), "a client that waits has failed: {why}");
            }
        }
        delays.sort_unstable();
        (delays, turns)
    }
}

async fn client(mut waiter: Waiter, n: usize, shared: Arc<Shared>, mut go: watch::Receiver<bool>) {
    loop {
        waiter.acquire().await;
        let now = shared.start.elapsed().as_nanos() as u64;
        let released = shared.released_ns.load(Ordering::Relaxed);
        if released > 0 {
            shared.delays_ns.lock().await.push(now - released);
        }
        shared.turns[n].fetch_add(1, Ordering::Relaxed);
        let mut taken = shared.taken.subscribe();
        shared.taken.send_modify(|taken| *taken += 1);
        let mine = *taken.borrow_and_update();
        go.wait_for(|go| *go).await.unwrap();
        let hold = HOLD_MIN + (shared.hold_max - HOLD_MIN).mul_f64(rand::rng().random());
        tokio::time::sleep(hold).await;
        shared.released_ns.store(shared.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        waiter.release().await;
        taken.wait_for(|taken| *taken > mine).await.unwrap();
    }
}
