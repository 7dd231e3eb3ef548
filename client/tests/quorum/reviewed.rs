//! Faults found in hostile reviews; each test fails without its fix.

use std::time::Instant;

use palisade_client::{Client, ErrorKind, Options, Released, blocking};

use crate::fixture::{Nodes, connected, ms, until};
use crate::harness::{Setup, int, text};
use crate::proxy::{Proxy, proxied};

/// A node that restarted grants the lock again with a larger token, so all nodes are asked to raise theirs. Meanwhile
/// the next round names the lower token. If that round is refused, the lock is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healed_node_on_a_slow_network_loses_nothing() {
    let setup = || Setup::new().module_arguments(&["max-ttl", "1000", "max-clock-skew", "0"]);
    let mut nodes = Nodes::start_with(3, setup);
    let (proxies, locks) = proxied(&nodes).await;
    proxies.iter().for_each(|proxy| proxy.delay(ms(20)));
    let options = Options::new().ttl(ms(1_000)).node_timeout(ms(300));
    let guard = locks.with(&options).lock("k").await.unwrap();
    nodes.0[0].kill();
    nodes.0[0].start_again();
    until("the node has it again", async || {
        // Extensions by hand, as often as possible, overlap with the healing of the node.
        let _ = guard.extend().await;
        assert!(guard.is_valid() && !guard.is_lost());
        nodes.holding("k") == 3
    })
    .await;
    for _ in 0..20 {
        guard.extend().await.unwrap();
    }
    assert!(guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_for_waiting_may_take_longer_than_a_request() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let (proxies, locks) = proxied(&nodes).await;
        proxies.iter().for_each(|proxy| proxy.delay(ms(20)));
        let options = Options::new().node_timeout(ms(60));
        let other = nodes.client().await;
        let guard = other.lock("k").await.unwrap();
        let waiting = tokio::spawn(async move { locks.with(&options).lock("k").await.unwrap().token() });
        nodes.queued(1).await;
        let token = guard.token();
        guard.release().await;
        assert!(waiting.await.unwrap() > token);
    }
}

/// If queues are full, or the user is not allowed to wait, the client sends at most a few commands a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_let_nobody_wait_are_not_stormed() {
    let nodes = Nodes::start_with(3, || Setup::new().module_arguments(&["max-waiters", "0"]));
    let locks = nodes.client().await;
    let guard = locks.lock("k").await.unwrap();
    let commands = || nodes.0[0].client().info_field("total_commands_processed");
    let before = commands();
    let error = nodes.client().await.with(&Options::new().wait(ms(2_000))).lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let told = commands() - before;
    assert!(told < 150, "{told} commands in two seconds");
    guard.release().await;

    let allowed = "ACL SETUSER app on >secret ~* +@all -lock.wait";
    assert!(nodes.say(allowed).iter().all(|reply| *reply == text("OK")));
    let locks = Client::new(nodes.addresses_as_app("secret")).unwrap();
    connected(&locks).await;
    let other = nodes.client().await;
    let _guard = other.lock("k").await.unwrap();
    let error = locks.lock("k").await.unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error}");
}

/// The runtime in which the lock was acquired has ended. The lock is still extended, and the client works in another
/// runtime, or in none.
#[test]
fn a_runtime_that_ended() {
    let nodes = Nodes::start(3);
    let locks = Client::new(nodes.addresses()).unwrap();
    let first = tokio::runtime::Runtime::new().unwrap();
    let guard = first.block_on(async {
        connected(&locks).await;
        locks.with(&Options::new().ttl(ms(2_000))).lock("k").await.unwrap()
    });
    drop(first);
    let second = tokio::runtime::Runtime::new().unwrap();
    second.block_on(async {
        tokio::time::sleep(ms(4_000)).await;
        assert!(guard.is_valid() && !guard.is_lost());
        connected(&locks).await;
        assert_eq!(guard.release().await, Released::Released);
        drop(locks.lock("k").await.unwrap());
    });
    drop(second);
    let blocking = blocking::Client::new(nodes.addresses()).unwrap();
    blocking.lock("k").unwrap().release();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_ran_on_without_its_lock_is_no_success() {
    let (_nodes, locks) = Nodes::with_client(1).await;
    let options = Options::new().ttl(ms(300)).auto_extend(false);
    let ran_on = locks.with(&options).with_lock("k", async |_| std::thread::sleep(ms(600))).await.unwrap_err();
    assert_eq!(ran_on.kind(), ErrorKind::Lost);
    assert!(ran_on.to_string().contains("ran on to its end") && !ran_on.to_string().contains("cancelled"), "{ran_on}");
    let cancelled =
        locks.with(&options).with_lock("k", async |_| std::future::pending::<()>().await).await.unwrap_err();
    assert!(cancelled.to_string().contains("was cancelled"), "{cancelled}");
}

/// If no majority can be reached from the start, an extension reports so at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_cannot_be_is_answered() {
    let (mut nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&Options::new().ttl(ms(30_000))).try_lock("k").await.unwrap();
    nodes.0[0].kill();
    nodes.0[1].kill();
    nodes.0[1].start_again();
    for _ in 0..3 {
        assert_eq!(guard.extend().await.unwrap_err().kind(), ErrorKind::NoQuorum);
    }
    assert!(guard.is_valid());
}

/// A node that cannot write its state file answers NOTYET for ever. A request waits for it only as long as a node has
/// to answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_never_ready_is_given_its_time_and_no_more() {
    let (nodes, locks) = Nodes::with_client(1).await;
    let dir = nodes.0[0].dir().to_owned();
    std::fs::remove_file(dir.join("lock-node-socket.state")).unwrap();
    std::fs::create_dir(dir.join("lock-node-socket.state")).unwrap();
    until("it has noticed", async || nodes.0[0].info("state_file_failing") == 1).await;
    // The last token that the node may issue for this key has been issued.
    let mut me = nodes.0[0].client();
    me.say("LOCK.ACQUIRE k me 60000").as_int();
    let ceiling = nodes.0[0].info("token_ceiling") as i64;
    assert_eq!(me.say(&format!("LOCK.FENCE k me {ceiling}")), int(ceiling));
    me.say("LOCK.RELEASE k me");
    let options = Options::new().ttl(ms(60_000)).node_timeout(ms(2_000));
    let error = locks.with(&options).try_lock("k").await.unwrap_err();
    assert!(error.kind() == ErrorKind::NoQuorum && error.to_string().contains("NOTYET"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extensions_that_are_given_up_do_not_cancel_each_other() {
    let nodes = Nodes::start(1);
    let proxy = Proxy::before(&nodes.0[0]).await;
    let locks = Client::new([proxy.address()]).unwrap();
    connected(&locks).await;
    proxy.delay(ms(25));
    let options = Options::new().ttl(ms(1_500)).node_timeout(ms(1_000));
    let guard = locks.with(&options).lock("k").await.unwrap();
    let start = Instant::now();
    while start.elapsed() < ms(3_000) {
        let _ = tokio::time::timeout(ms(20), guard.extend()).await;
        assert!(guard.is_valid());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_without_an_end() {
    let (_nodes, locks) = Nodes::with_client(1).await;
    let for_ever = std::time::Duration::MAX;
    let options = Options::new().max_hold(for_ever).node_timeout(for_ever);
    locks.with(&options).lock("k").await.unwrap().release().await;
}

#[test]
fn the_end_of_a_scope_gives_the_lock_back() {
    let nodes = Nodes::start(3);
    for _ in 0..5 {
        let locks = blocking::Client::new(nodes.addresses()).unwrap();
        let _guard = locks.with(&Options::new().node_timeout(ms(5_000))).lock("k").unwrap();
    }
    assert_eq!(nodes.holding("k"), 0);
}

/// A server that answers and then closes the connection is not asked again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_up_is_not_stormed() {
    let nodes = Nodes::start(1);
    let proxy = Proxy::before(&nodes.0[0]).await;
    let locks = Client::new([proxy.address()]).unwrap();
    connected(&locks).await;
    let connections = || nodes.0[0].client().info_field("total_connections_received");
    let before = connections();
    let start = Instant::now();
    while start.elapsed() < ms(2_000) {
        proxy.cut();
        tokio::time::sleep(ms(12)).await;
        proxy.pass();
        tokio::time::sleep(ms(12)).await;
    }
    let made = connections() - before;
    assert!(made < 40, "{made} connections in two seconds");
}
