//! What all connections of the agent share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use palisade_client::by_owner::{ByOwner, NodeSet};
use palisade_client::{Client, Error};
use palisade_quorum::grammar::Bounds;
use palisade_quorum::limits::MAX_TTL_LIMIT_MS;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::counts::Counts;
use crate::limits::{NODES_FRESH, NODES_TIME};
use crate::password::Password;
use crate::strangers::Strangers;

/// The agent.
#[derive(Debug)]
pub struct State {
    /// The locks.
    pub locks: ByOwner,
    /// What has been done.
    pub counts: Counts,
    /// What connections have to give, if anything.
    pub password: Option<Password>,
    /// Most connections.
    pub connections_max: usize,
    /// Those of them that give way to others.
    pub strangers: Strangers,
    /// When it started.
    pub started: Instant,
    /// Where it listens, for people.
    pub listening: Vec<String>,
    /// The longest lease that the nodes take, in milliseconds; 0: they have not said it yet.
    max_ttl_ms: AtomicU32,
    next_connection: AtomicU64,
    /// What the nodes last were, and when that was asked.
    nodes: Mutex<Option<(Instant, Result<NodeSet, Error>)>>,
    ending: watch::Sender<bool>,
}

impl State {
    /// Of an agent that has just started.
    pub fn new(
        client: &Client,
        counts: Counts,
        password: Option<Password>,
        connections_max: usize,
        listening: Vec<String>,
    ) -> Self {
        Self {
            locks: client.by_owner(),
            counts,
            password,
            connections_max,
            strangers: Strangers::default(),
            started: Instant::now(),
            listening,
            max_ttl_ms: AtomicU32::new(0),
            next_connection: AtomicU64::new(1),
            nodes: Mutex::new(None),
            ending: watch::Sender::new(false),
        }
    }

    /// A number for a connection that no other has.
    pub fn connection(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on it ends.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Whether it ends.
    pub fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Returns when it ends.
    pub async fn ended(&self) {
        // The sender lives as long as this.
        let _ = self.ending.subscribe().wait_for(|ends| *ends).await;
    }

    /// What the nodes take, as far as they have said it.
    pub fn bounds(&self) -> Bounds {
        match self.max_ttl_ms.load(Ordering::Relaxed) {
            // Those of any node: what it makes of them it says itself.
            0 => Bounds { max_ttl_ms: MAX_TTL_LIMIT_MS },
            max_ttl_ms => Bounds { max_ttl_ms },
        }
    }

    /// What the nodes are together: as they say it now, or said it a moment ago.
    ///
    /// # Errors
    /// The agent ends.
    pub async fn nodes(&self) -> Result<NodeSet, Error> {
        let known = self.nodes.lock().expect("nothing panics with it").clone();
        if let Some((when, said)) = known
            && when.elapsed() < NODES_FRESH
        {
            return said;
        }
        let said = self.locks.node_set().await;
        if let Ok(nodes) = &said {
            // Unless none of them says it.
            let ms = nodes.max_ttl.map_or(0, |ttl| u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX));
            self.max_ttl_ms.store(ms, Ordering::Relaxed);
        }
        *self.nodes.lock().expect("nothing panics with it") = Some((Instant::now(), said.clone()));
        said
    }

    /// The same for people and programs that look: they are told in time.
    pub async fn nodes_soon(&self) -> Option<Result<NodeSet, Error>> {
        timeout(NODES_TIME, self.nodes()).await.ok()
    }
}
