//! Waits for a future on a thread without a runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::net::home;

/// The waker of a future: wakes the thread that waits for it.
struct Waiting(Thread);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` is ready. The client's thread does the work that the future leaves to it.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Waiting(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match home::blocking(|| future.as_mut().poll(&mut context)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
