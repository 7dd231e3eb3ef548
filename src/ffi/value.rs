//! Values on the heap that the server keeps for the module in keys, and the registered types of these values.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use palisade_core::{Gate, Lock};

use super::api::raw;

/// A value that the server keeps for the module.
pub trait Value: Send + Sized + 'static {
    /// Returns the type's handle and counts.
    fn kept() -> &'static Kept;

    /// Replaces this value in memory by `next`, a later value of the same key. Returns the old one.
    fn replaced_by(&mut self, next: Self) -> Self;

    /// Returns the number of entries: a value with many takes a while to drop.
    fn entries(&self) -> usize;
}

impl Value for Lock {
    fn kept() -> &'static Kept {
        static KEPT: Kept = Kept::new();
        &KEPT
    }

    fn replaced_by(&mut self, next: Self) -> Self {
        self.replace(next)
    }

    fn entries(&self) -> usize {
        self.len()
    }
}

impl Value for Gate {
    fn kept() -> &'static Kept {
        static KEPT: Kept = Kept::new();
        &KEPT
    }

    fn replaced_by(&mut self, next: Self) -> Self {
        self.replace(next)
    }

    fn entries(&self) -> usize {
        self.seen().permits()
    }
}

/// The server's handle of a data type, and how many of its values there are.
pub struct Kept {
    /// The server's handle, set anew at each load of the module: after a failed load the server forgets the type.
    handle: AtomicPtr<raw::RedisModuleType>,
    /// The number of values given to the server. Only the main thread gives any, so it needs no atomic increment.
    given: AtomicUsize,
    /// The number of values that the server gave back.
    taken_back: AtomicUsize,
}

impl Kept {
    const fn new() -> Self {
        Self { handle: AtomicPtr::new(null_mut()), given: AtomicUsize::new(0), taken_back: AtomicUsize::new(0) }
    }
}

/// Returns the number of values in memory: those in keys and, briefly, those that wait to be freed.
pub fn in_memory<V: Value>() -> usize {
    let taken_back = V::kept().taken_back.load(Ordering::Relaxed);
    V::kept().given.load(Ordering::Relaxed).wrapping_sub(taken_back)
}

/// Gives a value to the server, which gives it back through `free`. On the main thread.
pub(super) fn give<V: Value>(value: Box<V>) -> NonNull<V> {
    let given = &V::kept().given;
    given.store(given.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    NonNull::from(Box::leak(value))
}

/// Takes a value back from the server. May run on any thread.
///
/// # Safety
/// `value` comes from `give`, and nobody uses it any longer.
pub(super) unsafe fn take_back<V: Value>(value: NonNull<V>) -> Box<V> {
    V::kept().taken_back.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `give` leaked this box; the caller's promise.
    unsafe { Box::from_raw(value.as_ptr()) }
}

/// Returns the server's handle of the data type; null before it is registered.
pub(super) fn handle<V: Value>() -> *mut raw::RedisModuleType {
    V::kept().handle.load(Ordering::Relaxed)
}

/// Sets the handle of the data type, which the server created.
pub(super) fn set_handle<V: Value>(handle: *mut raw::RedisModuleType) {
    V::kept().handle.store(handle, Ordering::Relaxed);
}
