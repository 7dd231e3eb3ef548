//! An end that comes once.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// An end, and its reason once it has come.
#[derive(Debug)]
pub struct End<T> {
    why: OnceLock<T>,
    comes: Notify,
}

impl<T> Default for End<T> {
    /// Creates an end that has not come.
    fn default() -> Self {
        Self { why: OnceLock::new(), comes: Notify::new() }
    }
}

impl<T> End<T> {
    /// Records that the end has come, unless it came before. Returns whether it came now.
    pub fn come(&self, why: T) -> bool {
        let comes = self.why.set(why).is_ok();
        if comes {
            self.comes.notify_waiters();
        }
        comes
    }

    /// Returns the reason, once the end has come.
    pub fn why(&self) -> Option<&T> {
        self.why.get()
    }

    /// Waits until the end has come.
    pub async fn wait(&self) -> &T {
        loop {
            // An end that comes right after the look wakes it.
            let comes = self.comes.notified();
            if let Some(why) = self.why() {
                return why;
            }
            comes.await;
        }
    }
}
