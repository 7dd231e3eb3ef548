//! The client's own thread: its connections, its timers and the renewers of its locks live there.
//!
//! So a lock is extended whatever the application does with its own runtime: computes for minutes on its only thread, ends
//! it, or has none. And what a node is given to answer is not spent on waiting for a turn in that runtime.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::net::nodes::Nodes;
use crate::{Error, ErrorKind, metrics};

/// Runs what it is given until it is dropped; then it ends, when what is being given back has been.
#[derive(Debug)]
pub struct Thread {
    runtime: Handle,
    /// Dropped with this.
    _stop: oneshot::Sender<()>,
}

impl Thread {
    /// Starts it, and connects to the nodes.
    pub fn start(nodes: &Arc<Nodes>) -> Result<Self, Error> {
        metrics::describe();
        let failed =
            |why: std::io::Error| Error::new(ErrorKind::Configuration, format!("no thread can be started: {why}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let nodes = Arc::clone(nodes);
        let run = move || {
            runtime.block_on(async {
                nodes.stay_connected();
                let _ = stopped.await;
                nodes.latest().settled().await;
            });
            // A name may still be looked up: nobody needs it any more.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("palisade".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { runtime: handle, _stop: stop })
    }

    /// Runs `future` there to its end.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Runs `future` there. Dropped meanwhile, it is dropped there too.
    pub fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Running<T> {
        Running(self.runtime.spawn(future))
    }
}

/// Something that runs on the thread.
#[derive(Debug)]
pub struct Running<T>(JoinHandle<T>);

impl<T> Future for Running<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(value) => Ok(value),
            Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
            Err(_) => Err(Error::closed()),
        })
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
