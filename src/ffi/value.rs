//! Values of the module that are on the heap and belong to the server while they are in keys. Also the server's handles
//! of their types.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use palisade_core::{Gate, Lock};

use super::api::raw;

/// A value that the server stores in a key for the module.
pub trait Value: Send + Sized + 'static {
    /// Returns the server's handle of the type, and the counts of its values.
    fn registration() -> &'static Registration;

    /// Replaces this value in memory by `next`, a later state of the same key. Returns the old value.
    fn replaced_by(&mut self, next: Self) -> Self;

    /// Returns the number of places for entries in the value, because one with many takes a while to drop.
    fn entries(&self) -> usize;
}

impl Value for Lock {
    fn registration() -> &'static Registration {
        static REGISTRATION: Registration = Registration::new();
        &REGISTRATION
    }

    fn replaced_by(&mut self, next: Self) -> Self {
        self.replace(next)
    }

    fn entries(&self) -> usize {
        self.places()
    }
}

impl Value for Gate {
    fn registration() -> &'static Registration {
        static REGISTRATION: Registration = Registration::new();
        &REGISTRATION
    }

    fn replaced_by(&mut self, next: Self) -> Self {
        self.replace(next)
    }

    fn entries(&self) -> usize {
        self.seen().permits()
    }
}

/// The server's handle of a data type, and how many of its values the server has been given and has freed.
pub struct Registration {
    /// The server's handle of the type. It is set at each load of the module, because the server forgets the type after
    /// a failed load.
    handle: AtomicPtr<raw::RedisModuleType>,
    /// The number of values that were given to the server. Only the main thread gives values, so the increment need not
    /// be atomic.
    given: AtomicUsize,
    /// The number of values whose ownership went back from the server to this module.
    taken_back: AtomicUsize,
}

impl Registration {
    const fn new() -> Self {
        Self { handle: AtomicPtr::new(null_mut()), given: AtomicUsize::new(0), taken_back: AtomicUsize::new(0) }
    }
}

/// Returns the number of values in memory: those in keys, and those that wait to be freed.
pub fn in_memory<V: Value>() -> usize {
    let taken_back = V::registration().taken_back.load(Ordering::Relaxed);
    V::registration().given.load(Ordering::Relaxed).wrapping_sub(taken_back)
}

/// Gives a value to the server, which later frees it through the type's callback. Only called on the main thread.
pub(super) fn give<V: Value>(value: Box<V>) -> NonNull<V> {
    let given = &V::registration().given;
    given.store(given.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    NonNull::from(Box::leak(value))
}

/// Takes a value back from the server. May run on any thread.
///
/// # Safety
/// `value` comes from `give`, and nobody uses it any longer.
pub(super) unsafe fn take_back<V: Value>(value: NonNull<V>) -> Box<V> {
    V::registration().taken_back.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `give` leaked this box; the caller's promise.
    unsafe { Box::from_raw(value.as_ptr()) }
}

/// Returns the server's handle of the data type; null before it is registered.
pub(super) fn handle<V: Value>() -> *mut raw::RedisModuleType {
    V::registration().handle.load(Ordering::Relaxed)
}

/// Sets the server's handle of the data type.
pub(super) fn set_handle<V: Value>(handle: *mut raw::RedisModuleType) {
    V::registration().handle.store(handle, Ordering::Relaxed);
}
