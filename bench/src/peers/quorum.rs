//! A lock on a majority of nodes, by every client, in alternating slices of time.
//!
//! Nobody else wants the locks. Measured are the time for one task to take one and the time to release it, and the
//! number taken and released per second by several tasks at once. Every client uses the same nodes; etcd has three of
//! its own.

use std::sync::Arc;
use std::time::Duration;

use palisade_client::Client;
use redis::{IntoConnectionInfo, io::tcp::TcpSettings};
use redlock::RedLock;
use rslock::LockManager;
use serde_json::json;

use super::etcd::{self, Etcd};
use super::installed::{Installed, Measured, crate_version};
use super::process::Peer;
use super::takers::{Slice, Taker, Task};
use crate::quantiles::median;
use crate::quorum::follows_its_clock;
use crate::results::{Axis, Bars, Cell, Form, Outcome, Plot, Table};
use crate::server::{Server, connect};

/// The length of a slice while all nodes are well.
const SLICE: Duration = Duration::from_millis(250);

/// The length of a slice while nodes are frozen, when some clients take a second for one lock.
const FROZEN_SLICE: Duration = Duration::from_millis(1_500);

/// The time for a client to find out which nodes do not answer, before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// The largest number of threads, for clients whose calls block their thread.
const THREADS_MAX: usize = 64;

/// The number of tasks in the throughput plot; all clients are measured with it.
const PLOTTED_TASKS: usize = 64;

/// The number of frozen nodes, of five.
const FROZEN: usize = 2;

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of nodes. With five, two are frozen afterwards.
    #[arg(long, value_delimiter = ',', default_value = "3,5")]
    nodes: Vec<usize>,

    /// The numbers of concurrent tasks. With one task, times are measured.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,256")]
    tasks: Vec<usize>,

    /// The number of rounds; in each, every client has one slice of time for each number of tasks.
    #[arg(long, default_value_t = 4)]
    rounds: usize,

    #[command(flatten)]
    installed: Installed,
}

/// A client that is measured.
struct Series {
    name: &'static str,
    taker: Taker,
    /// The most tasks with which the client is measured: some need a thread for each.
    tasks_max: usize,
}

/// The results of one client in one state of the nodes: for each number of tasks, a slice per round.
struct Done {
    name: &'static str,
    slices: Vec<(usize, Vec<Slice>)>,
}

pub async fn run(start: impl Fn() -> Server, options: &Options) -> Measured {
    let etcds = options.installed.etcds().await;
    let mut versions = vec![crate_version("rslock"), crate_version("redlock")];
    versions.extend(options.installed.etcd_version());
    let mut times = times_table();
    let mut rates = rates_table(&options.tasks);
    let mut plots = Vec::new();
    let most = options.nodes.iter().copied().max().unwrap_or(0);
    let nodes: Vec<Server> = (0..most).map(|_| start()).collect();
    // A new node's tokens do not follow its clock at once, and without that our locks take two rounds.
    eprintln!("peers-quorum: until the tokens of new nodes follow their clocks");
    for node in &nodes {
        follows_its_clock(node).await;
    }
    for &count in &options.nodes {
        let nodes = &nodes[..count];
        let (mut all, found) = series(nodes, &etcds, options).await;
        versions.extend(found.into_iter().filter(|version| !versions.contains(version)).collect::<Vec<_>>());
        let state = format!("{count} nodes, all well");
        let done = rounds(&mut all, &options.tasks, options.rounds, SLICE, &state).await;
        add_times(&mut times, &state, &done);
        add_rates(&mut rates, count, &done);
        if options.tasks.contains(&1) {
            plots.push(times_plot(&format!("{count}-nodes"), &state, &done));
        }
        if options.tasks.contains(&PLOTTED_TASKS) {
            plots.push(rates_plot(count, &done));
        }
        if count == 5 {
            let state = "5 nodes, 2 of them frozen";
            freeze(nodes, &etcds, true).await;
            let done = rounds(&mut all, &[1], 2, FROZEN_SLICE, state).await;
            freeze(nodes, &etcds, false).await;
            add_times(&mut times, state, &done);
            plots.push(times_plot("frozen", state, &done));
        }
    }
    options.installed.note_missing(&mut times);
    let outcome = Outcome {
        title: "A lock on a majority, beside peers".to_owned(),
        tables: vec![times, rates],
        plots,
        budgets: Vec::new(),
    };
    (outcome, versions)
}

/// Freezes two nodes and a follower of each etcd cluster; lets them run again if `frozen` is false.
async fn freeze(nodes: &[Server], etcds: &[(&str, Etcd)], frozen: bool) {
    nodes[..FROZEN].iter().for_each(|node| node.freeze(frozen));
    for (_, etcd) in etcds {
        etcd.freeze_follower(frozen).await;
    }
}

/// Returns every available client, connected, with the versions of those not in Rust.
async fn series(nodes: &[Server], etcds: &[(&'static str, Etcd)], options: &Options) -> (Vec<Series>, Vec<String>) {
    let tasks = *options.tasks.iter().max().unwrap_or(&1);
    let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    let addresses: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
    let mut versions = Vec::new();
    let mut all = Vec::new();
    let mut add = |name, taker, tasks_max| all.push(Series { name, taker, tasks_max });

    add("Palisade", Taker::Tasks(vec![Task::Palisade(Client::new(&addresses).unwrap()); tasks]), tasks);
    let mut raw = Vec::new();
    for &port in &ports {
        raw.push(connect(port).await);
    }
    add("raw SET and DEL", Taker::Tasks(vec![Task::Raw(raw); tasks]), tasks);
    let rslock = LockManager::new(addresses.clone());
    add("rslock", Taker::Tasks(vec![Task::Rslock(rslock); tasks]), tasks);
    let no_delay = |address: &String| {
        let settings = TcpSettings::default().set_nodelay(true);
        redis::Client::open(address.as_str().into_connection_info().unwrap().set_tcp_settings(settings)).unwrap()
    };
    let rslock = LockManager::from_clients(addresses.iter().map(no_delay).collect());
    add("rslock, no delay", Taker::Tasks(vec![Task::Rslock(rslock); tasks]), tasks);
    // redlock makes a new connection for each command to each node, in a thread per task.
    add("redlock (Rust)", Taker::Threads(Arc::new(RedLock::new(addresses))), THREADS_MAX);

    let peers = [
        ("pottery", options.installed.python("quorum_asyncio.py"), tasks),
        ("aioredlock", options.installed.python("quorum_asyncio.py"), tasks),
        ("redlock-py", options.installed.python("quorum_redlock_py.py"), THREADS_MAX),
        ("redlock (Node.js)", options.installed.node("quorum_redlock.mjs"), tasks),
    ];
    for (name, command, tasks_max) in peers {
        let Some(command) = command else { continue };
        let (peer, version) = Peer::start(command, json!({ "do": "hello", "client": name, "ports": ports })).await;
        versions.push(version);
        add(name, Taker::Process(peer), tasks_max);
    }
    for (name, etcd) in etcds {
        add(name, Taker::Tasks(of_etcd(etcd.client().await, tasks).await), tasks);
    }
    if let Some(("etcd in memory", etcd)) = etcds.last() {
        let leader = etcd.leader().await;
        add("etcd in memory, at its leader", Taker::Tasks(of_etcd(etcd.client_of(leader).await, tasks).await), tasks);
    }
    (all, versions)
}

/// Returns `tasks` tasks over the same connections to etcd, each with a session (a lease) of its own.
async fn of_etcd(client: etcd::Client, tasks: usize) -> Vec<Task> {
    let mut all = Vec::new();
    for _ in 0..tasks {
        let session = client.clone().repeating().session().await.unwrap();
        all.push(Task::Etcd { client: client.clone(), session });
    }
    all
}

/// Measures every client in turn, in every round.
async fn rounds(all: &mut [Series], tasks: &[usize], rounds: usize, length: Duration, state: &str) -> Vec<Done> {
    for series in &mut *all {
        series.taker.slice(1, WARM_UP).await;
    }
    let new = |series: &Series| Done {
        name: series.name,
        slices: tasks.iter().filter(|&&n| n <= series.tasks_max).map(|&n| (n, Vec::new())).collect(),
    };
    let mut done: Vec<Done> = all.iter().map(new).collect();
    for round in 1..=rounds {
        eprintln!("peers-quorum: {state}, round {round} of {rounds}");
        for (series, done) in all.iter_mut().zip(&mut done) {
            for (tasks, slices) in &mut done.slices {
                if slices.last().is_some_and(|slice: &Slice| slice.acquire_ns.is_empty()) {
                    continue;
                }
                slices.push(series.taker.slice(*tasks, length).await);
            }
        }
    }
    done
}

fn times_table() -> Table {
    let mut table = Table::new("times", "Time to take and to give back a lock, one at a time")
        .words("nodes")
        .words("client")
        .numbers("acquire p50", "us", 0)
        .numbers("acquire p99", "us", 0)
        .numbers("acquire p50", "times Palisade's", 2)
        .words("least to most, by round")
        .hidden()
        .numbers("release p50", "us", 0)
        .numbers("release p99", "us", 0)
        .numbers("locks", "", 0)
        .numbers("failed", "", 0);
    table.note(
        "In each round every client has its turn. The ratio is that of the medians of a round; the table has its \
         median over the rounds.",
    );
    table.note(
        "raw SET and DEL is the floor, not a lock client: one command to every node at once, done when a majority has \
         answered.",
    );
    table.note(
        "etcd has three nodes in every row; where nodes are frozen, one of its followers is. Its client asks the \
         nodes in turn; the last row asks the leader alone.",
    );
    table.note(
        "Failed: not acquired, not released, or no answer within two seconds. A client that acquired no lock in a \
         round skips the next one.",
    );
    table
}

fn rates_table(tasks: &[usize]) -> Table {
    let title = "Locks taken and given back in a second, by tasks at once, and as a multiple of Palisade's";
    let mut table = Table::new("rates", title).numbers("nodes", "", 0).words("client");
    for &tasks in tasks {
        table = table.numbers(&named(tasks), "a second", 0).numbers(&named(tasks), "times Palisade's", 2);
    }
    table.numbers("failed", "", 0)
}

/// Returns a number of tasks in words.
fn named(tasks: usize) -> String {
    if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }
}

fn add_times(table: &mut Table, state: &str, done: &[Done]) {
    let ours = done[0].of(1);
    for series in done {
        let Some(slices) = series.of(1) else { continue };
        let (acquire, release) = (sorted(slices, |slice| &slice.acquire_ns), sorted(slices, |slice| &slice.release_ns));
        let mut ratios: Vec<f64> = ours
            .iter()
            .flat_map(|ours| ours.iter().zip(slices))
            .filter_map(|(ours, theirs)| Some(p50(&theirs.acquire_ns)? / p50(&ours.acquire_ns)?))
            .collect();
        ratios.sort_by(f64::total_cmp);
        let spread = ratios.first().zip(ratios.last()).map(|(least, most)| format!("{least:.2} to {most:.2}"));
        table.row([
            state.into(),
            series.name.into(),
            quantile(&acquire, 0.5).into(),
            quantile(&acquire, 0.99).into(),
            median(&ratios).into(),
            spread.into(),
            quantile(&release, 0.5).into(),
            quantile(&release, 0.99).into(),
            acquire.len().into(),
            slices.iter().map(|slice| slice.failed).sum::<u64>().into(),
        ]);
    }
}

fn add_rates(table: &mut Table, nodes: usize, done: &[Done]) {
    let numbers: Vec<usize> = done[0].slices.iter().map(|(tasks, _)| *tasks).collect();
    for series in done {
        let mut row: Vec<Cell> = vec![nodes.into(), series.name.into()];
        for &tasks in &numbers {
            let rate = series.rate(tasks);
            let ratio = rate.zip(done[0].rate(tasks)).map(|(rate, ours)| rate / ours);
            row.extend([rate.into(), ratio.into()]);
        }
        let failed: u64 = series.slices.iter().flat_map(|(_, slices)| slices).map(|slice| slice.failed).sum();
        row.push(failed.into());
        table.rows.push(row);
    }
}

fn times_plot(name: &str, state: &str, done: &[Done]) -> Plot {
    let measured = || done.iter().filter_map(|series| Some((series.name, series.of(1)?)));
    let is_taken = |slices: &[Slice]| slices.iter().any(|slice| !slice.acquire_ns.is_empty());
    let label = |(name, slices): (&str, &Vec<Slice>)| {
        if is_taken(slices) { name.to_owned() } else { format!("{name} (none in time)") }
    };
    let bars = |name: &str, times: fn(&Slice) -> &Vec<u64>| Bars {
        name: name.to_owned(),
        values: measured().map(|(_, slices)| quantile(&sorted(slices, times), 0.5)).collect(),
    };
    let form = Form::Bars {
        value: Axis::linear("p50, us"),
        categories: measured().map(label).collect(),
        series: vec![bars("acquire", |slice| &slice.acquire_ns), bars("release", |slice| &slice.release_ns)],
    };
    Plot { name: format!("times-{name}"), title: format!("One lock: {state}"), form }
}

fn rates_plot(nodes: usize, done: &[Done]) -> Plot {
    let measured = || done.iter().filter_map(|series| Some((series.name.to_owned(), series.rate(PLOTTED_TASKS)?)));
    let form = Form::Bars {
        value: Axis::linear("locks taken and given back in a second"),
        categories: measured().map(|(name, _)| name).collect(),
        series: vec![Bars { name: "locks".to_owned(), values: measured().map(|(_, rate)| Some(rate)).collect() }],
    };
    let title = format!("Throughput of {PLOTTED_TASKS} tasks: {nodes} nodes, all well");
    Plot { name: format!("rates-{nodes}-nodes"), title, form }
}

impl Done {
    /// Returns the slices with this number of tasks.
    fn of(&self, tasks: usize) -> Option<&Vec<Slice>> {
        self.slices.iter().find(|(n, _)| *n == tasks).map(|(_, slices)| slices)
    }

    /// Returns the locks per second, as the median of the rounds.
    fn rate(&self, tasks: usize) -> Option<f64> {
        let rate = |slice: &Slice| slice.release_ns.len() as f64 / slice.elapsed.as_secs_f64();
        let rates: Vec<f64> = self.of(tasks)?.iter().map(rate).collect();
        median(&rates)
    }
}

/// Returns the times of all slices together, sorted.
fn sorted(slices: &[Slice], times: impl Fn(&Slice) -> &Vec<u64>) -> Vec<u64> {
    let mut all: Vec<u64> = slices.iter().flat_map(|slice| times(slice).iter().copied()).collect();
    all.sort_unstable();
    all
}

/// Returns a quantile of sorted times, in microseconds.
fn quantile(sorted: &[u64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share).round() as usize] as f64 / 1_000.0)
}

/// Returns the median of times in any order, in microseconds.
fn p50(times: &[u64]) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_unstable();
    quantile(&times, 0.5)
}
