//! Several nodes, and helpers that ask them.

use std::future::Future;
use std::time::{Duration, Instant};

use palisade_client::{Client, Guard, Options};
use redis::cluster_routing::Slot;
use tokio::task::JoinHandle;

pub use crate::harness::Nodes;
use crate::harness::{Reply, Server, Setup, null, patience};

impl Nodes {
    /// Starts `count` nodes without persistence.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, Setup::new)
    }

    /// Starts `count` nodes with this setup.
    pub fn start_with(count: usize, setup: impl Fn() -> Setup) -> Self {
        crate::told::listen();
        Self((0..count).map(|_| setup().start()).collect())
    }

    /// Starts `count` nodes, and a client that is connected to all of them.
    pub async fn with_client(count: usize) -> (Self, Client) {
        let nodes = Self::start(count);
        let client = nodes.client().await;
        (nodes, client)
    }

    /// Returns another name of a node's socket, which looks like another node.
    pub fn alias(&self, place: usize) -> String {
        let alias = self.0[place].dir().join("alias");
        std::os::unix::fs::symlink(self.0[place].socket(), &alias).unwrap();
        format!("unix://{}", alias.display())
    }

    /// Returns the nodes' addresses, with the user `app` and this password.
    pub fn addresses_as_app(&self, password: &str) -> Vec<String> {
        self.0.iter().map(|server| format!("{}?user=app&pass={password}", server.address())).collect()
    }

    /// Returns a client that is connected to all nodes.
    pub async fn client(&self) -> Client {
        let client = Client::new(self.addresses()).unwrap();
        connected(&client).await;
        // So far a majority has answered. Without a grant of every node, a lock that a test holds would be free on one.
        let key = format!("granted-{:x}", rand::random::<u64>());
        until("every node grants the client a lock", async || {
            let guard = client.with(&brief()).lock(&key).await.unwrap();
            let is_held = |server: &Server| server.client().say(&format!("LOCK.INFO {key}")) != null();
            let by_all = self.0.iter().all(is_held);
            guard.release().await;
            by_all
        })
        .await;
        client
    }

    /// Returns a client of all nodes, whatever their state.
    pub async fn client_now(&self) -> Client {
        let client = Client::new(self.addresses()).unwrap();
        let start = Instant::now();
        let _ = client.with(&brief()).try_lock("connected").await;
        println!("tried once in {:?}", start.elapsed());
        client
    }

    /// Waits until the clock of each node has passed its tokens, so that a proposal from the clock is above them.
    /// Tokens of a new node start at its clock plus a margin. Until the clocks have passed them, a proposal is below
    /// the tokens of some nodes and above those of others. So the lock's token would rise after a majority has granted
    /// it.
    pub async fn follow_their_clocks(&self) {
        let follows_its_clock = |server: &Server| {
            let time: Vec<u64> =
                server.client().say("TIME").as_list().iter().map(|n| n.as_text().parse().unwrap()).collect();
            time[0] * 1_000_000 + time[1] > server.info("token_high").max(server.info("token_floor"))
        };
        until("their tokens follow their clocks", async || self.0.iter().all(follows_its_clock)).await;
    }

    /// Returns how often each node received this command since the statistics were reset.
    pub fn calls(&self, command: &str) -> Vec<u64> {
        let name = format!("cmdstat_{command}:calls=");
        let of = |stats: &Reply| {
            let text = stats.as_text().to_lowercase();
            let line = text.lines().find_map(|line| line.strip_prefix(&name)?.split(',').next()?.parse().ok());
            line.unwrap_or(0)
        };
        self.say("INFO commandstats").iter().map(of).collect()
    }

    /// Waits until this many requests wait on each node.
    pub async fn queued(&self, count: u64) {
        let all_wait = || self.0.iter().all(|server| server.info("waiters") == count);
        until(&format!("{count} wait on each node"), async || all_wait()).await;
    }
}

/// Waits until the client has reached a majority of its nodes. A first use waits only as long as one connection may
/// take, which may be too short on a busy machine.
pub async fn connected(client: &Client) {
    let key = format!("connected-{:x}", rand::random::<u64>());
    client.with(&brief()).lock(key).await.unwrap().release().await;
}

/// Returns options with a ttl below every maximum of these tests. The nodes' timeout is long enough for a busy machine.
fn brief() -> Options {
    Options::new().ttl(ms(1_000)).node_timeout(Duration::from_secs(10))
}

/// Starts a task that takes a lock, waiting for it.
pub fn locking(client: &Client, options: &Options, key: &str) -> JoinHandle<Guard> {
    let (client, key) = (client.with(options), key.to_owned());
    tokio::spawn(async move { client.lock(key).await.unwrap() })
}

/// Waits until `condition` holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < patience(), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the slot of a key.
pub fn slot(key: &str) -> u16 {
    let slot = Slot::for_key(key);
    (0..16_384).find(|&number| Slot::new(number) == Some(slot)).unwrap()
}

/// A resource that accepts a write only with a token at least as large as the largest it has seen.
#[derive(Debug, Default)]
pub struct Register {
    largest: u64,
}

impl Register {
    pub fn write(&mut self, token: u64) -> bool {
        let fresh = token >= self.largest;
        self.largest = self.largest.max(token);
        fresh
    }
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
