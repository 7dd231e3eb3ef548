//! Freeing what is large, but not on the server's time.

/// So many entries are freed without a thread of their own: a hundred thousand take some milliseconds.
const FREED_AT_ONCE: usize = 1_000;

/// Drops `what`, which has so many entries. Where no thread can be had the closure, and with it `what`, is dropped right here. May run
/// on any thread.
pub fn free<T: Send + 'static>(what: T, entries: usize) {
    if entries > FREED_AT_ONCE {
        let _ = std::thread::Builder::new().name("lock-free".to_owned()).spawn(move || drop(what));
    }
}
