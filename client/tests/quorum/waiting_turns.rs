//! Waiting: in turn, without polling, and for no longer than allowed.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use palisade_client::{Client, ErrorKind, Options};

use crate::fixture::{Nodes, locking, ms, until};
use crate::harness::{Frozen, Setup, int, null};
use crate::proxy::{Proxy, before_each, proxied};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_served_in_order() {
    for count in [1, 5] {
        // A shorter reservation could end on a busy machine, which would change the order.
        let nodes = Nodes::start_with(count, || Setup::new().module_arguments(&["handoff-window", "5000"]));
        let first = nodes.client().await;
        let guard = first.lock("k").await.unwrap();
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = vec![];
        for n in 0..6 {
            // Some requests wait in one process, some in others.
            let locks = if n % 2 == 0 { first.clone() } else { nodes.client().await };
            let told = told.clone();
            let waiting = nodes.0[0].info("waiters");
            tasks.push(tokio::spawn(async move {
                let guard = locks.lock("k").await.unwrap();
                told.send((n, guard.token())).unwrap();
                guard.release().await;
            }));
            if n % 2 == 1 || n == 0 {
                until("it waits", async || nodes.0.iter().all(|server| server.info("waiters") > waiting)).await;
            } else {
                tokio::time::sleep(ms(20)).await;
            }
        }
        let mut last = guard.token();
        guard.release().await;
        for _ in 0..6 {
            let (_, token) = order.recv().await.unwrap();
            assert!(token > last);
            last = token;
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}

/// The connection over which a process hears of its waits becomes half open right after it was made. One request waits for
/// long; the others of the process get another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_never_answered_keeps_no_other_request_waiting() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let holder = nodes.client().await;
    let guards = [holder.lock("one").await.unwrap(), holder.lock("other").await.unwrap()];
    proxies.iter().for_each(Proxy::lose_listener);
    let first = locking(&locks, &Options::new().wait(ms(600_000)), "one");
    until("it begins to listen", async || proxies.iter().all(Proxy::has_lost_listener)).await;
    let second = locking(&locks, &Options::new().wait(ms(600_000)), "other");
    until("both wait", async || nodes.0.iter().filter(|server| server.info("waiters") == 2).count() > 1).await;
    for guard in guards {
        guard.release().await;
    }
    first.await.unwrap().release().await;
    second.await.unwrap().release().await;
}

/// Two requests of one process came before one of another, and are served before it. The second waited behind the first
/// in its process, and used to draw its ticket only when it was first there. So it was behind the other process's
/// request on the nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_over_processes_is_by_arrival() {
    let nodes = Nodes::start_with(3, || Setup::new().module_arguments(&["handoff-window", "10000"]));
    let (holder, one, other) = (nodes.client().await, nodes.client().await, nodes.client().await);
    // The timeout is long enough for a busy machine.
    let options = Options::new().ttl(ms(60_000)).node_timeout(ms(60_000));
    let held = holder.with(&options).lock("k").await.unwrap();
    let wait = |locks: &Client| {
        let (locks, options) = (locks.clone(), options.clone());
        tokio::spawn(async move { locks.with(&options).lock("k").await.unwrap() })
    };
    let queued = async |who: &str, count, on: usize| {
        until(who, async || nodes.0.iter().filter(|server| server.info("waiters") == count).count() >= on).await;
    };
    let first = wait(&one);
    queued("the first one waits", 1, 3).await;
    // The request arrives when it is first polled, which is here.
    let second = one.with(&options);
    let mut second = std::pin::pin!(second.lock("k"));
    assert!(poll_fn(|context| Poll::Ready(second.as_mut().poll(context))).await.is_pending());
    let third = wait(&other);
    queued("the third one waits", 2, 3).await;
    held.release().await;
    let first = first.await.unwrap();
    // The first request left its queue when a majority had granted it the lock. So a node that knew last that the lock
    // is free may have reserved it for the third request.
    queued("the second one waits", 2, 2).await;
    first.release().await;
    let token = tokio::select! {
        second = &mut second => second.unwrap().token(),
        third = third => panic!("the third one came later, and has {}", third.unwrap().token()),
    };
    assert!(token > 0);
}

/// One request waits for all callers of a process: the nodes receive their number, and the note with the holder id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_are_told_for_whom_it_waits() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let (holder, process) = (nodes.client().await, nodes.client().await);
        let guard = holder.lock("k").await.unwrap();
        let (told, mut got) = tokio::sync::mpsc::unbounded_channel();
        let options = Options::new().note("invoice run").holder("web-3/7");
        let mut tasks = vec![];
        for _ in 0..3 {
            let (process, told) = (process.with(&options), told.clone());
            let mut request = Box::pin(async move { told.send(process.lock("k").await.unwrap()).unwrap() });
            // It stands in the process's line from its first poll on.
            assert!(poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await.is_pending());
            tasks.push(tokio::spawn(request));
        }
        nodes.queued(1).await;
        guard.release().await;
        let first = got.recv().await.unwrap();
        // Now the second request waits on the nodes, with the third behind it.
        until("another one waits, and one behind it", async || {
            let info = nodes.0[0].client().say("LOCK.INFO k WAITERS 5");
            // Between two holders the node may know nothing of the lock.
            let queue = if info == null() { vec![] } else { info.field("queue").as_list() };
            queue.first().is_some_and(|waiter| {
                waiter.field("behind") == int(1) && waiter.field("note").as_text() == "invoice run [holder=web-3/7]"
            })
        })
        .await;
        drop(first);
        for _ in 1..3 {
            drop(got.recv().await.unwrap());
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}

/// A majority is connected, and the third node not yet: it receives the note all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_connected_to_last_is_told_of_the_note_too() {
    let nodes = Nodes::start(3);
    let guard = nodes.client().await.lock("k").await.unwrap();
    let (proxies, addresses) = before_each(&nodes.0).await;
    proxies[2].delay(ms(20));
    let locks = Client::new(addresses).unwrap();
    let waiting = tokio::spawn(async move { locks.with(&Options::new().note("invoice run")).lock("k").await });
    nodes.queued(1).await;
    for server in &nodes.0 {
        let queue = server.client().say("LOCK.INFO k WAITERS 5").field("queue").as_list();
        assert_eq!(queue[0].field("note").as_text(), "invoice run");
    }
    guard.release().await;
    drop(waiting.await.unwrap().unwrap());
}

/// The node measures how long a request waited, and its clock may run faster than the holder's by 1 %. So the validity
/// is shorter by 1 % of the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_counts_less_what_clocks_drift() {
    let nodes = Nodes::start(1);
    let (holder, waiter) = (nodes.client().await, nodes.client().await);
    let guard = holder.lock("k").await.unwrap();
    let options = Options::new().ttl(ms(10_000)).auto_extend(false);
    let wait = tokio::spawn(async move {
        let guard = waiter.with(&options).lock("k").await.unwrap();
        (guard.valid_for(), guard)
    });
    until("it waits", async || nodes.0[0].info("waiters") == 1).await;
    let since = Instant::now();
    tokio::time::sleep(ms(3_000)).await;
    let waited = since.elapsed();
    guard.release().await;
    let (valid_for, _guard) = wait.await.unwrap();
    // The margin of every lease is 1 % of the ttl and 2 ms.
    assert!(valid_for < ms(10_000 - 102) - waited / 100, "{valid_for:?} after {waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_polls_no_node() {
    let nodes = Nodes::start(3);
    let (holder, waiter) = (nodes.client().await, nodes.client().await);
    let guard = holder.with(&Options::new().ttl(ms(30_000))).lock("k").await.unwrap();
    let wait = tokio::spawn(async move { waiter.lock("k").await.unwrap().token() });
    nodes.queued(1).await;
    // The holder also checks its lock, by other commands.
    let asked = || ["lock.acquire", "lock.wait", "lock.hear", "lock.info"].map(|command| nodes.calls(command));
    let before = asked();
    assert!(before[0].iter().all(|&count| count > 0));
    tokio::time::sleep(ms(700)).await;
    assert_eq!(asked(), before);
    let token = guard.token();
    guard.release().await;
    assert!(wait.await.unwrap() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_waiting_is_kept_and_tells_the_holder() {
    for count in [1, 3] {
        let (nodes, locks) = Nodes::with_client(count).await;
        let _guard = locks.with(&Options::new().note("nightly")).lock("k").await.unwrap();
        let start = Instant::now();
        let error = locks.with(&Options::new().wait(ms(300))).lock("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.holder().expect("somebody holds it").note, "nightly");
        assert!(error.nodes().is_empty() && error.to_string().contains("was not free"), "{error}");
        assert!(start.elapsed() >= ms(290), "{:?}", start.elapsed());
        nodes.queued(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_is_followed() {
    for count in [1, 3] {
        let (_nodes, locks) = Nodes::with_client(count).await;
        let guard = locks.with(&Options::new().ttl(ms(1_000)).auto_extend(false)).try_lock("k").await.unwrap();
        let token = guard.token();
        std::mem::forget(guard);
        assert!(locks.lock("k").await.unwrap().token() > token);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_quorum_is_waited_for() {
    for count in [1, 3] {
        let setup = || Setup::new().module_arguments(&["max-ttl", "1000", "max-clock-skew", "0"]).guarded();
        let nodes = Nodes::start_with(count, setup);
        let locks = palisade_client::Client::new(nodes.addresses()).unwrap();
        let options = Options::new().ttl(ms(1_000)).node_timeout(ms(500));
        let error = locks.with(&options).try_lock("k").await.unwrap_err();
        if error.kind() == ErrorKind::Guarded {
            assert!(error.retry_after().unwrap() <= ms(1_010), "{error}");
        }
        let guard = locks.with(&options).lock("k").await.unwrap();
        assert!(guard.is_valid());
    }
}

/// Nodes whose connection broke are asked to wait again. They used not to be asked, so all the others had to answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_connection_broke_is_waited_on_again() {
    let nodes = Nodes::start(3);
    let (holder, waiter) = (nodes.client().await, nodes.client().await);
    let guard = holder.with(&Options::new().ttl(ms(60_000)).auto_extend(false)).lock("k").await.unwrap();
    let wait = tokio::spawn(async move { waiter.lock("k").await.unwrap() });
    let all_wait = async || nodes.0.iter().all(|server| server.info("waiters") == 1);
    until("it waits", all_wait).await;
    nodes.0[0].client().say("CLIENT KILL TYPE normal");
    until("it waits there again", all_wait).await;
    // The other two nodes are a majority without the one that hangs now.
    let _hangs = Frozen::new(&nodes.0[1]);
    guard.release().await;
    wait.await.unwrap().release().await;
}
