//! Finds out whether a caller has received a lock that was acquired.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The delivery of a lock that was acquired. All requests share it that were granted this lock before a caller received
/// it.
pub struct Delivery {
    is_received: AtomicBool,
    /// Releases the lock.
    give_back: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Delivery {
    /// Begins a delivery. If it is dropped before a caller has received the lock, it calls `give_back`.
    pub fn new(give_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { is_received: AtomicBool::new(false), give_back: Some(Box::new(give_back)) }
    }

    /// Notes that a caller has received the lock.
    pub fn receive(&self) {
        self.is_received.store(true, Ordering::Relaxed);
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take().filter(|_| !*self.is_received.get_mut()) {
            give_back();
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("is_received", &self.is_received).finish_non_exhaustive()
    }
}
