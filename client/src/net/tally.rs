//! Counts work in progress that must be allowed to finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A counter of work in progress that must be allowed to finish.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    count: AtomicUsize,
    /// Number of tasks that wait until the count is zero.
    waiting: AtomicUsize,
    none: Notify,
}

/// A piece of work, which counts until this is dropped.
#[derive(Debug)]
pub struct Counted(Tally);

impl Tally {
    /// Counts another piece of work until the returned value is dropped.
    pub fn begin(&self) -> Counted {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        Counted(self.clone())
    }

    /// Returns the count.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Waits until the count is zero.
    pub async fn none(&self) {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.0.waiting);
        loop {
            let none = self.0.none.notified();
            if self.count() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// A task that waits until the count is zero.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Self(Tally(counts)) = self;
        if counts.count.fetch_sub(1, Ordering::SeqCst) == 1 && counts.waiting.load(Ordering::SeqCst) > 0 {
            counts.none.notify_waiters();
        }
    }
}
