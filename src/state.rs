//! The node's memory, on the server's main thread.
//!
//! Borrows are short: a call to the server that can call the module back (opening, storing or deleting a key) must
//! not be made while one lasts. A second borrow is a panic, which the boundary catches.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use palisade_core::Node;

use crate::{clock, config};

thread_local! {
    /// Never dropped: at exit the system takes memory back faster than a walk over every entry would.
    static NODE: ManuallyDrop<RefCell<Option<Node>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Starts the node's memory empty. No token up to the clock plus its greatest skew is issued: an earlier life, whose
/// keys may be gone, issued none above.
pub fn start() {
    let floor = clock::now().wall_us + u64::from(config::max_clock_skew_ms()) * 1_000;
    NODE.with(|node| *node.borrow_mut() = Some(Node::new(floor)));
}

/// Calls `body` with the node's memory.
pub fn with<T>(body: impl FnOnce(&mut Node) -> T) -> T {
    NODE.with(|node| body(node.borrow_mut().as_mut().expect("the module is loaded before it is called")))
}
