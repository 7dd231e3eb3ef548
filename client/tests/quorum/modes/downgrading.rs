//! A writer that becomes a reader while nodes do not confirm the change.

use palisade_client::{ErrorKind, Options};

use super::{modes, refuses_to_convert};
use crate::fixture::{Nodes, ms, until};
use crate::harness::int;

/// Returns the number of nodes on which `k` is shared.
fn sharing(nodes: &Nodes) -> usize {
    modes(nodes).iter().filter(|modes| modes.iter().any(|mode| mode == "shared")).count()
}

/// A majority suffices. Until it has answered, the call waits, and the lock is already a reader's, valid and extended.
/// Nodes that do not answer are asked again until they do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_returns_when_a_majority_knows_and_the_others_learn_of_it_later() {
    let nodes = Nodes::start(3);
    let lock = nodes.client().await.rw_lock("k");
    let writing = lock.write().await.unwrap();
    until("all have it", async || nodes.holding("k") == 3).await;
    nodes.say("CONFIG RESETSTAT");
    nodes.0[..2].iter().for_each(|server| refuses_to_convert(server, true));
    let downgrades = tokio::spawn(writing.downgrade());
    let refused = |n: usize| nodes.0[n].client().say("ACL LOG").as_list();
    let told_twice = |n| refused(n).iter().any(|entry| entry.field("count").as_int() > 1);
    until("each is told again", async || told_twice(0) && told_twice(1)).await;
    assert!(!downgrades.is_finished());
    assert_eq!(lock.try_read().await.unwrap_err().kind(), ErrorKind::Contended);
    refuses_to_convert(&nodes.0[1], false);
    let reading = downgrades.await.unwrap().unwrap();
    assert!(reading.is_valid() && sharing(&nodes) == 2);
    let beside = lock.try_read().await.unwrap();
    refuses_to_convert(&nodes.0[0], false);
    until("all know", async || sharing(&nodes) == 3).await;
    beside.release().await;
}

/// On new nodes a late grant may raise the token while the lock is held. A downgrade right after the acquisition asks no
/// node to grant the lock again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_that_has_the_lock_grants_it_again() {
    let nodes = Nodes::start(5);
    let lock = nodes.client().await.rw_lock("k");
    nodes.say("CONFIG RESETSTAT");
    let writing = lock.write().await.unwrap();
    let written = writing.token();
    let reading = writing.downgrade().await.unwrap();
    assert!(reading.token() >= written);
    until("all share it", async || sharing(&nodes) == 5).await;
    assert_eq!(nodes.calls("lock.acquire"), [1; 5]);
    reading.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_meanwhile_is_told_so() {
    // First case: no node answers in time.
    let (nodes, locks) = Nodes::with_client(3).await;
    let short = Options::new().ttl(ms(2_000)).auto_extend(false);
    let writing = locks.with(&short).rw_lock("k").write().await.unwrap();
    nodes.0.iter().for_each(|server| refuses_to_convert(server, true));
    assert_eq!(writing.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    // Second case: the nodes answer that the lock was taken away.
    nodes.0.iter().for_each(|server| refuses_to_convert(server, false));
    let writing = locks.rw_lock("k").write().await.unwrap();
    until("all have it", async || nodes.holding("k") == 3).await;
    nodes.say("CONFIG RESETSTAT");
    assert_eq!(nodes.say("DEL k"), [int(1), int(1), int(1)]);
    assert_eq!(writing.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(nodes.calls("lock.acquire"), [0; 3], "it is not taken back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_guards_of_a_writer_keep_it_a_writers() {
    let nodes = Nodes::start(3);
    let lock = nodes.client().await.rw_lock("k");
    let writing = lock.write().await.unwrap();
    let inner = writing.reenter().await.unwrap();
    assert_eq!(writing.downgrade().await.unwrap_err().kind(), ErrorKind::BadArgument);
    assert!(inner.is_valid());
    assert_eq!(lock.try_read().await.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(nodes.calls("lock.convert"), [0; 3]);
}
