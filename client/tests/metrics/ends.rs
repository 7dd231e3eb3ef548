//! Outcomes of acquisitions, their waits, and the ends of holds.

use palisade_client::{Client, ErrorKind, Options};

use crate::fixture::{Nodes, ms, until};
use crate::harness::Frozen;
use crate::proxy::{Proxy, proxied};
use crate::recorder::sum;

/// Returns options with a lease so long that no extension happens meanwhile.
fn of(class: &str) -> Options {
    Options::new().ttl(ms(60_000)).class(class)
}

fn ended(class: &str, outcome: &str) -> f64 {
    sum("palisade_client_acquisitions_total", &[("class", class), ("outcome", outcome)])
}

fn held(class: &str) -> f64 {
    sum("palisade_client_held", &[("class", class)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_acquisition_is_counted_once_by_how_it_ended() {
    let mut nodes = Nodes::start(3);
    let (locks, other) = (nodes.client().await, nodes.client().await);
    let options = of("ends");
    let guard = locks.with(&options).lock("k").await.unwrap();
    assert_eq!(held("ends"), 1.0);
    assert_eq!(other.with(&options).try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
    let short = options.clone().wait(ms(300));
    assert_eq!(other.with(&short).lock("k").await.unwrap_err().kind(), ErrorKind::TimedOut);
    // The caller cancels.
    let before = nodes.0[0].info("waiters");
    let waits = tokio::spawn({
        let (other, options) = (other.clone(), options.clone());
        async move { other.with(&options).lock("k").await.map(drop) }
    });
    until("it waits", async || nodes.0[0].info("waiters") > before).await;
    waits.abort();
    until("it is cancelled", async || ended("ends", "cancelled") == 1.0).await;
    guard.release().await;
    assert_eq!(held("ends"), 0.0);
    nodes.say("LOCK.GUARD ARM 60000");
    assert_eq!(locks.with(&options).try_lock("k").await.unwrap_err().kind(), ErrorKind::Guarded);
    nodes.say("LOCK.GUARD LIFT");
    nodes.0[1..].iter_mut().for_each(crate::harness::Server::kill);
    assert_eq!(locks.with(&options).try_lock("k").await.unwrap_err().kind(), ErrorKind::NoQuorum);
    for outcome in ["granted", "contended", "timed_out", "cancelled", "guarded", "no_quorum"] {
        assert_eq!(ended("ends", outcome), 1.0, "{outcome}");
        let waited = |what: &str| {
            let name = format!("palisade_client_wait_seconds_{what}");
            sum(&name, &[("class", "ends"), ("outcome", outcome), ("mode", "exclusive")])
        };
        assert_eq!(waited("count"), 1.0, "{outcome}");
        match outcome {
            "timed_out" => assert!((0.3..30.0).contains(&waited("sum")), "{}", waited("sum")),
            "granted" => assert!(waited("sum") < 10.0, "{}", waited("sum")),
            _ => {}
        }
    }
    assert_eq!(sum("palisade_client_acquisitions_total", &[("class", "ends")]), 6.0);
    let hold = |what: &str| sum(&format!("palisade_client_hold_seconds_{what}"), &[("class", "ends")]);
    assert_eq!(hold("count"), 1.0);
    assert!(hold("sum") >= 0.3, "it was held while others waited: {}", hold("sum"));
    assert_eq!(sum("palisade_client_losses_total", &[("class", "ends")]), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modes_and_classes_are_told_apart_and_keys_are_not() {
    let nodes = Nodes::start(1);
    let client = Client::builder().node(nodes.0[0].address()).defaults(of("modes")).build().unwrap();
    let reading = client.rw_lock("secret-key").read().await.unwrap();
    let permit = client.semaphore("secret-permits", 3).acquire().await.unwrap();
    let leads = client.election("secret-election").campaign("10.0.0.1").await.unwrap();
    for mode in ["shared", "permit", "exclusive"] {
        let granted = [("class", "modes"), ("mode", mode), ("outcome", "granted")];
        assert_eq!(sum("palisade_client_acquisitions_total", &granted), 1.0, "{mode}");
        assert_eq!(sum("palisade_client_held", &[("class", "modes"), ("mode", mode)]), 1.0, "{mode}");
    }
    reading.release().await;
    permit.release().await;
    leads.resign().await;
    assert_eq!(held("modes"), 0.0);
    let guard = client.with(&Options::new()).lock("secret-key").await.unwrap();
    assert!(sum("palisade_client_held", &[("class", "default"), ("mode", "exclusive")]) >= 1.0);
    guard.release().await;
    assert!(!crate::recorder::scraped().contains("secret-"), "no key is a label");
}

/// An acquisition takes one round without contention, and more if tokens differ or the nodes' queues are needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_of_an_acquisition() {
    let (nodes, locks) = Nodes::with_client(3).await;
    nodes.follow_their_clocks().await;
    let rounds = |class: &str| sum("palisade_client_acquire_rounds_sum", &[("class", class)]);
    let guard = locks.with(&of("one round")).lock("k").await.unwrap();
    assert_eq!(rounds("one round"), 1.0);
    let waits = tokio::spawn({
        let locks = nodes.client().await;
        async move { locks.with(&of("waits")).lock("k").await.unwrap().release().await }
    });
    until("it waits", async || nodes.0.iter().all(|server| server.info("waiters") == 1)).await;
    guard.release().await;
    waits.await.unwrap();
    // Three rounds: refused, notified that the lock is free, granted.
    assert!(rounds("waits") >= 3.0, "{}", rounds("waits"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extensions_that_came_to_something_and_that_did_not() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let extensions =
        |outcome: &str| sum("palisade_client_extensions_total", &[("class", "extends"), ("outcome", outcome)]);
    let guard = locks.with(&of("extends").auto_extend(false)).lock("k").await.unwrap();
    guard.extend().await.unwrap();
    assert_eq!((extensions("extended"), extensions("failed")), (1.0, 0.0));
    proxies[1..].iter().for_each(Proxy::cut);
    guard.extend().await.unwrap_err();
    assert_eq!((extensions("extended"), extensions("failed")), (1.0, 1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_up_or_not() {
    let (mut nodes, locks) = Nodes::with_client(3).await;
    let names = nodes.addresses();
    let shown = |n: usize| names[n].strip_prefix("unix://").unwrap();
    let is_up = |n: usize| sum("palisade_client_node_up", &[("node", shown(n))]);
    let requests = |n: usize, outcome: &str| {
        sum("palisade_client_node_requests_total", &[("node", shown(n)), ("outcome", outcome)])
    };
    until("all are up", async || (0..3).all(|n| is_up(n) == 1.0)).await;
    assert!((0..3).all(|n| requests(n, "answered") >= 1.0));
    let responses = sum("palisade_client_node_response_seconds_count", &[("node", shown(0))]);
    assert!(responses >= 1.0, "{responses}");
    let options = of("nodes").node_timeout(ms(100));
    {
        let _frozen = Frozen::new(&nodes.0[0]);
        until("it is silent", async || {
            drop(locks.with(&options).try_lock("k").await);
            is_up(0) == 0.0
        })
        .await;
        until("that is counted", async || requests(0, "silent") >= 1.0).await;
    }
    until("it answers again", async || is_up(0) == 1.0).await;
    nodes.0[1].kill();
    until("it is down", async || is_up(1) == 0.0).await;
    until("it cannot be asked", async || {
        drop(locks.with(&options).try_lock("k").await);
        requests(1, "unreachable") >= 1.0
    })
    .await;
    nodes.0[2].client().say("SET k x");
    locks.with(&options).try_lock("k").await.map(drop).unwrap_err();
    until("it refuses", async || requests(2, "refused") >= 1.0).await;
}
