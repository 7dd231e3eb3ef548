//! What is under way and must not be cut off, counted.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts what is under way and must not be cut off.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<watch::Sender<usize>>);

/// One of them, as long as it lives.
#[derive(Debug)]
pub struct Counted(Tally);

impl Tally {
    /// One more.
    pub fn begin(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Returns when there is none.
    pub async fn none(&self) {
        // The sender is here, so it cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
