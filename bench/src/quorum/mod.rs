//! A lock on a majority of the nodes, compared with what any Redlock client must do.

mod burst;
mod holding;
mod latency;
mod one_round;
mod raw_sets;
mod runtimes;
mod slow_link;
mod throughput;

use std::time::Duration;

pub use one_round::follows_its_clock;
pub use raw_sets::RawSets;
#[cfg(feature = "peers")]
pub use slow_link::SlowLink;

use crate::results::Outcome;
use crate::server::Server;

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of nodes.
    #[arg(long, value_delimiter = ',', default_value = "1,3,5,7")]
    nodes: Vec<usize>,

    /// The number of rounds in which locks are compared with raw SETs. A round takes 200 of each.
    #[arg(long, default_value_t = 10)]
    rounds: usize,

    /// The distances of clients' clocks: up to this much ahead and behind, in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,1,5,50")]
    skew_ms: Vec<u64>,

    /// The numbers of locks to take in a second, for the measurement with clocks that differ.
    #[arg(long, value_delimiter = ',', default_value = "100,500,2000,5000")]
    rate: Vec<u64>,

    /// The time for which each rate and skew, and each number of tasks, is measured, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// The numbers of tasks that take locks at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256")]
    tasks: Vec<usize>,
}

/// Measures on nodes started by `start`.
pub async fn run(start: impl Fn() -> Server, options: &Options) -> Outcome {
    let length = Duration::from_secs(options.seconds);
    // At first, a new node's tokens do not follow its clock, and locks take two rounds. So the nodes of the later parts
    // start first, and are past that by then.
    let of_latency: Vec<Vec<Server>> =
        options.nodes.iter().map(|&count| (0..count).map(|_| start()).collect()).collect();
    let of_throughput: Vec<Server> = (0..throughput::NODES).map(|_| start()).collect();
    let of_bursts: Vec<Server> = (0..burst::NODES).map(|_| start()).collect();
    let (shares, plots_of_shares, budgets_of_shares) =
        one_round::measure(&start, &options.rate, &options.skew_ms, length).await;
    for node in of_latency.iter().flatten().chain(&of_throughput).chain(&of_bursts) {
        one_round::follows_its_clock(node).await;
    }
    let (latencies, mut plots, mut budgets) = latency::measure(&of_latency, options.rounds).await;
    let (throughput, plot_of_throughput) = throughput::measure(&of_throughput, &options.tasks, length).await;
    let (runtimes, budgets_of_runtimes) = runtimes::measure(&of_throughput, length * runtimes::LONGER);
    let (bursts, budgets_of_bursts) = burst::measure(&of_bursts).await;
    let (held, budgets_of_held) = holding::measure(&of_throughput).await;
    plots.extend(plots_of_shares);
    plots.push(plot_of_throughput);
    budgets.extend(budgets_of_shares);
    budgets.extend(budgets_of_runtimes);
    budgets.extend(budgets_of_bursts);
    budgets.extend(budgets_of_held);
    let mut tables = vec![latencies];
    tables.extend(shares);
    tables.extend([throughput, runtimes]);
    tables.push(bursts);
    tables.push(held);
    Outcome { title: "Quorum".to_owned(), tables, plots, budgets }
}
