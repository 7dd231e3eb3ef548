//! The number of locks that need only one round, with clients whose clocks differ.
//!
//! A lock needs one round if a majority of nodes accepted the token that the client proposed: the time of its clock, or
//! more if it has seen larger tokens. It needs a second round if the proposal was behind what nodes had issued for that
//! key. Readers of one key need no order among themselves: as long as somebody reads, a proposal between their tokens
//! is accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::quorum::{Acquire, Answer, Ask, Call, NodeId, Progress};
use palisade_core::{BootTime, Token};
use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};

use crate::results::{Axis, Budget, Form, Line, Plot, Table};
use crate::server::{Server, connect};

const NODES: usize = 5;

/// The number of clients, whose clocks are spread evenly from behind to ahead.
const CLIENTS: usize = 10;

/// The number of keys. Each is taken by one client after another.
const KEYS: u32 = 1_000;

/// The time for which new nodes are measured. The tokens of a new node begin ahead of its clock, which catches up with
/// them within this time.
const FIRST: Duration = Duration::from_secs(15);

/// The rate (locks per second) and the skew for which there is a budget. New nodes are measured with them, too.
const BUDGETED_RATE: u64 = 2_000;
const BUDGETED_SKEW_MS: u64 = 5;

/// A kind of lock that is taken repeatedly.
#[derive(Clone, Copy)]
struct Taken {
    name: &'static str,
    /// True if all clients share one key as readers; false if each takes one of [`KEYS`] keys alone.
    shared: bool,
    held: Duration,
}

const ALONE: Taken = Taken { name: "alone", shared: false, held: Duration::ZERO };

/// The readers. If all leave at once, the key becomes free from time to time. If they stay for a while, there is always
/// a reader.
const READERS: [Taken; 2] = [
    Taken { name: "shared", shared: true, held: Duration::ZERO },
    Taken { name: "shared, for 20 ms", shared: true, held: Duration::from_millis(20) },
];

/// The number of locks taken in one second, and the number of those that needed a second round.
#[derive(Default)]
struct Second {
    taken: AtomicU64,
    fenced: AtomicU64,
}

/// Returns the percentage of locks with one round; `None` if none was taken.
fn share<'a>(seconds: impl IntoIterator<Item = &'a Second>) -> Option<f64> {
    let (mut taken, mut fenced) = (0, 0);
    for second in seconds {
        taken += second.taken.load(Ordering::Relaxed);
        fenced += second.fenced.load(Ordering::Relaxed);
    }
    (taken > 0).then(|| (taken - fenced) as f64 / taken as f64 * 100.0)
}

/// Measures new nodes first, then each of `rates` with each of `skews_ms` for `length`. Returns tables, plots and
/// budgets.
pub async fn measure(
    start: &impl Fn() -> Server,
    rates: &[u64],
    skews_ms: &[u64],
    length: Duration,
) -> (Vec<Table>, Vec<Plot>, Vec<Budget>) {
    let nodes: Vec<Server> = (0..NODES).map(|_| start()).collect();
    eprintln!("quorum: the first {} s of new nodes", FIRST.as_secs());
    let first = run(&nodes, ALONE, BUDGETED_RATE, BUDGETED_SKEW_MS, FIRST).await;
    let mut beginning = Table::new("first-seconds", "Locks that need one round only, on new nodes")
        .numbers("since the start", "s", 0)
        .numbers("in one round", "%", 2);
    let mut line = Line { name: "in one round".to_owned(), points: Vec::new() };
    for (n, second) in first.iter().enumerate() {
        let Some(share) = share([second]) else { continue };
        beginning.row([n.into(), share.into()]);
        line.points.push((n as f64, share));
    }
    beginning.note(format!(
        "{BUDGETED_RATE} locks/s, clocks of clients within ± {BUDGETED_SKEW_MS} ms, {KEYS} keys. A new node starts \
         its tokens above all that an earlier incarnation can have issued. Until its clock has passed them, \
         proposals are too low and nodes differ."
    ));
    for node in &nodes {
        follows_its_clock(node).await;
    }
    let mut shares = Table::new("one-round", format!("Locks that need one round only, {NODES} nodes"))
        .words("taken")
        .numbers("asked for", "locks/s", 0)
        .numbers("taken", "locks/s", 0)
        .numbers("clocks apart by", "± ms", 0)
        .numbers("in one round", "%", 2);
    shares.note(format!(
        "{CLIENTS} clients, their clocks spread evenly over the range. A client that takes the lock alone takes one \
         of {KEYS} keys; readers share one key. Released at once, unless the row says otherwise. Started when the \
         nodes' tokens followed their clocks."
    ));
    let mut budgets = Vec::new();
    let budgeted = rates.contains(&BUDGETED_RATE) && skews_ms.contains(&BUDGETED_SKEW_MS);
    let alone = rates.iter().flat_map(|&rate| skews_ms.iter().map(move |&skew_ms| (ALONE, rate, skew_ms)));
    let readers = READERS.iter().filter(|_| budgeted).map(|&taken| (taken, BUDGETED_RATE, BUDGETED_SKEW_MS));
    for (taken, rate, skew_ms) in alone.chain(readers) {
        eprintln!("quorum: {rate} locks/s, {}, clocks apart by {skew_ms} ms", taken.name);
        let seconds = run(&nodes, taken, rate, skew_ms, length).await;
        let count: u64 = seconds.iter().map(|second| second.taken.load(Ordering::Relaxed)).sum();
        let share = share(&seconds);
        let per_second = count as f64 / length.as_secs_f64();
        shares.row([taken.name.into(), rate.into(), per_second.into(), skew_ms.into(), share.into()]);
        if let ((BUDGETED_RATE, BUDGETED_SKEW_MS), Some(share)) = ((rate, skew_ms), share) {
            let what = if taken.shared { format!(" {} on one key", taken.name) } else { String::new() };
            let what = format!("quorum acquire{what} in one round, 2000/s, clocks ± 5 ms, %");
            budgets.push(Budget::at_least(what, share, 99.0));
        }
    }
    let form = Form::Lines {
        x: Axis::linear("seconds since the nodes' start"),
        y: Axis::linear("locks in one round, %"),
        lines: vec![line],
    };
    let plot =
        Plot { name: "first-seconds".to_owned(), title: "New nodes: locks that need one round only".to_owned(), form };
    (vec![shares, beginning], vec![plot], budgets)
}

/// Waits until `node` issues tokens from its clock.
pub async fn follows_its_clock(node: &Server) {
    let mut connection = connect(node.port()).await;
    // A new key each time, since a repeated one would get its own last token plus one.
    for n in 0.. {
        let key = format!("probe-{n}");
        let token = cmd("LOCK.ACQUIRE").arg(&key).arg("probe").arg(1_000).query_async::<u64>(&mut connection).await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let _: Value = cmd("LOCK.RELEASE").arg(&key).arg("probe").query_async(&mut connection).await.unwrap();
        if token.is_ok_and(|token| token <= now) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Takes locks with the state machine of quorum clients ([`Acquire`]), with proposals from clocks that differ. Returns
/// the results for each second.
async fn run(nodes: &[Server], taken: Taken, rate: u64, skew_ms: u64, length: Duration) -> Vec<Second> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut connections = Vec::new();
        for node in nodes {
            connections.push(connect(node.port()).await);
        }
        clients.push(connections);
    }
    // Locks still being taken at the end belong to the last second.
    let seconds = Arc::new((0..length.as_secs()).map(|_| Second::default()).collect::<Vec<_>>());
    let mut tasks = Vec::new();
    let start = Instant::now();
    for (client, connections) in clients.into_iter().enumerate() {
        let offset_us = (client as i64 * 2 - (CLIENTS as i64 - 1)) * skew_ms as i64 * 1_000 / (CLIENTS as i64 - 1);
        let seconds = Arc::clone(&seconds);
        tasks.push(tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_nanos(1_000_000_000 * CLIENTS as u64 / rate));
            let seen = Arc::new(AtomicU64::new(0));
            let mut under_way = tokio::task::JoinSet::new();
            while start.elapsed() < length {
                tick.tick().await;
                let key =
                    if taken.shared { "read".to_owned() } else { format!("k{}", rand::rng().random_range(0..KEYS)) };
                let owner = format!("{:020x}", rand::rng().random::<u64>());
                let (connections, seconds, seen) = (connections.clone(), Arc::clone(&seconds), Arc::clone(&seen));
                under_way.spawn(async move {
                    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64 + offset_us;
                    let proposal = (wall as u64).max(seen.load(Ordering::Relaxed) + 1);
                    let second = &seconds[(start.elapsed().as_secs() as usize).min(seconds.len() - 1)];
                    if let Some((token, rounds)) = acquire(connections, &key, &owner, proposal, taken).await {
                        seen.fetch_max(token, Ordering::Relaxed);
                        second.taken.fetch_add(1, Ordering::Relaxed);
                        second.fenced.fetch_add(u64::from(rounds > 1), Ordering::Relaxed);
                    }
                });
            }
            under_way.join_all().await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    Arc::into_inner(seconds).expect("every task has ended")
}

/// Takes and releases `key`. Returns its token and number of rounds, or `None` if the lock was not taken.
async fn acquire(
    connections: Vec<MultiplexedConnection>,
    key: &str,
    owner: &str,
    proposal: u64,
    taken: Taken,
) -> Option<(u64, usize)> {
    let ask = |call: Call| {
        let mut connection = connections[call.node].clone();
        let mut command = redis::Cmd::new();
        match call.ask {
            Ask::Acquire { ttl_ms, proposal, .. } => {
                command.arg("LOCK.ACQUIRE").arg(key).arg(owner).arg(ttl_ms).arg("FENCE").arg(proposal.get());
                if taken.shared {
                    command.arg("SHARED");
                }
            }
            Ask::Fence { token } => {
                command.arg("LOCK.FENCE").arg(key).arg(owner).arg(token.get());
            }
            Ask::Extend { .. } | Ask::Share => unreachable!("nothing is extended or shared here"),
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
    if !taken.held.is_zero() {
        tokio::time::sleep(taken.held).await;
    }
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
