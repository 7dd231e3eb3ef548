//! The connection that hears for this client on one node, and those who wait for its news.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::net::wire::News;
use crate::values::failure::Why;

/// Bytes of a listener's name.
pub const NAME_BYTES: usize = 20;

/// A listener that nobody has needed for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Requests to wait on their way to a node at a time: extensions do not wait behind them.
const ASKS: usize = 32;

/// What hears for this client on one node.
#[derive(Debug)]
pub struct Hearing {
    pub last: tokio::sync::Mutex<Last>,
    pub asks: Semaphore,
    /// Requests that wait over it.
    pub waits: AtomicUsize,
}

/// What came of the last attempt to listen.
#[derive(Debug, Default)]
pub struct Last {
    pub listener: Option<Arc<Listener>>,
    pub failed: Option<(Instant, Why)>,
    /// Over the connection with this number the node said that it lets this client not listen.
    pub refused_on: u64,
}

impl Default for Hearing {
    fn default() -> Self {
        Self { last: tokio::sync::Mutex::default(), asks: Semaphore::new(ASKS), waits: AtomicUsize::default() }
    }
}

/// A connection that listens.
#[derive(Debug)]
pub struct Listener {
    pub name: [u8; NAME_BYTES],
    pub waits: Mutex<Waits>,
}

/// Who waits for news of it.
#[derive(Debug)]
pub struct Waits {
    pub is_open: bool,
    asked: HashMap<About, (u64, oneshot::Sender<Result<Value, Why>>)>,
    count: u64,
    pub idle_since: Instant,
}

/// A lock and an owner.
pub type About = (Box<[u8]>, Box<[u8]>);

/// Receives the end of a wait.
pub type Told = oneshot::Receiver<Result<Value, Why>>;

impl Listener {
    pub fn new(name: [u8; NAME_BYTES]) -> Self {
        let waits = Waits { is_open: true, asked: HashMap::new(), count: 0, idle_since: Instant::now() };
        Self { name, waits: Mutex::new(waits) }
    }

    pub fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that somebody waits for news of that, and returns its number; `None`: none will come.
    pub fn add(&self, about: &About) -> Option<(u64, Told)> {
        let (told, tells) = oneshot::channel();
        let mut waits = self.waits();
        if !waits.is_open {
            return None;
        }
        waits.count += 1;
        let number = waits.count;
        waits.asked.insert(about.clone(), (number, told));
        Some((number, tells))
    }

    /// Nobody waits for that any more.
    pub fn forget(&self, about: &About, number: u64) {
        let mut waits = self.waits();
        if waits.asked.get(about).is_some_and(|(last, _)| *last == number) {
            waits.asked.remove(about);
        }
    }

    /// Tells who waits for it; of a request that was given up there is nobody.
    pub fn tell(&self, News { key, owner, told }: News) {
        if let Some((_, tells)) = self.waits().asked.remove(&(key, owner)) {
            let _ = tells.send(told);
        }
    }

    /// No news come any more: those who wait are told so.
    pub fn end(&self) {
        let mut waits = self.waits();
        waits.is_open = false;
        waits.asked = HashMap::new();
    }

    /// Ends if nobody has needed it for long; whether it has ended.
    pub fn ends_if_idle(&self) -> bool {
        let mut waits = self.waits();
        waits.is_open &= !waits.asked.is_empty() || waits.idle_since.elapsed() < IDLE;
        !waits.is_open
    }
}
