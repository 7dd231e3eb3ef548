//! Futures that are rarely needed: until then they cost nothing.

use std::fmt;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

/// Futures that are polled together, on the client's thread alone: they take timers.
pub struct Rest<T>(Option<FuturesUnordered<BoxFuture<'static, T>>>);

impl<T> Default for Rest<T> {
    /// None yet.
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
    /// One more.
    pub fn push(&mut self, future: BoxFuture<'static, T>) {
        self.0.get_or_insert_default().push(future);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(FuturesUnordered::is_empty)
    }

    /// What the next one comes to; `None`: there is none. Elsewhere than on the client's thread, the future that is polled moves there.
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
