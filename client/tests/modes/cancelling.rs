//! A future that is dropped leaves no grant and no waiter behind, in any mode.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use crate::{Nodes, until};

/// Polls `future` so many times, then drops it; its value if it had one by then.
async fn poll_some<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn nothing_is_left(nodes: &Nodes) {
    until("nothing is left", || nodes.holding("k") == 0 && nodes.waited_on("k") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_every_await_point() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let locks = nodes.client().await;
        let (lock, permits) = (locks.rw_lock("k"), locks.semaphore("k", 2));
        for polls in 1..5 {
            drop(poll_some(lock.read(), polls).await);
            nothing_is_left(&nodes).await;
            drop(poll_some(permits.acquire(), polls).await);
            nothing_is_left(&nodes).await;
            let writing = lock.write().await.unwrap();
            drop(poll_some(writing.downgrade(), polls).await);
            nothing_is_left(&nodes).await;
        }
        // Nor is anything under way.
        locks.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_waits() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let locks = nodes.client().await;
        let (lock, permits) = (locks.rw_lock("k"), locks.semaphore("k", 2));
        let writing = lock.write().await.unwrap();
        let held = (
            tokio::spawn({
                let lock = lock.clone();
                async move { lock.read().await }
            }),
            "a reader",
        );
        until(held.1, || nodes.waited_on("k") == count).await;
        held.0.abort();
        until("the reader is gone", || nodes.waited_on("k") == 0).await;
        let held = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire().await }
        });
        until("somebody waits for a permit", || nodes.waited_on("k") == count).await;
        held.abort();
        until("nobody waits", || nodes.waited_on("k") == 0).await;
        writing.release().await;
        nothing_is_left(&nodes).await;
        assert!(permits.try_acquire().await.is_ok());
    }
}
