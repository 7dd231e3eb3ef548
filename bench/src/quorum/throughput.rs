//! How many locks on a majority one client takes and gives back in a second, with many tasks at a time.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use palisade_client::Client;
use tokio::task::JoinSet;

use super::raw_sets::RawSets;
use crate::results::{Axis, Form, Line, Plot, Table};
use crate::server::Server;

/// How many nodes it is measured on.
pub const NODES: usize = 5;

/// What some tasks did.
struct Measured {
    per_second: f64,
    /// Of taking, in nanoseconds.
    times: Histogram<u64>,
    /// Not got: too few nodes answered in time.
    failed: u64,
}

/// Measures each number of `tasks` on `nodes` for `length`. Table, plot.
pub async fn measure(nodes: &[Server], tasks: &[usize], length: Duration) -> (Table, Plot) {
    let mut table = Table::new("throughput", format!("Taken and given back by one client, {NODES} nodes"))
        .numbers("tasks", "", 0)
        .numbers("SET + DEL", "1/s", 0)
        .numbers("SET p50", "us", 0)
        .numbers("SET p99", "us", 0)
        .numbers("lock + release", "1/s", 0)
        .numbers("acquire p50", "us", 0)
        .numbers("acquire p99", "us", 0)
        .numbers("locks / SETs", "times", 2)
        .numbers("not got", "", 0);
    table.note("Each task has a key of its own and goes on at once. The client's runtime has one thread; nodes share the rest. Not got: too few nodes \
         answered in the time that the client gives them.");
    let names = ["raw SET + DEL", "lock + release"];
    let mut lines = names.map(|name| Line { name: name.to_owned(), points: Vec::new() });
    let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    // Waits until they have started.
    let raw = RawSets::connect(&ports).await;
    let locks = Client::new(ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))).unwrap();
    locks.connect().await.unwrap();
    for &count in tasks {
        eprintln!("quorum: throughput of {count} tasks");
        let sets = together(count, length, &raw, set_and_delete).await;
        let taken = together(count, length, &locks, take_and_release).await;
        let of = |measured: &Measured, share| measured.times.value_at_quantile(share) as f64 / 1_000.0;
        table.row([
            count.into(),
            sets.per_second.into(),
            of(&sets, 0.5).into(),
            of(&sets, 0.99).into(),
            taken.per_second.into(),
            of(&taken, 0.5).into(),
            of(&taken, 0.99).into(),
            (taken.per_second / sets.per_second).into(),
            taken.failed.into(),
        ]);
        lines[0].points.push((count as f64, sets.per_second));
        lines[1].points.push((count as f64, taken.per_second));
    }
    let form = Form::Lines {
        x: Axis::logarithmic("tasks at a time"),
        y: Axis::linear("pairs a second (more is better)"),
        lines: lines.into(),
    };
    (table, Plot { name: "throughput".to_owned(), title: format!("One client, {NODES} nodes"), form })
}

/// Tells how long SET took.
async fn set_and_delete(raw: RawSets, key: String) -> Option<Duration> {
    let start = Instant::now();
    raw.set(&key).await;
    let took = start.elapsed();
    raw.delete(&key).await;
    Some(took)
}

/// Tells how long taking it took.
async fn take_and_release(locks: Client, key: String) -> Option<Duration> {
    let start = Instant::now();
    let guard = locks.try_lock(&key).await.ok()?;
    let took = start.elapsed();
    guard.release().await;
    Some(took)
}

/// `count` tasks do `pair` on a key of their own over and over.
async fn together<C, F>(count: usize, length: Duration, client: &C, pair: fn(C, String) -> F) -> Measured
where
    C: Clone + Send + 'static,
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for n in 0..count {
        let client = client.clone();
        tasks.spawn(async move {
            let (mut times, mut failed) = (Histogram::<u64>::new(3).unwrap(), 0);
            while start.elapsed() < length {
                match pair(client.clone(), format!("throughput-{n}")).await {
                    Some(took) => times.record(took.as_nanos() as u64).unwrap(),
                    None => failed += 1,
                }
            }
            (times, failed)
        });
    }
    let (mut times, mut failed) = (Histogram::<u64>::new(3).unwrap(), 0);
    while let Some(of_one) = tasks.join_next().await {
        let (times_of_one, failed_of_one) = of_one.unwrap();
        times.add(times_of_one).unwrap();
        failed += failed_of_one;
    }
    Measured { per_second: times.len() as f64 / start.elapsed().as_secs_f64(), times, failed }
}
