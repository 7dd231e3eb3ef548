//! The end of a program: once the client is closed, all releases in the background are done.

use palisade_client::{Client, ErrorKind, Options, Released};

use crate::fixture::{Nodes, connected, ms, until};
use crate::proxy::{Proxy, proxied};

/// A guard that was dropped at the end of `main` is released before the client is closed. Its lock used to stay locked
/// until its lease ended.
#[test]
fn what_was_dropped_is_free_when_the_client_is_closed() {
    let nodes = Nodes::start(3);
    for _ in 0..20 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = Client::new(nodes.addresses()).unwrap();
            connected(&locks).await;
            let slow = Options::new().node_timeout(ms(30_000)).wait(ms(60_000));
            drop(locks.with(&slow).lock("k").await.unwrap());
            // A caller cancels another request.
            drop(tokio::time::timeout(ms(1), locks.with(&slow).lock("other")).await);
            locks.close().await.unwrap();
            assert_eq!((nodes.holding("k"), nodes.holding("other")), (0, 0));
            assert_eq!(locks.lock("k").await.unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Closed);
            locks.clone().close().await.unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_a_guard_holds_is_not_taken_from_it() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&Options::new().ttl(ms(1_000))).lock("k").await.unwrap();
    let error = locks.close().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotGivenBack);
    assert!(error.to_string().contains("guards still hold 1 locks"), "{error}");
    drop(locks);
    tokio::time::sleep(ms(2_500)).await;
    assert!(guard.is_valid(), "it is extended as before");
    assert_eq!(guard.release().await, Released::Released);
    // After that the connections are closed too; the one that is left belongs to this test.
    until("nobody is connected", async || nodes.0[0].client().info_field("connected_clients") == 1).await;
    assert_eq!(nodes.holding("k"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_lock_hears_that_the_client_is_closed() {
    let nodes = Nodes::start(3);
    let (locks, other) = (nodes.client().await, nodes.client().await);
    let _guard = other.lock("k").await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").await }
    });
    nodes.queued(1).await;
    locks.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    nodes.queued(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_given_back_is_told_node_by_node() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    let guard = locks.with(&Options::new().ttl(ms(60_000))).lock("k").await.unwrap();
    proxies[..2].iter().for_each(Proxy::swallow);
    drop(guard);
    let error = locks.close().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotGivenBack);
    assert!(error.to_string().contains("1 locks could not be given back") && error.nodes().len() == 2, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_was_never_used_closes_at_once() {
    let locks = Client::new(["redis://127.0.0.1:1"]).unwrap();
    locks.close().await.unwrap();
    assert_eq!(locks.connect().await.unwrap_err().kind(), ErrorKind::Closed);
}
