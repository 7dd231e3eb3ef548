//! Palisade compared with the alternatives: each comparison in one run, on one machine, as ratios.
//!
//! `palisade-bench hand-over`: the time from a release to the next holder, and the cost of many waiters.
//! `palisade-bench quorum`: the time for a lock on a majority of nodes, beside as many raw SETs.
//! `palisade-bench agent`: the cost of a lock through `palisade agent` beside one that the client takes itself.
//! `palisade-bench cluster`: the cost of a lock on clusters of more and more masters.
//! `palisade-bench server-cost`, `memory`, `expiry`: the server's cost of an operation, of a held lock and a waiter,
//! and of the end of a million leases.
//! `palisade-bench held`: the cost of a pair of commands beside millions of held locks.
//! `palisade-bench together`: the cost of readers and permits that hold a lock together.
//! `palisade-bench client-cost`: the client's instructions and allocations for a lock on five nodes.
//! `palisade-bench instructions`: the server's instructions for each operation, beside a record.
//! `palisade-bench budgets`: the budgets that the runs in a folder met.

// A benchmark reads clocks.
#![allow(clippy::disallowed_methods)]

mod agent;
mod client_cost;
mod cluster;
mod crowd;
mod expiry;
mod fairness;
mod hand_over;
mod held;
mod instructions;
mod memory;
#[cfg(feature = "peers")]
mod peers;
mod permits;
mod quantiles;
mod quorum;
mod raw;
mod results;
mod runtime;
mod server;
mod server_cost;
mod together;
mod waiting;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use results::{Machine, Run};
use server::{Server, name_and_version};

#[derive(Parser)]
#[command(version, about)]
struct Options {
    /// The server to measure on.
    #[arg(long, env = "PALISADE_SERVER", default_value = "redis-server", global = true)]
    server: PathBuf,

    /// The module, built with --release.
    #[arg(long, env = "PALISADE_MODULE", default_value = "target/release/libpalisade.so", global = true)]
    module: PathBuf,

    /// A folder for the results, as JSON, Markdown and SVG. They are shown in any case.
    #[arg(long, global = true)]
    out: Option<PathBuf>,

    #[command(subcommand)]
    what: Task,
}

#[derive(Subcommand)]
enum Task {
    /// From a release to the next holder's answer, beside clients that poll.
    HandOver(hand_over::Options),
    /// A lock on a majority, beside as many raw SETs; also with frozen nodes, and with clocks that differ.
    Quorum(quorum::Options),
    /// A lock through `palisade agent`, beside one that the client takes itself.
    Agent(agent::Options),
    /// CPU time of servers and client for each lock, on clusters of 1, 2 and 4 masters.
    Cluster(cluster::Options),
    /// CPU time of the server for each operation, and the operations in a second.
    ServerCost(server_cost::Options),
    /// The server's memory for a held lock, and for a waiting request.
    Memory(memory::Options),
    /// CPU time of the server for a pair of commands beside few held locks, and beside millions.
    Held(held::Options),
    /// Effects on others of a million leases that end within one second.
    Expiry(expiry::Options),
    /// The cost of locks that several hold together, and the effects on others of crowds of readers.
    Together(together::Options),
    /// Instructions of the server for each operation, counted by callgrind.
    Instructions(instructions::Options),
    /// Instructions and allocations of the client for a lock on five nodes, counted by valgrind.
    ClientCost(client_cost::Options),
    /// Locks and releases that `client-cost` measures in a process of their own.
    #[command(hide = true)]
    ClientPairs(client_cost::PairsOptions),
    /// From a release to the next holder's answer, beside other clients, etcd and ZooKeeper.
    #[cfg(feature = "peers")]
    PeersHandOver(peers::HandOverOptions),
    /// A lock on one node and on a majority, beside other clients, etcd and ZooKeeper.
    #[cfg(feature = "peers")]
    PeersQuorum(peers::QuorumOptions),
    /// The time without a leader after one dies or resigns, beside etcd's elections; the time without a holder after
    /// one is killed, beside other clients; and the time until the holder of a broken lock knows that it is lost.
    #[cfg(feature = "peers")]
    PeersElection(peers::ElectionOptions),
    /// A leader that `peers-election` starts as a process.
    #[cfg(feature = "peers")]
    #[command(hide = true)]
    PeersLeader(peers::LeaderOptions),
    /// Tell which budgets the runs in the folder of --out met.
    Budgets,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("palisade-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let machine = Machine::now();
    let mut programs = vec![name_and_version(&options.server)?];
    if !options.module.exists() {
        return Err(format!("{} is not there: build it with `make build`", options.module.display()));
    }
    server::allow_many_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let start = || Server::start(&options.server, &options.module);
    let (benchmark, outcome) = match &options.what {
        Task::HandOver(what) => ("hand-over", runtime.block_on(hand_over::run(&start(), what))),
        Task::Quorum(what) => ("quorum", runtime.block_on(quorum::run(start, what))),
        Task::Agent(what) => ("agent", runtime.block_on(agent::run(start, what))),
        Task::Cluster(what) => ("cluster", runtime.block_on(cluster::run(&options.server, &options.module, what))),
        Task::ServerCost(what) => ("server-cost", server_cost::run(&options.server, &options.module, what)),
        Task::Memory(what) => ("memory", memory::run(&options.server, &options.module, what)),
        Task::Held(what) => ("held", held::run(&options.server, &options.module, what)),
        Task::Expiry(what) => ("expiry", expiry::run(&options.server, &options.module, what)),
        Task::Together(what) => ("together", together::run(&options.server, &options.module, what)),
        Task::Instructions(what) => {
            programs.push(instructions::version_of_valgrind()?);
            ("instructions", instructions::run(&options.server, &options.module, what))
        }
        Task::ClientCost(what) => {
            programs.push(instructions::version_of_valgrind()?);
            ("client-cost", client_cost::run(start, what))
        }
        Task::ClientPairs(what) => {
            client_cost::perform(what);
            return Ok(());
        }
        #[cfg(feature = "peers")]
        Task::PeersHandOver(what) => {
            let (outcome, peers) = runtime.block_on(peers::hand_over(start, what));
            programs.extend(peers);
            ("peers-hand-over", outcome)
        }
        #[cfg(feature = "peers")]
        Task::PeersQuorum(what) => {
            let (outcome, peers) = runtime.block_on(peers::quorum(start, what));
            programs.extend(peers);
            ("peers-quorum", outcome)
        }
        #[cfg(feature = "peers")]
        Task::PeersElection(what) => {
            let (outcome, peers) = runtime.block_on(peers::election(start, what));
            programs.extend(peers);
            ("peers-election", outcome)
        }
        #[cfg(feature = "peers")]
        Task::PeersLeader(what) => {
            runtime.block_on(peers::lead(what));
            return Ok(());
        }
        Task::Budgets => return budgets(options.out.as_deref()),
    };
    let run = Run::new(benchmark, outcome, machine, programs);
    println!("{}", run.markdown());
    if let Task::Instructions(instructions::Options { against: Some(folder), .. }) = &options.what {
        let before = run.read_same(folder);
        let before = before.map_err(|why| format!("there is no {} in {}: {why}", run.name, folder.display()))?;
        println!("{}", instructions::compare(&run, &before).markdown());
    }
    match &options.out {
        Some(folder) => run.write(folder).map_err(|why| format!("the results cannot be written: {why}")),
        None => Ok(()),
    }
}

/// Writes the table of budgets into the folder of the runs.
fn budgets(folder: Option<&Path>) -> Result<(), String> {
    let folder = folder.ok_or("say where the runs are: --out docs/benchmarks")?;
    let written = results::summary(folder).and_then(|text| {
        println!("{text}");
        std::fs::write(folder.join("budgets.md"), text)
    });
    written.map_err(|why| format!("the budgets of the runs in {} cannot be told: {why}", folder.display()))
}
