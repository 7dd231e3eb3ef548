//! Clients that take a lock on a majority of nodes without waiting for it, and release it.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_client::{Client, Guard};
use palisade_core::quorum::majority;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use redlock::RedLock;
use rslock::LockManager;
use serde_json::json;
use tokio::runtime::Runtime;

use super::process::{Peer, numbers};

/// The length of the leases, if a client allows a choice.
pub const TTL: Duration = Duration::from_secs(10);

/// The time after which an operation is given up and counts as failed.
pub const OPERATION_MAX: Duration = Duration::from_secs(2);

/// The results of one client in one slice of time.
#[derive(Default)]
pub struct Slice {
    /// The times of successes, in nanoseconds.
    pub acquire_ns: Vec<u64>,
    pub release_ns: Vec<u64>,
    /// Locks that were not taken, or not released, within [`OPERATION_MAX`].
    pub failed: u64,
    pub elapsed: Duration,
    /// The CPU time of the client's process and of all servers, while the client took locks.
    pub client_cpu: Duration,
    pub servers_cpu: Duration,
}

impl Slice {
    fn add(&mut self, other: Slice) {
        self.acquire_ns.extend(other.acquire_ns);
        self.release_ns.extend(other.release_ns);
        self.failed += other.failed;
    }
}

/// The runtime of tasks: tokio's with one worker, or with the current thread alone.
#[derive(Clone, Copy, PartialEq)]
pub enum Flavour {
    OneWorker,
    CurrentThread,
}

/// The runtime of clients that are measured on the current thread.
pub static CURRENT_THREAD: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());

/// A client, as an application's process would have one.
pub enum Taker {
    /// A client per task, all over the same connections; on the runtime of this process, or on [`CURRENT_THREAD`].
    Tasks(Vec<Task>, Flavour),
    /// A blocking client, in threads.
    Threads(Arc<RedLock>),
    /// A client in another language.
    Process(Peer),
}

impl Taker {
    /// Returns the process of the client.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Process(peer) => peer.pid(),
            Self::Tasks(..) | Self::Threads(_) => std::process::id(),
        }
    }

    /// Takes and releases locks with unique names, with this number of concurrent `tasks`.
    pub async fn slice(&mut self, tasks: usize, length: Duration) -> Slice {
        let start = Instant::now();
        let mut slice = Slice::default();
        match self {
            Self::Tasks(all, flavour) => {
                let tasks = all[..tasks].to_vec();
                let run = async move {
                    let mut slice = Slice::default();
                    let one = |task: Task| tokio::spawn(task.go_on(start, length));
                    for task in tasks.into_iter().map(one).collect::<Vec<_>>() {
                        slice.add(task.await.unwrap());
                    }
                    slice
                };
                slice = match flavour {
                    Flavour::OneWorker => run.await,
                    Flavour::CurrentThread => {
                        tokio::task::spawn_blocking(move || CURRENT_THREAD.block_on(run)).await.unwrap()
                    }
                };
            }
            Self::Threads(locks) => {
                let one = || {
                    let locks = Arc::clone(locks);
                    tokio::task::spawn_blocking(move || go_on_blocking(&locks, start, length))
                };
                for thread in (0..tasks).map(|_| one()).collect::<Vec<_>>() {
                    // A thread that hangs in a call is left behind: it ends when its servers continue or end.
                    match tokio::time::timeout_at((start + length + OPERATION_MAX).into(), thread).await {
                        Ok(done) => slice.add(done.unwrap()),
                        Err(_) => slice.failed += 1,
                    }
                }
            }
            Self::Process(peer) => {
                let (ms, most_s) = (length.as_millis() as u64, OPERATION_MAX.as_secs());
                let question = json!({ "do": "slice", "tasks": tasks, "ms": ms, "most_s": most_s });
                let answer = peer.ask(question).await;
                return Slice {
                    acquire_ns: numbers(&answer, "acquire_ns"),
                    release_ns: numbers(&answer, "release_ns"),
                    failed: answer["failed"].as_u64().unwrap(),
                    elapsed: Duration::from_nanos(answer["elapsed_ns"].as_u64().unwrap()),
                    ..Slice::default()
                };
            }
        }
        slice.elapsed = start.elapsed();
        slice
    }
}

fn go_on_blocking(locks: &RedLock, start: Instant, length: Duration) -> Slice {
    let mut slice = Slice::default();
    while start.elapsed() < length {
        let asked = Instant::now();
        let Ok(Some(lock)) = locks.lock(new_name().as_bytes(), TTL.as_millis() as usize) else {
            slice.failed += 1;
            continue;
        };
        slice.acquire_ns.push(asked.elapsed().as_nanos() as u64);
        let held = Instant::now();
        locks.unlock(&lock);
        slice.release_ns.push(held.elapsed().as_nanos() as u64);
    }
    slice
}

/// Returns a new, unused lock name.
fn new_name() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// An asynchronous client.
#[derive(Clone)]
pub enum Task {
    /// Our client.
    Palisade(Client),
    /// The baseline: a single command to every node at once, done when a majority has answered.
    Raw(Vec<MultiplexedConnection>),
    Rslock(LockManager),
}

/// The lock that a task releases.
enum Held {
    Palisade(Guard),
    Raw(String),
    Rslock(rslock::Lock),
}

impl Task {
    async fn go_on(mut self, start: Instant, length: Duration) -> Slice {
        let mut slice = Slice::default();
        while start.elapsed() < length {
            let asked = Instant::now();
            let Ok(Some(held)) = tokio::time::timeout(OPERATION_MAX, self.acquire()).await else {
                slice.failed += 1;
                continue;
            };
            slice.acquire_ns.push(asked.elapsed().as_nanos() as u64);
            let since = Instant::now();
            match tokio::time::timeout(OPERATION_MAX, self.release(held)).await {
                Ok(()) => slice.release_ns.push(since.elapsed().as_nanos() as u64),
                Err(_) => slice.failed += 1,
            }
        }
        slice
    }

    async fn acquire(&mut self) -> Option<Held> {
        let name = new_name();
        match self {
            Self::Palisade(locks) => locks.try_lock(&name).await.ok().map(Held::Palisade),
            Self::Raw(nodes) => {
                let ttl_ms = TTL.as_millis() as u64;
                let set = cmd("SET").arg(&name).arg("owner-of-20-bytes-xx").arg("NX").arg("PX").arg(ttl_ms).to_owned();
                ask_majority(nodes, set).await.then_some(Held::Raw(name))
            }
            Self::Rslock(locks) => locks.lock(name.as_str(), TTL).await.ok().map(Held::Rslock),
        }
    }

    async fn release(&mut self, held: Held) {
        match (self, held) {
            (_, Held::Palisade(guard)) => drop(guard.release().await),
            (Self::Raw(nodes), Held::Raw(name)) => drop(ask_majority(nodes, cmd("DEL").arg(name).to_owned()).await),
            (_, Held::Rslock(lock)) => lock.release().await,
            _ => unreachable!("a task gives back what it took itself"),
        }
    }
}

/// Returns true once a majority has answered without an error.
async fn ask_majority(nodes: &[MultiplexedConnection], command: Cmd) -> bool {
    let ask = |node: &MultiplexedConnection| {
        let (mut node, command) = (node.clone(), command.clone());
        async move { command.query_async::<Value>(&mut node).await.is_ok() }
    };
    let mut asked: FuturesUnordered<_> = nodes.iter().map(ask).collect();
    let mut good = 0;
    while let Some(well) = asked.next().await {
        good += usize::from(well);
        if good == majority(nodes.len()) {
            return true;
        }
    }
    false
}
