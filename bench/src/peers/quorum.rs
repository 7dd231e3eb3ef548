//! A lock on one node and on a majority of nodes, by every client, in alternating slices of time.
//!
//! Nobody else wants the locks. Measured are the time for one task to take one and the time to release it, the number
//! taken and released per second by several tasks at once, and the CPU time of client and servers. Every client uses
//! the same nodes; etcd and ZooKeeper have three of their own.

use std::time::Duration;

use super::cluster::Cluster;
use super::installed::{Installed, Measured, crate_version};
use super::series::{Series, series};
use super::takers::Slice;
use crate::quantiles::median;
use crate::quorum::follows_its_clock;
use crate::results::{Axis, Bars, Cell, Form, Outcome, Plot, Table};
use crate::server::{Server, cpu_of_process};

/// The length of a slice while all nodes are well.
const SLICE: Duration = Duration::from_millis(250);

/// The length of a slice while nodes are frozen, when some clients take a second for one lock.
const FROZEN_SLICE: Duration = Duration::from_millis(1_500);

/// The time for a client to find out which nodes do not answer, before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// The number of tasks in the plot of throughput, and in the figures of CPU time beside it. All clients can be measured
/// with it.
const PLOTTED_TASKS: usize = 64;

/// The number of frozen nodes, of five.
const FROZEN: usize = 2;

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of nodes. With five, two are frozen afterwards.
    #[arg(long, value_delimiter = ',', default_value = "1,3,5")]
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

/// The results of one client in one state of the nodes: for each number of tasks, a slice per round.
struct Done {
    name: &'static str,
    slices: Vec<(usize, Vec<Slice>)>,
}

pub async fn run(start: impl Fn() -> Server, options: &Options) -> Measured {
    let clusters = options.installed.clusters().await;
    let mut versions = vec![crate_version("rslock"), crate_version("redlock")];
    versions.extend(options.installed.cluster_versions());
    let mut times = times_table();
    let mut rates = rates_table(&options.tasks);
    let mut plots = Vec::new();
    let most = options.nodes.iter().copied().max().unwrap_or(0);
    let nodes: Vec<Server> = (0..most).map(|_| start()).collect();
    // A new node's tokens do not follow its clock at once, and until they do, our locks take two rounds.
    eprintln!("peers-quorum: until the tokens of new nodes follow their clocks");
    for node in &nodes {
        follows_its_clock(node).await;
    }
    for &count in &options.nodes {
        let nodes = &nodes[..count];
        let tasks_max = *options.tasks.iter().max().unwrap_or(&1);
        let (mut all, found) = series(nodes, &clusters, &options.installed, tasks_max).await;
        versions.extend(found);
        let state = if count == 1 { "1 node".to_owned() } else { format!("{count} nodes, all well") };
        let place = Place { nodes, clusters: &clusters };
        let done = place.rounds(&mut all, &options.tasks, options.rounds, SLICE, &state).await;
        add_times(&mut times, &state, &done);
        add_rates(&mut rates, count, &done);
        if options.tasks.contains(&1) {
            plots.push(times_plot(&format!("{count}-nodes"), &state, &done));
        }
        if options.tasks.contains(&PLOTTED_TASKS) {
            plots.push(rates_plot(count, &state, &done));
        }
        if count == 5 {
            let state = "5 nodes, 2 of them frozen";
            place.freeze(true).await;
            let done = place.rounds(&mut all, &[1], 2, FROZEN_SLICE, state).await;
            place.freeze(false).await;
            add_times(&mut times, state, &done);
            plots.push(times_plot("frozen", state, &done));
        }
    }
    options.installed.note_missing(&mut times);
    let outcome = Outcome {
        title: "A lock on one node and on a majority, beside peers".to_owned(),
        tables: vec![times, rates],
        plots,
        budgets: Vec::new(),
    };
    (outcome, versions)
}

/// The servers of all clients.
struct Place<'a> {
    nodes: &'a [Server],
    clusters: &'a [Cluster],
}

impl Place<'_> {
    /// Freezes two nodes and a follower of each cluster; lets them run again if `frozen` is false.
    async fn freeze(&self, frozen: bool) {
        self.nodes[..FROZEN].iter().for_each(|node| node.freeze(frozen));
        for cluster in self.clusters {
            cluster.freeze_follower(frozen).await;
        }
    }

    /// Measures every client in turn, in every round.
    async fn rounds(
        &self,
        all: &mut [Series],
        tasks: &[usize],
        rounds: usize,
        length: Duration,
        state: &str,
    ) -> Vec<Done> {
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
                    slices.push(self.slice(series, *tasks, length).await);
                }
            }
        }
        done
    }

    /// Measures a client for a while, with the CPU time that it and its servers use.
    async fn slice(&self, series: &mut Series, tasks: usize, length: Duration) -> Slice {
        let (pid, on) = (series.taker.pid(), series.on);
        let (client, servers) = (cpu_of_process(pid), self.cpu_of_servers(on));
        let slice = series.taker.slice(tasks, length).await;
        Slice {
            client_cpu: cpu_of_process(pid).saturating_sub(client),
            servers_cpu: self.cpu_of_servers(on).saturating_sub(servers),
            ..slice
        }
    }

    /// Returns the CPU time of a cluster so far, or of all nodes.
    fn cpu_of_servers(&self, cluster: Option<usize>) -> Duration {
        match cluster {
            Some(n) => self.clusters[n].cpu(),
            None => self.nodes.iter().map(Server::cpu_of_all_threads).sum(),
        }
    }
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
        .numbers("CPU of client", "us a lock", 0)
        .numbers("CPU of servers", "us a lock", 0)
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
        "etcd and ZooKeeper have three nodes in every row; where nodes are frozen, one of their followers is. Their \
         clients know all nodes; the last row of etcd has the leader alone.",
    );
    table.note(
        "Failed: not acquired, not released, or no answer within two seconds. A client that acquired no lock in a \
         round skips the next one.",
    );
    table
}

/// Returns the table of rates; the CPU time is that of [`PLOTTED_TASKS`] tasks.
fn rates_table(tasks: &[usize]) -> Table {
    let title = "Locks taken and given back in a second, by tasks at once, and as a multiple of Palisade's";
    let mut table = Table::new("rates", title).numbers("nodes", "", 0).words("client");
    for &tasks in tasks {
        table = table.numbers(&named(tasks), "a second", 0).numbers(&named(tasks), "times Palisade's", 2);
    }
    let cpu = |of: &str| format!("CPU of {of}, {}", named(PLOTTED_TASKS));
    table.numbers(&cpu("client"), "us a lock", 1).numbers(&cpu("servers"), "us a lock", 1).numbers("failed", "", 0)
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
            series.cpu_a_lock(1, |slice| slice.client_cpu).into(),
            series.cpu_a_lock(1, |slice| slice.servers_cpu).into(),
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
        row.push(series.cpu_a_lock(PLOTTED_TASKS, |slice| slice.client_cpu).into());
        row.push(series.cpu_a_lock(PLOTTED_TASKS, |slice| slice.servers_cpu).into());
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

fn rates_plot(nodes: usize, state: &str, done: &[Done]) -> Plot {
    let measured = || done.iter().filter_map(|series| Some((series.name.to_owned(), series.rate(PLOTTED_TASKS)?)));
    let form = Form::Bars {
        value: Axis::linear("locks taken and given back in a second"),
        categories: measured().map(|(name, _)| name).collect(),
        series: vec![Bars { name: "locks".to_owned(), values: measured().map(|(_, rate)| Some(rate)).collect() }],
    };
    let title = format!("Throughput of {PLOTTED_TASKS} tasks: {state}");
    Plot { name: format!("rates-{nodes}-nodes"), title, form }
}

impl Done {
    /// Returns the slices with this number of tasks.
    fn of(&self, tasks: usize) -> Option<&Vec<Slice>> {
        self.slices.iter().find(|(n, _)| *n == tasks).map(|(_, slices)| slices)
    }

    /// Returns the CPU time of a lock and its release, in microseconds.
    fn cpu_a_lock(&self, tasks: usize, cpu: impl Fn(&Slice) -> Duration) -> Option<f64> {
        let slices = self.of(tasks)?;
        let locks: usize = slices.iter().map(|slice| slice.release_ns.len()).sum();
        (locks > 0).then(|| slices.iter().map(cpu).sum::<Duration>().as_secs_f64() * 1e6 / locks as f64)
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
