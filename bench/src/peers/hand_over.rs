//! Hand-over: from a release to the next holder's answer, for every way to wait for a lock.
//!
//! One client holds the lock and all others wait for it; then the lock goes round. The time is from just before the
//! release is sent until the next holder has its answer. A client that released the lock queues again only once the
//! next one has it. So the last holder cannot overtake the waiters, even if a way of waiting would permit that.

use std::time::Duration;

use super::etcd::{self, Etcd};
use super::installed::{Installed, Measured, crate_version};
use super::place::{Place, WaitMethod};
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

/// The longest time of a measurement.
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

/// A way to wait, with the parameters of its measurement.
struct Subject {
    name: &'static str,
    how: WaitMethod,
    /// The largest number of waiters for which this way to wait is measured.
    waiters_max: usize,
    is_plotted: bool,
}

/// Returns every way of waiting, with the largest number of waiters for which it is measured. With more, a run would
/// end before all of them wait (our client, etcd). Or they would ask more often than their one process can (rslock,
/// redis-py): the times would be those of a busy process, not of its lock.
fn subjects(installed: &Installed, etcds: &[(&'static str, Etcd)]) -> Vec<Subject> {
    let ms = Duration::from_millis;
    let new = |name, how, waiters_max, is_plotted| Subject { name, how, waiters_max, is_plotted };
    let mut all = vec![
        new("Palisade", WaitMethod::Redis(Way::Palisade), usize::MAX, true),
        new("Palisade, Rust client", WaitMethod::Redis(Way::PalisadeClient), 1_000, true),
        new("SET NX every 100 ms", WaitMethod::Redis(Way::Polling { every: ms(100) }), usize::MAX, true),
        new("pub/sub, as Redisson", WaitMethod::Redis(Way::PubSub), usize::MAX, true),
        new("rslock", WaitMethod::Redis(Way::Rslock { every: None }), 1_000, true),
        new("rslock, about every 10 ms", WaitMethod::Redis(Way::Rslock { every: Some(ms(10)) }), 100, false),
    ];
    if installed.python("").is_some() {
        all.push(new("redis-py", WaitMethod::RedisPy { sleep_s: 0.1 }, 100, true));
        all.push(new("redis-py, every 10 ms", WaitMethod::RedisPy { sleep_s: 0.01 }, 10, false));
    }
    all.extend(etcds.iter().enumerate().map(|(n, (name, _))| new(name, WaitMethod::Etcd(n), 1_000, true)));
    all
}

pub async fn run(server: &Server, options: &Options) -> Measured {
    let etcds = options.installed.etcds().await;
    let mut versions = vec![crate_version("rslock")];
    versions.extend(options.installed.etcd_version());
    let mut place = Place { server, etcds: &etcds, installed: &options.installed, control: server.connect().await };
    versions.extend(place.redis_py().await.map(|(_, version)| version));
    let subjects = subjects(&options.installed, &etcds);
    let mut table = table();
    let mut lines: Vec<(Line, Line)> = subjects.iter().map(|subject| (line(subject), line(subject))).collect();
    for &waiters in &options.waiters {
        let hold_max = if waiters <= FEW { HOLD_MAX } else { HOLD_MIN };
        let for_all = LENGTH_MAX.min(LENGTH_A_WAITER * waiters as u32);
        let length = Duration::from_millis(options.length_ms).max(for_all);
        let mut all: Vec<Vec<Turns>> = subjects.iter().map(|_| Vec::new()).collect();
        for round in 1..=options.rounds {
            for (subject, turns) in subjects.iter().zip(&mut all).filter(|(subject, _)| waiters <= subject.waiters_max)
            {
                eprintln!("peers-hand-over: {waiters} waiters, round {round} of {}: {}", options.rounds, subject.name);
                turns.push(place.measure(&subject.how, waiters, hold_max, length).await);
            }
        }
        for ((subject, turns), (p50s, requests)) in subjects.iter().zip(&all).zip(&mut lines) {
            let Some(of_all) = Turns::together(turns) else { continue };
            add_row(&mut table, waiters, subject.name, turns, &all[0], &of_all);
            if let Some(p50) = of_all.quantile(0.5) {
                p50s.points.push((waiters as f64, p50));
                requests.points.push((waiters as f64, of_all.a_hand_over(of_all.requests)));
            }
        }
    }
    if etcd::repeated() > 0 {
        table.note(format!(
            "etcd: {} calls failed and were sent again, because its nodes changed their leader, as they do on too \
             busy a machine. All waiting clients then start anew, so its rows with many waiters say little.",
            etcd::repeated()
        ));
    }
    options.installed.note_missing(&mut table);
    let (p50s, requests): (Vec<Line>, Vec<Line>) = lines
        .into_iter()
        .zip(&subjects)
        .filter(|((p50s, _), subject)| subject.is_plotted && !p50s.points.is_empty())
        .map(|(lines, _)| lines)
        .unzip();
    let plot = |name: &str, title: &str, y: &str, lines| Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        form: Form::Lines { x: Axis::logarithmic("clients that wait"), y: Axis::logarithmic(y), lines },
    };
    let plots = vec![
        plot("p50", "Hand-over, beside peers", "p50 from release to the next holder, us", p50s),
        plot("requests", "What a hand-over costs, beside peers", "commands a hand-over", requests),
    ];
    (Outcome { title: "Hand-over, beside peers".to_owned(), tables: vec![table], plots, budgets: Vec::new() }, versions)
}

fn line(subject: &Subject) -> Line {
    Line { name: subject.name.to_owned(), points: Vec::new() }
}

fn table() -> Table {
    let mut table = Table::new("hand-over", "From a release to the next holder's answer")
        .numbers("waiters", "", 0)
        .words("client")
        .numbers("p50", "us", 0)
        .numbers("p99", "us", 0)
        .numbers("p50", "times Palisade's", 1)
        .numbers("commands", "a hand-over", 1)
        .numbers("to and from servers", "bytes a hand-over", 0)
        .numbers("fsyncs", "a hand-over", 1)
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
        "Every client but redis-py's is in one process, each with its own connection; redis-py's are in another.",
    );
    table.note(format!(
        "Fairness: Jain's index of the turns that each client got; 1 is equal shares. Random turns give about m / (m \
         + 1) for m turns a client. Omitted below {TURNS_MIN} turns a client."
    ));
    table.note("Commands: all that the server ran, those that scripts called included.");
    table.note(
        "etcd: requests of clients alone; bytes include those between nodes, without the headers of gRPC; fsyncs of \
         the logs and CPU time are of all three nodes. The Redis server has no persistence here, and etcd always has.",
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
        of_all.a_hand_over(of_all.bytes).into(),
        of_all.fsyncs.map(|fsyncs| of_all.a_hand_over(fsyncs)).into(),
        (of_all.waiting_cpu.servers * 100.0).into(),
        (of_all.waiting_cpu.clients * 100.0).into(),
        fairness.into(),
        of_all.delays_ns.len().into(),
    ]);
}
