//! Locks on the heap that the server keeps for the module as values of keys, and how it identifies them as locks.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use palisade_core::Lock;

use super::api::raw;

/// The number of locks given to the server. Only the main thread gives any, so it needs no atomic increment.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// The number of locks that came back.
static TAKEN_BACK: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of locks in memory: held ones and, briefly, those that expired or wait to be freed.
pub fn locks_in_memory() -> usize {
    let taken_back = TAKEN_BACK.load(Ordering::Relaxed);
    GIVEN.load(Ordering::Relaxed).wrapping_sub(taken_back)
}

/// Gives a lock to the server, which gives it back through `free`. On the main thread.
pub(super) fn give(lock: Box<Lock>) -> NonNull<Lock> {
    GIVEN.store(GIVEN.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    NonNull::from(Box::leak(lock))
}

/// Takes a lock back from the server. May run on any thread.
///
/// # Safety
/// `lock` comes from `give`, and nobody uses it any longer.
pub(super) unsafe fn take_back(lock: NonNull<Lock>) -> Box<Lock> {
    TAKEN_BACK.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `give` leaked this box; the caller's promise.
    unsafe { Box::from_raw(lock.as_ptr()) }
}

/// The server's handle of the data type. Not kept from a failed load: the server forgets that type.
static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

/// Returns the server's handle of the data type; null before it is registered.
pub(super) fn handle() -> *mut raw::RedisModuleType {
    HANDLE.load(Ordering::Relaxed)
}

/// Sets the handle of the data type, which the server created.
pub(super) fn set_handle(handle: *mut raw::RedisModuleType) {
    HANDLE.store(handle, Ordering::Relaxed);
}
