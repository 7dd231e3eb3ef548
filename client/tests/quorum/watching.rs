//! Who holds a lock, told at each change.

use futures_util::StreamExt;
use palisade_client::{Holder, Options};

use crate::fixture::{Nodes, ms, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_told_as_a_majority_says_it() {
    let mut nodes = Nodes::start(3);
    let (locks, other) = (nodes.client().await, nodes.client().await);
    let mut changes = other.watch("k").unwrap();
    assert_eq!(changes.changed().await.unwrap(), None);
    let options = Options::new().ttl(ms(60_000)).note("first");
    let first = locks.lock_with("k", &options).await.unwrap();
    let Holder { token, note, .. } = changes.changed().await.unwrap().unwrap();
    assert_eq!((token, &*note), (first.token(), "first"));
    // What changes nothing of who holds it is not told; one node that is gone changes nothing either.
    first.extend().await.unwrap();
    nodes.0[0].kill();
    first.release().await;
    assert_eq!(changes.next().await.unwrap(), None);
    let second = locks.lock_with("k", &options.note("second")).await.unwrap();
    let holder = changes.changed().await.unwrap().unwrap();
    assert_eq!((holder.token, &*holder.note), (second.token(), "second"));
    // A lock whose holder changes while nobody looks: what is told last is what there is.
    let mut late = other.watch("k").unwrap();
    assert_eq!(late.changed().await.unwrap().unwrap().token, second.token());
    second.release().await;
    other.close().await.unwrap();
    while changes.next().await.is_some() {}
}

/// Whoever watches has no place in a queue and takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_costs_the_lock_nothing() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let mut changes = locks.watch("k").unwrap();
    assert_eq!(changes.changed().await.unwrap(), None);
    until("each node is watched", async || nodes.0.iter().all(|node| node.info("watchers") == 1)).await;
    assert_eq!((nodes.holding("k"), nodes.0[0].info("waiters")), (0, 0));
    drop(changes);
    until("nobody watches", async || nodes.0.iter().all(|node| node.info("watchers") == 0)).await;
}
