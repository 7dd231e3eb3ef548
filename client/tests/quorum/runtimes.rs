//! Callers read and write in their own runtimes: whatever these do, the client's thread keeps locks extended and
//! requests answered.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;

use palisade_client::{Client, ErrorKind, Options};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::fixture::{Nodes, ms, until};
use crate::harness::{Setup, patience};
use crate::proxy::{Proxy, before_each};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Starts nodes with leases longer than a test, so that a lock which is free afterwards was released.
fn start(count: usize) -> Nodes {
    Nodes::start_with(count, || Setup::new().module_arguments(&["max-ttl", "600000"]))
}

/// Polls the future once, in a task.
async fn poll_once<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// A runtime blocks while it holds a lock and has just requested another. The client's thread still reads the answers
/// and extends the lock, and other tasks of the client get their locks.
#[test]
fn a_runtime_that_blocks_right_after_it_wrote() {
    let (own, other) = (current_thread(), current_thread());
    let nodes = start(3);
    let locks = own.block_on(nodes.client());
    let (blocks, has_blocked) = mpsc::channel();
    let (ends, has_ended) = mpsc::channel();
    let of_other = locks.clone();
    let beside = thread::spawn(move || {
        has_blocked.recv().unwrap();
        other.block_on(async {
            for n in 0..200 {
                of_other.lock(format!("beside {n}")).await.unwrap().release().await;
            }
        });
        ends.send(()).unwrap();
    });
    own.block_on(async {
        let held = locks.with(&Options::new().ttl(ms(1_000))).lock("held").await.unwrap();
        let mut asking = pin!(locks.try_lock("asked"));
        assert!(poll_once(&mut asking).await.is_none());
        until("it was written", async || nodes.holding("asked") == 3).await;
        blocks.send(()).unwrap();
        // Here the runtime computes for longer than the lease.
        thread::sleep(ms(2_500));
        has_ended.recv_timeout(patience()).unwrap();
        assert!(held.is_valid(), "it was extended");
        assert_eq!(asking.await.unwrap().release().await, palisade_client::Released::Released);
        assert_eq!(held.release().await, palisade_client::Released::Released);
    });
    beside.join().unwrap();
}

/// Starts nodes behind proxies, which live in a runtime of their own, and a client of them.
fn proxied(apart: &Runtime, count: usize) -> (Nodes, Vec<Proxy>, Client) {
    let nodes = start(count);
    let (proxies, locks) = apart.block_on(crate::proxy::proxied(&nodes));
    (nodes, proxies, locks)
}

#[test]
fn a_runtime_that_is_dropped_in_the_middle_of_an_attempt() {
    let apart = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (nodes, proxies, locks) = proxied(&apart, 3);
    let options = Options::new().ttl(ms(600_000)).node_timeout(ms(200_000));
    for is_kept in [false, true] {
        let runtime = current_thread();
        if is_kept {
            // By now the runtime serves its connections.
            runtime.block_on(async { locks.try_lock("before").await.unwrap().release().await });
        }
        proxies.iter().for_each(Proxy::hold_answers);
        let patient = locks.with(&options);
        runtime.spawn(async move { patient.try_lock("k").await.map(std::mem::forget) });
        runtime.block_on(until("the nodes granted it", async || nodes.holding("k") == 3));
        drop(runtime);
        proxies.iter().for_each(Proxy::pass);
        apart.block_on(until("it is given back", async || nodes.holding("k") == 0));
    }
}

/// The guard is dropped with its runtime, and the lock is released all the same.
#[test]
fn a_runtime_that_is_dropped_with_a_lock() {
    let apart = current_thread();
    let nodes = start(3);
    let locks = apart.block_on(nodes.client());
    for age in [0, 100] {
        let runtime = current_thread();
        let of_task = locks.with(&Options::new().ttl(ms(600_000)));
        let (takes, has_taken) = mpsc::channel();
        runtime.spawn(async move {
            let _guard = of_task.try_lock("k").await.unwrap();
            tokio::time::sleep(ms(age)).await;
            takes.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        runtime.block_on(until("it is taken", async || has_taken.try_recv().is_ok()));
        assert!(nodes.holding("k") >= 2);
        drop(runtime);
        apart.block_on(until("it is given back", async || nodes.holding("k") == 0));
    }
}

/// A runtime that can wait neither for sockets nor for timers still acquires locks, and its waits end at their limits:
/// the client's thread does the waiting.
#[test]
fn a_runtime_without_io() {
    let apart = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (nodes, proxies, locks) = proxied(&apart, 3);
    let runtime = Builder::new_current_thread().build().unwrap();
    count_panics();
    runtime.block_on(async {
        for n in 0..3 {
            let guard = locks.lock("k").await.unwrap();
            assert!(guard.is_valid());
            let contended = locks.try_lock("k").await.unwrap_err();
            assert_eq!(contended.kind(), ErrorKind::Contended, "{n}");
            let short = locks.with(&Options::new().wait(ms(20)));
            assert_eq!(short.lock("k").await.unwrap_err().kind(), ErrorKind::TimedOut, "{n}");
            guard.release().await;
        }
    });
    assert!(PANICS.get() <= 3, "one for each node at most, not {}", PANICS.get());
    apart.block_on(until("it is given back", async || nodes.holding("k") == 0));
    drop(proxies);
}

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.set(PANICS.get() + 1);
        before(panic);
    }));
}

/// A wait ends at its limit in a runtime without timers, because the client's thread keeps the limit.
#[test]
fn a_limit_in_a_runtime_without_timers() {
    let apart = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_nodes, proxies, locks) = proxied(&apart, 3);
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let short = locks.with(&Options::new().ttl(ms(600_000)).wait(ms(200)).node_timeout(ms(300_000)));
    let (tells, told) = mpsc::channel();
    thread::spawn(move || {
        runtime.block_on(async {
            short.lock("before").await.unwrap().release().await;
            proxies.iter().for_each(Proxy::hold_answers);
            tells.send(short.lock("k").await.unwrap_err()).unwrap();
        });
    });
    let refused = told.recv_timeout(patience()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
}

/// Thousands of tasks run in two runtimes that share a client, while others come and go. Each request is answered, and
/// nothing stays locked.
#[test]
fn a_storm_in_runtimes_that_share_a_client() {
    const TASKS: usize = 1_000;
    const LOCKS: usize = 4;
    let nodes = start(3);
    let locks = current_thread().block_on(nodes.client());
    let locks = locks.with(&Options::new().ttl(ms(600_000)).node_timeout(ms(200_000)));
    let (done, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let lasting = [0, 1].map(|number| {
        let (locks, done) = (locks.clone(), Arc::clone(&done));
        thread::spawn(move || {
            let runtime = match number {
                0 => current_thread(),
                _ => Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
            };
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for task in 0..TASKS {
                    let (locks, done) = (locks.clone(), Arc::clone(&done));
                    tasks.spawn(async move {
                        for _ in 0..LOCKS {
                            locks.lock(format!("{number} {task}")).await.unwrap().release().await;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                while let Some(ended) = tasks.join_next().await {
                    ended.unwrap();
                }
            });
        })
    });
    let passing = thread::spawn({
        let (locks, is_over) = (locks.clone(), Arc::clone(&is_over));
        move || {
            for round in 0.. {
                let runtime = current_thread();
                for task in 0..20 {
                    let locks = locks.clone();
                    runtime.spawn(async move {
                        let guard = locks.lock(format!("passing {round} {task}")).await;
                        tokio::task::yield_now().await;
                        drop(guard);
                    });
                }
                runtime.block_on(async { tokio::time::sleep(ms(round % 7)).await });
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    lasting.into_iter().for_each(|ended| ended.join().unwrap());
    is_over.store(true, Ordering::Relaxed);
    passing.join().unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 2 * TASKS * LOCKS);
    let nothing_is_left =
        until("nothing is locked", async || nodes.say("DBSIZE").iter().all(|size| size.as_int() == 0));
    current_thread().block_on(nothing_is_left);
}

/// Connections break while callers write and read over them. Every lock is acquired, and none stays locked.
#[test]
fn connections_that_break_under_callers() {
    let apart = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let nodes = start(3);
    let (mut proxies, addresses) = apart.block_on(before_each(&nodes.0));
    let runtime = current_thread();
    runtime.block_on(async {
        let locks = Client::new(addresses).unwrap();
        let locks = locks.with(&Options::new().ttl(ms(600_000)));
        for n in 0..30 {
            let guard = locks.lock(format!("k {n}")).await.unwrap();
            if n % 10 == 5 {
                proxies[n / 10].cut();
            }
            if n % 10 == 8 {
                proxies[n / 10].pass();
            }
            guard.release().await;
        }
        until("nothing is locked", async || nodes.say("DBSIZE").iter().all(|size| size.as_int() == 0)).await;
    });
    proxies.clear();
}
