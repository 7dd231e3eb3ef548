//! Nodes that are slow, frozen or dead delay no caller.

use std::time::Instant;

use palisade_client::{Client, ErrorKind, Options, Released};

use crate::fixture::{Nodes, connected, ms, until};
use crate::harness::{Frozen, Setup};
use crate::proxy::{Proxy, proxied};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_no_majority_hears_names_the_others() {
    let (mut nodes, locks) = Nodes::with_client(5).await;
    let guard = locks.with(&Options::new().ttl(ms(60_000))).try_lock("k").await.unwrap();
    until("every node has it", async || nodes.holding("k") == 5).await;
    nodes.0[..3].iter_mut().for_each(crate::harness::Server::kill);
    let Released::PartlyUnreachable(dead) = guard.release().await else { panic!("three are dead") };
    assert_eq!(dead.len(), 3, "{dead:?}");
}

/// A release ends once a majority has answered. It used to wait for every node, for as long as a node has to answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_does_not_wait_for_one_node() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let patient = Options::new().node_timeout(ms(600_000)).auto_extend(false);
    let guard = locks.with(&patient).try_lock("k").await.unwrap();
    let inner = guard.reenter().await.unwrap();
    proxies[0].swallow();
    assert_eq!(inner.release().await, Released::StillHeld(1));
    assert_eq!(guard.release().await, Released::Released);
    assert!(nodes.0[1..].iter().filter(|server| server.info("held") == 0).count() >= 1);
}

/// A node that could not be reached during a release gets it when it is back. It used to keep the lock until the end of
/// its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_a_release_is_told_when_it_is_back() {
    let nodes = Nodes::start_with(3, || Setup::new().module_arguments(&["max-ttl", "3600000"]));
    let (proxies, locks) = proxied(&nodes).await;
    let options = Options::new().ttl(ms(3_600_000)).auto_extend(false);
    let guard = locks.with(&options).try_lock("k").await.unwrap();
    until("every node has it", async || nodes.holding("k") == 3).await;
    proxies[0].cut();
    assert_eq!(guard.release().await, Released::Released);
    assert_eq!(nodes.0[0].info("held"), 1);
    proxies[0].pass();
    until("it is told", async || nodes.0[0].info("held") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_frozen_of_five_are_not_waited_for() {
    let (nodes, locks) = Nodes::with_client(5).await;
    let patient = Options::new().node_timeout(ms(20_000));
    let _frozen = [Frozen::new(&nodes.0[0]), Frozen::new(&nodes.0[1])];
    let start = Instant::now();
    for _ in 0..20 {
        // If the slow node were waited for, each round would take 20 s.
        let guard = locks.with(&patient).try_lock("k").await.unwrap();
        drop(guard);
        until("it is free again", async || nodes.0[2..].iter().all(|server| server.info("held") == 0)).await;
    }
    println!("20 locks with two frozen nodes: {:?}", start.elapsed());
}

/// Requests to a frozen node are executed when it resumes, in the same order, so no lock is left there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_on_keeps_nothing() {
    let (nodes, locks) = Nodes::with_client(3).await;
    {
        let _frozen = Frozen::new(&nodes.0[0]);
        for _ in 0..5 {
            locks.try_lock("k").await.unwrap().release().await;
        }
    }
    until("it has nothing", async || nodes.holding("k") == 0 && nodes.0[0].info("held") == 0).await;
    until("it is used again", async || {
        let guard = locks.try_lock("k").await.unwrap();
        let all = nodes.holding("k") == 3;
        guard.release().await;
        all
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_replaced() {
    let nodes = Nodes::start(1);
    let proxy = Proxy::before(&nodes.0[0]).await;
    let locks = Client::new([proxy.address()]).unwrap();
    connected(&locks).await;
    proxy.swallow();
    let error = locks.try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(error.to_string().contains("did not answer in time"), "{error}");
    until("it is given up", async || !locks.try_lock("k").await.unwrap_err().to_string().contains("in time")).await;
    proxy.pass();
    until("it is back", async || locks.try_lock("k").await.is_ok()).await;
}
