//! The runtimes that callers of the client have.

use tokio::runtime::{Builder, Runtime};

/// Returns a runtime with this number of workers; 0 is that of the current thread.
pub fn runtime(workers: usize) -> Runtime {
    match workers {
        0 => Builder::new_current_thread().enable_all().build().unwrap(),
        count => Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap(),
    }
}

/// Returns the name of the runtime with this number of workers.
pub fn name_of(workers: usize) -> String {
    match workers {
        0 => "current thread".to_owned(),
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    }
}
