//! The clients that take locks without waiting, each connected to its servers.

use std::sync::Arc;

use palisade_client::Client;
use redis::{IntoConnectionInfo, io::tcp::TcpSettings};
use redlock::RedLock;
use rslock::LockManager;

use super::cluster::Cluster;
use super::installed::{Installed, Language};
use super::programs::Program;
use super::takers::{CURRENT_THREAD, Flavour, TTL, Taker, Task};
use crate::server::{Server, connect};

/// The largest number of threads, for clients whose calls block their thread.
const THREADS_MAX: usize = 64;

/// A client that is measured.
pub struct Series {
    pub name: &'static str,
    pub taker: Taker,
    /// The most tasks with which the client is measured: some need a thread for each.
    pub tasks_max: usize,
    /// The index of the client's cluster; `None` if it uses the same nodes as the others.
    pub on: Option<usize>,
}

/// The numbers of nodes with which a client is measured.
#[derive(PartialEq)]
enum Nodes {
    One,
    Any,
    Several,
}

const ASYNCIO: Language = Language::Python("quorum_asyncio.py");

/// The clients of the nodes in other languages, as named in tables and as their programs know them.
const PROGRAMS: [(&str, &str, Language, Nodes); 11] = [
    ("redis-py, asyncio", "redis-py", ASYNCIO, Nodes::One),
    ("pottery, asyncio", "pottery", ASYNCIO, Nodes::Several),
    ("aioredlock, asyncio", "aioredlock", ASYNCIO, Nodes::Several),
    ("redlock-py, threads", "redlock-py", Language::Python("quorum_redlock_py.py"), Nodes::Several),
    ("redlock (Node.js)", "redlock", Language::Node, Nodes::Any),
    ("redsync (Go)", "redsync", Language::Go, Nodes::Any),
    ("redislock (Go)", "redislock", Language::Go, Nodes::One),
    ("Redisson RLock, threads", "RLock", Language::Java, Nodes::One),
    ("Redisson RFairLock, threads", "RFairLock", Language::Java, Nodes::One),
    ("Redisson RFencedLock, threads", "RFencedLock", Language::Java, Nodes::One),
    ("Redisson RReadWriteLock (writers), threads", "RReadWriteLock", Language::Java, Nodes::One),
];

/// Returns every available client, connected, with the versions of those in other languages.
pub async fn series(
    nodes: &[Server],
    clusters: &[Cluster],
    installed: &Installed,
    tasks: usize,
) -> (Vec<Series>, Vec<String>) {
    let ports: Vec<u16> = nodes.iter().map(Server::port).collect();
    let mut all = in_rust(&ports, tasks).await;
    let mut versions = Vec::new();
    let mut start = async |name, program: Program, ports: &[u16], tasks_max, on| {
        if let Some((peer, version)) = program.start(installed, ports, TTL).await {
            versions.push(version);
            all.push(Series { name, taker: Taker::Process(peer), tasks_max, on });
        }
    };
    let left_out = if nodes.len() == 1 { Nodes::Several } else { Nodes::One };
    for (name, client, language, of) in PROGRAMS {
        if of != left_out {
            let tasks_max = if client == "redlock-py" { THREADS_MAX } else { tasks };
            start(name, Program { client, language }, &ports, tasks_max, None).await;
        }
    }
    if nodes.len() > 1 {
        for (n, cluster) in clusters.iter().enumerate() {
            start(cluster.name(), Program::of(cluster), &cluster.ports(), tasks, Some(n)).await;
        }
        for (n, cluster) in clusters.iter().enumerate() {
            let Cluster::Etcd("etcd in memory", etcd) = cluster else { continue };
            let leader = cluster.ports()[etcd.leader().await];
            start("etcd in memory, at its leader", Program::of(cluster), &[leader], tasks, Some(n)).await;
        }
    }
    (all, versions)
}

/// Returns the clients of this process.
async fn in_rust(ports: &[u16], tasks: usize) -> Vec<Series> {
    let addresses: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
    let mut all = Vec::new();
    let mut add = |name, taker, tasks_max| all.push(Series { name, taker, tasks_max, on: None });
    let one_worker = |task| Taker::Tasks(vec![task; tasks], Flavour::OneWorker);
    let current_thread = |task| Taker::Tasks(vec![task; tasks], Flavour::CurrentThread);

    add("Palisade, tokio, one worker", one_worker(Task::Palisade(Client::new(&addresses).unwrap())), tasks);
    add("Palisade, tokio, current thread", current_thread(Task::Palisade(Client::new(&addresses).unwrap())), tasks);
    let connected = {
        let ports = ports.to_vec();
        async move || {
            let mut raw = Vec::new();
            for &port in &ports {
                raw.push(connect(port).await);
            }
            Task::Raw(raw)
        }
    };
    add("raw SET and DEL, tokio, one worker", one_worker(connected().await), tasks);
    let raw = tokio::task::spawn_blocking(move || CURRENT_THREAD.block_on(connected())).await.unwrap();
    add("raw SET and DEL, tokio, current thread", current_thread(raw), tasks);
    add("rslock, tokio, one worker", one_worker(Task::Rslock(LockManager::new(addresses.clone()))), tasks);
    let no_delay = || {
        let client = |address: &String| {
            let settings = TcpSettings::default().set_nodelay(true);
            redis::Client::open(address.as_str().into_connection_info().unwrap().set_tcp_settings(settings)).unwrap()
        };
        Task::Rslock(LockManager::from_clients(addresses.iter().map(client).collect()))
    };
    add("rslock, no delay, tokio, one worker", one_worker(no_delay()), tasks);
    add("rslock, no delay, tokio, current thread", current_thread(no_delay()), tasks);
    // redlock makes a new connection for each command to each node, in a thread per task.
    add("redlock (Rust), threads", Taker::Threads(Arc::new(RedLock::new(addresses))), THREADS_MAX);
    all
}
