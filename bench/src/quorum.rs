//! A lock on a majority of the nodes.
//!
//! The floor is what any Redlock client must do: one `SET key owner NX PX ttl` to every node at once, over connections of the
//! same kind, done when a majority has answered. Rounds of both are interleaved. Then the same with two of five nodes frozen,
//! and the share of locks that needed one round only, with clients whose clocks are apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use palisade_client::{Client, Options as LockOptions};
use palisade_core::quorum::{Acquire, Answer, Ask, Call, NodeId, Progress, majority};
use palisade_core::{BootTime, Token};
use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};

use crate::results::{Budget, Outcome, Table};
use crate::server::{Server, connect, info};

/// Locks and raw SETs in one round of the comparison.
const BATCH: usize = 200;

/// Clients whose clocks are apart, in the third part.
const CLIENTS: usize = 10;

#[derive(clap::Args)]
pub struct Options {
    /// How many nodes.
    #[arg(long, value_delimiter = ',', default_value = "1,3,5,7")]
    nodes: Vec<usize>,

    /// Rounds of the comparison.
    #[arg(long, default_value_t = 20)]
    rounds: usize,

    /// How far apart clients' clocks are: up to this much ahead and behind, in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,1,5,50")]
    skew_ms: Vec<u64>,

    /// Locks taken in a second, in the third part.
    #[arg(long, value_delimiter = ',', default_value = "100,2000,5000")]
    rate: Vec<u64>,
}

pub async fn run(start: impl Fn() -> Server, options: &Options) -> Outcome {
    let mut latencies = Table::new("latency", "A lock on a majority, beside as many raw SETs")
        .numbers("nodes", "", 0)
        .words("which are")
        .numbers("SET p50", "us", 0)
        .numbers("SET p99", "us", 0)
        .numbers("lock p50", "us", 0)
        .numbers("lock p99", "us", 0)
        .numbers("lock / SET", "p50", 2);
    let mut budgets = Vec::new();
    for &count in &options.nodes {
        let nodes: Arc<Vec<Server>> = Arc::new((0..count).map(|_| start()).collect());
        // On the runtime's own thread, as an application's tasks are: the main thread would have to be woken each time.
        let compare = |what: &'static str| {
            eprintln!("quorum: {count} nodes, {what}");
            tokio::spawn(compare(Arc::clone(&nodes), options.rounds))
        };
        let healthy = compare("healthy").await.unwrap();
        healthy.show(&mut latencies, count, "healthy");
        if count == 5 {
            nodes[..2].iter().for_each(|node| node.freeze(true));
            let frozen = compare("two frozen").await.unwrap();
            nodes[..2].iter().for_each(|node| node.freeze(false));
            frozen.show(&mut latencies, count, "two frozen");
            let ratio = healthy.of_locks(0.5) / healthy.of_sets(0.5);
            budgets.push(Budget::at_most("quorum acquire, 5 healthy nodes, p50 / five parallel SETs", ratio, 1.15));
            let ratio = frozen.of_locks(0.99) / healthy.of_locks(0.99);
            budgets.push(Budget::at_most("quorum acquire, 2 of 5 frozen, p99 / healthy", ratio, 1.5));
        }
    }
    let mut shares = Table::new("one-round", "Locks that needed one round only")
        .numbers("asked for", "locks/s", 0)
        .numbers("clocks apart by", "± ms", 0)
        .numbers("in one round", "%", 2);
    let nodes: Vec<Server> = (0..5).map(|_| start()).collect();
    for &rate in &options.rate {
        for &skew_ms in &options.skew_ms {
            eprintln!("quorum: {rate} locks/s, clocks apart by {skew_ms} ms");
            let share = one_round_share(&nodes, rate, skew_ms).await * 100.0;
            shares.row([rate.into(), skew_ms.into(), share.into()]);
            if (rate, skew_ms) == (2_000, 5) {
                budgets.push(Budget::at_least("quorum acquire in one round, 2000/s, clocks ± 5 ms, %", share, 99.0));
            }
        }
    }
    Outcome { title: "Quorum".to_owned(), tables: vec![latencies, shares], plots: Vec::new(), budgets }
}

struct Measured {
    sets: Histogram<u64>,
    locks: Histogram<u64>,
}

impl Measured {
    /// A quantile of the locks' times, in microseconds.
    fn of_locks(&self, quantile: f64) -> f64 {
        self.locks.value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// A quantile of the SETs' times, in microseconds.
    fn of_sets(&self, quantile: f64) -> f64 {
        self.sets.value_at_quantile(quantile) as f64 / 1_000.0
    }

    fn show(&self, table: &mut Table, count: usize, what: &str) {
        table.row([
            count.into(),
            what.into(),
            self.of_sets(0.5).into(),
            self.of_sets(0.99).into(),
            self.of_locks(0.5).into(),
            self.of_locks(0.99).into(),
            (self.of_locks(0.5) / self.of_sets(0.5)).into(),
        ]);
    }
}

async fn compare(nodes: Arc<Vec<Server>>, rounds: usize) -> Measured {
    let addresses = nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port()));
    let locks = Client::new(addresses).unwrap();
    let mut connections: Vec<Option<MultiplexedConnection>> = Vec::new();
    for node in nodes.iter() {
        // A frozen node takes connections and says nothing: the raw client has none to it.
        connections.push(tokio::time::timeout(Duration::from_millis(300), connect(node.port())).await.ok());
    }
    let slow = LockOptions::new().node_timeout(Duration::from_secs(2));
    locks.try_lock_with("warm", &slow).await.unwrap().release().await;
    // Until the client knows which nodes do not answer, and nodes have raised their ceilings.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let histogram = || Histogram::<u64>::new(3).unwrap();
    let mut measured = Measured { sets: histogram(), locks: histogram() };
    for round in 0..rounds {
        for n in 0..BATCH {
            let key = format!("set-{round}-{n}");
            let start = Instant::now();
            set_majority(&connections, nodes.len(), &key).await;
            measured.sets.record(start.elapsed().as_nanos() as u64).unwrap();
            // Given back everywhere and waited for, as the lock is.
            delete(&connections, &key).await;
        }
        for n in 0..BATCH {
            let key = format!("lock-{round}-{n}");
            let start = Instant::now();
            let guard = locks.try_lock(&key).await.unwrap();
            measured.locks.record(start.elapsed().as_nanos() as u64).unwrap();
            // Given back and waited for, so that it does not run beside what is measured next.
            guard.release().await;
        }
        // What was given back in the background does not belong to the next round.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    measured
}

async fn set_majority(connections: &[Option<MultiplexedConnection>], nodes: usize, key: &str) {
    let set = |connection: &MultiplexedConnection| {
        let mut connection = connection.clone();
        let mut command = cmd("SET");
        command.arg(key).arg("owner-of-20-bytes-xx").arg("NX").arg("PX").arg(10_000);
        async move { command.query_async::<Value>(&mut connection).await.unwrap() }
    };
    let mut asked: FuturesUnordered<_> = connections.iter().flatten().map(set).collect();
    for _ in 0..majority(nodes) {
        asked.next().await.unwrap();
    }
}

async fn delete(connections: &[Option<MultiplexedConnection>], key: &str) {
    let delete = |connection: &MultiplexedConnection| {
        let mut connection = connection.clone();
        async move { cmd("DEL").arg(key).query_async::<Value>(&mut connection).await.unwrap() }
    };
    let mut asked: FuturesUnordered<_> = connections.iter().flatten().map(delete).collect();
    while asked.next().await.is_some() {}
}

/// The rules' own machine, driven with proposals of clocks that are apart: how many locks need no second round.
async fn one_round_share(nodes: &[Server], rate: u64, skew_ms: u64) -> f64 {
    let seconds = 3;
    let mut monitors = Vec::new();
    for node in nodes {
        let mut connection = connect(node.port()).await;
        let _: Value = cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
        let _: Value = cmd("LOCK.GUARD").arg("LIFT").query_async(&mut connection).await.unwrap();
        monitors.push(connection);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (taken, fenced) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let mut connections = Vec::new();
        for node in nodes {
            connections.push(connect(node.port()).await);
        }
        // Clocks are spread evenly from behind to ahead.
        let offset_us = (client as i64 * 2 - (CLIENTS as i64 - 1)) * skew_ms as i64 * 1_000 / (CLIENTS as i64 - 1);
        let (taken, fenced) = (Arc::clone(&taken), Arc::clone(&fenced));
        tasks.push(tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_nanos(1_000_000_000 * CLIENTS as u64 / rate));
            let seen = Arc::new(AtomicU64::new(0));
            let start = Instant::now();
            let mut under_way = tokio::task::JoinSet::new();
            while start.elapsed() < Duration::from_secs(seconds) {
                tick.tick().await;
                // A thousand keys, so that each is taken by one client after the other.
                let key = format!("k{}", rand::rng().random_range(0..1_000));
                let owner = format!("{:020x}", rand::rng().random::<u64>());
                let connections = connections.clone();
                let (taken, fenced, seen) = (Arc::clone(&taken), Arc::clone(&fenced), Arc::clone(&seen));
                under_way.spawn(async move {
                    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64 + offset_us;
                    let proposal = (wall as u64).max(seen.load(Ordering::Relaxed) + 1);
                    if let Some((token, rounds)) = acquire(connections, &key, &owner, proposal).await {
                        seen.fetch_max(token, Ordering::Relaxed);
                        taken.fetch_add(1, Ordering::Relaxed);
                        fenced.fetch_add(u64::from(rounds > 1), Ordering::Relaxed);
                    }
                });
            }
            under_way.join_all().await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let poisoned = info(&mut monitors[0], "lock_poisoned").await;
    assert_eq!(poisoned, 0);
    1.0 - fenced.load(Ordering::Relaxed) as f64 / taken.load(Ordering::Relaxed).max(1) as f64
}

/// Takes and releases `key`; its token and how many rounds it took, or nothing if somebody else had it.
async fn acquire(
    connections: Vec<MultiplexedConnection>,
    key: &str,
    owner: &str,
    proposal: u64,
) -> Option<(u64, usize)> {
    let ask = |call: Call| {
        let mut connection = connections[call.node].clone();
        let mut command = redis::Cmd::new();
        match call.ask {
            Ask::Acquire { ttl_ms, proposal, .. } => {
                command.arg("LOCK.ACQUIRE").arg(key).arg(owner).arg(ttl_ms).arg("FENCE").arg(proposal.get());
            }
            Ask::Fence { token } => {
                command.arg("LOCK.FENCE").arg(key).arg(owner).arg(token.get());
            }
            Ask::Extend { .. } => unreachable!("nothing is extended here"),
        }
        async move {
            let answer = match command.query_async::<Value>(&mut connection).await {
                Ok(Value::Int(token)) => Answer::Token(Token::new(token as u64).unwrap()),
                Ok(_) => Answer::No,
                Err(error) if error.code() == Some("NOTYET") => Answer::NotYet { ms: 10 },
                Err(_) => Answer::Failed,
            };
            (call, answer)
        }
    };
    let proposal = Token::new(proposal).unwrap();
    let now = BootTime::from_us(1);
    let (mut machine, calls) = Acquire::begin(connections.len(), 10_000, proposal, now);
    let mut asked: FuturesUnordered<_> = calls.into_iter().map(ask).collect();
    let mut rounds = 1;
    let mut token = None;
    while let Some((call, answer)) = asked.next().await {
        let id = Some(NodeId(call.node as u128));
        match machine.on_answer(call.node, id, call.ask, answer, now) {
            Progress::Goes(calls) => {
                if calls.iter().any(|call| matches!(call.ask, Ask::Fence { .. })) {
                    rounds = 2;
                }
                asked.extend(calls.into_iter().map(ask));
            }
            Progress::Held(held) => {
                token = Some(held.token().get());
                break;
            }
            Progress::TooLate | Progress::Impossible => break,
        }
    }
    drop(asked);
    let mut releases: FuturesUnordered<_> = connections
        .iter()
        .map(|connection| {
            let mut connection = connection.clone();
            async move { cmd("LOCK.RELEASE").arg(key).arg(owner).query_async::<Value>(&mut connection).await }
        })
        .collect();
    while releases.next().await.is_some() {}
    Some((token?, rounds))
}
