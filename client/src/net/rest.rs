//! A set of futures that is usually empty, and costs nothing while it is.

use std::fmt;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

/// Futures that are polled together. They use timers, so they are polled only on the client's thread.
pub struct Rest<T>(Option<FuturesUnordered<BoxFuture<'static, T>>>);

impl<T> Default for Rest<T> {
    /// Creates an empty set.
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for Rest<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Rest").field(&self.0.as_ref().map(FuturesUnordered::len)).finish()
    }
}

impl<T> Rest<T> {
    /// Adds a future.
    pub fn push(&mut self, future: BoxFuture<'static, T>) {
        self.0.get_or_insert_default().push(future);
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(FuturesUnordered::is_empty)
    }

    /// Polls the futures, and returns the next result; `None` if the set is empty. On another thread than the client's,
    /// it polls nothing, and makes the future that calls it move to the client's thread.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        match &mut self.0 {
            Some(futures) if !futures.is_empty() => match super::home::is_home() {
                true => futures.poll_next_unpin(context),
                false => {
                    super::home::leave();
                    Poll::Pending
                }
            },
            _ => Poll::Ready(None),
        }
    }
}
