//! A writer that becomes a reader while nodes do not confirm the change.

use palisade_client::by_owner::Take;
use palisade_client::{ErrorKind, Options};

use super::{modes, refuses_to_convert};
use crate::by_owner::take;
use crate::fixture::{Nodes, ms, until};
use crate::harness::int;
use crate::proxy::{Proxy, proxied};

/// Returns the number of nodes on which `k` is shared.
fn sharing(nodes: &Nodes) -> usize {
    modes(nodes).iter().filter(|modes| modes.iter().any(|mode| mode == "shared")).count()
}

/// Closes the connections, and waits until the client connects again.
async fn cut(proxies: &[Proxy]) {
    let before: Vec<_> = proxies.iter().map(Proxy::connections).collect();
    proxies.iter().for_each(Proxy::cut);
    let is_closed = |(proxy, before): (&Proxy, &usize)| proxy.connections() > *before;
    until("they are closed", async || proxies.iter().zip(&before).all(is_closed)).await;
}

/// A majority suffices. Until it has answered, the call waits, and the lock is already a reader's and valid. Nodes that do
/// not answer are asked again until they do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_returns_when_a_majority_knows_and_the_others_learn_of_it_later() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let lock = locks.rw_lock("k");
    let writing = lock.write().await.unwrap();
    until("all have it", async || nodes.holding("k") == 3).await;
    proxies[..2].iter().for_each(Proxy::swallow);
    let downgrades = tokio::spawn(writing.downgrade());
    until("one knows", async || sharing(&nodes) == 1).await;
    // What was asked on these connections is lost.
    cut(&proxies[..2]).await;
    assert!(!downgrades.is_finished());
    proxies[1].pass();
    let reading = downgrades.await.unwrap().unwrap();
    assert_eq!((reading.is_valid(), sharing(&nodes)), (true, 2));
    proxies[0].pass();
    until("all know", async || sharing(&nodes) == 3).await;
    lock.read().await.unwrap().release().await;
}

/// A user may not send LOCK.CONVERT. The call tells which nodes refuse, and nobody waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_refuse_for_good_are_named() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let by_owner = locks.by_owner();
    let writing = locks.rw_lock("k").write().await.unwrap();
    by_owner.take(Take { key: b"k by name".to_vec(), ..take("me") }).await.unwrap().unwrap();
    nodes.0[..2].iter().for_each(|server| refuses_to_convert(server, true));
    let share = || by_owner.share(b"k by name", b"me", None);
    let errors = [writing.downgrade().await.unwrap_err(), share().await.unwrap_err(), share().await.unwrap_err()];
    for error in errors {
        assert!(error.kind() == ErrorKind::NoQuorum && error.is_lasting(), "{error}");
        let refused: Vec<_> = error.nodes().iter().map(|node| format!("unix://{}", node.node)).collect();
        assert_eq!(refused, nodes.addresses()[..2]);
    }
    assert_eq!(by_owner.release(b"k by name", b"me", None, None).await.unwrap(), Some(0), "the owner is not blocked");
}

/// Two of three nodes hang. The owner's other requests do not wait until they answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversion_by_name_does_not_outlast_the_nodes_time() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let by_owner = locks.by_owner();
    by_owner.take(take("me")).await.unwrap().unwrap();
    until("all have it", async || nodes.holding("k") == 3).await;
    proxies[..2].iter().for_each(Proxy::swallow);
    assert_eq!(by_owner.share(b"k", b"me", None).await.unwrap_err().kind(), ErrorKind::NoQuorum);
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
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let short = Options::new().ttl(ms(2_000)).auto_extend(false);
    let writing = locks.with(&short).rw_lock("k").write().await.unwrap();
    proxies.iter().for_each(Proxy::swallow);
    assert_eq!(writing.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    // Second case: the nodes answer that the lock was taken away.
    cut(&proxies).await;
    proxies.iter().for_each(Proxy::pass);
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
