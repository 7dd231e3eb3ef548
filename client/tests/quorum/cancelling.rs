//! A dropped future leaves no lock, no waiter and no running task behind.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use palisade_client::{Client, Guard, Options};

use crate::fixture::{Nodes, ms, until};

/// Polls `future` up to `polls` times, then drops it. Returns its value if it was ready by then.
async fn poll_some<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context: &mut Context<'_>| {
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
    until("nothing is left", async || {
        nodes.holding("k") == 0 && nodes.0.iter().all(|server| server.info("waiters") == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_every_await_point() {
    for count in [1, 3] {
        let (nodes, locks) = Nodes::with_client(count).await;
        let options = Options::new().ttl(ms(30_000));
        // The first waits open connections for waiting, which stay open.
        let warm = locks.lock("k").await.unwrap();
        let _ = locks.with(&Options::new().wait(ms(100))).lock("k").await;
        warm.release().await;
        nothing_is_left(&nodes).await;
        let taking = |locks: Client| async move { locks.with(&Options::new().ttl(ms(30_000))).try_lock("k").await };
        for polls in 1..12 {
            drop(poll_some(taking(locks.clone()), polls).await);
            nothing_is_left(&nodes).await;
        }
        for polls in 1..12 {
            drop(poll_some(locks.with(&options).lock("k"), polls).await);
            nothing_is_left(&nodes).await;
        }
        // Here another client holds the lock, and these requests wait behind it.
        for polls in 1..12 {
            let holder: Guard = locks.with(&options).try_lock("k").await.unwrap();
            let patient = locks.with(&options);
            let waiting = poll_some(patient.lock("k"), polls);
            let releasing = async {
                tokio::time::sleep(ms(5)).await;
                holder.release().await
            };
            drop(tokio::time::timeout(ms(1_000), async { tokio::join!(waiting, releasing) }).await);
            nothing_is_left(&nodes).await;
        }
        for polls in 1..6 {
            let guard = locks.with(&options).lock("k").await.unwrap();
            drop(poll_some(guard.extend(), polls).await);
            drop(poll_some(guard.reenter(), polls).await);
            let _ = tokio::time::timeout(ms(10), poll_some(guard.lost(), polls)).await;
            drop(poll_some(guard.release(), polls).await);
            nothing_is_left(&nodes).await;
        }
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
        // No work is left in progress, either.
        locks.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_waits() {
    for count in [1, 3] {
        let (nodes, locks) = Nodes::with_client(count).await;
        let (lock, permits) = (locks.rw_lock("k"), locks.semaphore("k", 2));
        let writing = lock.write().await.unwrap();
        let waited_on = || nodes.0.iter().filter(|server| server.info("waiters") > 0).count();
        for reads in [true, false] {
            let (lock, permits) = (lock.clone(), permits.clone());
            let waits = tokio::spawn(async move {
                if reads { lock.read().await.map(drop) } else { permits.acquire().await.map(drop) }
            });
            until("it waits", async || waited_on() == count).await;
            waits.abort();
            until("it is gone", async || waited_on() == 0).await;
        }
        writing.release().await;
        nothing_is_left(&nodes).await;
        assert!(permits.try_acquire().await.is_ok());
    }
}
