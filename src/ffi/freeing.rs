//! Freeing what is large, or much, but not on the server's time.

use std::hint::black_box;

/// So many entries are freed without a thread of their own: a hundred thousand take some milliseconds.
const FREED_AT_ONCE: usize = 1_000;

/// Drops `what`, which has so many entries. Where no thread can be had the closure, and with it `what`, is dropped right here. May run
/// on any thread.
pub fn free<T: Send + 'static>(what: T, entries: usize) {
    if entries > FREED_AT_ONCE {
        let _ = std::thread::Builder::new().name("lock-free".to_owned()).spawn(move || drop(what));
    }
}

/// Whoever asks for so much has glibc put together all small pieces that were freed.
const LARGE_BYTES: usize = 4_096;

/// A few keys may have been deleted. glibc keeps the small pieces that were freed apart until somebody asks for a large one, and then puts them
/// together in one go: after a million keys that takes a tenth of a second. So it is asked for one every few keys. (With jemalloc
/// that costs next to nothing.)
pub fn put_together() {
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}
