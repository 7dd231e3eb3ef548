//! Connections that give up their places to others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use crate::limits::LINGERING_MAX;

/// The connections that have not yet shown that a real client uses them: those without the password if one is needed,
/// otherwise those that have not sent a complete request. They give up their places, so that silent connections keep
/// nobody out.
#[derive(Debug)]
pub struct Strangers {
    /// The connections by number, oldest first; the value tells a connection to leave.
    by_age: Mutex<BTreeMap<u64, Arc<Notify>>>,
    /// Signals that a connection has left its place.
    pub left: Notify,
    /// Limits the number of connections without a place that are still read.
    pub lingering: Arc<Semaphore>,
}

impl Default for Strangers {
    fn default() -> Self {
        let lingering = Arc::new(Semaphore::new(LINGERING_MAX));
        Self { by_age: Mutex::default(), left: Notify::new(), lingering }
    }
}

impl Strangers {
    fn by_age(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        self.by_age.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the connection with this number; `goes` tells it to leave.
    pub fn add(&self, id: u64, goes: &Arc<Notify>) {
        self.by_age().insert(id, Arc::clone(goes));
    }

    /// Removes a connection that keeps its place or has left it. Returns false if it was no longer a stranger.
    pub fn remove(&self, id: u64) -> bool {
        self.by_age().remove(&id).is_some()
    }

    /// Tells the oldest one to leave. Returns false if there is none.
    pub fn dismiss_oldest(&self) -> bool {
        let oldest = self.by_age().pop_first();
        oldest.inspect(|(_, goes)| goes.notify_one()).is_some()
    }
}
