//! A wait ends at its limit whatever the nodes do, and its error contains only what is still true.

use std::time::{Duration, Instant};

use palisade_client::by_owner::{Take, Wanted};
use palisade_client::{Client, Error, ErrorKind, Options};
use tokio::task::JoinHandle;

use crate::by_owner::take;
use crate::fixture::{Nodes, ms, until};
use crate::harness::Frozen;

const WAIT: Duration = Duration::from_millis(2_000);

/// Maximum delay: a wait ends at most a tenth of a second after its limit; the rest is for a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// The error with which a wait ended, and how long after the limit it came.
type Ended = (Error, Duration);

fn waits(locks: &Client, options: Options) -> JoinHandle<Ended> {
    let (locks, began) = (locks.clone(), Instant::now());
    tokio::spawn(async move {
        let error = locks.with(&options.wait(WAIT)).lock("k").await.unwrap_err();
        (error, began.elapsed().saturating_sub(WAIT))
    })
}

fn assert_no_quorum((error, late): &Ended) {
    assert_eq!((error.kind(), error.in_the_way()), (ErrorKind::TimedOut, Some(ErrorKind::NoQuorum)), "{error}");
    assert!(error.holder().is_none(), "{error}");
    assert!(*late < LATE, "{late:?} after its limit: {error}");
}

/// Three of five nodes freeze during a wait, which ends at its limit. A request in the queues, or behind another one of
/// its process, used to end half a second to three seconds later. It also used to name a holder that may have gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_freezes_during_a_wait() {
    let nodes = Nodes::start(5);
    let (holder, locks, slow) = (nodes.client().await, nodes.client().await, nodes.client().await);
    let _held = holder.with(&Options::new().ttl(ms(60_000)).note("nightly")).lock("k").await.unwrap();
    let one = waits(&locks, Options::new());
    nodes.queued(1).await;
    let behind = waits(&locks, Options::new());
    // The time that nodes have to answer does not matter.
    let given = waits(&slow, Options::new().node_timeout(ms(60_000)));
    nodes.queued(2).await;
    let _frozen: Vec<_> = nodes.0[..3].iter().map(Frozen::new).collect();
    for waits in [one, behind, given] {
        let ended = waits.await.unwrap();
        assert_no_quorum(&ended);
        assert!(ended.0.nodes().len() >= 3, "{}", ended.0);
    }
}

/// A request waits in the queue of the only node, which freezes. The wait ends at its limit, and the error is that the
/// node does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_freezes_during_a_wait() {
    let nodes = Nodes::start(1);
    let (holder, locks) = (nodes.client().await, nodes.client().await);
    let _held = holder.with(&Options::new().ttl(ms(60_000))).lock("k").await.unwrap();
    let waits = waits(&locks, Options::new());
    nodes.queued(1).await;
    let _frozen = Frozen::new(&nodes.0[0]);
    assert_no_quorum(&waits.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_waits_for_nodes_that_freeze() {
    let nodes = Nodes::start(5);
    let (holder, locks) = (nodes.client().await, nodes.client().await);
    let _held = holder.with(&Options::new().ttl(ms(60_000))).lock("k").await.unwrap();
    for wanted in [Wanted::Exclusive, Wanted::Shared] {
        let take = Take { wanted, wait: WAIT, ..take("me") };
        let (locks, began) = (locks.by_owner(), Instant::now());
        let waits = tokio::spawn(async move {
            let error = locks.take(take).await.unwrap_err();
            (error, began.elapsed().saturating_sub(WAIT))
        });
        nodes.queued(1).await;
        let frozen: Vec<_> = nodes.0[..3].iter().map(Frozen::new).collect();
        assert_no_quorum(&waits.await.unwrap());
        drop(frozen);
        nodes.queued(0).await;
    }
}

/// A majority of nodes is frozen until the waiter's limit has passed. The holder's lease has ended by then, so the
/// waiter's error does not name the holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_of_before_is_not_named() {
    let nodes = Nodes::start(5);
    let (holder, locks) = (nodes.client().await, nodes.client().await);
    let short = Options::new().ttl(ms(1_000)).auto_extend(false).note("nightly");
    let keeps = holder.with(&short).lock("k").await.unwrap();
    let waits = waits(&locks, Options::new().node_timeout(ms(60_000)));
    nodes.queued(1).await;
    let frozen: Vec<_> = nodes.0[..3].iter().map(Frozen::new).collect();
    keeps.lost().await;
    let ended = waits.await.unwrap();
    drop(frozen);
    assert_no_quorum(&ended);
}

/// All nodes freeze for longer than the time that they have to answer while an owner asks. Their late grants belong to
/// the same request, which gets the lock. The owner used to be refused as one that already holds the lock, and the lock
/// stayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nodes_grant_late_is_no_other_lock_of_its_owner() {
    let nodes = Nodes::start(5);
    let locks = nodes.client().await.by_owner();
    for n in 0..5 {
        let take = Take { ttl: ms(500), wait: ms(3_000), ..take(&format!("owner{n}")) };
        let frozen: Vec<_> = nodes.0.iter().map(Frozen::new).collect();
        let asks = locks.clone();
        let taking = tokio::spawn(async move { asks.take(take).await });
        tokio::time::sleep(ms(1_200)).await;
        drop(frozen);
        assert!(taking.await.unwrap().unwrap().is_some(), "{n}");
        until("its lease ends", async || nodes.0.iter().all(|server| server.info("held") == 0)).await;
    }
}
