//! The time to take and to release a lock on a majority, with all nodes well or some not.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use palisade_client::{Client, Options as LockOptions};

use super::raw_sets::{RawSets, RawSetsApart};
use super::slow_link::SlowLink;
use crate::results::{Axis, Bars, Budget, Form, Plot, Table};
use crate::server::Server;

/// The number of locks and of raw SETs in one round of the comparison.
const BATCH: usize = 200;

/// The delay that a slow link adds in each direction: many round trips of the loopback.
const SLOW: Duration = Duration::from_millis(2);

/// The divisor of the number of rounds when the release waits for a slow node.
const FEWER: usize = 4;

/// The state of the nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Healthy,
    OneSlow,
    TwoFrozen,
    OneDead,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::OneSlow => "one slow",
            Self::TwoFrozen => "two frozen",
            Self::OneDead => "one dead",
        }
    }

    /// Returns the states in which this number of nodes still has a majority. A dead node stays dead, so that state
    /// comes last.
    fn all_of(nodes: usize) -> Vec<Self> {
        match nodes {
            0..=2 => vec![Self::Healthy],
            3..=4 => vec![Self::Healthy, Self::OneSlow, Self::OneDead],
            5.. => vec![Self::Healthy, Self::OneSlow, Self::TwoFrozen, Self::OneDead],
        }
    }
}

/// The measurements, in nanoseconds.
struct Measured {
    sets: Histogram<u64>,
    /// Raw SETs sent through a separate thread.
    sets_apart: Histogram<u64>,
    deletes: Histogram<u64>,
    acquires: Histogram<u64>,
    releases: Histogram<u64>,
    /// Locks that were not acquired: too few nodes answered in time.
    failed: u64,
}

/// Returns a quantile in microseconds.
fn of(histogram: &Histogram<u64>, share: f64) -> f64 {
    histogram.value_at_quantile(share) as f64 / 1_000.0
}

/// Measures each set of nodes in all states. Returns table, plots and budgets.
pub async fn measure(sets_of_nodes: &[Vec<Server>], rounds: usize) -> (Table, Vec<Plot>, Vec<Budget>) {
    let mut table = Table::new("latency", "A lock on a majority, beside as many raw SETs")
        .numbers("nodes", "", 0)
        .words("which are")
        .numbers("SET p50", "us", 0)
        .numbers("SET p99", "us", 0)
        .numbers("acquire p50", "us", 0)
        .numbers("acquire p99", "us", 0)
        .numbers("acquire / SET", "p50", 2)
        .numbers("SET, own thread", "p50, us", 0)
        .numbers("acquire / that", "p50", 2)
        .numbers("DEL p50", "us", 0)
        .numbers("DEL p99", "us", 0)
        .numbers("release p50", "us", 0)
        .numbers("release p99", "us", 0)
        .numbers("not got", "", 0);
    table.note(
        "SET: `SET key owner NX PX ttl` to every node at once, until a majority has answered, over the same kind of \
         connections: what any Redlock client must do. Rounds of both alternate.",
    );
    table.note(
        "SET, own thread: the same, but another thread has the connections. The difference is what passing requests \
         and answers between threads costs.",
    );
    table.note(
        "Not got: too few nodes answered within the client's time limit, for example because other programs use the \
         processors.",
    );
    table.note(
        "Release: until a majority has answered. DEL: until all nodes that are not known to be down have answered.",
    );
    table.note(format!(
        "One slow: its link takes {} ms longer in each direction. Two frozen: SIGSTOP; raw commands skip them. One \
         dead: killed.",
        SLOW.as_millis()
    ));
    table.note(
        "One node: client and node take turns, so the times depend on whether the kernel runs both on one core. Six \
         nodes one after the other in one run: 24 to 81 us for an acquire, 23 to 29 for a SET.",
    );
    let mut budgets = Vec::new();
    let mut categories = Vec::new();
    let mut bars: Vec<Bars> = ["SET p50", "SET p99", "acquire p50", "acquire p99"]
        .map(|name| Bars { name: name.to_owned(), values: Vec::new() })
        .into();
    for nodes in sets_of_nodes {
        let count = nodes.len();
        let mut healthy_p99 = 0.0;
        for state in State::all_of(count) {
            eprintln!("quorum: {count} nodes, {}", state.name());
            let measured = in_state(nodes, state, rounds).await;
            let Measured { sets, sets_apart, deletes, acquires, releases, failed } = &measured;
            let ratio = of(acquires, 0.5) / of(sets, 0.5);
            table.row([
                count.into(),
                state.name().into(),
                of(sets, 0.5).into(),
                of(sets, 0.99).into(),
                of(acquires, 0.5).into(),
                of(acquires, 0.99).into(),
                ratio.into(),
                of(sets_apart, 0.5).into(),
                (of(acquires, 0.5) / of(sets_apart, 0.5)).into(),
                of(deletes, 0.5).into(),
                of(deletes, 0.99).into(),
                of(releases, 0.5).into(),
                of(releases, 0.99).into(),
                (*failed).into(),
            ]);
            categories.push(format!("{count} nodes, {}", state.name()));
            let shown = [of(sets, 0.5), of(sets, 0.99), of(acquires, 0.5), of(acquires, 0.99)];
            bars.iter_mut().zip(shown).for_each(|(bars, value)| bars.values.push(Some(value)));
            match (count, state) {
                (5, State::Healthy) => healthy_p99 = of(acquires, 0.99),
                (5, State::TwoFrozen) => {
                    let ratio = of(acquires, 0.99) / healthy_p99;
                    budgets.push(Budget::at_most("quorum acquire, 2 of 5 frozen, p99 / healthy", ratio, 1.5));
                }
                _ => {}
            }
        }
    }
    let form = Form::Bars { value: Axis::linear("us (less is better)"), categories, series: bars };
    let plot = Plot {
        name: "latency".to_owned(),
        title: "A lock on a majority of nodes, beside as many raw SETs".to_owned(),
        form,
    };
    (table, vec![plot], budgets)
}

async fn in_state(nodes: &[Server], state: State, rounds: usize) -> Measured {
    let mut ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    match state {
        State::Healthy => {}
        State::OneSlow => ports[0] = SlowLink::to(ports[0], SLOW).port(),
        State::TwoFrozen => nodes[..2].iter().for_each(|node| node.freeze(true)),
        State::OneDead => nodes[0].kill(),
    }
    let rounds = if state == State::OneSlow { rounds.div_ceil(FEWER) } else { rounds };
    // The comparison runs on the runtime's own threads, as an application's tasks do. The main thread would have to be
    // woken each time.
    let measured = tokio::spawn(compare(ports, rounds)).await.unwrap();
    if state == State::TwoFrozen {
        nodes[..2].iter().for_each(|node| node.freeze(false));
    }
    measured
}

async fn compare(ports: Vec<u16>, rounds: usize) -> Measured {
    let locks = Client::new(ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))).unwrap();
    let raw = RawSets::connect(&ports).await;
    let apart = RawSetsApart::connect(&ports).await;
    let slow = LockOptions::new().node_timeout(Duration::from_secs(2));
    locks.with(&slow).try_lock("warm").await.unwrap().release().await;
    // Waits until the client knows which nodes do not answer.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let histogram = || Histogram::<u64>::new(3).unwrap();
    let mut measured = Measured {
        sets: histogram(),
        sets_apart: histogram(),
        deletes: histogram(),
        acquires: histogram(),
        releases: histogram(),
        failed: 0,
    };
    let record = |histogram: &mut Histogram<u64>, start: Instant| {
        histogram.record(start.elapsed().as_nanos() as u64).unwrap();
    };
    for round in 0..rounds {
        for n in 0..BATCH {
            let key = format!("set-{round}-{n}");
            let start = Instant::now();
            raw.set(&key).await;
            record(&mut measured.sets, start);
            let start = Instant::now();
            raw.delete(&key).await;
            record(&mut measured.deletes, start);
        }
        for n in 0..BATCH {
            let key = format!("apart-{round}-{n}");
            let start = Instant::now();
            apart.set(&key).await;
            record(&mut measured.sets_apart, start);
            apart.delete(&key).await;
        }
        for n in 0..BATCH {
            let key = format!("lock-{round}-{n}");
            let start = Instant::now();
            let Ok(guard) = locks.try_lock(&key).await else {
                measured.failed += 1;
                continue;
            };
            record(&mut measured.acquires, start);
            let start = Instant::now();
            guard.release().await;
            record(&mut measured.releases, start);
        }
        // Releases in the background must not count for the next round.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    measured
}
