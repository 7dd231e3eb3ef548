//! Locks with several holders. Measured is the cost of one more reader or permit beside many others, in time and
//! memory. Also measured are the effects on others while thousands of readers are granted a lock or end at once.
//!
//! Redisson's solution for the same purpose is measured on the same server: scripts of our own with the commands that
//! its read lock, its semaphore, and its semaphore of expiring permits run.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::crowd;
use crate::expiry::bystand;
use crate::memory::used;
use crate::raw::{Raw, request};
use crate::results::{Budget, Outcome, Table};
use crate::server::Server;
use crate::server_cost::{CONNECTIONS, Series, median_of, middle_half, ratios, turn};
use crate::workloads::{OURS, TOGETHER};

/// A lease that outlasts the measurement.
const TTL_MS: &str = "3600000";
const SETTINGS: &[&str] = &["--lock.max-ttl", TTL_MS];

/// The numbers of readers beside which one more is measured.
const BESIDE: [usize; 2] = [1_000, 100_000];

/// The number of holders in one batch of requests.
const BATCH: usize = 1_000;

#[derive(clap::Args)]
pub struct Options {
    /// The number of rounds. In each, every operation is measured for one turn.
    #[arg(long, default_value_t = 30)]
    rounds: usize,

    /// The time for which one command is measured before the next one, in milliseconds.
    #[arg(long, default_value_t = 50)]
    turn_ms: u64,

    /// The number of readers that wait for one writer.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,

    /// The number of readers whose leases end together.
    #[arg(long, default_value_t = 100_000)]
    ending: usize,

    /// The number of repetitions: of releasing each crowd, and of ending the leases of all readers.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
}

pub fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    let mut budgets = Vec::new();
    let tables = vec![
        costs(server, module, options, &mut budgets),
        memory(server, module, &mut budgets),
        crowd::measure(server, module, options.waiting, options.times, &mut budgets),
        ends(server, module, options, &mut budgets),
    ];
    Outcome { title: "Locks held together".to_owned(), tables, plots: Vec::new(), budgets }
}

/// Measures the server's cost of a pair.
fn costs(server: &Path, module: &Path, options: &Options, budgets: &mut Vec<Budget>) -> Table {
    let server = Server::start_as(&[], server, module, SETTINGS);
    let mut connections: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::connect(server.port())).collect();
    for holders in BESIDE {
        hold(&mut connections[0], &format!("readers-{holders}"), holders, TTL_MS);
    }
    let mut series: Vec<Series> = TOGETHER.iter().map(Series::of).collect();
    for round in 0..options.rounds {
        eprintln!("together: round {} of {}", round + 1, options.rounds);
        for n in 0..TOGETHER.len() {
            let n = (n + round) % TOGETHER.len();
            let length = Duration::from_millis(options.turn_ms);
            series[n].turns.push(turn(&server, &mut connections, &TOGETHER[n], length));
        }
    }
    let mut table = Table::new("cpu", "Server CPU of a pair, without AOF")
        .words("pair")
        .numbers("main thread", "us", 2)
        .numbers("beside the exclusive pair", "times", 2)
        .words("half of the rounds within")
        .hidden();
    for Series { name, turns } in &series {
        let beside = ratios(&series, name, OURS).unwrap_or_default();
        table.row([
            (*name).into(),
            median_of(turns, |turn| turn.main_us).into(),
            crate::server_cost::median(&beside).into(),
            middle_half(&beside).into(),
        ]);
        if let Some(holders) = name.strip_prefix("shared pair beside ") {
            let what = format!("shared ACQUIRE + RELEASE beside {holders}, server CPU / {OURS}");
            budgets.push(Budget::at_most(what, crate::server_cost::median(&beside), 1.3));
        }
    }
    table.note(
        "The method is that of the server's cost: pipelined commands; in each round the variants take turns on one \
         server process; figures are medians of the ratios.",
    );
    table
}

/// Takes `key` as a reader under `holders` owners of 20 bytes.
fn hold(connection: &mut Raw, key: &str, holders: usize, ttl_ms: &str) {
    for from in (0..holders).step_by(BATCH) {
        let until = holders.min(from + BATCH);
        let owner = |n: usize| format!("reader-{n:013}");
        let requests = (from..until).flat_map(|n| request(&["LOCK.ACQUIRE", key, &owner(n), ttl_ms, "SHARED"]));
        connection.send(&requests.collect::<Vec<u8>>());
        connection.skip_lines(until - from);
    }
}

/// Measures the memory per additional holder.
fn memory(server: &Path, module: &Path, budgets: &mut Vec<Budget>) -> Table {
    let mut table = Table::new("memory", "Memory of a holder of one key, owner of 20 bytes")
        .numbers("holders", "", 0)
        .numbers("each, of used_memory", "bytes", 1);
    let server = Server::start_as(&[], server, module, SETTINGS);
    let mut monitor = Raw::connect(server.port());
    for holders in [1_000, 10_000, 100_000] {
        let before = used(&mut monitor);
        hold(&mut Raw::connect(server.port()), &format!("readers-{holders}"), holders, TTL_MS);
        let each = used(&mut monitor).saturating_sub(before) as f64 / holders as f64;
        table.row([holders.into(), each.into()]);
        if holders == 100_000 {
            budgets.push(Budget::at_most("memory of one more of 100000 holders, 20-byte owner, bytes", each, 150.0));
        }
    }
    table
}

/// Measures how long a bystander waits for answers while the leases of many readers of one key end.
fn ends(server: &Path, module: &Path, options: &Options, budgets: &mut Vec<Budget>) -> Table {
    let mut table = Table::new("ends", format!("Leases of {} readers of one key end together", options.ending))
        .numbers("time", "", 0)
        .numbers("longest time of a bystander", "us", 0);
    let mut paused = Vec::new();
    for time in 1..=options.times {
        eprintln!("together: readers end, {time} of {}", options.times);
        let server = Server::start_as(&[], server, module, SETTINGS);
        let mut connection = Raw::connect(server.port());
        // The leases begin one after another. So they also end one after another, within the time that filling takes.
        let ttl = Duration::from_secs(3);
        let first = Instant::now() + ttl;
        hold(&mut connection, "crowd", options.ending, "3000");
        let longest_us = bystand(&server, first).longest_us();
        table.row([u64::from(time).into(), longest_us.into()]);
        paused.push(longest_us / 1_000.0);
    }
    let what = format!("{} holders of one key end, longest time of a bystander, ms", options.ending);
    budgets.push(Budget::at_most(what, crate::server_cost::median(&paused), 2.0));
    table.note("The budget uses the median.");
    table
}
