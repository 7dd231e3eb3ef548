//! Locks that several hold together: what one more reader or permit costs beside many others, in time and in memory, and what
//! others notice while thousands of readers get in or end at once.
//!
//! Beside it, on the same server, what Redisson does for the same purpose: our own text with the commands that its read lock, its
//! semaphore and its semaphore of permits that expire run.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::expiry::bystand;
use crate::memory::used;
use crate::raw::{Raw, request};
use crate::results::{Budget, Outcome, Table};
use crate::server::Server;
use crate::server_cost::{CONNECTIONS, Series, median_of, middle_half, ratios, turn};
use crate::workloads::{OURS, TOGETHER, Workload};

/// A lease that none of this outlives.
const TTL_MS: &str = "3600000";
const SETTINGS: &[&str] = &["--lock.max-ttl", TTL_MS];

/// Readers beside which one more is measured.
const BESIDE: [usize; 2] = [1_000, 100_000];

/// Holders that are asked for at a time.
const BATCH: usize = 1_000;

#[derive(clap::Args)]
pub struct Options {
    /// How often each operation has its turn.
    #[arg(long, default_value_t = 30)]
    rounds: usize,

    /// How long a turn is, in milliseconds.
    #[arg(long, default_value_t = 50)]
    turn_ms: u64,

    /// Readers that wait for one writer.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,

    /// Readers whose leases end together.
    #[arg(long, default_value_t = 100_000)]
    ending: usize,

    /// How often readers get in and end.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
}

pub fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    let mut budgets = Vec::new();
    let tables = vec![
        costs(server, module, options, &mut budgets),
        memory(server, module, &mut budgets),
        crowds(server, module, options, &mut budgets),
    ];
    Outcome { title: "Locks held together".to_owned(), tables, plots: Vec::new(), budgets }
}

/// What a pair costs the server.
fn costs(server: &Path, module: &Path, options: &Options, budgets: &mut Vec<Budget>) -> Table {
    let server = Server::start_as(&[], server, module, SETTINGS);
    let mut connections: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::connect(server.port())).collect();
    for holders in BESIDE {
        hold(&mut connections[0], &format!("readers-{holders}"), holders, TTL_MS);
    }
    let mut series: Vec<Series> = TOGETHER.iter().map(Workload::series).collect();
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
        .words("half of the rounds within");
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
        "As in the server's cost: commands pipelined, turns within rounds on one server process, medians of ratios.",
    );
    table
}

/// Takes `key` as a reader under so many owners of 20 bytes.
fn hold(connection: &mut Raw, key: &str, holders: usize, ttl_ms: &str) {
    for from in (0..holders).step_by(BATCH) {
        let until = holders.min(from + BATCH);
        let owner = |n: usize| format!("reader-{n:013}");
        let requests = (from..until).flat_map(|n| request(&["LOCK.ACQUIRE", key, &owner(n), ttl_ms, "SHARED"]));
        connection.send(&requests.collect::<Vec<u8>>());
        connection.skip_lines(until - from);
    }
}

/// What one more holder takes.
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

/// Readers that get in together behind a writer, and that end together.
fn crowds(server_path: &Path, module: &Path, options: &Options, budgets: &mut Vec<Budget>) -> Table {
    let mut table = Table::new("crowds", "Readers that get in together, or end together")
        .words("what")
        .numbers("took", "ms", 1)
        .numbers("longest time of a bystander", "us", 0);
    let (mut served, mut paused) = (Vec::new(), Vec::new());
    for time in 1..=options.times {
        eprintln!("together: crowds, {time} of {}", options.times);
        let server = Server::start_as(&[], server_path, module, SETTINGS);
        let ms = get_in(&server, options.waiting);
        table.row([format!("{} readers wait for one writer", options.waiting).into(), ms.into(), f64::NAN.into()]);
        served.push(ms);
        drop(server);
        // Another one: thousands of connections that close take a server a while.
        let server = Server::start_as(&[], server_path, module, SETTINGS);
        let mut connection = Raw::connect(server.port());
        // The first of them is the first to end, and all do within what filling takes.
        let ttl = Duration::from_secs(3);
        let first = Instant::now() + ttl;
        hold(&mut connection, "crowd", options.ending, "3000");
        let seen = bystand(&server, first);
        let longest_us = seen.longest_us();
        table.row([format!("leases of {} readers end", options.ending).into(), f64::NAN.into(), longest_us.into()]);
        paused.push(longest_us / 1_000.0);
    }
    let middle = |figures: &[f64]| crate::server_cost::median(figures);
    let what = format!("{} readers that wait for one writer, all served, ms", options.waiting);
    budgets.push(Budget::at_most(what, middle(&served), 50.0));
    let what = format!("{} holders of one key end, longest time of a bystander, ms", options.ending);
    budgets.push(Budget::at_most(what, middle(&paused), 2.0));
    table
        .note("All served: from the writer's RELEASE until the last reader's answer was read, over a connection each.");
    table.note("The budgets take the figure in the middle.");
    table
}

/// Milliseconds from a writer's RELEASE until all who wait have read their answers.
fn get_in(server: &Server, waiting: usize) -> f64 {
    let mut writer = Raw::connect(server.port());
    writer.ask("LOCK.ACQUIRE crowded writer 3600000");
    let mut readers: Vec<Raw> = (0..waiting).map(|_| Raw::connect(server.port())).collect();
    for (n, reader) in readers.iter_mut().enumerate() {
        let owner = format!("reader-{n:013}");
        reader.send(&request(&["LOCK.ACQUIRE", "crowded", &owner, TTL_MS, "SHARED", "WAIT", "600000"]));
    }
    while crate::server::waiters(&mut writer) < waiting {
        std::thread::sleep(Duration::from_millis(10));
    }
    let start = Instant::now();
    writer.send(&request(&["LOCK.RELEASE", "crowded", "writer"]));
    // The token and how long it waited: three lines.
    readers.iter_mut().for_each(|reader| reader.skip_lines(3));
    start.elapsed().as_secs_f64() * 1_000.0
}
