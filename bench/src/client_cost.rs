//! The client's own cost of a lock and its release, beside raw SETs and DELs. It is counted in instructions and
//! allocations, which a busy machine does not change.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use palisade_client::Client;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::quorum::{RawSets, follows_its_clock};
use crate::results::{Cell, Outcome, Table};
use crate::runtime::{name_of, runtime};
use crate::server::{Server, cpu_of_process, switches_of_process};

/// The number of nodes.
const NODES: usize = 5;

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of tasks that take locks at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,256")]
    tasks: Vec<usize>,

    /// The numbers of the runtime's worker threads; 0 for a runtime that runs on the caller's thread.
    #[arg(long, value_delimiter = ',', default_value = "0,1,2")]
    workers: Vec<usize>,

    /// The number of pairs (a lock and its release, or SET and DEL) in one run under valgrind. A second run has twice
    /// as many, and the difference counts.
    #[arg(long, default_value_t = 2_000)]
    counted: usize,

    /// The number of pairs in the run at full speed, without valgrind.
    #[arg(long, default_value_t = 50_000)]
    pairs: usize,

    /// Keep valgrind's files in this folder, for callgrind_annotate and for DHAT's viewer.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// The options of the process that takes and releases locks, or sends SET and DEL, and whose cost is measured.
#[derive(clap::Args)]
pub struct PairsOptions {
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u16>,
    #[arg(long)]
    pairs_of: PairsOf,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    tasks: usize,
    #[arg(long)]
    pairs: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum PairsOf {
    Sets,
    Locks,
}

/// The processor time and context switches that the process itself counts.
#[derive(Deserialize, Serialize)]
struct Cost {
    cpu: Duration,
    switches: u64,
}

/// Takes and releases locks, or sends raw SETs and DELs, and prints the cost.
pub fn perform(options: &PairsOptions) {
    let runtime = runtime(options.workers);
    let cost = runtime.block_on(async {
        match options.pairs_of {
            PairsOf::Sets => {
                let raw = RawSets::connect(&options.ports).await;
                let pair = |raw: RawSets, key: String| async move {
                    raw.set(&key).await;
                    raw.delete(&key).await;
                };
                cost_of(raw, pair, options).await
            }
            PairsOf::Locks => {
                let locks = Client::new(options.ports.iter().map(|port| format!("redis://127.0.0.1:{port}"))).unwrap();
                locks.connect().await.unwrap();
                let pair = |locks: Client, key: String| async move {
                    locks.lock(&key).await.unwrap().release().await;
                };
                cost_of(locks, pair, options).await
            }
        }
    });
    println!("{}", serde_json::to_string(&cost).unwrap());
}

async fn cost_of<C, F>(client: C, pair: fn(C, String) -> F, options: &PairsOptions) -> Cost
where
    C: Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let count = || (cpu_of_process(std::process::id()), switches_of_process(std::process::id()));
    let before = count();
    for task in 0..options.tasks {
        let (client, pairs) = (client.clone(), options.pairs.div_ceil(options.tasks));
        tasks.spawn(async move {
            for _ in 0..pairs {
                pair(client.clone(), format!("client-cost-{task}")).await;
            }
        });
    }
    tasks.join_all().await;
    let after = count();
    Cost { cpu: after.0 - before.0, switches: after.1 - before.1 }
}

/// Measures what one lock and its release, or one SET and its DEL, cost the client's process, on nodes started by
/// `start`.
pub fn run(start: impl Fn() -> Server, options: &Options) -> Outcome {
    let mut table = Table::new("client-cost", format!("The client's process for each pair, {NODES} nodes"))
        .words("pair")
        .words("runtime")
        .numbers("tasks", "", 0)
        .numbers("instructions", "", 0)
        .numbers("allocations", "", 1)
        .numbers("allocated", "bytes", 0)
        .numbers("context switches", "", 2)
        .numbers("CPU", "us", 1);
    table.note("Instructions: counted by callgrind, allocations by DHAT, of all threads, without the kernel's part. Valgrind runs one thread at a time.");
    table.note("Context switches and CPU are of a run at full speed, and change with the load of the machine.");
    table.note(
        "SET + DEL: to all nodes at once, by redis-rs; the SET until a majority has answered, the DEL until all have.",
    );
    let nodes: Vec<Server> = (0..NODES).map(|_| start()).collect();
    runtime(0).block_on(async {
        for node in &nodes {
            follows_its_clock(node).await;
        }
    });
    let counted = Counted { ports: nodes.iter().map(Server::port).collect(), options };
    for &workers in &options.workers {
        for &tasks in &options.tasks {
            for (pairs_of, name) in [(PairsOf::Sets, "SET + DEL"), (PairsOf::Locks, "lock + release")] {
                eprintln!("client-cost: {name}, {workers} workers, {tasks} tasks");
                counted.row(&mut table, (pairs_of, name), workers, tasks);
            }
        }
    }
    Outcome { title: "Client cost".to_owned(), tables: vec![table], ..Outcome::default() }
}

struct Counted<'a> {
    ports: Vec<u16>,
    options: &'a Options,
}

impl Counted<'_> {
    fn row(&self, table: &mut Table, (pairs_of, name): (PairsOf, &str), workers: usize, tasks: usize) {
        let folder = tempfile::tempdir().unwrap();
        let perform = |wrapper: &[String], pairs| self.perform(wrapper, (pairs_of, workers, tasks), pairs);
        let under = |tool: &str, count: fn(&Path) -> [u64; 2]| {
            let [less, more] = [1, 2].map(|times| {
                let file = folder.path().join(format!("{tool}-{times}"));
                let words =
                    ["valgrind".to_owned(), format!("--tool={tool}"), format!("--{tool}-out-file={}", file.display())];
                perform(&words, times * self.options.counted);
                if let Some(folder) = self.options.keep.as_ref().filter(|_| times == 2) {
                    std::fs::create_dir_all(folder).unwrap();
                    let name = name.replace(" + ", "-");
                    std::fs::copy(&file, folder.join(format!("{tool}.out.{name}-{workers}-{tasks}"))).unwrap();
                }
                count(&file)
            });
            [0, 1].map(|n| (more[n] - less[n]) as f64 / self.options.counted as f64)
        };
        let [instructions, _] = under("callgrind", |file| [crate::instructions::total_of(file), 0]);
        let [bytes, allocations] = under("dhat", allocated);
        let cost = perform(&[], self.options.pairs);
        let pairs = self.options.pairs as f64;
        table.row([
            Cell::from(name),
            name_of(workers).into(),
            tasks.into(),
            instructions.into(),
            allocations.into(),
            bytes.into(),
            (cost.switches as f64 / pairs).into(),
            (cost.cpu.as_secs_f64() * 1e6 / pairs).into(),
        ]);
    }

    /// Starts a process that performs the pairs, and returns its cost. `wrapper` is a command such as valgrind that
    /// runs the process; empty for none.
    fn perform(&self, wrapper: &[String], (of, workers, tasks): (PairsOf, usize, usize), pairs: usize) -> Cost {
        let own = std::env::current_exe().unwrap().display().to_string();
        let of = of.to_possible_value().expect("all are shown").get_name().to_owned();
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let words = [
            ["client-pairs", "--pairs-of", of.as_str(), "--ports", ports.join(",").as_str()]
                .map(str::to_owned)
                .to_vec(),
            ["--workers".to_owned(), workers.to_string(), "--tasks".to_owned(), tasks.to_string()].to_vec(),
            vec!["--pairs".to_owned(), pairs.to_string()],
        ]
        .concat();
        let mut words = wrapper.iter().cloned().chain([own]).chain(words);
        let output = Command::new(words.next().unwrap()).args(words).stderr(Stdio::null()).output();
        let output = output.expect("valgrind is installed by `make client-cost`");
        let cost = serde_json::from_slice(&output.stdout);
        cost.unwrap_or_else(|why| panic!("the pairs failed, {}: {why}", output.status))
    }
}

/// Returns all bytes and all blocks in a file of DHAT.
fn allocated(file: &Path) -> [u64; 2] {
    #[derive(Deserialize)]
    struct Profile {
        pps: Vec<Point>,
    }
    #[derive(Deserialize)]
    struct Point {
        tb: u64,
        tbk: u64,
    }
    let profile: Profile = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    [profile.pps.iter().map(|point| point.tb).sum(), profile.pps.iter().map(|point| point.tbk).sum()]
}
