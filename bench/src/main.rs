//! Palisade beside what a user would pick instead: each comparison in one run, on one server, as ratios.
//!
//! `palisade-bench hand-over`: how long a lock that is released takes to its next holder, and what it costs when many wait.
//! `palisade-bench quorum`: how long a lock on a majority of nodes takes, beside as many raw SETs.

// A benchmark reads clocks.
#![allow(clippy::disallowed_methods)]

mod hand_over;
mod quorum;
mod server;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Options {
    /// The server to measure on.
    #[arg(long, env = "PALISADE_SERVER", default_value = "redis-server", global = true)]
    server: PathBuf,

    /// The module, built with --release.
    #[arg(long, env = "PALISADE_MODULE", default_value = "target/release/libpalisade.so", global = true)]
    module: PathBuf,

    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// From a release to the next holder's answer, beside clients that poll.
    HandOver(hand_over::Options),
    /// A lock on a majority, beside as many raw SETs; with nodes frozen; with clocks apart.
    Quorum(quorum::Options),
}

fn main() {
    let options = Options::parse();
    server::allow_many_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let start = || server::Server::start(&options.server, &options.module);
    match options.what {
        What::HandOver(what) => runtime.block_on(hand_over::run(&start(), what)),
        What::Quorum(what) => runtime.block_on(quorum::run(start, what)),
    }
}
