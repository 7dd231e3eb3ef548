//! Frees large or numerous values without delaying the server.

use std::hint::black_box;

use super::value::Value;

/// The largest number of entries that are freed on the calling thread. A hundred thousand would take some milliseconds.
const FREED_AT_ONCE: usize = 1_000;

/// Drops `what`, which has `entries` entries; if there are many, on a thread of its own. If no thread can be started,
/// `what` is dropped on the calling thread. May run on any thread.
pub fn free<T: Send + 'static>(what: T, entries: usize) {
    if entries > FREED_AT_ONCE {
        let _ = std::thread::Builder::new().name("lock-free".to_owned()).spawn(move || drop(what));
    }
}

/// Drops a value, which may have many entries. May run on any thread.
pub fn free_value<V: Value>(value: Box<V>) {
    let entries = value.entries();
    free(value, entries);
}

/// The size of an allocation that makes glibc join all small pieces of freed memory, in bytes.
const LARGE_BYTES: usize = 4_096;

/// Makes glibc join small pieces of memory that were freed by deleted keys. glibc keeps such pieces apart until the
/// next large allocation, then joins all of them at once. After a million keys that takes a tenth of a second, so a
/// large allocation is made every few keys. (With jemalloc it costs next to nothing.)
pub fn join_freed() {
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}
