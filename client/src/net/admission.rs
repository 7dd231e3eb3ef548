//! Limits the number of concurrent attempts of a client.
//!
//! Attempts beyond the limit begin later, so their leases do not run yet, and extensions do not wait behind them.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::net::bounds::WINDOW;

/// Admits at most `WINDOW` attempts at once for each master.
#[derive(Debug)]
pub struct Admission {
    turns: Semaphore,
    /// The largest number of masters that a node has had so far: 1, unless it is a cluster.
    masters: AtomicUsize,
}

impl Default for Admission {
    /// Creates an admission for nodes that have one master each.
    fn default() -> Self {
        Self { turns: Semaphore::new(WINDOW), masters: AtomicUsize::new(1) }
    }
}

impl Admission {
    /// Waits until an attempt may begin; dropping the permit admits the next one.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, so this cannot fail.
        self.turns.acquire().await.ok()
    }

    /// Raises the number of masters of a cluster. Each of them may have as many attempts at once as a single node. A
    /// lower number changes nothing.
    pub fn has_masters(&self, masters: usize) {
        let before = self.masters.fetch_max(masters, Ordering::Relaxed);
        self.turns.add_permits(masters.saturating_sub(before) * WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_master_of_a_cluster_takes_as_many_attempts() {
        let admission = Admission::default();
        let begin = || admission.turn().now_or_never().flatten();
        let mut begun: Vec<_> = std::iter::from_fn(begin).take(10 * WINDOW).collect();
        assert_eq!(begun.len(), WINDOW);
        for masters in [3, 2, 3] {
            admission.has_masters(masters);
            begun.extend(std::iter::from_fn(begin).take(10 * WINDOW));
            assert_eq!(begun.len(), 3 * WINDOW, "{masters} masters");
        }
        begun.truncate(1);
        assert!(begin().is_some(), "one that has ended makes room");
    }
}
