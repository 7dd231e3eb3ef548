//! Hand-over: from a release to the next holder's answer, with many waiters.
//!
//! Every client takes the lock, releases it at once and queues again, so the queue keeps its length. The time is from
//! just before RELEASE is sent until the next holder has its answer. A round trip is a PING over the same kind of
//! connection in the same run. The peer is the usual client of a Redis lock: `SET NX PX`, retried every 100 ms, and
//! released by a script that compares and deletes.
//!
//! Permits are handed over in the same way, several at a time: a number passes from one client to the next.
//!
//! Fairness is Jain's index of the clients' turns, (Σx)² / (n Σx²), as a share of the highest index possible for that
//! number of turns. It is 1 if no client got two turns more than another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redis::{Script, Value, cmd};
use tokio::sync::Mutex;

use crate::fairness::fairness;
use crate::results::{Axis, Budget, Form, Line, Outcome, Plot, Table};
use crate::server::{Server, connect, info};

/// The retry interval of the peer's clients: the default of redis-py's lock.
const POLL: Duration = Duration::from_millis(100);

/// The time for which the server's CPU time is measured while nobody gets a turn.
const CPU_WATCHED: Duration = Duration::from_secs(2);

/// The release of a `SET NX PX` lock: compares and deletes.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of waiting clients.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000")]
    waiters: Vec<usize>,

    /// The time for which each number of waiters is measured, in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// The measurement of one way of waiting.
struct Measured {
    delays: Histogram<u64>,
    /// Jain's index of the clients' turns, as a share of the highest possible.
    fairness: f64,
    turns_each: f64,
    commands: f64,
    bytes: f64,
    /// The shares of one CPU that the server uses while all clients wait, and while they are only connected.
    waiting_cpu: f64,
    connected_cpu: f64,
}

pub async fn run(server: &Server, options: &Options) -> Outcome {
    let mut table = Table::new("hand-over", "From a release to the next holder's answer")
        .numbers("waiters", "", 0)
        .words("by")
        .numbers("p50", "us", 0)
        .numbers("round trip", "us", 0)
        .numbers("p50", "round trips", 1)
        .numbers("p99", "us", 0)
        .numbers("turns", "a client", 1)
        .numbers("fairness", "of 1", 3)
        .numbers("commands", "a hand-over", 1)
        .numbers("sent", "bytes a hand-over", 0)
        .numbers("server CPU while all wait", "%", 1)
        .numbers("server CPU merely connected", "%", 1);
    table.note("A round trip is a PING over the same kind of connection, right before.");
    let mut budgets = Vec::new();
    let ways = [Way::Palisade, Way::Polling];
    let mut lines = ways.map(|way| Line { name: way.name().to_owned(), points: Vec::new() });
    for &waiters in &options.waiters {
        for (way, line) in ways.into_iter().zip(&mut lines) {
            eprintln!("hand-over: {waiters} waiters, {}", way.name());
            let rtt = round_trip(server).await;
            let measured = measure(server, way, waiters, Duration::from_secs(options.seconds)).await;
            let p50 = measured.delays.value_at_quantile(0.5);
            let round_trips = p50 as f64 / rtt as f64;
            line.points.push((waiters as f64, p50 as f64));
            table.row([
                waiters.into(),
                way.name().into(),
                p50.into(),
                rtt.into(),
                round_trips.into(),
                measured.delays.value_at_quantile(0.99).into(),
                measured.turns_each.into(),
                measured.fairness.into(),
                measured.commands.into(),
                measured.bytes.into(),
                (measured.waiting_cpu * 100.0).into(),
                (measured.connected_cpu * 100.0).into(),
            ]);
            if let (Way::Palisade, 1_000) = (way, waiters) {
                budgets.push(Budget::at_most("hand-over with 1000 waiters, p50, round trips", round_trips, 2.0));
            }
        }
    }
    let form = Form::Lines {
        x: Axis::logarithmic("clients that wait"),
        y: Axis::logarithmic("p50 from release to the next holder, us"),
        lines: lines.into(),
    };
    table.note(
        "Fairness is Jain's index of the turns that each client had, (Σx)² / (n Σx²), as a share of the highest \
         possible with this number of turns. Every client waits from before the first turn to the last.",
    );
    let plot = Plot { name: "p50".to_owned(), title: "Hand-over: time against the queue's length".to_owned(), form };
    let (permits, budgets_of_permits) = crate::permits::measure(server, Duration::from_secs(options.seconds)).await;
    budgets.extend(budgets_of_permits);
    Outcome { title: "Hand-over".to_owned(), tables: vec![table, permits], plots: vec![plot], budgets }
}

#[derive(Clone, Copy)]
enum Way {
    Palisade,
    Polling,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Palisade => "ACQUIRE WAIT",
            Way::Polling => "SET NX every 100 ms",
        }
    }
}

async fn round_trip(server: &Server) -> u64 {
    let mut connection = server.connect().await;
    let mut times = Histogram::<u64>::new(3).unwrap();
    for _ in 0..5_000 {
        let start = Instant::now();
        let _: Value = cmd("PING").query_async(&mut connection).await.unwrap();
        times.record(start.elapsed().as_micros() as u64).unwrap();
    }
    times.value_at_quantile(0.5)
}

/// State that all clients of one measurement share.
struct Shared {
    start: Instant,
    /// The time of the last release, in nanoseconds since `start`; 0 if no client has released the lock yet.
    released: AtomicU64,
    measuring: AtomicBool,
    done: AtomicBool,
    delays: Mutex<Histogram<u64>>,
    /// The number of times that each client had the lock, counted only during the measurement.
    turns: Vec<AtomicU64>,
}

async fn cpu_share(server: &Server, length: Duration) -> f64 {
    let (cpu, since) = (server.cpu_of_all_threads(), Instant::now());
    tokio::time::sleep(length).await;
    (server.cpu_of_all_threads() - cpu).as_secs_f64() / since.elapsed().as_secs_f64()
}

async fn measure(server: &Server, way: Way, waiters: usize, length: Duration) -> Measured {
    let shared = Arc::new(Shared {
        start: Instant::now(),
        released: AtomicU64::new(0),
        measuring: AtomicBool::new(false),
        done: AtomicBool::new(false),
        delays: Mutex::new(Histogram::new(3).unwrap()),
        turns: (0..=waiters).map(|_| AtomicU64::new(0)).collect(),
    });
    let key = format!("lock-{}-{waiters}", way.name().replace(' ', "-"));
    let mut holder = server.connect().await;
    acquire(&mut holder, way, &key, "holder").await;
    // One more than the waiters, since one holds the lock.
    let mut connections = Vec::new();
    for _ in 0..=waiters {
        connections.push(connect(server.port()).await);
    }
    let connected_cpu = cpu_share(server, CPU_WATCHED).await;
    let mut tasks = Vec::new();
    for (n, connection) in connections.into_iter().enumerate() {
        tasks.push(tokio::spawn(client(connection, way, key.clone(), n, Arc::clone(&shared))));
    }
    if let Way::Palisade = way {
        while info(&mut holder, "lock_waiters").await <= waiters as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // All clients wait now; the next figure is the server's cost of that.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let waiting_cpu = cpu_share(server, CPU_WATCHED).await;
    // From here on, the clients take turns.
    shared.measuring.store(true, Ordering::Relaxed);
    let commands = info(&mut holder, "total_commands_processed").await;
    let bytes = info(&mut holder, "total_net_output_bytes").await;
    release(&mut holder, way, &key, "holder").await;
    tokio::time::sleep(length).await;
    shared.measuring.store(false, Ordering::Relaxed);
    let commands = info(&mut holder, "total_commands_processed").await - commands - 3;
    let bytes = info(&mut holder, "total_net_output_bytes").await - bytes;
    shared.done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.abort();
        let _ = task.await;
    }
    let _: Value = cmd("DEL").arg(&key).query_async(&mut holder).await.unwrap();
    let delays = shared.delays.lock().await.clone();
    let count = delays.len().max(1) as f64;
    let turns: Vec<u64> = shared.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect();
    Measured {
        fairness: fairness(&turns),
        turns_each: delays.len() as f64 / turns.len() as f64,
        commands: commands as f64 / count,
        bytes: bytes as f64 / count,
        delays,
        waiting_cpu,
        connected_cpu,
    }
}

async fn client(mut connection: MultiplexedConnection, way: Way, key: String, n: usize, shared: Arc<Shared>) {
    for round in 0_u64.. {
        let owner = format!("owner-{n}-{round}");
        acquire(&mut connection, way, &key, &owner).await;
        let now = shared.start.elapsed().as_nanos() as u64;
        if shared.done.load(Ordering::Relaxed) {
            return;
        }
        let released = shared.released.load(Ordering::Relaxed);
        if released > 0 && shared.measuring.load(Ordering::Relaxed) {
            shared.delays.lock().await.record(now.saturating_sub(released) / 1_000).unwrap();
            shared.turns[n].fetch_add(1, Ordering::Relaxed);
        }
        shared.released.store(shared.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        release(&mut connection, way, &key, &owner).await;
        if let Way::Polling = way {
            // Without a pause, this client would take the lock again itself, and nothing would be handed over.
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Waits until `owner` holds the lock.
async fn acquire(connection: &mut MultiplexedConnection, way: Way, key: &str, owner: &str) {
    loop {
        let reply: Value = match way {
            Way::Palisade => cmd("LOCK.ACQUIRE").arg(key).arg(owner).arg(60_000).arg("WAIT").arg(600_000).to_owned(),
            Way::Polling => cmd("SET").arg(key).arg(owner).arg("NX").arg("PX").arg(60_000).to_owned(),
        }
        .query_async(connection)
        .await
        .unwrap();
        match (way, reply) {
            (Way::Palisade, Value::Array(_)) | (Way::Polling, Value::Okay) => return,
            (Way::Polling, Value::Nil) => tokio::time::sleep(POLL).await,
            (_, reply) => panic!("{reply:?}"),
        }
    }
}

async fn release(connection: &mut MultiplexedConnection, way: Way, key: &str, owner: &str) {
    let left: Value = match way {
        Way::Palisade => cmd("LOCK.RELEASE").arg(key).arg(owner).query_async(connection).await.unwrap(),
        Way::Polling => Script::new(RELEASE).key(key).arg(owner).invoke_async(connection).await.unwrap(),
    };
    assert!(matches!(left, Value::Int(_)), "{left:?}");
}
