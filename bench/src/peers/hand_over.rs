//! Hand-over: from a release to the next holder's answer, for every way to wait for a lock.
//!
//! One client holds the lock and all others wait for it; then the lock goes round. The time is from just before the
//! release is sent until the next holder has its answer. A client that released the lock queues again only once the
//! next one has it. So the last holder cannot overtake the waiters, even if a way of waiting would permit that.

use std::collections::HashMap;
use std::time::Duration;

use super::cluster::Cluster;
use super::installed::{Installed, Language, Measured, crate_version};
use super::place::{On, Place, WaitMethod};
use super::programs::Program;
use super::round::HOLD_MIN;
use super::turns::{TURNS_MIN, Turns};
use super::waiters::Way;
use crate::quantiles::median;
use crate::results::{Axis, Form, Line, Outcome, Plot, Table};
use crate::server::Server;

/// The largest number of waiters with which the lock is held for up to [`HOLD_MAX`]. With more waiters, some client
/// polls at almost any moment, so the lock can be held for less.
const FEW: usize = 10;

/// With at most [`FEW`] waiters, each hold has a random length up to this, which is the interval of the polling
/// clients. With shorter holds, a client would poll only just after the lock was taken, and always wait for a whole
/// interval.
const HOLD_MAX: Duration = Duration::from_millis(100);

/// The least length of a measurement, for each waiter (at most [`LENGTH_MAX`] in all): time for two turns or more, of a
/// millisecond or two.
const LENGTH_A_WAITER: Duration = Duration::from_millis(4);

/// The limit of this least length: with many waiters, it grows only up to here.
const LENGTH_MAX: Duration = Duration::from_secs(4);

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of waiting clients.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000")]
    waiters: Vec<usize>,

    /// The number of rounds; in each, every way of waiting has its turn.
    #[arg(long, default_value_t = 2)]
    rounds: usize,

    /// The length of a turn in which clients pass the lock on, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    length_ms: u64,

    #[command(flatten)]
    installed: Installed,
}

/// The number of Redis servers beside which clusters of three members are measured.
const MEMBERS: usize = 3;

/// The clients of one server in the plots; those left out come close to one of these.
const PLOTTED: [&str; 8] = [
    "Palisade",
    "Palisade, Rust client",
    "SET NX every 100 ms",
    "rslock",
    "redis-py",
    "redsync (Go)",
    "Redisson RLock",
    "Redisson RFairLock",
];

/// Clients that wait, with the parameters of their measurement.
#[derive(Clone, Copy)]
struct Subject {
    name: &'static str,
    how: WaitMethod,
    on: On,
    /// The largest number of waiters with which the clients are measured.
    waiters_max: usize,
}

impl Subject {
    fn is_plotted(&self) -> bool {
        !matches!(self.on, On::Servers(1)) || PLOTTED.contains(&self.name)
    }
}

/// Returns the clients of one server, with the largest number of waiters for which each is measured. With more, a run
/// would end before all of them wait (our client). Or they would ask more often than their one process can (rslock,
/// redis-py, redlock): the times would be those of a busy process, not of its lock.
fn of_one_server() -> Vec<Subject> {
    let ms = Duration::from_millis;
    let here = |name, way, waiters_max| Subject { name, how: WaitMethod::Here(way), on: On::Servers(1), waiters_max };
    let program = |name, client, language, waiters_max| {
        let how = WaitMethod::Program(Program { client, language });
        Subject { name, how, on: On::Servers(1), waiters_max }
    };
    let redis_py = Language::Python("hand_over_redis_py.py");
    vec![
        here("Palisade", Way::Palisade, usize::MAX),
        here("Palisade, Rust client", Way::PalisadeClient, 1_000),
        here("SET NX every 100 ms", Way::Polling { every: ms(100) }, usize::MAX),
        here("rslock", Way::Rslock { every: None }, 1_000),
        here("rslock, about every 10 ms", Way::Rslock { every: Some(ms(10)) }, 100),
        program("redis-py", "redis-py", redis_py, 100),
        program("redis-py, every 10 ms", "redis-py, every 10 ms", redis_py, 10),
        program("redlock (Node.js)", "redlock", Language::Node, 100),
        program("redsync (Go)", "redsync", Language::Go, 1_000),
        program("redislock (Go)", "redislock", Language::Go, 1_000),
        program("Redisson RLock", "RLock", Language::Java, 1_000),
        program("Redisson RFairLock", "RFairLock", Language::Java, 1_000),
        program("Redisson RFencedLock", "RFencedLock", Language::Java, 1_000),
        program("Redisson RReadWriteLock, writers", "RReadWriteLock", Language::Java, 1_000),
        program("Redisson RSemaphore", "RSemaphore", Language::Java, 1_000),
    ]
}

/// Returns the clients of three servers or of a cluster.
fn of_members(clusters: &[Cluster]) -> Vec<Subject> {
    let here = |name, way| Subject { name, how: WaitMethod::Here(way), on: On::Servers(MEMBERS), waiters_max: 1_000 };
    let program = |name, program, on| Subject { name, how: WaitMethod::Program(program), on, waiters_max: 1_000 };
    let redsync = Program { client: "redsync", language: Language::Go };
    let mut all = vec![
        here("Palisade, Rust client", Way::PalisadeClient),
        here("rslock", Way::Rslock { every: None }),
        program("redsync (Go)", redsync, On::Servers(MEMBERS)),
    ];
    let of_cluster = |(n, cluster): (usize, &Cluster)| program(cluster.name(), Program::of(cluster), On::Cluster(n));
    all.extend(clusters.iter().enumerate().map(of_cluster));
    all
}

pub async fn run(start: impl Fn() -> Server, options: &Options) -> Measured {
    let installed = &options.installed;
    let servers: Vec<Server> = (0..MEMBERS).map(|_| start()).collect();
    let mut controls = Vec::new();
    for server in &servers {
        controls.push(server.connect().await);
    }
    let clusters = installed.clusters().await;
    let mut versions = vec![crate_version("rslock")];
    versions.extend(installed.cluster_versions());
    let mut place = Place { servers: &servers, controls, clusters: &clusters, installed, kept: HashMap::new() };
    let groups = [
        ("one-server", "On one server: from a release to the next holder's answer", of_one_server()),
        ("three-members", "On three members: from a release to the next holder's answer", of_members(&clusters)),
    ];
    let (mut tables, mut plots) = (Vec::new(), Vec::new());
    for (name, title, mut subjects) in groups {
        subjects.retain(|subject| match subject.how {
            WaitMethod::Here(_) => true,
            WaitMethod::Program(program) => installed.command(program.language).is_some(),
        });
        for Subject { name, how, on, .. } in &subjects {
            let WaitMethod::Program(program) = how else { continue };
            let (peer, version) = place.start(*program, *on).await.expect("it is here");
            if program.language == Language::Java {
                place.kept.insert(*name, peer);
            }
            versions.push(version);
        }
        let (table, of_group) = measure(&mut place, name, title, &subjects, options).await;
        place.kept.clear();
        tables.push(table);
        plots.extend(of_group);
    }
    installed.note_missing(&mut tables[0]);
    (Outcome { title: "Hand-over, beside peers".to_owned(), tables, plots, budgets: Vec::new() }, versions)
}

/// Measures `subjects` with every number of waiters, in rounds.
async fn measure(
    place: &mut Place<'_>,
    name: &str,
    title: &str,
    subjects: &[Subject],
    options: &Options,
) -> (Table, Vec<Plot>) {
    let mut table = table(name, title);
    let mut lines: Vec<(Line, Line)> = subjects.iter().map(|subject| (line(subject), line(subject))).collect();
    let mut repeated = 0;
    for &waiters in &options.waiters {
        let hold_max = if waiters <= FEW { HOLD_MAX } else { HOLD_MIN };
        let for_all = LENGTH_MAX.min(LENGTH_A_WAITER * waiters as u32);
        let length = Duration::from_millis(options.length_ms).max(for_all);
        let mut all: Vec<Vec<Turns>> = subjects.iter().map(|_| Vec::new()).collect();
        for round in 1..=options.rounds {
            let measured = |(subject, _): &(&Subject, &mut Vec<Turns>)| waiters <= subject.waiters_max;
            for (subject, turns) in subjects.iter().zip(&mut all).filter(measured) {
                let rounds = options.rounds;
                eprintln!("peers-hand-over: {name}, {waiters} waiters, round {round} of {rounds}: {}", subject.name);
                let how = (subject.name, subject.how, subject.on);
                turns.push(place.measure(how, waiters, hold_max, length).await);
            }
        }
        for ((subject, turns), (p50s, requests)) in subjects.iter().zip(&all).zip(&mut lines) {
            let Some(of_all) = Turns::together(turns) else { continue };
            repeated += of_all.repeated;
            add_row(&mut table, waiters, subject.name, turns, &all[0], &of_all);
            if let Some(p50) = of_all.quantile(0.5) {
                p50s.points.push((waiters as f64, p50));
                requests.points.push((waiters as f64, of_all.a_hand_over(of_all.requests)));
            }
        }
    }
    if repeated > 0 {
        table.note(format!("{repeated} calls of the programs in Go failed, and were made again after 20 ms."));
    }
    let (p50s, requests): (Vec<Line>, Vec<Line>) = lines
        .into_iter()
        .zip(subjects)
        .filter(|((p50s, _), subject)| subject.is_plotted() && !p50s.points.is_empty())
        .map(|(lines, _)| lines)
        .unzip();
    let plot = |what: &str, title: String, y: &str, lines| Plot {
        name: format!("{name}-{what}"),
        title,
        form: Form::Lines { x: Axis::logarithmic("clients that wait"), y: Axis::logarithmic(y), lines },
    };
    let place = name.replace('-', " ");
    let plots = vec![
        plot("p50", format!("Hand-over on {place}"), "p50 from release to the next holder, us", p50s),
        plot("requests", format!("What a hand-over costs on {place}"), "commands a hand-over", requests),
    ];
    (table, plots)
}

fn line(subject: &Subject) -> Line {
    Line { name: subject.name.to_owned(), points: Vec::new() }
}

fn table(name: &str, title: &str) -> Table {
    let mut table = Table::new(name, title)
        .numbers("waiters", "", 0)
        .words("client")
        .numbers("p50", "us", 0)
        .numbers("p99", "us", 0)
        .numbers("p50", "times Palisade's", 1)
        .numbers("commands", "a hand-over", 1)
        .numbers("to and from servers", "bytes a hand-over", 0)
        .numbers("fsyncs", "a hand-over", 1)
        .numbers("CPU of servers", "us a hand-over", 0)
        .numbers("CPU of clients", "us a hand-over", 0)
        .numbers("CPU of servers while all wait", "%", 1)
        .numbers("CPU of clients then", "%", 1)
        .numbers("fairness (Jain)", "", 3)
        .numbers("hand-overs", "", 0);
    table.note(format!(
        "The lock is held for {} to {} ms with up to {FEW} waiters, and for {0} ms with more.",
        HOLD_MIN.as_millis(),
        HOLD_MAX.as_millis()
    ));
    table.note(
        "Clients in Rust (Palisade, SET NX, rslock) are in the process that measures, on tokio with one worker, each \
         with its own connection. The others are in a process of their own: an asyncio loop (redis-py), an event loop \
         (Node.js), goroutines (Go), threads (Redisson, ZooKeeper).",
    );
    table.note(
        "Redisson and Curator: a client for each waiter, up to 100; with more, threads share them. etcd: a session for \
         each waiter, over the connections of one client.",
    );
    table.note(format!(
        "Fairness: Jain's index of the turns that each client got; 1 is equal shares. Random turns give about m / (m \
         + 1) for m turns a client. Omitted below {TURNS_MIN} turns a client."
    ));
    table.note("Commands: all that the server ran, those that scripts called included.");
    table.note(
        "etcd and ZooKeeper: requests of clients alone; fsyncs of the logs and CPU time are of all three nodes. \
         etcd's bytes include those between nodes, without the headers of gRPC. The Redis servers have no persistence \
         here, etcd and ZooKeeper always have.",
    );
    table.note(
        "A client without a row for a number of waiters was not measured with them: bench/src/peers/hand_over.rs \
         says why.",
    );
    table
}

fn add_row(table: &mut Table, waiters: usize, name: &str, turns: &[Turns], ours: &[Turns], of_all: &Turns) {
    let ratio = |(theirs, ours): (&Turns, &Turns)| Some(theirs.quantile(0.5)? / ours.quantile(0.5)?);
    let ratios: Vec<f64> = turns.iter().zip(ours).filter_map(ratio).collect();
    let fairness: Vec<f64> = turns.iter().filter_map(Turns::fairness).collect();
    let fairness = (!fairness.is_empty()).then(|| fairness.iter().sum::<f64>() / fairness.len() as f64);
    table.row([
        waiters.into(),
        name.into(),
        of_all.quantile(0.5).into(),
        of_all.quantile(0.99).into(),
        median(&ratios).into(),
        of_all.a_hand_over(of_all.requests).into(),
        of_all.bytes.map(|bytes| of_all.a_hand_over(bytes)).into(),
        of_all.fsyncs.map(|fsyncs| of_all.a_hand_over(fsyncs)).into(),
        of_all.a_hand_over(of_all.cpu.servers * 1e6).into(),
        of_all.a_hand_over(of_all.cpu.clients * 1e6).into(),
        (of_all.waiting_cpu.servers * 100.0).into(),
        (of_all.waiting_cpu.clients * 100.0).into(),
        fairness.into(),
        of_all.delays_ns.len().into(),
    ]);
}
