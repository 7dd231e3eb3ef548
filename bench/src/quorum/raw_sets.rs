//! The floor for any client of several nodes: raw commands to all at once, done when a majority has answered.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::quorum::majority;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::server::connect;

/// The time for a node to set up a connection. A node that takes longer counts as dead, and is left out.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// [`RawSets`] through a thread that owns the connections, as in the client, so that the way to that thread and back is
/// included in the time.
pub struct RawSetsApart {
    raw: RawSets,
    thread: Handle,
    /// Ends the thread when dropped.
    _stop: oneshot::Sender<()>,
}

impl RawSetsApart {
    /// Connects to the nodes on `ports`.
    pub async fn connect(ports: &[u16]) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (thread, ports) = (runtime.handle().clone(), ports.to_vec());
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || runtime.block_on(stopped));
        let raw = thread.spawn(async move { RawSets::connect(&ports).await }).await.unwrap();
        Self { raw, thread, _stop: stop }
    }

    /// Sends a SET as [`RawSets::set`] does.
    pub async fn set(&self, key: &str) {
        let (raw, key) = (self.raw.clone(), key.to_owned());
        self.thread.spawn(async move { raw.set(&key).await }).await.unwrap();
    }

    /// Sends a DEL as [`RawSets::delete`] does.
    pub async fn delete(&self, key: &str) {
        let (raw, key) = (self.raw.clone(), key.to_owned());
        self.thread.spawn(async move { raw.delete(&key).await }).await.unwrap();
    }
}

/// Connections to nodes, without those that do not answer.
#[derive(Clone)]
pub struct RawSets {
    connections: Vec<MultiplexedConnection>,
    majority: usize,
}

impl RawSets {
    /// Connects to the nodes on `ports`.
    pub async fn connect(ports: &[u16]) -> Self {
        let mut connections = Vec::new();
        for &port in ports {
            // A frozen node accepts connections but is silent.
            connections.extend(tokio::time::timeout(CONNECT_TIMEOUT, connect(port)).await.ok());
        }
        Self { connections, majority: majority(ports.len()) }
    }

    /// Sends `SET key owner NX PX ttl` to all, and waits until a majority has answered.
    pub async fn set(&self, key: &str) {
        let mut command = cmd("SET");
        command.arg(key).arg("owner-of-20-bytes-xx").arg("NX").arg("PX").arg(10_000);
        self.ask(&command, self.majority).await;
    }

    /// Sends `DEL key` to all, and waits until all have answered, as a release does.
    pub async fn delete(&self, key: &str) {
        self.ask(cmd("DEL").arg(key), self.connections.len()).await;
    }

    async fn ask(&self, command: &Cmd, answers: usize) {
        let ask = |connection: &MultiplexedConnection| {
            let mut connection = connection.clone();
            async move { command.query_async::<Value>(&mut connection).await.unwrap() }
        };
        let mut asked: FuturesUnordered<_> = self.connections.iter().map(ask).collect();
        for _ in 0..answers {
            asked.next().await.unwrap();
        }
    }
}
