//! Reconnects to a node that is down as soon as a request arrives, at a bounded rate.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Minimum time between the starts of two attempts to connect, whatever the number of requests. A request within that
/// time gets the error of the last attempt, which is recent enough.
const AGAIN: Duration = Duration::from_millis(50);

/// The attempts to connect to one node. Only one runs at a time.
#[derive(Debug, Default)]
pub(super) struct Redialing {
    dialed: Mutex<Dialed>,
    wanted: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Dialed {
    /// Start of the last attempt; `None` before the first attempt, and once no further attempt will be made.
    began: Option<Instant>,
    /// True if the attempt has failed.
    is_over: bool,
    /// True if a request has asked for another attempt.
    is_wanted: bool,
}

impl Redialing {
    fn dialed(&self) -> MutexGuard<'_, Dialed> {
        self.dialed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of an attempt, and returns its time.
    pub fn begin(&self) -> Instant {
        let now = Instant::now();
        *self.dialed() = Dialed { began: Some(now), ..Dialed::default() };
        now
    }

    /// Records that no further attempt will be made.
    pub fn end(&self) {
        *self.dialed() = Dialed::default();
    }

    /// Records that the attempt which began at `began` failed, and waits until another one is requested and may begin.
    pub async fn wait(&self, began: Instant) {
        self.dialed().is_over = true;
        self.wanted.notified().await;
        sleep_until(began + AGAIN).await;
    }

    /// Returns whether the request can wait for an attempt to connect: a running one, or one that it starts.
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
