//! A node that is down is connected to again as soon as somebody asks it, though no more often than it takes to be no storm.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Attempts to connect begin no sooner after each other than this, however many requests ask for them. A request that comes within that time is
/// told why the last one failed: that is from now.
const AGAIN: Duration = Duration::from_millis(50);

/// The attempts to connect to one node, of which one is under way at a time.
#[derive(Debug, Default)]
pub(super) struct Redialing {
    dialed: Mutex<Dialed>,
    wanted: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Dialed {
    /// Start of the last attempt; `None`: there is none, and none will be.
    began: Option<Instant>,
    /// It has failed.
    is_over: bool,
    /// A request has asked for the next one.
    is_wanted: bool,
}

impl Redialing {
    fn dialed(&self) -> MutexGuard<'_, Dialed> {
        self.dialed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an attempt begins, and returns when.
    pub fn begin(&self) -> Instant {
        let now = Instant::now();
        *self.dialed() = Dialed { began: Some(now), ..Dialed::default() };
        now
    }

    /// Notes that no other attempt will be made.
    pub fn end(&self) {
        *self.dialed() = Dialed::default();
    }

    /// The last attempt, which began then, has failed. Returns when another one is wanted, and may begin.
    pub async fn wait(&self, began: Instant) {
        self.dialed().is_over = true;
        self.wanted.notified().await;
        sleep_until(began + AGAIN).await;
    }

    /// Returns true if a request has an attempt to wait for: one that is under way, or that it brings about.
    pub fn request(&self) -> bool {
        let mut dialed = self.dialed();
        let Some(began) = dialed.began else { return false };
        if dialed.is_over && began.elapsed() < AGAIN {
            return false;
        }
        if dialed.is_over && !std::mem::replace(&mut dialed.is_wanted, true) {
            self.wanted.notify_one();
        }
        true
    }
}
