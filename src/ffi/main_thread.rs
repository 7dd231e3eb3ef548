//! Values that only the server's main thread uses.

use std::cell::{RefCell, RefMut};
use std::thread::ThreadId;

/// A value for the main thread only, cheaper to use than a thread-local. A second borrow at the same time panics.
pub struct MainThread<T>(RefCell<T>);

// SAFETY: commands, timers and events come only on the server's main thread. The other threads, which write the state
// file and run `free`, carry all that they need and touch no such value; builds with assertions, which tests run, check
// each use.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// Borrows the value for changes.
    #[inline(always)]
    pub fn borrow_mut(&self) -> RefMut<'_, T> {
        debug_assert!(is_main_thread(), "the server calls on its main thread");
        self.0.borrow_mut()
    }
}

/// Returns whether this is the main thread. That is the thread that called this first, which is the one that loaded the
/// module.
fn is_main_thread() -> bool {
    static MAIN: std::sync::OnceLock<ThreadId> = std::sync::OnceLock::new();
    let this = std::thread::current().id();
    *MAIN.get_or_init(|| this) == this
}
