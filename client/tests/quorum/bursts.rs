//! Bursts, stalls and majorities that are down for a while: waiters get the lock, and holders keep it.

use std::time::Duration;

use palisade_client::{Client, ErrorKind, Options};

use crate::fixture::{Nodes, locking, ms, until};
use crate::harness::Frozen;

/// A limit that is long enough on any machine: a test that passes does not reach it.
const LONG: Duration = Duration::from_secs(300);

/// A majority of five.
const MAJORITY: usize = 3;

fn patient() -> Options {
    Options::new().wait(LONG)
}

/// Three thousand requests at once all get their locks. The time that a node has to answer used to include the time for
/// which requests were queued in this process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_at_once_all_get_theirs() {
    let (nodes, locks) = Nodes::with_client(5).await;
    // Leases are not under test: here they outlast the slowest machine.
    let options = patient().ttl(ms(60_000));
    let one = |n: usize| locking(&locks, &options, &format!("burst-{n}"));
    let tasks: Vec<_> = (0..3_000).map(one).collect();
    let mut guards = vec![];
    for task in tasks {
        guards.push(task.await.unwrap());
    }
    assert!(guards.iter().all(|guard| guard.is_valid()));
    let given_back: Vec<_> = guards.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
    for release in given_back {
        assert_eq!(release.await.unwrap(), palisade_client::Released::Released);
    }
    until("nothing is left", async || nodes.0.iter().all(|server| server.info("held") == 0)).await;
}

/// Nodes hang for longer than the time that they have to answer, and resume. All requests get their locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_stops_for_a_moment_while_locks_are_taken() {
    let (nodes, locks) = Nodes::with_client(5).await;
    for round in 0..3 {
        let frozen: Vec<_> = nodes.0[..MAJORITY].iter().map(Frozen::new).collect();
        let one = |n: usize| locking(&locks, &patient(), &format!("stalled-{round}-{n}"));
        let tasks: Vec<_> = (0..20).map(one).collect();
        tokio::time::sleep(ms(200)).await;
        drop(frozen);
        for task in tasks {
            assert!(task.await.unwrap().is_valid());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_stops_for_a_moment_while_locks_are_extended() {
    let (nodes, locks) = Nodes::with_client(5).await;
    let options = patient().ttl(ms(3_000));
    let mut guards = vec![];
    for n in 0..20 {
        guards.push(locks.with(&options).lock(format!("held-{n}")).await.unwrap());
    }
    // This takes more than two leases: the rounds of each guard find nodes that hang.
    for _ in 0..15 {
        let frozen: Vec<_> = nodes.0[..MAJORITY].iter().map(Frozen::new).collect();
        tokio::time::sleep(ms(200)).await;
        drop(frozen);
        tokio::time::sleep(ms(200)).await;
        assert!(guards.iter().all(|guard| guard.is_valid() && !guard.is_lost()));
    }
}

/// Regression: a majority hung for longer than the lease of a request that failed, performed the request afterwards, and
/// kept the lock for that lease, because the client no longer released it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hanging_nodes_grant_late_is_released() {
    const TTL: Duration = Duration::from_secs(3);
    let (nodes, locks) = Nodes::with_client(3).await;
    let releases = || nodes.0[..2].iter().map(|node| node.info("releases")).collect::<Vec<_>>();
    let expected: Vec<_> = releases().iter().map(|before| before + 1).collect();
    let frozen: Vec<_> = nodes.0[..2].iter().map(Frozen::new).collect();
    let error = locks.with(&Options::new().ttl(TTL)).try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    tokio::time::sleep(TTL).await;
    drop(frozen);
    until("both release it", async || releases() == expected).await;
}

/// `lock` waits until a majority is up again. It used to fail at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_down_is_waited_for() {
    let (mut nodes, locks) = Nodes::with_client(5).await;
    nodes.0[..MAJORITY].iter_mut().for_each(crate::harness::Server::kill);
    until("it cannot be had", async || locks.try_lock("other").await.is_err()).await;
    let waiting = locking(&locks, &patient(), "k");
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    for server in &mut nodes.0[..MAJORITY] {
        server.start_again();
        server.lift();
    }
    assert!(waiting.await.unwrap().is_valid());
}

/// Servers that read their data answer LOADING. `lock` waits until a majority has read its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_loading_is_waited_for() {
    let mut nodes = Nodes::start(3);
    for server in &mut nodes.0[..2] {
        server.client().say("DEBUG POPULATE 20000 filler 100");
        server.client().say("SAVE");
        // Loading takes half a minute, so that the node is still loading when it is asked; it serves its clients often
        // meanwhile.
        server.kill();
        server.change(|setup| {
            setup.option("key-load-delay", "1500").option("loading-process-events-interval-bytes", "1024")
        });
        server.begin_again();
    }
    let is_loading = |server: &crate::harness::Server| {
        std::os::unix::net::UnixStream::connect(server.socket()).is_ok()
            && server.client().say("LOCK.NODE").is_error("LOADING")
    };
    until("they are loading", async || nodes.0[..2].iter().all(is_loading)).await;
    let locks = Client::new(nodes.addresses()).unwrap();
    let waiting = locking(&locks, &patient(), "k");
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    // The same is true behind another request of this process.
    for key in ["other", "k"] {
        let error = locks.with(&Options::new().wait(ms(100))).lock(key).await.unwrap_err();
        assert!(error.kind() == ErrorKind::TimedOut && error.to_string().contains("LOADING"), "{error}");
    }
    assert!(nodes.0[..2].iter().all(is_loading), "they were loading all the time");
    for server in &nodes.0[..2] {
        server.client().say("CONFIG SET key-load-delay 0");
        until("it has loaded", async || !is_loading(server)).await;
        server.lift();
    }
    assert!(waiting.await.unwrap().is_valid());
}

/// A wait that reaches its limit, and a `try_lock`, fail with an error that names the obstacle of each node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_waiting_tells_what_stood_in_the_way() {
    let (mut nodes, locks) = Nodes::with_client(5).await;
    nodes.0[..MAJORITY].iter_mut().for_each(crate::harness::Server::kill);
    for (error, kind) in [
        (locks.with(&Options::new().wait(ms(300))).lock("free").await.unwrap_err(), ErrorKind::TimedOut),
        (locks.try_lock("free").await.unwrap_err(), ErrorKind::NoQuorum),
    ] {
        assert_eq!(error.kind(), kind);
        assert!(error.holder().is_none() && error.nodes().len() == MAJORITY, "{error}");
        assert!(error.to_string().contains("3 of 5 nodes cannot be asked, and 3 are needed"), "{error}");
    }
}
