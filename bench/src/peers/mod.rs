//! Other lock clients, etcd and ZooKeeper beside Palisade: the same work, in one run, on the same machine.
//!
//! Clients in Rust run in this process, as ours does. Those in other languages are separate processes that measure
//! themselves (`bench/peers`) and answer questions here. Peers that are not installed are left out, with a note.

mod cluster;
mod election;
mod etcd;
mod hand_over;
mod installed;
mod killed;
mod leader;
mod place;
mod process;
mod programs;
mod quorum;
mod round;
mod series;
mod takers;
mod turns;
mod waiters;
mod zookeeper;

use std::collections::HashSet;
use std::future::Future;

pub use election::Options as ElectionOptions;
pub use hand_over::Options as HandOverOptions;
pub use installed::Measured;
pub use leader::{LeaderOptions, lead};
pub use quorum::Options as QuorumOptions;
use tokio::signal::unix::{SignalKind, signal};

use crate::server::Server;

/// Measures hand-over, compared with other lock clients, etcd and ZooKeeper.
pub async fn hand_over(start: impl Fn() -> Server, options: &HandOverOptions) -> Measured {
    unless_ended(hand_over::run(start, options)).await
}

/// Measures locks on a majority, compared with other lock clients, etcd and ZooKeeper.
pub async fn quorum(start: impl Fn() -> Server, options: &QuorumOptions) -> Measured {
    unless_ended(quorum::run(start, options)).await
}

/// Measures elections, compared with etcd's, and killed holders of other clients.
pub async fn election(start: impl Fn() -> Server, options: &ElectionOptions) -> Measured {
    unless_ended(election::run(start, options)).await
}

/// Runs `run`; ends it and its processes early when this process is asked to end. Names each version once.
async fn unless_ended(run: impl Future<Output = Measured>) -> Measured {
    let mut end = signal(SignalKind::terminate()).unwrap();
    let ended = tokio::select! {
        (outcome, versions) = run => {
            let mut named = HashSet::new();
            return (outcome, versions.into_iter().filter(|version| named.insert(version.clone())).collect());
        }
        _ = tokio::signal::ctrl_c() => "Ctrl-C",
        _ = end.recv() => "SIGTERM",
    };
    eprintln!("palisade-bench: ended by {ended}, nothing is written");
    std::process::exit(1);
}
