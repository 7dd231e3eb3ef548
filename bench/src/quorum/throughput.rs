//! The number of locks on a majority that one client takes and releases per second, with many tasks at a time.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use palisade_client::Client;
use tokio::task::JoinSet;

use super::raw_sets::RawSets;
use crate::quantiles;
use crate::results::{Axis, Form, Line, Plot, Table};
use crate::server::{Server, cpu_of_process};

/// The number of nodes.
pub const NODES: usize = 5;

/// The number of rounds. Each has a short turn of SETs and one of locks, so that disturbances of the machine affect
/// both alike.
const ROUNDS: usize = 8;

/// The results of concurrent tasks, of one turn or of all turns together.
pub struct Measured {
    /// The number of pairs (a lock and its release, or SET and DEL), and their total time.
    pairs: u64,
    took: Duration,
    /// The times of taking, in nanoseconds.
    times: Histogram<u64>,
    /// Locks that were not acquired: too few nodes answered in time.
    pub failed: u64,
    /// The CPU time of this process, and of the nodes.
    cpu: [Duration; 2],
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.pairs as f64 / self.took.as_secs_f64()
    }

    /// Returns the CPU time per pair, in microseconds.
    pub fn cpu_us(&self, whose: usize) -> f64 {
        self.cpu[whose].as_secs_f64() * 1e6 / self.pairs as f64
    }

    /// Returns a quantile of the times that it took to take the lock, in microseconds.
    pub fn took_us(&self, share: f64) -> f64 {
        self.times.value_at_quantile(share) as f64 / 1_000.0
    }

    fn add(&mut self, turn: &Self) {
        self.pairs += turn.pairs;
        self.took += turn.took;
        self.times.add(&turn.times).unwrap();
        self.failed += turn.failed;
        self.cpu.iter_mut().zip(turn.cpu).for_each(|(sum, cpu)| *sum += cpu);
    }
}

/// Measures with each number of tasks in `tasks`, each for `length`, on `nodes`. Returns table and plot.
pub async fn measure(nodes: &[Server], tasks: &[usize], length: Duration) -> (Table, Plot) {
    let mut table = Table::new("throughput", format!("Taken and given back by one client, {NODES} nodes"))
        .numbers("tasks", "", 0)
        .numbers("SET + DEL", "1/s", 0)
        .numbers("SET p50", "us", 0)
        .numbers("SET p99", "us", 0)
        .numbers("CPU here", "us", 1)
        .numbers("and of the nodes", "us", 1)
        .numbers("lock + release", "1/s", 0)
        .numbers("acquire p50", "us", 0)
        .numbers("acquire p99", "us", 0)
        .numbers("CPU here", "us", 1)
        .numbers("and of the nodes", "us", 1)
        .numbers("locks / SETs", "times", 2)
        .numbers("not got", "", 0);
    table.note(format!(
        "Each task has a key of its own and repeats without a pause. Both take turns, {ROUNDS} of each; locks / SETs \
         is the median of the ratios within a round. CPU: per pair, of all threads, with the kernel's work for them. \
         The client's runtime has one thread; nodes share the rest. Not got: too few nodes answered within the \
         client's time limit."
    ));
    let names = ["raw SET + DEL", "lock + release"];
    let mut lines = names.map(|name| Line { name: name.to_owned(), points: Vec::new() });
    let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    // Waits until the nodes have started.
    let raw = RawSets::connect(&ports).await;
    let locks = Client::new(ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))).unwrap();
    locks.connect().await.unwrap();
    for &count in tasks {
        eprintln!("quorum: throughput of {count} tasks");
        let ([sets, taken], ratio) = compare(nodes, &raw, &locks, count, length).await;
        table.row([
            count.into(),
            sets.per_second().into(),
            sets.took_us(0.5).into(),
            sets.took_us(0.99).into(),
            sets.cpu_us(0).into(),
            sets.cpu_us(1).into(),
            taken.per_second().into(),
            taken.took_us(0.5).into(),
            taken.took_us(0.99).into(),
            taken.cpu_us(0).into(),
            taken.cpu_us(1).into(),
            ratio.into(),
            taken.failed.into(),
        ]);
        lines[0].points.push((count as f64, sets.per_second()));
        lines[1].points.push((count as f64, taken.per_second()));
    }
    let form = Form::Lines {
        x: Axis::logarithmic("tasks at a time"),
        y: Axis::linear("pairs a second (more is better)"),
        lines: lines.into(),
    };
    (table, Plot { name: "throughput".to_owned(), title: format!("One client, {NODES} nodes"), form })
}

/// Alternates turns of SET and DEL pairs (`raw`) with turns of `locks`, in `count` tasks, each for `length` in total.
/// Returns the results of both, and the median of the ratios of their rates within a round.
pub async fn compare(
    nodes: &[Server],
    raw: &RawSets,
    locks: &Client,
    count: usize,
    length: Duration,
) -> ([Measured; 2], f64) {
    let mut all: Option<[Measured; 2]> = None;
    let mut ratios = vec![];
    for _ in 0..ROUNDS {
        let turn = length / ROUNDS as u32;
        let turns = [
            together(count, turn, nodes, raw, set_and_delete).await,
            together(count, turn, nodes, locks, take_and_release).await,
        ];
        ratios.push(turns[1].per_second() / turns[0].per_second());
        match &mut all {
            Some(all) => all.iter_mut().zip(&turns).for_each(|(all, turn)| all.add(turn)),
            None => all = Some(turns),
        }
    }
    (all.expect("one round at least"), quantiles::median(&ratios).unwrap_or(f64::NAN))
}

/// Returns the time that SET took.
async fn set_and_delete(raw: RawSets, key: String) -> Option<Duration> {
    let start = Instant::now();
    raw.set(&key).await;
    let took = start.elapsed();
    raw.delete(&key).await;
    Some(took)
}

/// Returns the time that taking the lock took.
async fn take_and_release(locks: Client, key: String) -> Option<Duration> {
    let start = Instant::now();
    let guard = locks.try_lock(&key).await.ok()?;
    let took = start.elapsed();
    guard.release().await;
    Some(took)
}

/// Returns the CPU time of this process, and of the nodes, so far.
fn cpu(nodes: &[Server]) -> [Duration; 2] {
    [cpu_of_process(std::process::id()), nodes.iter().map(Server::cpu_of_all_threads).sum()]
}

/// Runs `pair` repeatedly in `count` tasks, each on a key of its own.
async fn together<C, F>(
    count: usize,
    length: Duration,
    nodes: &[Server],
    client: &C,
    pair: fn(C, String) -> F,
) -> Measured
where
    C: Clone + Send + 'static,
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let (before, start) = (cpu(nodes), Instant::now());
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
    let (took, after) = (start.elapsed(), cpu(nodes));
    let cpu = [0, 1].map(|whose| after[whose] - before[whose]);
    Measured { pairs: times.len(), took, times, failed, cpu }
}
