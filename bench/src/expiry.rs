//! A million leases that end within one second, and the effect on other users of the server.
//!
//! A bystander sends a GET at even intervals, whether or not the last one was answered. Its time runs from when it was
//! due, so a pause of the server counts for every request that it delays.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redis::Value;

use crate::quantiles::median;
use crate::raw::{Raw, request};
use crate::results::{Axis, Bars, Budget, Form, Outcome, Plot, Table};
use crate::server::Server;

/// The number of leases in one batch of requests.
const BATCH: usize = 1_000;

/// The interval of the bystander's requests. A pause of the server is at most this much longer than the longest
/// response time that the bystander measured.
const INTERVAL: Duration = Duration::from_micros(200);

/// The time over which the leases end, one after another.
const SPREAD: Duration = Duration::from_secs(1);

/// The most that a bystander's p99 while locks end may be, as a share of its p99 while the same number of `SET NX PX`
/// keys expire. The server removes those itself, in a share of each tick of its clock, which delays other clients
/// longer than anybody would accept from a module. Both run on the same machine in the same minutes, so that
/// disturbances affect both.
const P99_MAX: f64 = 0.1;

/// The time for which the bystander is measured before the first lease ends.
const BEFORE: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Options {
    /// The number of leases that end.
    #[arg(long, default_value_t = 1_000_000)]
    count: usize,

    /// The number of runs with locks, which alternate with as many with `SET NX PX` keys.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
}

/// The response times of the bystander, a client that sends GETs at even intervals, in nanoseconds.
pub struct BystanderTimes {
    before: Histogram<u64>,
    during: Histogram<u64>,
    /// Milliseconds from the end of the last lease until the server had removed all keys.
    lag_ms: f64,
}

impl BystanderTimes {
    /// Returns the longest response time in the second before leases ended, in microseconds.
    pub fn longest_before_us(&self) -> f64 {
        self.before.max() as f64 / 1_000.0
    }

    /// Returns the longest response time while leases ended, in microseconds.
    pub fn longest_us(&self) -> f64 {
        self.during.max() as f64 / 1_000.0
    }
}

pub fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    let mut table = Table::new("expiry", format!("{} leases that end within one second", options.count))
        .words("as")
        .numbers("bystander's p50 before", "us", 0)
        .numbers("p99 before", "us", 0)
        .numbers("longest before", "us", 0)
        .numbers("p50 meanwhile", "us", 0)
        .numbers("p99 meanwhile", "us", 0)
        .numbers("longest meanwhile", "us", 0)
        .numbers("p99 meanwhile / before", "times", 2)
        .numbers("all gone after the last end", "ms", 0);
    let of = |histogram: &Histogram<u64>, share| histogram.value_at_quantile(share) as f64 / 1_000.0;
    let mut bars: Vec<Bars> = ["p99 before", "p99 meanwhile", "longest before", "longest meanwhile"]
        .map(|name| Bars { name: name.to_owned(), values: Vec::new() })
        .into();
    let ways = ["ACQUIRE", "SET NX PX"];
    let mut all: [Vec<BystanderTimes>; 2] = Default::default();
    for time in 1..=options.times {
        for (way, all) in ways.iter().zip(&mut all) {
            eprintln!("expiry: {way}, {time} of {}", options.times);
            let seen = watch(&Server::start(server, module), way, options.count);
            let (before, during) = (&seen.before, &seen.during);
            table.row([
                (*way).into(),
                of(before, 0.5).into(),
                of(before, 0.99).into(),
                of(before, 1.0).into(),
                of(during, 0.5).into(),
                of(during, 0.99).into(),
                of(during, 1.0).into(),
                (of(during, 0.99) / of(before, 0.99)).into(),
                seen.lag_ms.into(),
            ]);
            all.push(seen);
        }
    }
    // The median is shown, since a single run may be disturbed by other work of the machine.
    let shown = all.each_ref().map(|all| {
        let middle = |figure: &dyn Fn(&BystanderTimes) -> f64| {
            let figures: Vec<f64> = all.iter().map(figure).collect();
            median(&figures).expect("at least one run")
        };
        [
            middle(&|seen| of(&seen.before, 0.99)),
            middle(&|seen| of(&seen.during, 0.99)),
            middle(&|seen| of(&seen.before, 1.0)),
            middle(&|seen| of(&seen.during, 1.0)),
        ]
    });
    for figures in shown {
        bars.iter_mut().zip(figures).for_each(|(bars, value)| bars.values.push(Some(value)));
    }
    let [[_, ours, _, longest], [_, natives, ..]] = shown;
    let what = format!("{} leases ending in one second", options.count);
    let budgets = vec![
        Budget::at_most(format!("{what}, longest time of a bystander, ms"), longest / 1_000.0, 2.0),
        Budget::at_most(format!("{what}, bystander's p99 / with SET NX PX"), ours / natives, P99_MAX),
    ];
    table.note(format!(
        "The bystander sends a GET every {0} us, from {1} s before the first lease ends, without waiting for answers. \
         The time of a GET runs from when it was due. No pause of the event loop is longer than the longest time plus \
         {0} us, which includes pauses of the bystander's own process.",
        INTERVAL.as_micros(),
        BEFORE.as_secs()
    ));
    table.note("Budgets and plot use the median of each figure.");
    let form = Form::Bars {
        value: Axis::linear("time of a GET, us (less is better)"),
        categories: ways.map(str::to_owned).into(),
        series: bars,
    };
    let title = format!("A bystander, while {} leases end within one second", options.count);
    let plot = Plot { name: "bystander".to_owned(), title, form };
    Outcome { title: "Expiry".to_owned(), tables: vec![table], plots: vec![plot], budgets }
}

fn watch(server: &Server, way: &str, count: usize) -> BystanderTimes {
    let mut connection = Raw::connect(server.port());
    // The time until the first lease ends. If filling takes longer than that, the run is repeated with more time, once
    // all leases have ended.
    let mut lead = Duration::from_secs(8) * count as u32 / 1_000_000 + 3 * BEFORE;
    let first = loop {
        let first = Instant::now() + lead;
        fill(&mut connection, way, count, first);
        if Instant::now() + BEFORE < first {
            break first;
        }
        while remaining(&mut connection) > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        lead *= 2;
    };
    let mut seen = bystand(server, first);
    while remaining(&mut connection) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    seen.lag_ms = (first + SPREAD).elapsed().as_secs_f64() * 1_000.0;
    seen
}

/// Measures the response times of a bystander, from the time [`BEFORE`] ahead of the first lease's end until the last
/// lease has ended. Never sleeps, so that no timer's delay is measured.
pub fn bystand(server: &Server, first: Instant) -> BystanderTimes {
    let mut bystander = Raw::connect(server.port());
    bystander.do_not_block();
    let get = request(&["GET", "of-a-bystander"]);
    let histogram = || Histogram::<u64>::new(3).unwrap();
    let mut seen = BystanderTimes { before: histogram(), during: histogram(), lag_ms: 0.0 };
    let mut next = first - BEFORE;
    let mut waiting = VecDeque::new();
    while next < first + SPREAD || !waiting.is_empty() {
        if next < first + SPREAD && Instant::now() >= next {
            bystander.send(&get);
            waiting.push_back(next);
            next += INTERVAL;
        }
        for due in waiting.drain(..bystander.lines_so_far()) {
            let histogram = if due < first { &mut seen.before } else { &mut seen.during };
            histogram.record(due.elapsed().as_nanos() as u64).unwrap();
        }
    }
    seen
}

/// Takes `count` leases that end evenly within [`SPREAD`] from `first` on.
fn fill(connection: &mut Raw, way: &str, count: usize, first: Instant) {
    for from in (0..count).step_by(BATCH) {
        let until = count.min(from + BATCH);
        let end = first + SPREAD * from as u32 / count as u32;
        // A ttl is at least 1 ms. If the lease should already have ended, filling took too long, and this run is not
        // used.
        let ttl = end.saturating_duration_since(Instant::now()).as_millis().max(1).to_string();
        let mut requests = Vec::new();
        for n in from..until {
            let key = format!("lock{n:08}");
            requests.extend(match way {
                "ACQUIRE" => request(&["LOCK.ACQUIRE", &key, "owner-of-20-bytes-xx", &ttl]),
                _ => request(&["SET", &key, "owner-of-20-bytes-xx", "NX", "PX", &ttl]),
            });
        }
        connection.send(&requests);
        for _ in from..until {
            let answer = connection.answer();
            assert!(matches!(answer, Value::Okay | Value::Int(_)), "{answer:?}");
        }
    }
}

fn remaining(connection: &mut Raw) -> i64 {
    let Value::Int(remaining) = connection.ask("DBSIZE") else { panic!("DBSIZE is a number") };
    remaining
}
