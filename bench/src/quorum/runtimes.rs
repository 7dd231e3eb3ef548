//! A lock on five nodes beside raw SETs, on each kind of runtime that callers have.

use std::time::Duration;

use palisade_client::Client;

use super::raw_sets::RawSets;
use super::throughput::{Measured, NODES, compare};
use crate::results::{Budget, Table};
use crate::runtime::{name_of, runtime};
use crate::server::Server;

/// The numbers of worker threads; 0 is the runtime of the current thread.
const WORKERS: [usize; 3] = [0, 1, 2];

/// The number of tasks with which times are compared, and the number with which rates are compared.
const TASKS: [usize; 2] = [1, 256];

/// The largest time of taking a lock, as a multiple of the time of a raw SET.
const P50_MAX: f64 = 1.05;

/// The least rate of locks with many tasks, as a multiple of the rate of raw SETs and DELs. The first is for the
/// runtime of the current thread, the second for the others, where raw commands also switch threads.
const RATE_MIN: [f64; 2] = [2.0, 3.0];

/// The largest CPU time of the client for a lock and its release, as a multiple of that for a raw SET and DEL. It is 6
/// us where those take 13.
const CPU_MAX: f64 = 0.46;

/// Each runtime is measured for this many times as long as the other parts.
pub const LONGER: u32 = 2;

/// Measures each runtime with each number of tasks on `nodes`, for `length` each. Returns table and budgets.
pub fn measure(nodes: &[Server], length: Duration) -> (Table, Vec<Budget>) {
    let mut table = Table::new("runtimes", format!("A lock beside raw SET + DEL on each runtime, {NODES} nodes"))
        .words("runtime")
        .numbers("tasks", "", 0)
        .numbers("SET p50", "us", 0)
        .numbers("acquire p50", "us", 0)
        .numbers("acquire / SET", "p50", 2)
        .numbers("SET + DEL", "1/s", 0)
        .numbers("lock + release", "1/s", 0)
        .numbers("locks / SETs", "times", 2)
        .numbers("CPU of SET + DEL", "us", 1)
        .numbers("and of the nodes", "us", 1)
        .numbers("CPU of lock + release", "us", 1)
        .numbers("and of the nodes", "us", 1)
        .numbers("not got", "", 0);
    table.note(
        "CPU: of this process for each pair, all threads, with what the kernel does for them. Both take turns, with the same \
         runtime and the same kind of connection (TCP_NODELAY).",
    );
    let mut budgets = vec![];
    for workers in WORKERS {
        let runtime_name = name_of(workers);
        for tasks in TASKS {
            eprintln!("quorum: {runtime_name}, {tasks} tasks");
            let ([sets, taken], rate) = on(workers, nodes, tasks, length);
            let time = taken.took_us(0.5) / sets.took_us(0.5);
            table.row([
                runtime_name.as_str().into(),
                tasks.into(),
                sets.took_us(0.5).into(),
                taken.took_us(0.5).into(),
                time.into(),
                sets.per_second().into(),
                taken.per_second().into(),
                rate.into(),
                sets.cpu_us(0).into(),
                sets.cpu_us(1).into(),
                taken.cpu_us(0).into(),
                taken.cpu_us(1).into(),
                taken.failed.into(),
            ]);
            let what = |what: &str| format!("quorum, {NODES} nodes, {runtime_name}, {tasks} tasks: {what}");
            if tasks == 1 {
                budgets.push(Budget::at_most(what("acquire / raw SET, p50"), time, P50_MAX));
            } else {
                let least = RATE_MIN[usize::from(workers > 0)];
                budgets.push(Budget::at_least(what("rate / raw SET + DEL"), rate, least));
                let cpu = taken.cpu_us(0) / sets.cpu_us(0);
                budgets.push(Budget::at_most(what("client CPU / raw SET + DEL"), cpu, CPU_MAX));
            }
        }
    }
    (table, budgets)
}

/// Compares locks with raw SETs, in a runtime that is created for this comparison.
fn on(workers: usize, nodes: &[Server], tasks: usize, length: Duration) -> ([Measured; 2], f64) {
    let compares = || {
        runtime(workers).block_on(async {
            let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
            let raw = RawSets::connect(&ports).await;
            let locks = Client::new(ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))).unwrap();
            locks.connect().await.unwrap();
            let compared = compare(nodes, &raw, &locks, tasks, length).await;
            locks.close().await.unwrap();
            compared
        })
    };
    // A runtime cannot be entered within another.
    std::thread::scope(|scope| scope.spawn(compares).join().unwrap())
}
