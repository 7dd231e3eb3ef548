//! The connection that listens for this client on one node, and the callers that wait for outcomes over it.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::net::wire::News;
use crate::values::failure::Why;

/// Length of a listener's name, in bytes.
pub const NAME_BYTES: usize = 20;

/// Maximum idle time of a listener before it is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Maximum number of concurrent LOCK.WAITs being sent to a node, so that extensions do not wait behind them.
const ASKS: usize = 32;

/// The state of this client as a listener on one node.
#[derive(Debug)]
pub struct Hearing {
    pub last: tokio::sync::Mutex<Last>,
    pub asks: Semaphore,
    /// Number of requests that wait over the listener.
    pub waits: AtomicUsize,
}

/// The result of the last attempt to listen.
#[derive(Debug, Default)]
pub struct Last {
    pub listener: Option<Arc<Listener>>,
    pub failed: Option<(Instant, Why)>,
    /// The number of the connection over which the node refused to let this client listen.
    pub refused_on: u64,
}

impl Default for Hearing {
    fn default() -> Self {
        Self { last: tokio::sync::Mutex::default(), asks: Semaphore::new(ASKS), waits: AtomicUsize::default() }
    }
}

/// A connection that receives the outcomes of waiting requests (LOCK.HEAR).
#[derive(Debug)]
pub struct Listener {
    pub name: [u8; NAME_BYTES],
    pub waits: Mutex<Waiters>,
}

/// The callers that wait for outcomes over the listener.
#[derive(Debug)]
pub struct Waiters {
    pub is_open: bool,
    asked: HashMap<About, (u64, oneshot::Sender<Result<Value, Why>>)>,
    count: u64,
    pub idle_since: Instant,
}

/// The key and the owner of a LOCK.WAIT, by which its outcome finds its caller.
pub type About = (Box<[u8]>, Box<[u8]>);

/// Receives the outcome of one waiting request.
pub type OutcomeReceiver = oneshot::Receiver<Result<Value, Why>>;

impl Listener {
    pub fn new(name: [u8; NAME_BYTES]) -> Self {
        let waits = Waiters { is_open: true, asked: HashMap::new(), count: 0, idle_since: Instant::now() };
        Self { name, waits: Mutex::new(waits) }
    }

    pub fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a caller that waits for the outcome of `about`, and returns its number; `None` if the listener has
    /// ended.
    pub fn add(&self, about: &About) -> Option<(u64, OutcomeReceiver)> {
        let (told, tells) = oneshot::channel();
        let mut waits = self.waiters();
        if !waits.is_open {
            return None;
        }
        waits.count += 1;
        let number = waits.count;
        waits.asked.insert(about.clone(), (number, told));
        Some((number, tells))
    }

    /// Removes the caller with this number.
    pub fn forget(&self, about: &About, number: u64) {
        let mut waits = self.waiters();
        if waits.asked.get(about).is_some_and(|(last, _)| *last == number) {
            waits.asked.remove(about);
        }
    }

    /// Delivers an outcome to its caller, unless the caller has given up.
    pub fn deliver(&self, News { key, owner, told }: News) {
        if let Some((_, tells)) = self.waiters().asked.remove(&(key, owner)) {
            let _ = tells.send(told);
        }
    }

    /// Ends the listener. Its callers learn that they will get no outcome.
    pub fn end(&self) {
        let mut waits = self.waiters();
        waits.is_open = false;
        waits.asked = HashMap::new();
    }

    /// Ends the listener if it has been idle for too long. Returns whether it has ended.
    pub fn end_if_idle(&self) -> bool {
        let mut waits = self.waiters();
        waits.is_open &= !waits.asked.is_empty() || waits.idle_since.elapsed() < IDLE;
        !waits.is_open
    }
}
