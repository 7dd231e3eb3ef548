//! Holders that are killed: the time until the next client has the lock, for every client that renews its leases.

use std::process::Child;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use palisade_client::Options;
use rand::RngExt;
use serde_json::json;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::installed::{Installed, Language};
use super::leader::{client, start_holder};
use super::process::Peer;
use super::programs::Program;
use crate::quantiles::median;
use crate::results::Table;

/// The length of a lease: more than the least that ZooKeeper accepts with its defaults, 4 s.
const TTL: Duration = Duration::from_secs(5);

/// The time for the next client to begin to wait for the lock.
const SETTLED: Duration = Duration::from_secs(1);

/// A client, with the ports of its servers.
struct Subject {
    name: String,
    /// `None` for Palisade.
    program: Option<Program>,
    ports: Vec<u16>,
    /// The milliseconds from the holder's end until the next client had the lock.
    times_ms: Vec<f64>,
}

/// A process that holds a lock.
enum Holder {
    Palisade(Child),
    Program(Peer),
}

impl Holder {
    async fn kill(&mut self) {
        match self {
            Self::Palisade(child) => {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            Self::Program(peer) => peer.kill().await,
        }
    }
}

/// Kills holders on the Redis servers with these `ports`, `times` for each client. Returns the versions of the clients
/// too.
pub async fn run(ports: &[u16], clusters: &[Cluster], installed: &Installed, times: usize) -> (Table, Vec<String>) {
    let mut all = subjects(ports, clusters);
    all.retain(|subject| subject.program.is_none_or(|program| installed.command(program.language).is_some()));
    let mut versions = Vec::new();
    for n in 1..=times {
        eprintln!("peers-election: killed holder {n} of {times}");
        // The starts of processes take the machine's time, so all are started before the first is killed.
        let mut ready = Vec::new();
        for (n, subject) in all.iter().enumerate() {
            let (holder, next, version) =
                start(subject, installed, &format!("killed-{:016x}-{n}", rand::random::<u64>())).await;
            ready.push((holder, next));
            versions.extend(version);
        }
        let done = join_all(ready.into_iter().map(|(holder, next)| kill(holder, next))).await;
        for (subject, taken) in all.iter_mut().zip(done) {
            subject.times_ms.push(taken.as_secs_f64() * 1_000.0);
        }
    }
    (table(&all, times), versions)
}

fn subjects(ports: &[u16], clusters: &[Cluster]) -> Vec<Subject> {
    let new = |name: &str, program, ports: &[u16]| Subject {
        name: name.to_owned(),
        program,
        ports: ports.to_vec(),
        times_ms: Vec::new(),
    };
    let program = |client, language| Some(Program { client, language });
    let mut all = vec![
        new("Palisade, 1 node", None, &ports[..1]),
        new("Palisade, 5 nodes", None, ports),
        new("Redisson RLock, 1 node", program("RLock", Language::Java), &ports[..1]),
        new("Redisson RFairLock, 1 node", program("RFairLock", Language::Java), &ports[..1]),
    ];
    let of_cluster = |cluster: &Cluster| new(cluster.name(), Some(Program::of(cluster)), &cluster.ports());
    all.extend(clusters.iter().map(of_cluster));
    all
}

/// The wait of the next client, which returns the moment at which it has the lock.
type Next = tokio::task::JoinHandle<Instant>;

/// Starts a holder, and a client that waits.
async fn start(subject: &Subject, installed: &Installed, name: &str) -> (Holder, Next, Option<String>) {
    let (ports, name) = (subject.ports.clone(), name.to_owned());
    let Some(program) = subject.program else {
        let holder = start_holder(&ports, TTL, &name);
        let next = tokio::spawn(async move {
            let guard = client(&ports).with(&Options::new().ttl(TTL)).lock(&name).await.unwrap();
            let now = Instant::now();
            drop(guard.release().await);
            now
        });
        return (Holder::Palisade(holder), next, None);
    };
    let (mut holder, version) = program.start_cold(installed, &ports, TTL).await.expect("it is here");
    let (mut waiter, _) = program.start_cold(installed, &ports, TTL).await.expect("it is here");
    let hold = json!({ "do": "hold", "name": name });
    holder.ask(hold.clone()).await;
    let next = tokio::spawn(async move {
        waiter.ask(hold).await;
        Instant::now()
    });
    (Holder::Program(holder), next, Some(version))
}

/// Kills a holder at a random moment of its lease. Returns the time until the next client has the lock.
async fn kill(mut holder: Holder, next: Next) -> Duration {
    let moment = rand::rng().random_range(Duration::ZERO..TTL / 3);
    sleep(SETTLED + moment).await;
    let killed = Instant::now();
    holder.kill().await;
    next.await.unwrap().saturating_duration_since(killed)
}

fn table(all: &[Subject], times: usize) -> Table {
    let mut table =
        Table::new("killed", format!("Holders of locks with leases of {} s that are killed", TTL.as_secs()))
            .words("client")
            .numbers("holders", "", 0)
            .numbers("least", "ms", 0)
            .numbers("killed to next p50", "ms", 0)
            .numbers("max", "ms", 0);
    for subject in all {
        let least = subject.times_ms.iter().copied().reduce(f64::min);
        let most = subject.times_ms.iter().copied().reduce(f64::max);
        table.row([
            subject.name.as_str().into(),
            times.into(),
            least.into(),
            median(&subject.times_ms).into(),
            most.into(),
        ]);
    }
    table.note(
        "The holder is a process that is killed (SIGKILL); the time runs until a client that waits has the lock. \
         All renew, so that between two thirds and all of the lease are left. Clients that do not renew by themselves \
         (redislock, redsync) are left out: the time would be what the holder's work left of the lease.",
    );
    table
}
