//! The state that all connections of the agent share.

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

/// The state that all connections of the agent share.
#[derive(Debug)]
pub struct State {
    /// The locks, which the client crate acquires and keeps for owners.
    pub locks: ByOwner,
    /// The counters of the agent's work.
    pub counts: Counts,
    /// The password that connections have to give; `None` if they need none.
    pub password: Option<Password>,
    /// The most connections that may be open at a time.
    pub connections_max: usize,
    /// The connections that give up their places if others need them.
    pub strangers: Strangers,
    /// The time at which the agent started.
    pub started: Instant,
    /// The addresses at which the agent listens, for people.
    pub listening: Vec<String>,
    /// The longest lease that the nodes accept, in milliseconds; 0 if they have not reported it yet.
    max_ttl_ms: AtomicU32,
    next_connection: AtomicU64,
    /// The last answer of the nodes about their state, and the time at which they were asked.
    nodes: Mutex<Option<(Instant, Result<NodeSet, Error>)>>,
    ending: watch::Sender<bool>,
}

impl State {
    /// Creates the state of an agent that has just started.
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

    /// Returns a number for a new connection that no other has had.
    pub fn connection(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the agent end: connections finish what they do.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Returns true if the agent is ending.
    pub fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Waits until the agent is ending.
    pub async fn ended(&self) {
        // This does not fail, because the sender lives as long as this state.
        let _ = self.ending.subscribe().wait_for(|ends| *ends).await;
    }

    /// Returns the bounds of arguments that the nodes have reported, or the largest possible ones.
    pub fn bounds(&self) -> Bounds {
        match self.max_ttl_ms.load(Ordering::Relaxed) {
            // The nodes have reported nothing yet. The largest bound is used; each node checks requests by its own.
            0 => Bounds { max_ttl_ms: MAX_TTL_LIMIT_MS },
            max_ttl_ms => Bounds { max_ttl_ms },
        }
    }

    /// Returns the state of all nodes. Their last answers count if they are recent; otherwise the nodes are asked.
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
            // 0 stands for "not known": no node reports its longest lease.
            let ms = nodes.max_ttl.map_or(0, |ttl| u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX));
            self.max_ttl_ms.store(ms, Ordering::Relaxed);
        }
        *self.nodes.lock().expect("nothing panics with it") = Some((Instant::now(), said.clone()));
        said
    }

    /// Returns the state of the nodes, for people and programs that do not want to wait long. `None` if the nodes take
    /// longer than [`NODES_TIME`].
    pub async fn nodes_soon(&self) -> Option<Result<NodeSet, Error>> {
        timeout(NODES_TIME, self.nodes()).await.ok()
    }
}
