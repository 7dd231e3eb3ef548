//! A writer that goes on as a reader.

use std::time::Duration;

use palisade_client::{ErrorKind, Options};
use palisade_quorum::{Mode, Wanted};

use crate::{Nodes, extend, meanwhile, until};

fn sharing(nodes: &Nodes) -> usize {
    nodes.0.iter().filter(|node| node.grants("k").iter().any(|grant| grant.mode == Mode::Shared)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_wait_get_in_and_a_writer_does_not() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let lock = nodes.client().await.rw_lock("k");
        let other = nodes.client().await.rw_lock("k");
        let writing = lock.write().await.unwrap();
        let reads = tokio::spawn({
            let other = other.clone();
            async move { other.read().await.unwrap() }
        });
        until("a reader waits", || nodes.waited_on("k") == count).await;
        let (written, owner) = (writing.token(), writing.owner().to_vec());
        let reading = writing.downgrade().await.unwrap();
        assert_eq!((reading.token(), reading.owner()), (written, &owner[..]));
        let beside = reads.await.unwrap();
        assert!(reading.is_valid() && beside.is_valid() && beside.token() > written);
        assert_eq!(other.try_write().await.unwrap_err().kind(), ErrorKind::Contended);
        extend(&reading).await;
        reading.release().await;
        beside.release().await;
        let next = other.write().await.unwrap();
        assert!(next.token() > written);
    }
}

/// A node that does not say so is told again until it does, and a majority is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_answer_learns_of_it_later() {
    let nodes = Nodes::start(3).await;
    let lock = nodes.client().await.rw_lock("k");
    let writing = lock.write().await.unwrap();
    until("all have it", || nodes.holding("k") == 3).await;
    nodes.0[0].refuses(Some("LOCK.CONVERT"));
    let reading = writing.downgrade().await.unwrap();
    assert!(reading.is_valid());
    until("two know", || sharing(&nodes) == 2).await;
    let beside = lock.try_read().await.unwrap();
    nodes.0[0].refuses(None);
    until("all know", || sharing(&nodes) == 3).await;
    beside.release().await;
}

/// Without a majority it is a reader's, valid and extended, and the call goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_returns_when_a_majority_knows() {
    let nodes = Nodes::start(3).await;
    let lock = nodes.client().await.rw_lock("k");
    let writing = lock.write().await.unwrap();
    until("all have it", || nodes.holding("k") == 3).await;
    nodes.0[0].refuses(Some("LOCK.CONVERT"));
    nodes.0[1].refuses(Some("LOCK.CONVERT"));
    let downgrades = Box::pin(writing.downgrade());
    let told_twice = || nodes.0[0].asked("LOCK.CONVERT") > 1 && nodes.0[1].asked("LOCK.CONVERT") > 1;
    let downgrades = meanwhile(downgrades, "each is told again", told_twice).await;
    assert_eq!(lock.try_read().await.unwrap_err().kind(), ErrorKind::Contended);
    nodes.0[1].refuses(None);
    let reading = downgrades.await.unwrap();
    assert!(reading.is_valid() && sharing(&nodes) == 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_meanwhile_is_told_so() {
    // Nobody learns of it in time.
    let nodes = Nodes::start(3).await;
    let locks = nodes.client().await;
    let short = Options::new().ttl(Duration::from_secs(2)).auto_extend(false);
    let writing = locks.with(&short).rw_lock("k").write().await.unwrap();
    nodes.0.iter().for_each(|node| node.refuses(Some("LOCK.CONVERT")));
    assert_eq!(writing.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    // It was taken away.
    let nodes = Nodes::start(3).await;
    let writing = nodes.client().await.rw_lock("k").write().await.unwrap();
    until("all have it", || nodes.holding("k") == 3).await;
    nodes.0.iter().for_each(|node| node.forgets("k"));
    assert_eq!(writing.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(nodes.asked("LOCK.ACQUIRE"), [1; 3], "it is not taken back");
}

/// A node that lost the grant gives it to the reader that its holder is by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_healed_as_a_readers() {
    let nodes = Nodes::start(3).await;
    let lock = nodes.client().await.rw_lock("k");
    let writing = lock.write().await.unwrap();
    until("all have it", || nodes.holding("k") == 3).await;
    let reading = writing.downgrade().await.unwrap();
    until("all know", || sharing(&nodes) == 3).await;
    let _beside = lock.read().await.unwrap();
    nodes.0[2].forgets("k");
    // Beside whom a writer would not get in.
    nodes.0[2].grants_to("somebody", "k", Wanted::Shared, 1);
    extend(&reading).await;
    let healed = || nodes.0[2].grants("k").iter().any(|grant| grant.owner == reading.owner());
    until("it has the reader again", healed).await;
    assert!(nodes.0[2].grants("k").iter().all(|grant| grant.mode == Mode::Shared));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_guards_of_a_writer_keep_it_a_writers() {
    let nodes = Nodes::start(3).await;
    let lock = nodes.client().await.rw_lock("k");
    let writing = lock.write().await.unwrap();
    let inner = writing.reenter().await.unwrap();
    assert_eq!(writing.downgrade().await.unwrap_err().kind(), ErrorKind::BadArgument);
    assert!(inner.is_valid());
    assert_eq!(lock.try_read().await.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(nodes.asked("LOCK.CONVERT"), [0; 3]);
}
