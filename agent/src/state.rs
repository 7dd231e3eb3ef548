//! State shared by all connections of the agent.

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

/// The agent's state.
#[derive(Debug)]
pub struct State {
    /// The locks.
    pub locks: ByOwner,
    /// The counters.
    pub counts: Counts,
    /// The password that connections have to give, if any.
    pub password: Option<Password>,
    /// The most connections at a time.
    pub connections_max: usize,
    /// Connections that give up their places to others if need be.
    pub strangers: Strangers,
    /// The time at which the agent started.
    pub started: Instant,
    /// The addresses that the agent listens on, for people.
    pub listening: Vec<String>,
    /// The longest lease that the nodes accept, in milliseconds; 0 if they have not reported it yet.
    max_ttl_ms: AtomicU32,
    next_connection: AtomicU64,
    /// The last reported state of the nodes, and when they were asked.
    nodes: Mutex<Option<(Instant, Result<NodeSet, Error>)>>,
    ending: watch::Sender<bool>,
}

impl State {
    /// Returns the state of an agent that has just started.
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

    /// Returns a unique number for a connection.
    pub fn connection(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins the agent's end.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Returns true if the agent's end has begun.
    pub fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Waits until the agent's end begins.
    pub async fn ended(&self) {
        // The sender lives as long as this.
        let _ = self.ending.subscribe().wait_for(|ends| *ends).await;
    }

    /// Returns the nodes' bounds, as far as they have reported them.
    pub fn bounds(&self) -> Bounds {
        match self.max_ttl_ms.load(Ordering::Relaxed) {
            // The largest bounds that a node may have; each node checks requests by its own.
            0 => Bounds { max_ttl_ms: MAX_TTL_LIMIT_MS },
            max_ttl_ms => Bounds { max_ttl_ms },
        }
    }

    /// Returns the state of the nodes together, asked now or a moment ago.
    ///
    /// # Errors
    ///
    /// The agent is ending.
    pub async fn nodes(&self) -> Result<NodeSet, Error> {
        let known = self.nodes.lock().expect("nothing panics with it").clone();
        if let Some((when, said)) = known
            && when.elapsed() < NODES_FRESH
        {
            return said;
        }
        let said = self.locks.node_set().await;
        if let Ok(nodes) = &said {
            // Zero if no node reports a longest lease.
            let ms = nodes.max_ttl.map_or(0, |ttl| u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX));
            self.max_ttl_ms.store(ms, Ordering::Relaxed);
        }
        *self.nodes.lock().expect("nothing panics with it") = Some((Instant::now(), said.clone()));
        said
    }

    /// Returns the state of the nodes for people and programs that do not wait longer than [`NODES_TIME`]; `None` after
    /// that.
    pub async fn nodes_soon(&self) -> Option<Result<NodeSet, Error>> {
        timeout(NODES_TIME, self.nodes()).await.ok()
    }
}
