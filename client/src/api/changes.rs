//! A stream of changes that the nodes report.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::sync::mpsc;

use crate::Error;
use crate::net::nodes::Nodes;
use crate::run::thread::{Running, Thread};

/// Maximum number of unread changes. A slower reader misses some states, but the last state that it reads is the
/// current one.
const UNREAD_MAX: usize = 16;

/// A stream of changes, beginning with the present state: of [`Election::observe`](crate::Election::observe) and
/// [`Client::watch`](crate::Client::watch). Implements `Stream`, and ends when the client is closed.
pub struct Changes<T> {
    told: mpsc::Receiver<T>,
    _running: Running<()>,
    _thread: Arc<Thread>,
}

impl<T: Send + 'static> Changes<T> {
    /// Begins a stream of the changes that `tell` sends, until the client is closed or the stream is dropped.
    pub(crate) fn begin<F>(thread: Arc<Thread>, nodes: &Arc<Nodes>, tell: impl FnOnce(mpsc::Sender<T>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, told) = mpsc::channel(UNREAD_MAX);
        let (nodes, telling) = (Arc::clone(nodes), tell(sender));
        let running = thread.run(async move {
            tokio::select! {
                biased;
                () = nodes.closed() => {}
                () = telling => {}
            }
        });
        Self { told, _running: running, _thread: thread }
    }
}

impl<T> Changes<T> {
    /// Waits for the next change. The first call returns the present state.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let mut leaders = locks.election("scheduler").observe()?;
    /// println!("{:?}", leaders.changed().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Closed`: the client was closed.
    pub async fn changed(&mut self) -> Result<T, Error> {
        self.told.recv().await.ok_or_else(Error::closed)
    }
}

impl<T> Stream for Changes<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.told.poll_recv(context)
    }
}

impl<T> fmt::Debug for Changes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}
