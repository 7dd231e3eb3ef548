//! The node's memory, which only the server's main thread uses.
//!
//! Each use is short. During one, no function of the server may be called that can call the module back (opening,
//! storing or deleting a key). A second use at the same time panics, which the boundary catches.

use palisade_core::{Node, Settings};

use crate::config;
use crate::ffi::MainThread;

/// The node. It is never dropped: when the process ends, the system takes the memory back faster than a walk over all
/// entries would.
static NODE: MainThread<Option<Node>> = MainThread::new(None);

/// Sets the node, when the module is loaded.
pub fn begin(node: Node) {
    *NODE.borrow_mut() = Some(node);
}

/// Hands the operator's settings to the node.
pub fn configure(node: &mut Node) {
    node.configure(Settings {
        max_clock_skew_ms: config::max_clock_skew_ms(),
        max_waiters: config::max_waiters(),
        max_waiting_bytes: config::max_waiting_bytes(),
        handoff_window_ms: config::handoff_window_ms(),
        log_max_len: config::log_max_len(),
        log_slower_than_ms: config::log_slower_than_ms(),
        events: config::events(),
    });
    node.count_by(&config::metrics_prefixes());
}

/// Calls `body` with the node.
// Inlined, because otherwise the value that `body` returns is built in one place and copied to another (`make
// instructions`).
#[inline(always)]
pub fn with<T>(body: impl FnOnce(&mut Node) -> T) -> T {
    body(NODE.borrow_mut().as_mut().expect("the module is loaded before it is called"))
}
