//! Connections that give up their places if others need them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use crate::limits::LINGERING_MAX;

/// The connections that have not yet shown that a real client uses them. If a password is needed, those are the
/// connections that have not given it, otherwise those that have not sent a complete request. They give up their places
/// if others need them, so that silent connections keep nobody out.
#[derive(Debug)]
pub struct Strangers {
    /// The connections by number, the oldest first, each with the signal that makes it give up its place.
    by_age: Mutex<BTreeMap<u64, Arc<Notify>>>,
    /// Signals that a connection has given up its place.
    pub left: Notify,
    /// Limits how many refused connections are still read, so that their clients receive the error before the
    /// connection closes.
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

    /// Adds the connection with this number. The connection leaves when `goes` is notified.
    pub fn add(&self, id: u64, goes: &Arc<Notify>) {
        self.by_age().insert(id, Arc::clone(goes));
    }

    /// Removes a connection, because it has shown that a client uses it, or has ended. Returns false if it was removed
    /// before.
    pub fn remove(&self, id: u64) -> bool {
        self.by_age().remove(&id).is_some()
    }

    /// Makes the oldest of these connections leave. Returns false if there is none.
    pub fn dismiss_oldest(&self) -> bool {
        let oldest = self.by_age().pop_first();
        oldest.inspect(|(_, goes)| goes.notify_one()).is_some()
    }
}
