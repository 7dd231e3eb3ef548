//! The server's cost of each operation: CPU time of its main thread, and operations per second.
//!
//! Short rounds of all operations alternate on one server process, so that disturbances of the machine affect them
//! alike. Two operations are compared by the ratio of their costs in the same round; the result is the median over the
//! rounds.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::quantiles;
use crate::raw::Raw;
use crate::results::{Axis, Bars, Budget, Form, Outcome, Plot, Table};
use crate::server::{Server, with_floor};
use crate::workloads::{
    FENCED_BY_SCRIPT, FLOOR, GATED, NATIVE, OURS, OURS_BESIDE_WAITER, OURS_WITH_FENCE, PINGS, PIPELINED, Pipeline,
    SCRIPTED, SET, SET_AND_DEL, Workload,
};

/// The number of connections: enough for the server to receive the next requests before it has answered the last.
pub const CONNECTIONS: usize = 4;

#[derive(clap::Args)]
pub struct Options {
    /// The number of turns for each operation.
    #[arg(long, default_value_t = 30)]
    rounds: usize,

    /// The number of turns with each setting of the AOF.
    #[arg(long, default_value_t = 12)]
    aof_rounds: usize,

    /// The length of a turn, in which one operation is repeated, in milliseconds.
    #[arg(long, default_value_t = 50)]
    turn_ms: u64,
}

/// The settings of an AOF that is synced once a second and is not rewritten while it grows.
pub const AOF_EVERYSEC: &[&str] =
    &["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"];

/// The settings of the AOF that are compared, by name.
const AOF: [(&str, &[&str]); 4] = [
    ("off", &["--appendonly", "no"]),
    ("no", &["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"]),
    ("everysec", AOF_EVERYSEC),
    ("always", &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]),
];

/// The largest cost of ACQUIRE and RELEASE, as a multiple of the cost of other pairs of commands. A module's commands
/// cannot cost less than [`FLOOR`]; time, token, owner, deadline and queue may take a quarter more. The others are what
/// one would use instead.
const BUDGETS: [(&str, f64); 4] = [(FLOOR, 1.25), (SCRIPTED, 0.54), (NATIVE[0], 1.0), (NATIVE[1], 1.0)];

/// The largest cost of a write behind a gate, as a multiple of a write behind a script and of a write without a fence.
const GATE_BUDGETS: [(&str, f64); 2] = [(FENCED_BY_SCRIPT, 0.6), (SET, 2.0)];

/// The largest cost of ACQUIRE and RELEASE while somebody waits for another lock, as a multiple of the cost where
/// nobody waits. Users who do not need a queue should not pay for it.
const BESIDE_WAITER_MAX: f64 = 1.03;

/// The largest cost of ACQUIRE and RELEASE with the AOF, as a multiple of the cost of the server's own pair of commands
/// with it. The lock costs more because the server looks up by name each command that a module replicates, and because
/// a lock's record contains more than a key and a value.
const WITH_AOF_BUDGETS: [(&str, f64); 2] = [(OURS, 1.5), (OURS_WITH_FENCE, 1.4)];

/// The measurement of one turn, a slice of time in which one operation runs.
pub struct Turn {
    /// The server's CPU of an operation, in microseconds.
    pub main_us: f64,
    others_us: f64,
    per_second: f64,
    /// The share of the turn in which the server's main thread ran.
    busy: f64,
}

/// All turns of one operation.
pub struct Series {
    pub name: &'static str,
    pub turns: Vec<Turn>,
}

impl Series {
    /// Returns the series of an operation that has had no turn.
    pub fn of(workload: &Workload) -> Self {
        Self { name: workload.name, turns: Vec::new() }
    }
}

pub fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    let mut settings: Vec<Setting> = AOF.iter().map(|(_, settings)| Setting::start(server, module, settings)).collect();
    for round in 0..options.rounds {
        eprintln!("server-cost: round {} of {}", round + 1, options.rounds);
        // All servers exist from the beginning; those without a turn sleep.
        let with_turn = if round < options.aof_rounds { settings.len() } else { 1 };
        settings[..with_turn].iter_mut().for_each(|setting| setting.round(round, options.turn_ms));
    }
    let by_setting: Vec<Vec<Series>> = settings.into_iter().map(|setting| setting.series).collect();
    let plain = &by_setting[0];
    let mut outcome = Outcome {
        title: "Server cost".to_owned(),
        tables: vec![costs(plain, options), with_aof(&by_setting, options)],
        plots: vec![plot_of_cpu(plain), plot_of_aof(&by_setting)],
        budgets: Vec::new(),
    };
    let mut budget = |series: &[Series], name: &str, peer: &str, aof: &str, limit| {
        let ratio = ratios(series, name, peer).as_deref().map(median);
        // The ratio is not a number if the kernel does not count CPU time.
        if let Some(ratio) = ratio.filter(|ratio| ratio.is_finite()) {
            outcome.budgets.push(Budget::at_most(format!("{name}, server CPU{aof} / {peer}"), ratio, limit));
        }
    };
    for (peer, limit) in BUDGETS {
        budget(plain, OURS, peer, "", limit);
    }
    budget(plain, OURS_BESIDE_WAITER, OURS, "", BESIDE_WAITER_MAX);
    for (peer, limit) in GATE_BUDGETS {
        budget(plain, GATED, peer, "", limit);
    }
    let everysec = AOF.iter().position(|(name, _)| *name == "everysec").expect("one of the settings");
    for (name, limit) in WITH_AOF_BUDGETS {
        budget(&by_setting[everysec], name, SET_AND_DEL, " with AOF everysec", limit);
    }
    budget(&by_setting[everysec], GATED, SET, " with AOF everysec", GATE_BUDGETS[1].1);
    outcome
}

/// A server with a setting of the AOF, and its measurements.
struct Setting {
    server: Server,
    connections: Vec<Raw>,
    workloads: Vec<&'static Workload>,
    series: Vec<Series>,
}

impl Setting {
    fn start(server: &Path, module: &Path, settings: &[&str]) -> Self {
        let floor = with_floor(module);
        let settings: Vec<&str> = settings.iter().copied().chain(floor.iter().map(String::as_str)).collect();
        let server = Server::start_as(&[], server, module, &settings);
        let mut connections: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::connect(server.port())).collect();
        let workloads = Workload::all_on(&mut connections[0]);
        let series = workloads.iter().map(|workload| Series::of(workload)).collect();
        Self { server, connections, workloads, series }
    }

    /// Runs a turn of each workload.
    fn round(&mut self, round: usize, turn_ms: u64) {
        for n in 0..self.workloads.len() {
            // Each round begins with a different operation.
            let n = (n + round) % self.workloads.len();
            let length = Duration::from_millis(turn_ms);
            self.series[n].turns.push(turn(&self.server, &mut self.connections, self.workloads[n], length));
        }
    }
}

/// Repeats `workload` on all connections for about `length`.
pub fn turn(server: &Server, connections: &mut [Raw], workload: &Workload, length: Duration) -> Turn {
    let mut pipelines: Vec<Pipeline> =
        connections.iter_mut().enumerate().map(|(n, connection)| workload.prepare(connection, n)).collect();
    // The server sleeps at both ends, so the kernel's count is complete.
    let (main, all, start) = (server.cpu_of_main_thread(), server.cpu_of_all_threads(), Instant::now());
    let mut operations = 0;
    for (pipeline, connection) in pipelines.iter_mut().zip(&mut *connections) {
        pipeline.send(connection);
        operations += pipeline.operations;
    }
    while start.elapsed() < length {
        for (pipeline, connection) in pipelines.iter_mut().zip(&mut *connections) {
            pipeline.finish(connection);
            pipeline.send(connection);
            operations += pipeline.operations;
        }
    }
    for (pipeline, connection) in pipelines.iter().zip(&mut *connections) {
        pipeline.finish(connection);
    }
    let took = start.elapsed();
    let main = server.cpu_of_main_thread() - main;
    let all = server.cpu_of_all_threads() - all;
    for (pipeline, connection) in pipelines.into_iter().zip(connections) {
        pipeline.clean(connection);
    }
    let an_operation = |cpu: Duration| cpu.as_secs_f64() * 1e6 / operations as f64;
    Turn {
        main_us: an_operation(main),
        others_us: an_operation(all.saturating_sub(main)),
        per_second: operations as f64 / took.as_secs_f64(),
        busy: main.as_secs_f64() / took.as_secs_f64(),
    }
}

fn costs(series: &[Series], options: &Options) -> Table {
    let mut table = Table::new("cpu", "Server CPU of an operation, without AOF")
        .words("operation")
        .numbers("main thread", "us", 2)
        .numbers("other threads", "us", 2)
        .hidden()
        .numbers("beside two PINGs", "times", 2)
        .words("half of the rounds within")
        .hidden()
        .numbers("beside a module value", "times", 2)
        .words("half of the rounds within")
        .hidden()
        .numbers("beside SET + EVALSHA", "times", 2)
        .words("half of the rounds within")
        .hidden()
        .numbers("operations", "1000/s", 0)
        .numbers("main thread busy", "%", 0);
    for Series { name, turns } in series {
        let pings = ratios(series, name, PINGS);
        let floor = ratios(series, name, FLOOR);
        let scripted = ratios(series, name, SCRIPTED);
        table.row([
            (*name).into(),
            median_of(turns, |turn| turn.main_us).into(),
            median_of(turns, |turn| turn.others_us).into(),
            pings.as_deref().map(median).into(),
            pings.as_deref().map(middle_half).into(),
            floor.as_deref().map(median).into(),
            floor.as_deref().map(middle_half).into(),
            scripted.as_deref().map(median).into(),
            scripted.as_deref().map(middle_half).into(),
            (median_of(turns, |turn| turn.per_second) / 1_000.0).into(),
            (median_of(turns, |turn| turn.busy) * 100.0).into(),
        ]);
    }
    table.note(format!(
        "Commands come {PIPELINED} at a time on each of {CONNECTIONS} connections. {} rounds, in each of which every \
         operation has {} ms on the same server process. Ratios are medians of the ratios within a round.",
        options.rounds, options.turn_ms
    ));
    table.note("The CPU time is that of the process, with the kernel's work for it, mostly reading and writing.");
    table
}

fn with_aof(by_setting: &[Vec<Series>], options: &Options) -> Table {
    let mut table = Table::new("aof", "With the AOF, by appendfsync").words("operation");
    for (name, _) in AOF {
        table = table.numbers(&format!("AOF {name}: operations"), "1000/s", 0).numbers("main thread", "us", 2).hidden();
    }
    for (n, Series { name, .. }) in by_setting[0].iter().enumerate() {
        let of = |setting: usize| {
            let turns = in_common(by_setting, setting, n);
            (median_of(turns, |turn| turn.per_second) / 1_000.0, median_of(turns, |turn| turn.main_us))
        };
        let [off, no, everysec, always] = std::array::from_fn(of);
        table.row([
            (*name).into(),
            off.0.into(),
            off.1.into(),
            no.0.into(),
            no.1.into(),
            everysec.0.into(),
            everysec.1.into(),
            always.0.into(),
            always.1.into(),
        ]);
    }
    table.note(format!(
        "{} rounds, in each of which every setting's server has its turn. The AOF is in TMPDIR: if that is memory, \
         `always` waits for no disk.",
        options.aof_rounds.min(options.rounds)
    ));
    table.note(format!(
        "With `always`, requests of {CONNECTIONS} connections share an fsync: {PIPELINED} a connection, {} at most.",
        CONNECTIONS * PIPELINED
    ));
    table
}

fn plot_of_cpu(series: &[Series]) -> Plot {
    let values = series.iter().map(|series| Some(median_of(&series.turns, |turn| turn.main_us))).collect();
    Plot {
        name: "cpu".to_owned(),
        title: format!("Server CPU of an operation, {PIPELINED} commands pipelined, no AOF"),
        form: Form::Bars {
            value: Axis::linear("main thread, us an operation (less is better)"),
            categories: series.iter().map(|series| series.name.to_owned()).collect(),
            series: vec![Bars { name: "main thread".to_owned(), values }],
        },
    }
}

fn plot_of_aof(by_setting: &[Vec<Series>]) -> Plot {
    // Operations that write nothing are the same with any AOF.
    let shown: Vec<usize> = (0..by_setting[0].len())
        .filter(|n| [SCRIPTED, NATIVE[0], NATIVE[1], OURS].contains(&by_setting[0][*n].name))
        .collect();
    let bars = AOF.iter().enumerate().map(|(setting, (name, _))| Bars {
        name: format!("AOF {name}"),
        values: shown
            .iter()
            .map(|n| Some(median_of(in_common(by_setting, setting, *n), |turn| turn.per_second) / 1_000.0))
            .collect(),
    });
    Plot {
        name: "aof".to_owned(),
        title: "Locks taken and given back, by appendfsync".to_owned(),
        form: Form::Bars {
            value: Axis::linear("1000 pairs a second (more is better)"),
            categories: shown.iter().map(|n| by_setting[0][*n].name.to_owned()).collect(),
            series: bars.collect(),
        },
    }
}

/// Returns the turns of the `n`th operation with a setting. Only those rounds count in which the operation had a turn
/// with every setting.
fn in_common(by_setting: &[Vec<Series>], setting: usize, n: usize) -> &[Turn] {
    let rounds = by_setting.iter().map(|series| series[n].turns.len()).min().unwrap_or(0);
    &by_setting[setting][n].turns[..rounds]
}

/// Returns, for each round, the main thread's CPU time of an operation of `name` divided by that of `peer`.
pub fn ratios(series: &[Series], name: &str, peer: &str) -> Option<Vec<f64>> {
    let turns = |name| Some(&series.iter().find(|series| series.name == name)?.turns);
    let of = turns(name)?.iter().zip(turns(peer)?).map(|(turn, peer)| turn.main_us / peer.main_us);
    Some(of.collect())
}

pub fn median_of(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> f64 {
    median(&turns.iter().map(of).collect::<Vec<_>>())
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the quartiles in words.
pub fn middle_half(values: &[f64]) -> String {
    format!("{:.2} to {:.2}", quantile(values, 0.25), quantile(values, 0.75))
}

/// Returns a quantile; not a number if nothing was measured.
fn quantile(values: &[f64], share: f64) -> f64 {
    quantiles::quantile(values, share).unwrap_or(f64::NAN)
}
