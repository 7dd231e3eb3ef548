//! Locks that one process acquired and another one continues.

use palisade_client::ErrorKind;
use palisade_client::by_owner::{Take, Wanted};

use crate::by_owner::{TTL, patient, process, take, takes};
use crate::fixture::{Nodes, ms, until};
use crate::harness::text;
use crate::proxy::{Proxy, proxied};

/// A process acquired the lock and was suspended, and another one continues it. When the first resumes, its lease is
/// over. Neither that nor a late release of an attempt takes the lock from its owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_only_stopped_takes_nothing_away() {
    let nodes = Nodes::start(3);
    let stopped = process(&nodes).await;
    let locks = process(&nodes).await;
    let short = Take { ttl: ms(1_000), ..take("me") };
    takes(&stopped, short).await;
    let token = locks.extend(b"k", b"me", TTL, None).await.unwrap().unwrap();
    until("the first one's lease is over", async || stopped.counts().0 == 0).await;
    // Once a later request of that process is answered, all of its earlier messages have arrived.
    assert!(stopped.check(b"k", token).await.unwrap().is_some());
    assert_eq!(nodes.holding("k"), 3);
    assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(0));
    // An attempt's release arrives late: it was sent before another process found the attempt on the nodes.
    let attempt = "me#0123456789abcdef";
    nodes.say(&format!("LOCK.ACQUIRE k {attempt} 60000"));
    let found = locks.extend(b"k", b"me", TTL, None).await.unwrap().unwrap();
    nodes.say(&format!("LOCK.RELEASE k {attempt}"));
    assert!(locks.check(b"k", found).await.unwrap().is_some());
    assert_eq!(locks.info(b"k", None).await.unwrap().unwrap().grants[0].holds, 1);
    assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(0));
    until("it is free", async || nodes.holding("k") == 0).await;
}

/// One node has a grant that is left over from another owner. A repeated request finds its owner's lock all the same,
/// whichever node answers first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_found_beside_a_grant_that_is_left_over() {
    let nodes = Nodes::start(3);
    let (first, other) = (process(&nodes).await, process(&nodes).await);
    for n in 0..30 {
        let take = Take { key: format!("k{n}").into_bytes(), retry: true, ..take("me") };
        nodes.0[n % 3].client().say(&format!("LOCK.ACQUIRE k{n} stale 60000"));
        let token = takes(&first, take.clone()).await.token;
        assert_eq!(takes(&other, take).await.token, token, "{n}");
    }
}

/// Another attempt of the owner has the lock on a minority of the nodes. Its process may be alive and about to get the
/// others, so a repeated request must not take that grant away. It waits until the grant's lease has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_leaves_another_attempt_alone() {
    let nodes = Nodes::start(3);
    let locks = process(&nodes).await;
    nodes.0[0].client().say("LOCK.ACQUIRE k me#0123456789abcdef 4000");
    nodes.0[1].client().say("LOCK.ACQUIRE k you 60000");
    let again = Take { retry: true, ..take("me") };
    let error = locks.take(again.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(error.to_string().starts_with("another request of this owner is under way"), "{error}");
    let held = |node: usize| nodes.0[node].client().say("LOCK.INFO k").field("owner");
    assert_eq!(held(0), text("me#0123456789abcdef"));
    takes(&locks, Take { wait: TTL, ..again }).await;
    assert_eq!((nodes.0[0].info("expiries"), held(1)), (1, text("you")));
}

/// The nodes refuse a repeated request because its owner holds the lock by another process, and the answers to the
/// question who holds it are lost: all of them, or those of the nodes that have the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_does_not_take_an_unknown_holder_for_another_owner() {
    for left_over in [false, true, true, true] {
        let nodes = Nodes::start(3);
        let first = process(&nodes).await;
        let (proxies, client) = proxied(&nodes).await;
        let other = client.by_owner();
        let again = Take { retry: true, ..take("me") };
        if left_over {
            nodes.0[2].client().say("LOCK.ACQUIRE k you 60000");
        }
        let token = takes(&first, again.clone()).await.token;
        proxies[..if left_over { 2 } else { 3 }].iter().for_each(Proxy::cut_look);
        match other.take(again).await {
            // The tokens of the nodes may have differed, and been raised since.
            Ok(found) => assert!(found.unwrap().token >= token, "{left_over}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoQuorum),
        }
    }
}

/// Two processes of one owner wait for the lock. One gets it. The other, far from the nodes, does not get it in its time.
/// It finds that lock, or does not know; it does not say that another owner has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_looks_for_the_lock_that_its_owner_got_by_another_process() {
    let nodes = Nodes::start(3);
    let first = process(&nodes).await;
    let (proxies, client) = proxied(&nodes).await;
    proxies.iter().for_each(|proxy| proxy.delay(ms(25)));
    let other = client.by_owner();
    nodes.say("LOCK.ACQUIRE k you 60000");
    let waits = |wait| Take { retry: true, wait, ..take("me") };
    let waiters = async |count: u64| {
        until("they wait", async || nodes.0.iter().all(|node| node.info("waiters") == count)).await;
    };
    let freed = async {
        waiters(2).await;
        nodes.say("LOCK.RELEASE k you");
    };
    let late = async {
        waiters(1).await;
        other.take(waits(ms(3_000))).await
    };
    let (granted, found, ()) = tokio::join!(takes(&first, waits(TTL)), late, freed);
    match found {
        Ok(found) => {
            let found = found.unwrap();
            assert!(found.token >= granted.token && found.waited > ms(0), "{found:?}");
        }
        Err(error) => assert_eq!(error.in_the_way(), Some(ErrorKind::NoQuorum)),
    }
}

/// The owner gives the lock back while its repeated request asks the nodes who holds the lock, or waits to ask again. The
/// request ends, whatever it does at that moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_ends_a_repeated_request_at_any_moment() {
    let nodes = Nodes::start(3);
    let (proxies, client) = proxied(&nodes).await;
    let locks = client.by_owner();
    proxies.iter().for_each(|proxy| proxy.delay(ms(20)));
    for n in 0..8 {
        nodes.0[0].client().say("LOCK.ACQUIRE k me#0123456789abcdef 60000");
        nodes.0[1].client().say("LOCK.ACQUIRE k you 60000");
        let released = async {
            tokio::time::sleep(ms(60 + 25 * n)).await;
            locks.release(b"k", b"me", Some(1), None).await.unwrap();
        };
        let (taken, ()) = tokio::join!(locks.take(Take { retry: true, wait: ms(4_000), ..take("me") }), released);
        assert_eq!(taken.unwrap(), None, "{n}");
        until("nothing of it is left", async || nodes.holding("k") == 1).await;
        nodes.say("LOCK.RELEASE k you");
    }
}

/// While another attempt of the owner is being released or adopted, the nodes disagree for a moment. A waiting request
/// used to fail with NOQUORUM then, although it had been granted the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nodes_do_not_agree_on_is_looked_at_again() {
    let nodes = Nodes::start(3);
    let proxy = Proxy::before(&nodes.0[2]).await;
    let client = patient(&[nodes.0[0].address(), nodes.0[1].address(), proxy.address()]).await;
    let locks = client.by_owner();
    for wait in [ms(0), ms(4_000)] {
        for node in [0, 2] {
            nodes.0[node].client().say("LOCK.ACQUIRE k me#0123456789abcdef 60000 SHARED");
        }
        proxy.cut_look();
        let granted = takes(&locks, Take { wanted: Wanted::Shared, retry: true, wait, ..take("me") }).await;
        assert!(locks.check(b"k", granted.token).await.unwrap().is_some());
        assert_eq!(nodes.say("LOCK.INFO k HOLDERS 9")[2].field("holders").as_int(), 1);
        assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(0));
        until("it is free", async || nodes.holding("k") == 0).await;
    }
}

/// A script extends a lock by one call of a program after the other. Each call adopts the lock, and keeps its token and
/// its one hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_and_fifty_processes_one_after_the_other() {
    let nodes = Nodes::start(1);
    let locks = process(&nodes).await;
    let token = takes(&locks, take("me")).await.token;
    for n in 0..150 {
        let locks = process(&nodes).await;
        assert_eq!(locks.extend(b"k", b"me", TTL, None).await.unwrap(), Some(token), "process {n}");
    }
    assert_eq!(locks.info(b"k", None).await.unwrap().unwrap().grants[0].holds, 1);
    assert_eq!(nodes.0[0].client().say("LOCK.INFO k").field("holds").as_int(), 1);
    let locks = process(&nodes).await;
    assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), Some(0));
    until("it is free", async || nodes.holding("k") == 0).await;
}

/// An owner has many holds, and another process continues to count them. Re-entering fails at the maximum that a node
/// counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_holds_as_a_node_counts() {
    let nodes = Nodes::start(3);
    let locks = process(&nodes).await;
    takes(&locks, take("me")).await;
    let reenter = async |level| locks.reenter(b"k", b"me", level, None).await;
    assert_eq!(reenter(Some(25_000)).await.unwrap(), Some(25_000));
    let other = process(&nodes).await;
    assert_eq!(other.reenter(b"k", b"me", None, None).await.unwrap(), Some(25_001));
    assert_eq!(other.release(b"k", b"me", None, None).await.unwrap(), Some(25_000));
    assert_eq!(other.info(b"k", None).await.unwrap().unwrap().grants[0].holds, 25_000);
    assert_eq!(reenter(Some(1_000_000)).await.unwrap(), Some(1_000_000));
    let error = reenter(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert_eq!(error.to_string(), "this lock has 1000000 holds, the most a lock can have: release some");
    assert_eq!(locks.release(b"k", b"me", Some(1), None).await.unwrap(), Some(0));
    until("it is free", async || nodes.holding("k") == 0).await;
}

/// One process acquired the lock for a writer, another one made the writer a reader, and other readers get in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_another_process_made_a_reader() {
    let nodes = Nodes::start(3);
    let (first, other) = (process(&nodes).await, process(&nodes).await);
    let reads = |owner: &str| Take { wanted: Wanted::Shared, retry: true, ..take(owner) };
    takes(&first, take("me")).await;
    let token = other.share(b"k", b"me", None).await.unwrap().unwrap();
    takes(&other, reads("you")).await;
    let writes = first.take(Take { retry: true, ..take("me") }).await;
    assert_eq!(writes.unwrap_err().kind(), ErrorKind::Owned);
    assert!(takes(&first, reads("me")).await.token >= token);
}
