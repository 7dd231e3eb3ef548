//! Conditions that must hold once the last fault is healed: locks can be acquired, nothing is stuck, no server is
//! damaged.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use palisade_client::{Client, Options};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::gated::reader::read;
use super::journal::now_us;
use super::judge::{History, JudgedEvent};
use super::link::Link;
use super::machine::free_port;
use super::patience::{LOOK, PATIENCE, comes_true};
use super::process::key_name;
use super::watch;
use super::world::{CLIENTS, CONTENDED_KEYS, NODES, World};
use crate::history::{Event, HeldAs, Holder, Occurrence};

/// The memory limit, in bytes, of a server that holds no lock: a few MiB for the server itself, and buffers of
/// connections and replication.
const MEMORY_MAX: u64 = 64 << 20;

/// Words that no server's log may contain.
const ALARMS: &[&str] = &[
    "panic",
    "LOCKPANIC",
    "ASSERTION FAILED",
    "BUG REPORT",
    "crashed by signal",
    "Guru Meditation",
    "PANIC:",
    "Internal error in RDB",
];

/// A server's state at the end.
#[derive(Clone, Debug)]
pub struct EndState {
    /// The machine's name.
    pub name: String,
    /// The server's version.
    pub version: String,
    /// The memory that the server uses, in bytes.
    pub memory: u64,
    /// The numbers of locks, deadline entries and waiters that are left over.
    pub left: (u64, u64, u64),
}

/// Lets every client finish. A client that does not finish in time is a finding.
pub async fn finish(world: &World) {
    for client in world.clients() {
        client.lock().await.finish();
    }
    for client in world.clients() {
        let mut client = client.lock().await;
        if !comes_true!(PATIENCE, client.has_ended()) {
            world.log.found(format!("{} is stuck: it waits for a lock that nobody holds", client.on));
            client.kill().await;
        }
    }
}

/// The longest time that taking a free lock may need while enough nodes serve.
const OBTAINED: Duration = Duration::from_secs(20);

/// Takes every lock while one or two nodes are unreachable, for each choice of these nodes: the others are a healthy
/// majority. Returns the number of majorities that succeeded.
pub async fn majorities(world: &World, history: &mut History) -> usize {
    let keys = CONTENDED_KEYS + CLIENTS as u32;
    each_majority(world, async |client, options, number| {
        for key in 0..keys {
            let who = Holder { client: 0, acquisition: (number + 1) * keys + key };
            take(client, options, OBTAINED, key, who, history).await.map_err(|why| format!("key {key}: {why}"))?;
        }
        Ok(())
    })
    .await
}

/// Takes a key that no client wants on each majority, while the clients continue. Returns the number of majorities that
/// succeeded.
pub async fn majorities_in_calm(world: &World) -> usize {
    each_majority(world, async |client, options, _| match client.with(options).lock("chaos:majority").await {
        Ok(guard) => {
            guard.release().await;
            Ok(())
        }
        Err(why) => Err(format!("a key that nobody wants: {why}")),
    })
    .await
}

/// Calls `take` once for each majority of the nodes, with the number of the call, while the other nodes are
/// unreachable. Ends at the first failure, which is a finding. Returns the number of successes.
async fn each_majority(
    world: &World,
    mut take: impl AsyncFnMut(&Client, &Options, u32) -> Result<(), String>,
) -> usize {
    for (node, slot) in world.slots.iter().enumerate() {
        if !comes_true!(PATIENCE, watch::guard_left_ms(&slot.socket()).await == 0) {
            world.log.found(format!("node {} stays guarded", node + 1));
            return 0;
        }
    }
    // Addresses of this machine where nothing listens.
    let Ok(closed) = free_port() else { return 0 };
    let ttl = Duration::from_millis(world.settings.max_ttl_ms);
    // The time for a node to answer, which is long because the machine is busy.
    let options = Options::new().ttl(ttl).wait(OBTAINED).node_timeout(ttl / 5);
    let away: Vec<(usize, usize)> = (0..NODES).flat_map(|one| (one..NODES).map(move |other| (one, other))).collect();
    for (number, &(one, other)) in away.iter().enumerate() {
        let address = |(node, link): (usize, &Link)| match node == one || node == other {
            true => format!("redis://127.0.0.{}:{closed}", node + 2),
            false => link.address(),
        };
        let client = Client::new(world.links[0].iter().enumerate().map(address)).expect("the addresses are good");
        if let Err(why) = take(&client, &options, number as u32).await {
            let up: Vec<usize> = (1..=NODES).filter(|&node| node != one + 1 && node != other + 1).collect();
            let what = format!("progress: everything is healed, only nodes {up:?} are up, and a lock cannot be had");
            world.log.found(format!("{what}: {why}"));
            return number;
        }
    }
    away.len()
}

/// Reads every resource that checks tokens once more.
pub async fn read_resources(world: &World) {
    for resource in &world.data.resources {
        if !comes_true!(PATIENCE, read(world, resource).await) {
            world.log.found(format!("resource {} cannot be read when everything is healed", resource.number));
        }
    }
    if let Some(server) = &world.data.postgresql {
        server.lock().await.end(Signal::QUIT).await;
    }
}

/// Takes every lock once more, and expects a token larger than all before.
pub async fn probe(world: &World, history: &mut History) {
    let client = world.client();
    let options = Options::new().ttl(Duration::from_millis(world.settings.max_ttl_ms)).wait(PATIENCE);
    for key in 0..CONTENDED_KEYS + CLIENTS as u32 {
        let who = Holder { client: 0, acquisition: key };
        if let Err(why) = take(&client, &options, PATIENCE, key, who, history).await {
            world.log.found(format!("key {key} cannot be had when everything is healed: {why}"));
        }
    }
}

/// Takes a lock, records it for the referee, and releases it at once.
async fn take(
    client: &Client,
    options: &Options,
    patience: Duration,
    key: u32,
    who: Holder,
    history: &mut History,
) -> Result<(), palisade_client::Error> {
    let mut see = |at, what| history.seen.push(JudgedEvent { event: Event { at, key, who, what }, arrival: None });
    let since = now_us();
    let begun = Instant::now();
    // The first connections may not be established yet.
    let guard = loop {
        match client.with(options).lock(key_name(key)).await {
            Err(_) if begun.elapsed() < patience => sleep(LOOK).await,
            taken => break taken?,
        }
    };
    let (at, token) = (now_us(), guard.token());
    see(
        at,
        Occurrence::Held { since, until: at + guard.valid_for().as_micros() as u64, token, mode: HeldAs::Exclusive },
    );
    // Events of the same microsecond are sorted with ends first. So the end is recorded at least one microsecond after
    // the beginning.
    see(now_us().max(at + 1), Occurrence::Ended);
    guard.release().await;
    Ok(())
}

/// Inspects every server and its log.
pub async fn inspect(world: &World) -> Vec<EndState> {
    let mut ends = vec![];
    for (node, slot) in world.slots.iter().enumerate() {
        let machine = slot.machine.lock().await;
        let mut info;
        let is_at_rest = comes_true!(PATIENCE, {
            info = fields(&machine.ask::<String>(&["INFO", "everything"]).await.unwrap_or_default());
            let is_none = |name: &&str| number(&info, name) == 0;
            !info.is_empty() && ["lock_held", "lock_waiters", "lock_guard_ms"].iter().all(is_none)
        });
        if !is_at_rest {
            world.log.found(format!("node {} does not come to rest: {info:?}", node + 1));
        }
        let found = |bad: bool, what: String| {
            if bad {
                world.log.found(format!("node {}: {what}", node + 1));
            }
        };
        let memory = number(&info, "used_memory");
        let left = (number(&info, "lock_held"), number(&info, "lock_deadlines"), number(&info, "lock_waiters"));
        found(memory > MEMORY_MAX, format!("{memory} bytes of memory are in use, and nothing is locked"));
        found(left.1 > 0, format!("{} deadlines of locks that are gone", left.1));
        found(number(&info, "lock_poisoned") > 0, "a panic was caught".to_owned());
        let version = info.get("redis_version").cloned().unwrap_or_default();
        ends.push(EndState { name: machine.name().to_owned(), version, memory, left });
    }
    scan_logs(world);
    ends
}

fn scan_logs(world: &World) {
    for entry in fs::read_dir(&world.common.logs).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let log = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
        for line in log.lines().filter(|line| ALARMS.iter().any(|alarm| line.contains(alarm))).take(3) {
            world.log.found(format!("{}: {line}", path.display()));
        }
    }
}

/// Returns the number of starts whose state file proved that the node remembers every grant, and the number of other
/// starts.
pub fn starts(world: &World) -> (usize, usize) {
    let logs = fs::read_dir(&world.common.logs).into_iter().flatten().flatten();
    let logs: String =
        logs.map(|entry| String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into_owned()).collect();
    let count = |text: &str| logs.matches(text).count();
    (count(", remembers every grant"), count(", cannot prove that it remembers"))
}

fn fields(info: &str) -> HashMap<String, String> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn number(info: &HashMap<String, String>, name: &str) -> u64 {
    info.get(name).and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
