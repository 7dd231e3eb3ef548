//! Owners that wait, and stop waiting.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use palisade_client::ErrorKind;
use palisade_client::by_owner::{Take, Wanted};

use super::{again, patient, process, start, take, takes, taking};
use crate::fixture::{Nodes, ms, until};
use crate::harness::Frozen;
use crate::proxy::{Proxy, before_each};

/// The second request waits behind another one of its process, which the nodes have not answered yet. The error says
/// that the holder is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_vain_behind_others_of_its_process() {
    let (nodes, locks) = start(3).await;
    let hang: Vec<_> = nodes.0[1..].iter().map(Frozen::new).collect();
    let first = taking(&locks, Take { wait: ms(60_000), ..take("first") });
    until("the first one asks the nodes", async || locks.counts().1 == 1).await;
    let error = locks.take(Take { wait: ms(50), ..take("second") }).await.unwrap_err();
    assert_eq!((error.kind(), error.in_the_way()), (ErrorKind::TimedOut, Some(ErrorKind::NoQuorum)), "{error}");
    drop(hang);
    assert!(first.await.unwrap().unwrap().is_some());
}

/// The request waited in the nodes' queues, and the nodes were too slow for its last attempt. The error must not report
/// their old answers as current.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_vain_for_nodes_that_become_slow() {
    let nodes = Nodes::start(3);
    let (proxies, addresses) = before_each(&nodes.0).await;
    let client = patient(&addresses).await;
    let locks = client.by_owner();
    let others = process(&nodes).await;
    takes(&others, take("me")).await;
    let waits = taking(&locks, Take { wait: ms(3_000), ..take("you") });
    until("it waits", async || nodes.0.iter().all(|server| server.info("waiters") == 1) || waits.is_finished()).await;
    proxies.iter().for_each(|proxy| proxy.delay(ms(2_000)));
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.in_the_way()), (ErrorKind::TimedOut, Some(ErrorKind::NoQuorum)), "{error}");
}

/// A holder repeats its request while no node answers. The nodes have far more time than the request waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_of_a_holder_waits_no_longer_than_it_says() {
    let nodes = Nodes::start(3);
    let (proxies, addresses) = before_each(&nodes.0).await;
    let locks = patient(&addresses).await.by_owner();
    takes(&locks, take("me")).await;
    proxies.iter().for_each(Proxy::swallow);
    let error = locks.take(Take { wait: ms(300), ..again("me") }).await.unwrap_err();
    assert_eq!((error.kind(), error.in_the_way()), (ErrorKind::TimedOut, Some(ErrorKind::NoQuorum)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_waits_and_its_owner_gives_up() {
    let (_nodes, locks) = start(5).await;
    let held = takes(&locks, take("me")).await;
    let waits = |owner: &str| Take { wait: ms(60_000), ..again(owner) };
    let waiting = |owner: &str| taking(&locks, waits(owner));
    let queued = async |count: u64| {
        until("they wait", async || {
            locks.info(b"k", Some(10)).await.unwrap().is_some_and(|shown| shown.waiters == count)
        })
        .await;
    };
    let given_up = waiting("you");
    until("the queue has it", async || {
        let shown = locks.info(b"k", Some(10)).await.unwrap();
        shown.is_some_and(|shown| shown.queue.iter().map(|waits| waits.owner.as_slice()).eq([b"you"]))
    })
    .await;
    assert_eq!(locks.release(b"k", b"you", None, None).await.unwrap(), None);
    assert_eq!(given_up.await.unwrap().unwrap(), None);
    queued(0).await;
    // A request whose caller has disconnected leaves the queue as well.
    let hung_up = waiting("gone");
    queued(1).await;
    hung_up.abort();
    queued(0).await;
    let next = waiting("next");
    queued(1).await;
    let began = Instant::now();
    assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(0));
    let granted = next.await.unwrap().unwrap().unwrap();
    assert!(granted.token > held.token && granted.waited > Duration::ZERO);
    assert!(began.elapsed() < ms(10_000), "it was told, not polled for");
    // A wait that fails returns None.
    assert_eq!(locks.take(Take { wait: ms(50), ..again("late") }).await.unwrap(), None);
}

/// Requests for shared modes first search for a lock that they may already hold. That search used to end the wait while
/// no majority answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_requests_outlast_a_missing_majority() {
    let nodes = Nodes::start(5);
    let locks = nodes.client().await.by_owner();
    for (key, wanted) in [("read", Wanted::Shared), ("permits", Wanted::Permit { limit: 3, number: None })] {
        let waits = |wait| Take { key: key.into(), wanted, wait, ..again("me") };
        let waiting = || taking(&locks, waits(ms(60_000)));
        let frozen: Vec<_> = nodes.0[..3].iter().map(Frozen::new).collect();
        let error = locks.take(waits(Duration::ZERO)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        let error = locks.take(waits(ms(300))).await.unwrap_err();
        assert_eq!((error.kind(), error.in_the_way()), (ErrorKind::TimedOut, Some(ErrorKind::NoQuorum)), "{error}");
        let given_up = waiting();
        until("it waits for nodes", async || locks.counts().1 == 1 || given_up.is_finished()).await;
        let _ = locks.release(key.as_bytes(), b"me", None, None).await;
        assert_eq!(given_up.await.unwrap().unwrap(), None);
        let waits = waiting();
        until("it waits for nodes", async || locks.counts().1 == 1 || waits.is_finished()).await;
        drop(frozen);
        assert!(waits.await.unwrap().unwrap().is_some());
    }
}

/// Notes that a request has a result for its caller.
#[derive(Default)]
struct HasResult(AtomicBool);

impl Wake for HasResult {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// A request is granted, and then dropped before its caller has received that. What it has locked is released, unless
/// another request of its owner has been answered with the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_request_leaves_no_lock_though_it_was_granted() {
    let nodes = Nodes::start(3);
    let locks = patient(&nodes.addresses()).await.by_owner();
    for is_repeated in [false, true] {
        // The nodes answer only after the request has been polled for the first time.
        let frozen: Vec<_> = nodes.0.iter().map(Frozen::new).collect();
        let mut taking = Box::pin(locks.take(take("me")));
        let has_result = Arc::new(HasResult::default());
        let waker = Waker::from(Arc::clone(&has_result));
        assert!(taking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(frozen);
        until("it is granted", async || has_result.0.load(Ordering::Acquire)).await;
        if is_repeated {
            takes(&locks, again("me")).await;
        }
        drop(taking);
        if is_repeated {
            assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(0), "the second caller has it");
        } else {
            until("it is released, as nobody has it", async || nodes.holding("k") == 0).await;
            until("its owner is forgotten", async || locks.counts().0 == 0).await;
        }
    }
}

/// Agents that were killed in the middle of requests have left grants on single nodes, for as long as their leases last.
/// Who watches another grant hears of its end all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_grant_is_heard_of_beside_leftovers_on_single_nodes() {
    let (nodes, locks) = start(3).await;
    nodes.follow_their_clocks().await;
    for has_leftovers in [false, true] {
        if has_leftovers {
            for (server, attempt) in nodes.0.iter().zip(["x#0123456789abcdef", "y#0123456789abcdef"]) {
                assert!(server.client().say(&format!("LOCK.ACQUIRE k {attempt} 30000 SHARED")).as_int() > 0);
            }
        }
        let granted = takes(&locks, Take { wanted: Wanted::Shared, ..take("me") }).await;
        let watches = {
            let locks = locks.clone();
            tokio::spawn(async move { locks.watch(b"k", (granted.token, None), ms(10_000)).await })
        };
        tokio::time::sleep(ms(1_000)).await;
        assert!(!watches.is_finished());
        let began = Instant::now();
        assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(0));
        let seen = watches.await.unwrap().unwrap();
        assert!(seen.is_some(), "its end was not heard of for {:?}, with leftovers: {has_leftovers}", began.elapsed());
    }
}

/// The lock is free, but for leftovers on single nodes. Who waits until it is held hears of that all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_grant_is_heard_of_beside_leftovers_on_single_nodes() {
    let (nodes, locks) = start(3).await;
    nodes.follow_their_clocks().await;
    for (server, attempt) in nodes.0.iter().zip(["x#0123456789abcdef", "y#0123456789abcdef"]) {
        assert!(server.client().say(&format!("LOCK.ACQUIRE k {attempt} 30000 SHARED")).as_int() > 0);
    }
    assert!(locks.info(b"k", None).await.unwrap().is_none(), "it is free");
    let watches = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.watch(b"k", (0, None), ms(10_000)).await })
    };
    tokio::time::sleep(ms(1_000)).await;
    assert!(!watches.is_finished());
    let began = Instant::now();
    takes(&locks, Take { wanted: Wanted::Shared, ..take("me") }).await;
    let seen = watches.await.unwrap().unwrap();
    assert!(seen.is_some(), "it was not heard of for {:?}", began.elapsed());
}

/// A request is granted, and its owner repeats it over another connection. Both are dropped before either caller has
/// received the lock, so nobody has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_request_and_its_dropped_repetition_leave_no_lock() {
    let (nodes, locks) = start(3).await;
    let mut requests = vec![];
    for request in [take("me"), again("me")] {
        let mut taking = Box::pin(locks.take(request));
        let has_result = Arc::new(HasResult::default());
        let waker = Waker::from(Arc::clone(&has_result));
        assert!(taking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        until("it is granted", async || has_result.0.load(Ordering::Acquire)).await;
        requests.push(taking);
    }
    drop(requests);
    for _ in 0..100 {
        if nodes.holding("k") == 0 {
            return;
        }
        tokio::time::sleep(ms(50)).await;
    }
    panic!("nobody was told of the lock, but {} nodes have it after 5 s", nodes.holding("k"));
}
