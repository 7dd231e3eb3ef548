//! Reports of a lock's holder, at each change.

use futures_util::StreamExt;
use palisade_client::{Changes, Holder, Options};
use tokio::time::timeout;

use crate::fixture::{Nodes, ms, until};
use crate::harness::{int, patience};

/// Reads reports until this token, or a larger one to which the owner has raised it since.
async fn until_told(changes: &mut Changes<Option<Holder>>, token: u64) -> Holder {
    let told = async {
        loop {
            let holder = changes.changed().await.unwrap().unwrap();
            if holder.token >= token {
                return holder;
            }
        }
    };
    timeout(patience(), told).await.unwrap_or_else(|_| panic!("token {token} is told"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_told_as_a_majority_says_it() {
    let mut nodes = Nodes::start(3);
    let (locks, other) = (nodes.client().await, nodes.client().await);
    let mut changes = other.watch("k").unwrap();
    assert_eq!(changes.changed().await.unwrap(), None);
    let options = Options::new().ttl(ms(60_000)).note("first");
    let first = locks.with(&options).lock("k").await.unwrap();
    assert_eq!(until_told(&mut changes, first.token()).await.note, "first");
    // Nothing is reported unless the holder changes; one dead node changes nothing either.
    first.extend().await.unwrap();
    nodes.0[0].kill();
    first.release().await;
    // Before the release is reported, the token may have risen once more.
    while changes.changed().await.unwrap().is_some() {}
    let second = locks.with(&options.note("second")).lock("k").await.unwrap();
    assert_eq!(until_told(&mut changes, second.token()).await.note, "second");
    // If a lock changes while its watcher does not read, the last report is the current state.
    let mut late = other.watch("k").unwrap();
    until_told(&mut late, second.token()).await;
    second.release().await;
    other.close().await.unwrap();
    while changes.next().await.is_some() {}
}

/// The nodes of one grant have different tokens until they are raised to the same one, which the watcher receives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_raised_is_told() {
    let nodes = Nodes::start(3);
    let tokens: Vec<i64> = nodes.say("LOCK.ACQUIRE k me 60000 NOTE mine").iter().map(|reply| reply.as_int()).collect();
    let client = nodes.client().await;
    let mut changes = client.watch("k").unwrap();
    let smaller = changes.changed().await.unwrap().unwrap().token;
    let raised = tokens.iter().max().unwrap() + 1_000_000;
    assert!(smaller < raised as u64);
    let fence = format!("LOCK.FENCE k me {raised}");
    for node in &nodes.0[..2] {
        until("its state file allows that", async || node.client().say(&fence) == int(raised)).await;
    }
    assert_eq!(until_told(&mut changes, raised as u64).await.note, "mine");
}

/// A watcher has no place in a queue, and acquires nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_costs_the_lock_nothing() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let mut changes = locks.watch("k").unwrap();
    assert_eq!(changes.changed().await.unwrap(), None);
    until("each node is watched", async || nodes.0.iter().all(|node| node.info("watchers") == 1)).await;
    assert_eq!((nodes.holding("k"), nodes.0[0].info("waiters")), (0, 0));
    drop(changes);
    until("nobody watches", async || nodes.0.iter().all(|node| node.info("watchers") == 0)).await;
}
