//! Frees large or numerous values without delaying the server.

use std::hint::black_box;

use super::value::Value;

/// The largest number of entries that are freed without a separate thread: a hundred thousand take some milliseconds.
const FREED_AT_ONCE: usize = 1_000;

/// Drops `what`, which has `entries` entries, on a separate thread if there are many. If no thread can be started, the
/// closure, and with it `what`, is dropped right here. May run on any thread.
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

/// The size of an allocation that makes glibc consolidate all small freed pieces, in bytes.
const LARGE_BYTES: usize = 4_096;

/// Makes glibc consolidate small freed pieces of memory, since keys may have been deleted. glibc keeps such pieces
/// apart until the next large allocation, then consolidates all of them at once. After a million keys that takes a
/// tenth of a second, so a large allocation is made every few keys. (With jemalloc it costs next to nothing.)
pub fn put_together() {
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}
