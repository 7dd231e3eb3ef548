//! The server's cost of a pair of commands beside few held locks, and beside millions.
//!
//! Each pair uses a different key, which is not held, so that the server finds little of what it needs in its caches,
//! as with a million users. The same pairs with strings, by SET and DEL, show how much of that is the server's own
//! cost. All servers run at once and take turns, so that disturbances of the machine affect them alike.

use std::path::Path;

use redis::Value;

use crate::quantiles::median;
use crate::raw::{Raw, request};
use crate::results::{Budget, Outcome, Table};
use crate::server::Server;

/// A lease that outlasts the measurement, in milliseconds.
const TTL: &str = "3600000";
const SETTINGS: &[&str] = &["--lock.max-ttl", TTL];

const OWNER: &str = "owner-of-20-bytes-xx";

/// The number of commands sent before waiting for the first answer.
const BATCH: usize = 1_000;

/// The largest cost of a pair of commands while the most locks are held, as a multiple of its cost while the fewest
/// are. The server causes the growth: its table of keys no longer fits into the caches, and SET and DEL take 1.97 times
/// as long. The deadlines must add nothing to that.
const MANY_MAX: f64 = 1.9;

/// The distance between the keys of pairs, a prime, so that neighbours in time are not neighbours in memory.
const STEP: usize = 7_919;

#[derive(clap::Args)]
pub struct Options {
    /// The sizes of the measurements, in held locks.
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,1000000,4000000")]
    counts: Vec<usize>,

    /// The number of turns that each server has.
    #[arg(long, default_value_t = 30)]
    rounds: usize,

    /// The number of pairs in a turn.
    #[arg(long, default_value_t = 20_000)]
    pairs: usize,
}

/// A way to hold a key, and to release it.
struct Way {
    name: &'static str,
    hold: fn(&str) -> Vec<u8>,
    end: fn(&str) -> Vec<u8>,
}

const WAYS: [Way; 2] = [
    Way { name: "SET + DEL", hold: |key| request(&["SET", key, OWNER]), end: |key| request(&["DEL", key]) },
    Way {
        name: "ACQUIRE + RELEASE",
        hold: |key| request(&["LOCK.ACQUIRE", key, OWNER, TTL]),
        end: |key| request(&["LOCK.RELEASE", key, OWNER]),
    },
];

/// A server with this number of held keys.
struct Held {
    server: Server,
    connection: Raw,
    way: &'static Way,
    count: usize,
    /// The number of pairs of commands so far.
    pairs: usize,
    /// The server's CPU time of a pair of commands in each turn, in microseconds.
    pair_us: Vec<f64>,
}

impl Held {
    fn start(server: &Path, module: &Path, way: &'static Way, count: usize) -> Self {
        eprintln!("held: {count}, {}", way.name);
        let server = Server::start_as(&[], server, module, SETTINGS);
        let mut connection = Raw::connect(server.port());
        for from in (0..count).step_by(BATCH) {
            let until = count.min(from + BATCH);
            let requests: Vec<u8> = (from..until).flat_map(|n| (way.hold)(&format!("held{n:08}"))).collect();
            connection.send(&requests);
            connection.skip_lines(until - from);
        }
        // Checks that all locks were taken, so that no errors are measured.
        assert_eq!(connection.ask("DBSIZE"), Value::Int(count as i64));
        for request in [(way.hold)("pair"), (way.end)("pair")] {
            connection.send(&request);
            let answer = connection.answer();
            assert!(matches!(answer, Value::Okay | Value::Int(_)), "{answer:?}");
        }
        Self { server, connection, way, count, pairs: 0, pair_us: Vec::new() }
    }

    fn turn(&mut self, pairs: usize) {
        let batches: Vec<Vec<u8>> = (0..pairs.div_ceil(BATCH / 2))
            .map(|_| {
                let pair = |n: usize| {
                    let key = format!("pair{:08}", n * STEP % 100_000_000);
                    [(self.way.hold)(&key), (self.way.end)(&key)].concat()
                };
                let from = self.pairs;
                self.pairs += BATCH / 2;
                (from..self.pairs).flat_map(pair).collect()
            })
            .collect();
        let before = self.server.cpu_of_main_thread();
        for batch in &batches {
            self.connection.send(batch);
            self.connection.skip_lines(BATCH);
        }
        let took = self.server.cpu_of_main_thread() - before;
        self.pair_us.push(took.as_secs_f64() * 1e6 / (batches.len() * BATCH / 2) as f64);
    }
}

pub fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    let mut counts = options.counts.clone();
    counts.sort_unstable();
    let mut all: Vec<Held> = counts
        .iter()
        .flat_map(|&count| WAYS.iter().map(move |way| (way, count)))
        .map(|(way, count)| Held::start(server, module, way, count))
        .collect();
    for round in 0..options.rounds {
        eprintln!("held: round {} of {}", round + 1, options.rounds);
        all.iter_mut().for_each(|held| held.turn(options.pairs));
    }
    let title = "Server CPU of a pair, each for another key, beside this number of held locks";
    let mut table = Table::new("held", title).numbers("held", "", 0);
    for way in &WAYS {
        table = table.numbers(way.name, "us", 2).numbers("beside the fewest", "times", 2);
    }
    // The ratio is taken within a round, in which both were measured.
    let ratio = |many: &Held, few: &Held| {
        let ratios: Vec<f64> = many.pair_us.iter().zip(&few.pair_us).map(|(many, few)| many / few).collect();
        median(&ratios).filter(|ratio| ratio.is_finite())
    };
    let mut budgets = Vec::new();
    for held in all.chunks(WAYS.len()) {
        let few = &all[..WAYS.len()];
        let [set, lock] = [0, 1].map(|way| (median(&held[way].pair_us), ratio(&held[way], &few[way])));
        table.row([held[0].count.into(), set.0.into(), set.1.into(), lock.0.into(), lock.1.into()]);
    }
    let (few, many) = (&all[WAYS.len() - 1], &all[all.len() - 1]);
    if let Some(ratio) = ratio(many, few) {
        let what = format!("{}, server CPU beside {} held / beside {}", few.way.name, many.count, few.count);
        budgets.push(Budget::at_most(what, ratio, MANY_MAX));
    }
    table.note(format!(
        "{} rounds; in each, every server executes {} pairs, {BATCH} commands at a time on one connection. Ratios \
         are medians of the ratios within a round.",
        options.rounds, options.pairs
    ));
    Outcome { title: "Beside held locks".to_owned(), tables: vec![table], plots: vec![], budgets }
}
