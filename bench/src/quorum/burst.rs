//! The number of rounds that permits of a quorum take if as many clients as permits ask at the same moment.
//!
//! Rounds are counted on one of the five nodes: its MONITOR shows which connection sends LOCK.ACQUIRE, and each client
//! has one connection for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hdrhistogram::Histogram;
use palisade_client::Client;
use redis::Value;
use tokio::sync::Barrier;

use crate::raw::{Raw, request};
use crate::results::{Budget, Table};
use crate::server::Server;

/// The number of nodes.
pub const NODES: usize = 5;

const CLIENTS: usize = 8;
const LIMIT: u16 = 8;

/// The number of bursts, each on a new key.
const BURSTS: usize = 200;

/// Measures bursts on `nodes`. Returns table and budgets.
pub async fn measure(nodes: &[Server]) -> (Table, Vec<Budget>) {
    eprintln!("quorum: {BURSTS} bursts of {CLIENTS} clients for {LIMIT} permits");
    let mut monitor = Raw::connect(nodes[0].port());
    monitor.send(&request(&["MONITOR"]));
    monitor.answer();
    let mut marks = Raw::connect(nodes[0].port());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = Client::new(nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port()))).unwrap();
        client.connect().await.unwrap();
        clients.push(client);
    }
    let (mut rounds, mut times) = (Histogram::<u64>::new(3).unwrap(), Histogram::<u64>::new(3).unwrap());
    for burst in 0..BURSTS {
        let (start, all_hold) = (Arc::new(Barrier::new(CLIENTS)), Arc::new(Barrier::new(CLIENTS)));
        let mut tasks = Vec::new();
        for client in &clients {
            let permits = client.semaphore(format!("burst-{burst}"), LIMIT);
            let (start, all_hold) = (Arc::clone(&start), Arc::clone(&all_hold));
            tasks.push(tokio::spawn(async move {
                start.wait().await;
                let begun = Instant::now();
                let permit = permits.acquire().await.unwrap();
                let took = begun.elapsed();
                all_hold.wait().await;
                permit.release().await;
                took
            }));
        }
        for task in tasks {
            times.record(task.await.unwrap().as_micros() as u64).unwrap();
        }
        let mark = format!("burst-{burst}-is-over");
        marks.ask(&format!("ECHO {mark}"));
        acquires(&mut monitor, &mark).into_values().for_each(|count| rounds.record(count).unwrap());
    }
    let of = |histogram: &Histogram<u64>, share| histogram.value_at_quantile(share);
    let mut table =
        Table::new("burst", format!("{CLIENTS} clients at once for {LIMIT} permits of an idle key, {NODES} nodes"))
            .numbers("bursts", "", 0)
            .numbers("rounds p50", "", 0)
            .numbers("rounds p99", "", 0)
            .numbers("most", "rounds", 0)
            .numbers("mean", "rounds", 2)
            .numbers("time p50", "us", 0)
            .numbers("time p99", "us", 0);
    table.row([
        BURSTS.into(),
        of(&rounds, 0.5).into(),
        of(&rounds, 0.99).into(),
        rounds.max().into(),
        rounds.mean().into(),
        of(&times, 0.5).into(),
        of(&times, 0.99).into(),
    ]);
    table.note(
        "Clients of one process, each with connections of its own; all keep their permit until the last has one. A \
         round is a LOCK.ACQUIRE to every node, counted at one of them. A LOCK.INFO between two rounds is not \
         counted, but is in the time.",
    );
    let what = format!("quorum, {CLIENTS} clients at once for {LIMIT} permits of {NODES} nodes, rounds");
    let budgets = vec![
        Budget::at_most(format!("{what}, p50"), of(&rounds, 0.5) as f64, 2.0),
        Budget::at_most(format!("{what}, p99"), of(&rounds, 0.99) as f64, 4.0),
    ];
    (table, budgets)
}

/// Returns the number of LOCK.ACQUIRE that each connection sent, from MONITOR's lines before the one with `mark`.
fn acquires(monitor: &mut Raw, mark: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    loop {
        let Value::SimpleString(line) = monitor.answer() else { panic!("MONITOR tells lines") };
        if line.contains(mark) {
            return counts;
        }
        // 1700000000.000000 [0 127.0.0.1:50000] "LOCK.ACQUIRE" …
        if let Some((from, command)) = line.split_once("] ")
            && command.starts_with("\"LOCK.ACQUIRE\"")
        {
            *counts.entry(from.rsplit(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
}
