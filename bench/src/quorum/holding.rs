//! The cost of holding many locks: one client extends them all in the background.

use std::process;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use hdrhistogram::Histogram;
use palisade_client::{Client, Options};

use crate::raw::Raw;
use crate::results::{Budget, Table};
use crate::server::{Server, cpu_of_threads, field, resident_bytes};

/// The number of nodes.
pub const NODES: usize = 5;

/// The numbers of held locks.
const HELD: [usize; 4] = [100, 1_000, 10_000, 100_000];

/// The number of held locks that the budgets are for: at most half of a core for the client, 3 KB a lock, and 5 ms for
/// a bystander to take a free lock.
const BUDGETED: usize = 100_000;

/// The length of the held locks' leases. Each lease is extended after a third of it.
const TTL: Duration = Duration::from_secs(10);

/// The number of locks taken at a time at the beginning.
const AT_A_TIME: usize = 100;

/// The interval at which a bystander takes a lock meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// The name of the client's thread.
const THREAD: &str = "palisade";

/// Measures on `nodes` with each number of held locks, while each lock is extended twice. Returns the table and the
/// budgets.
pub async fn measure(nodes: &[Server]) -> (Table, Vec<Budget>) {
    let mut table = Table::new("holding", format!("Locks held by one client, leases of 10 s, {NODES} nodes"))
        .numbers("locks", "", 0)
        .numbers("extensions", "1/s", 0)
        .numbers("reads of a node", "1/s", 0)
        .numbers("extensions / read", "", 1)
        .numbers("CPU of the client", "% of a core", 1)
        .numbers("CPU / extension on all nodes", "us", 1)
        .numbers("bystander p50", "us", 0)
        .numbers("bystander p99", "us", 0)
        .numbers("resident", "bytes a lock", 0)
        .numbers("lost", "", 0);
    table.note(
        "Every lock is extended on every node each third of its lease. Extensions and reads are those of the first \
         node. The bystander is a task that takes a free lock by the same client every 5 ms; its work is part of the \
         client's CPU. Resident: what this process grew by. Client and nodes share the cores.",
    );
    let mut budgets = vec![];
    for held in HELD {
        eprintln!("quorum: {held} locks held");
        let locks = Client::new(nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port()))).unwrap();
        locks.connect().await.unwrap();
        let options = Options::new().ttl(TTL).told_at_once(false);
        let resident_before = resident_bytes(process::id());
        let take = |n: usize| {
            let (locks, options) = (&locks, &options);
            async move { locks.with(options).lock(format!("held-{n}")).await.unwrap() }
        };
        let guards: Vec<_> = stream::iter(0..held).map(take).buffer_unordered(AT_A_TIME).collect().await;
        let mut node = Raw::connect(nodes[0].port());
        let mut figures =
            || (field(&mut node, "lock", "lock_extensions"), field(&mut node, "stats", "total_reads_processed"));
        // Waits until the extensions are spread out evenly.
        tokio::time::sleep(TTL).await;
        let cpu = || cpu_of_threads(process::id(), THREAD);
        let (before, cpu_before, start) = (figures(), cpu(), Instant::now());
        let mut times = Histogram::<u64>::new(3).unwrap();
        while start.elapsed() < TTL * 2 / 3 {
            let begun = Instant::now();
            let guard = locks.try_lock("bystander").await.unwrap();
            times.record(begun.elapsed().as_micros() as u64).unwrap();
            guard.release().await;
            tokio::time::sleep(PAUSE).await;
        }
        let (took, now, cpu) = (start.elapsed().as_secs_f64(), figures(), cpu() - cpu_before);
        let (extensions, reads) = ((now.0 - before.0) as f64, (now.1 - before.1) as f64);
        let resident = resident_bytes(process::id()).saturating_sub(resident_before) as f64 / held as f64;
        let share = cpu.as_secs_f64() / took;
        let p99 = times.value_at_quantile(0.99);
        table.row([
            held.into(),
            (extensions / took).into(),
            (reads / took).into(),
            (extensions / reads).into(),
            (share * 100.0).into(),
            (cpu.as_secs_f64() / extensions * 1e6).into(),
            times.value_at_quantile(0.5).into(),
            p99.into(),
            resident.into(),
            guards.iter().filter(|guard| guard.is_lost()).count().into(),
        ]);
        if held == BUDGETED {
            let what = |what: &str| format!("{held} locks held by one client over {NODES} nodes: {what}");
            budgets.push(Budget::at_most(what("CPU of the client, cores"), share, 0.5));
            budgets.push(Budget::at_most(what("bytes a lock"), resident, 3_000.0));
            budgets.push(Budget::at_most(what("bystander p99, ms"), p99 as f64 / 1_000.0, 5.0));
        }
        for guard in guards {
            guard.release().await;
        }
    }
    (table, budgets)
}
