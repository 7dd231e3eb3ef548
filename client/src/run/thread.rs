//! The client's own thread. It runs timers and the renewers of locks, and serves connections while no caller's runtime
//! does.
//!
//! So a lock is extended whatever the application does with its own runtime: it may compute for minutes on its only
//! thread, end, or not exist. Work that callers begin on their own tasks moves here if it needs a timer.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::net::home;
use crate::net::nodes::Nodes;
use crate::{Error, ErrorKind, metrics};

/// A thread that runs futures until this is dropped, then ends once all releases are done.
#[derive(Debug)]
pub struct Thread {
    runtime: Handle,
    /// Stops the thread when dropped.
    _stop: oneshot::Sender<()>,
}

impl Thread {
    /// Starts the thread, and connects to the nodes.
    pub fn start(nodes: &Arc<Nodes>) -> Result<Self, Error> {
        metrics::describe();
        let failed =
            |why: std::io::Error| Error::new(ErrorKind::Configuration, format!("no thread can be started: {why}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        nodes.home.begin(handle.clone());
        let (stop, stopped) = oneshot::channel();
        let nodes = Arc::clone(nodes);
        let run = move || {
            home::is_here();
            let home = Arc::clone(&nodes.home);
            runtime.block_on(async {
                tokio::spawn({
                    let home = Arc::clone(&home);
                    async move { home.stay().await }
                });
                nodes.stay_connected();
                let _ = stopped.await;
                nodes.latest().settled().await;
            });
            home.end();
            // A thread of the runtime may still look up a name, which is not waited for.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("palisade".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { runtime: handle, _stop: stop })
    }

    /// Runs `future` on the thread, to its end.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Begins `future` in the runtime of this task if that can wait for sockets, otherwise on the thread. It moves to
    /// the thread when it needs to.
    pub fn begin<T: Send + 'static>(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> Begun<T> {
        let at = match home::is_home() || home::guest().is_some() {
            true => At::Here(Box::pin(future)),
            false => At::There(self.run(future)),
        };
        Begun { at, thread: Arc::clone(self) }
    }

    /// Runs `future` on the thread. If the result is dropped, the future is dropped there too.
    pub fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Running<T> {
        Running(self.runtime.spawn(future))
    }
}

/// A future that begins on its caller's task, and moves to the client's thread if that has to finish it.
pub struct Begun<T> {
    at: At<T>,
    thread: Arc<Thread>,
}

enum At<T> {
    Here(BoxFuture<'static, T>),
    There(Running<T>),
    /// The future is moving to the thread.
    Between,
}

impl<T: Send + 'static> Future for Begun<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let At::Here(future) = &mut this.at {
            home::has_to_leave();
            match future.as_mut().poll(context) {
                Poll::Ready(value) => return Poll::Ready(Ok(value)),
                Poll::Pending if !home::has_to_leave() => return Poll::Pending,
                Poll::Pending => {}
            }
            if let At::Here(future) = std::mem::replace(&mut this.at, At::Between) {
                this.at = At::There(this.thread.run(future));
            }
        }
        match &mut this.at {
            At::There(running) => Pin::new(running).poll(context),
            At::Here(_) | At::Between => Poll::Pending,
        }
    }
}

/// A future that runs on the thread.
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
