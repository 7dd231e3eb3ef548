//! Hand-over of permits: from one client's RELEASE to the answer of the next client, which gets its number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use tokio::sync::Mutex;

use crate::fairness::fairness;
use crate::results::{Budget, Table};
use crate::server::{Server, connect};

const LIMIT: usize = 8;
const CLIENTS: usize = 64;

/// The times for which each client keeps its permit.
const HELD: [Duration; 2] = [Duration::ZERO, Duration::from_millis(5)];

/// State that all clients of one measurement share.
struct Shared {
    start: Instant,
    /// The time of each number's last release, in nanoseconds since `start`; 0 if there was none.
    released: [AtomicU64; LIMIT],
    measuring: AtomicBool,
    delays: Mutex<Histogram<u64>>,
    /// The number of permits that each client took during the measurement.
    turns: Vec<AtomicU64>,
}

/// Measures clients that repeatedly take a permit each, for `length`. Returns the table and budgets.
pub async fn measure(server: &Server, length: Duration) -> (Table, Vec<Budget>) {
    let mut table = Table::new("permits", format!("{CLIENTS} clients for {LIMIT} permits"))
        .numbers("held for", "ms", 0)
        .numbers("hand-overs", "1/s", 0)
        .numbers("p50", "us", 0)
        .numbers("round trip meanwhile", "us", 0)
        .numbers("p50", "round trips", 1)
        .numbers("p99", "us", 0)
        .numbers("turns", "a client", 1)
        .numbers("fairness", "of 1", 4)
        .numbers("commands", "a hand-over", 2)
        .numbers("sent", "bytes a hand-over", 0);
    table.note(format!(
        "Each client has a connection, keeps its permit for this time, releases it and queues again: {LIMIT} hold \
         and {} wait. Time runs from just before a permit is released until its next holder has the answer. The two \
         commands are the holder's ACQUIRE, with which it queued, and the RELEASE before it. A round trip is the \
         median of a PING that another client of the same process sends, with pauses as long as a hold (1 ms at \
         least); these PINGs are not counted as commands.",
        CLIENTS - LIMIT
    ));
    table.note(format!(
        "Held for 0 ms, {LIMIT} numbers are handed over at the same time, so each also waits for the others, on the \
         server and in the one process of all clients."
    ));
    let mut budgets = Vec::new();
    for held in HELD {
        let held_ms = held.as_millis() as u64;
        eprintln!("hand-over: {CLIENTS} clients for {LIMIT} permits, each for {held_ms} ms");
        let shared = Arc::new(Shared {
            start: Instant::now(),
            released: Default::default(),
            measuring: AtomicBool::new(false),
            delays: Mutex::new(Histogram::new(3).unwrap()),
            turns: (0..CLIENTS).map(|_| AtomicU64::new(0)).collect(),
        });
        let mut tasks = Vec::new();
        for n in 0..CLIENTS {
            let connection = connect(server.port()).await;
            tasks.push(tokio::spawn(client(connection, format!("permits-{held_ms}"), n, held, Arc::clone(&shared))));
        }
        let pings = Arc::new(Mutex::new(Histogram::<u64>::new(3).unwrap()));
        tasks.push(tokio::spawn(ping(connect(server.port()).await, held, Arc::clone(&pings), Arc::clone(&shared))));
        let mut one = server.connect().await;
        // By now, all clients have queued and have had their first turns.
        tokio::time::sleep(length / 2).await;
        let names = ["total_commands_processed", "total_net_output_bytes", "lock_hand_overs"];
        let before = fields(&mut one, names).await;
        shared.measuring.store(true, Ordering::Relaxed);
        tokio::time::sleep(length).await;
        shared.measuring.store(false, Ordering::Relaxed);
        let after = fields(&mut one, names).await;
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        let [commands, bytes, hand_overs] = std::array::from_fn(|n| (after[n] - before[n]) as f64);
        let delays = shared.delays.lock().await;
        let turns: Vec<u64> = shared.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect();
        let p50 = delays.value_at_quantile(0.5) as f64 / 1_000.0;
        let pings = pings.lock().await;
        let round_trip = pings.value_at_quantile(0.5) as f64 / 1_000.0;
        let (commands, fairness) = ((commands - pings.len() as f64) / hand_overs, fairness(&turns));
        table.row([
            held_ms.into(),
            (delays.len() as f64 / length.as_secs_f64()).into(),
            p50.into(),
            round_trip.into(),
            (p50 / round_trip).into(),
            (delays.value_at_quantile(0.99) as f64 / 1_000.0).into(),
            (delays.len() as f64 / CLIENTS as f64).into(),
            fairness.into(),
            commands.into(),
            (bytes / hand_overs).into(),
        ]);
        if !held.is_zero() {
            let what = format!("hand-over of {LIMIT} permits to {CLIENTS} clients, held for {held_ms} ms");
            budgets.push(Budget::at_most(format!("{what}, p50, round trips"), p50 / round_trip, 2.0));
            budgets.push(Budget::at_least(format!("{what}, fairness"), fairness, 0.99));
            // A RELEASE, and the ACQUIRE with which the next client queued. Those in progress at either end are in one
            // figure but not in the other.
            budgets.push(Budget::at_most(format!("{what}, commands a hand-over"), commands, 2.02));
        }
    }
    (table, budgets)
}

/// Returns these fields of one INFO.
async fn fields<const N: usize>(connection: &mut MultiplexedConnection, names: [&str; N]) -> [u64; N] {
    let info: String = cmd("INFO").arg("everything").query_async(connection).await.unwrap();
    names.map(|name| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in INFO")).parse().unwrap()
    })
}

/// Times PINGs during the measurement.
async fn ping(
    mut connection: MultiplexedConnection,
    held: Duration,
    pings: Arc<Mutex<Histogram<u64>>>,
    shared: Arc<Shared>,
) {
    loop {
        tokio::time::sleep(held.max(Duration::from_millis(1))).await;
        let start = Instant::now();
        let _: Value = cmd("PING").query_async(&mut connection).await.unwrap();
        if shared.measuring.load(Ordering::Relaxed) {
            pings.lock().await.record(start.elapsed().as_nanos() as u64).unwrap();
        }
    }
}

async fn client(mut connection: MultiplexedConnection, key: String, n: usize, held: Duration, shared: Arc<Shared>) {
    for round in 0_u64.. {
        let owner = format!("owner-{n}-{round}");
        let mut acquire = cmd("LOCK.ACQUIRE");
        acquire.arg(&key).arg(&owner).arg(60_000).arg("LIMIT").arg(LIMIT).arg("WAIT").arg(600_000);
        let (_, _, number): (u64, u64, usize) = acquire.query_async(&mut connection).await.unwrap();
        let now = shared.start.elapsed().as_nanos() as u64;
        let released = &shared.released[number - 1];
        let since = released.load(Ordering::Relaxed);
        if since > 0 && shared.measuring.load(Ordering::Relaxed) {
            shared.delays.lock().await.record(now.saturating_sub(since)).unwrap();
            shared.turns[n].fetch_add(1, Ordering::Relaxed);
        }
        if !held.is_zero() {
            tokio::time::sleep(held).await;
        }
        released.store(shared.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let left: Value = cmd("LOCK.RELEASE").arg(&key).arg(&owner).query_async(&mut connection).await.unwrap();
        assert!(matches!(left, Value::Int(0)), "{left:?}");
    }
}
