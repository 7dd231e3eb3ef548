//! What the module keeps on the server's main thread.

use std::cell::{RefCell, RefMut};
use std::thread::ThreadId;

/// A value that only the main thread uses: what a command asks for each time is cheaper so than a thread's own. A second borrow is a
/// panic.
pub struct MainThread<T>(RefCell<T>);

// SAFETY: commands, timers and events come on the server's main thread alone. What else there is, the thread that writes the state file and
// `free`, has all that it needs with it and comes to nothing of this kind; builds with assertions, which tests run, look at each use.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    /// It is `value` at first.
    pub const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// The value, to change it.
    #[inline(always)]
    pub fn borrow_mut(&self) -> RefMut<'_, T> {
        debug_assert!(is_main_thread(), "the server calls on its main thread");
        self.0.borrow_mut()
    }
}

/// The thread on which this was asked first is the one that loaded the module.
fn is_main_thread() -> bool {
    static MAIN: std::sync::OnceLock<ThreadId> = std::sync::OnceLock::new();
    let this = std::thread::current().id();
    *MAIN.get_or_init(|| this) == this
}
