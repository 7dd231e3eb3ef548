//! The server's memory per held lock, compared with the same lock as `SET NX PX`, and with an empty value of a module;
//! and its memory per waiting request.

use std::path::Path;

use redis::Value;

use crate::raw::{Raw, request};
use crate::results::{Axis, Budget, Form, Line, Outcome, Plot, Table};
use crate::server::{Server, settled, with_floor};
use crate::waiting;

/// The number of locks in one batch of requests.
const BATCH: usize = 1_000;

/// A lease that outlasts the measurement.
const TTL: &str = "3600000";
const SETTINGS: &[&str] = &["--lock.max-ttl", TTL];

const OWNER: &str = "owner-of-20-bytes-xx";

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of held locks to measure. A server's hash tables double when they are full: for each lock they take
    /// least memory right before that, at powers of two, and most right after it.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100000,131072,200000,262144,300000,524288,600000,1000000,1048576,1200000"
    )]
    counts: Vec<usize>,

    /// The numbers of waiting requests.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    waiting: Vec<usize>,
}

/// The number of locks that the budget is for.
const BUDGETED: usize = 1_000_000;

/// The most bytes of a lock on top of an empty module value, whose cost is the server's. Token, deadline, time of the
/// grant, ttl and holds are 32 bytes, the owner has 20 here, and the key's name, stored again for the deadlines, 12.
/// That leaves 8 for the structures that hold them.
const LOCK_BYTES_MAX: f64 = 72.0;

pub fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    // Each count continues from the previous one.
    let mut counts = options.counts.clone();
    counts.sort_unstable();
    let ways = ["SET NX PX", "empty module value", "ACQUIRE"];
    let floor = with_floor(module);
    let settings: Vec<&str> = SETTINGS.iter().copied().chain(floor.iter().map(String::as_str)).collect();
    let [set, empty, lock] = ways.map(|way| fill(&Server::start_as(&[], server, module, &settings), way, &counts));
    let mut table = Table::new("memory", "Memory of a held lock: key of 12 bytes, owner of 20")
        .numbers("locks", "", 0)
        .numbers("filling of the hash table", "%", 0)
        .numbers("SET NX PX", "bytes", 1)
        .numbers("empty module value", "bytes", 1)
        .numbers("ACQUIRE", "bytes", 1)
        .numbers("ACQUIRE / SET", "times", 2)
        .numbers("ACQUIRE beside an empty value", "bytes", 1)
        .numbers("SET NX PX, resident", "bytes", 0)
        .numbers("ACQUIRE, resident", "bytes", 0);
    let mut budgets = Vec::new();
    for (((&count, set), empty), lock) in counts.iter().zip(&set).zip(&empty).zip(&lock) {
        let more = lock.used - empty.used;
        table.row([
            count.into(),
            (count as f64 / count.next_power_of_two() as f64 * 100.0).into(),
            set.used.into(),
            empty.used.into(),
            lock.used.into(),
            (lock.used / set.used).into(),
            more.into(),
            set.resident.into(),
            lock.resident.into(),
        ]);
        if count == BUDGETED {
            let what = "memory of a held lock of 1000000, 20-byte owner, beside an empty module value, bytes";
            budgets.push(Budget::at_most(what, more, LOCK_BYTES_MAX));
        }
    }
    table.note("Growth of used_memory, divided by the number of locks; resident: growth of used_memory_rss.");
    table.note("An empty value is one of bench/floor, of the smallest size that the allocator gives.");
    table.note(
        "A SET NX PX key is in two hash tables of the server, for its value and for its expiry; a lock is in one, and \
         in the module's deadlines. The filling assumes chained tables with a power of two of buckets; Valkey from \
         8.1 packs its tables differently.",
    );
    let line = |name: &str, taken: &[Taken]| Line {
        name: name.to_owned(),
        points: counts.iter().zip(taken).map(|(count, taken)| (*count as f64, taken.used)).collect(),
    };
    let form = Form::Lines {
        x: Axis::logarithmic("locks held"),
        y: Axis::linear("bytes of used_memory a lock"),
        lines: vec![line(ways[0], &set), line(ways[1], &empty), line(ways[2], &lock)],
    };
    let plot = Plot { name: "bytes".to_owned(), title: "Memory of a held lock".to_owned(), form };
    let tables = vec![table, waiting::measure(server, module, &options.waiting)];
    Outcome { title: "Memory".to_owned(), tables, plots: vec![plot], budgets }
}

/// The bytes that a lock takes.
struct Taken {
    used: f64,
    resident: f64,
}

fn fill(server: &Server, way: &str, counts: &[usize]) -> Vec<Taken> {
    let mut monitor = Raw::connect(server.port());
    let before = settled(&mut monitor);
    let mut held = 0;
    let taken = counts.iter().map(|&count| {
        eprintln!("memory: {count} locks, {way}");
        // A new connection each time: its buffers are freed with it.
        let mut connection = Raw::connect(server.port());
        while held < count {
            let until = count.min(held + BATCH);
            let mut requests = Vec::new();
            for n in held..until {
                let key = format!("lock{n:08}");
                requests.extend(match way {
                    "ACQUIRE" => request(&["LOCK.ACQUIRE", &key, OWNER, TTL]),
                    "empty module value" => request(&["FLOOR.STORE", &key, "", TTL]),
                    _ => request(&["SET", &key, OWNER, "NX", "PX", TTL]),
                });
            }
            connection.send(&requests);
            for _ in held..until {
                let answer = connection.answer();
                assert!(matches!(answer, Value::Okay | Value::Int(_)), "{answer:?}");
            }
            held = until;
        }
        drop(connection);
        let now = settled(&mut monitor);
        let a_lock = |now: u64, before: u64| now.saturating_sub(before) as f64 / count as f64;
        Taken { used: a_lock(now.0, before.0), resident: a_lock(now.1, before.1) }
    });
    taken.collect()
}

/// Returns `used_memory`, once it no longer changes.
pub fn used(monitor: &mut Raw) -> u64 {
    settled(monitor).0
}
