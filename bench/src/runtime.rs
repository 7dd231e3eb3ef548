//! The runtimes that callers of the client have.

use tokio::runtime::{Builder, Runtime};

/// Returns a runtime with this number of workers; 0 is that of the current thread.
pub fn runtime(workers: usize) -> Runtime {
    match workers {
        0 => Builder::new_current_thread().enable_all().build().unwrap(),
        count => Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap(),
    }
}
