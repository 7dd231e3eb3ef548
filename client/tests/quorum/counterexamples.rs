//! Known ways in which locks over several nodes have failed, none of which happens here. Failures that depend on the
//! order of single messages are tested in the `quorum` crate, where that order can be chosen.

use palisade_client::{ErrorKind, Options};

use crate::fixture::{Nodes, Register, connected, ms, until};
use crate::harness::Frozen;
use crate::harness::{Setup, int, null};

/// A node restarts empty while the lock is held by a smallest majority to which it belongs. Its guard prevents a second
/// grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarted_empty() {
    let setup = || Setup::new().module_arguments(&["max-ttl", "30000"]);
    let mut nodes = Nodes::start_with(3, setup);
    let locks = nodes.client().await;
    nodes.0[2].kill();
    let options = Options::new().ttl(ms(30_000)).auto_extend(false);
    let guard = locks.with(&options).lock("k").await.unwrap();
    nodes.0[1].kill();
    nodes.0[1].start_again();
    nodes.0[2].start_again();
    // Node 1 has forgotten the grant and node 2 never had it: without the guard they would be a majority.
    let other = nodes.client_now().await;
    let error = other.try_lock("k").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Contended | ErrorKind::Guarded), "{error}");
    assert!(guard.is_valid());
}

/// A message of an older acquisition arrives late: it cannot affect a newer one, whose owner has another name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_of_an_older_acquisition() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let first = locks.try_lock("k").await.unwrap();
    let owner = nodes.0[0].client().say("LOCK.INFO k").field("owner");
    first.release().await;
    let second = locks.try_lock("k").await.unwrap();
    for server in &nodes.0 {
        assert_eq!(server.client().send(&[b"LOCK.RELEASE", b"k", owner.as_bytes(), b"LEVEL", b"1"]), null());
    }
    second.extend().await.unwrap();
    until("every node has it", async || nodes.holding("k") == 3).await;
}

/// Three clients each get the lock on different nodes first, so none has a majority. Their leases end, and a fourth
/// client acquires the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_clients_with_two_nodes_each_of_five() {
    let nodes = Nodes::start(5);
    for (n, server) in nodes.0.iter().enumerate() {
        server.client().say(&format!("LOCK.ACQUIRE k split{} 1500", n / 2));
    }
    let locks = nodes.client().await;
    assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
    locks.lock("k").await.unwrap().release().await;
}

/// A holder is paused between its last check and its write: the resource refuses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_paused_between_its_check_and_its_write() {
    let (_nodes, locks) = Nodes::with_client(3).await;
    let mut register = Register::default();
    let paused = locks.with(&Options::new().ttl(ms(500)).auto_extend(false)).try_lock("k").await.unwrap();
    let (token, looked) = (paused.token(), paused.is_valid());
    assert!(looked && register.write(token));
    let next = locks.lock("k").await.unwrap();
    assert!(register.write(next.token()));
    assert!(!register.write(token), "it looked, was paused, and writes");
}

/// A client's clock is an hour ahead; then every node restarts, twice: tokens still rise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_from_a_client_an_hour_ahead_then_two_restarts() {
    let setup = || Setup::new().module_arguments(&["max-ttl", "1000", "max-clock-skew", "0"]);
    let mut nodes = Nodes::start_with(3, setup);
    let clock = nodes.0[0].client().say("LOCK.NODE").field("clock_us").as_int();
    let ahead = clock + 3_600_000_000;
    for server in &nodes.0 {
        let mut me = server.client();
        assert!(me.say(&format!("LOCK.ACQUIRE k me 1000 FENCE {ahead}")).as_int() < ahead, "ignored: too far ahead");
        // The owner sends the second round itself, which is accepted.
        assert_eq!(me.insist(&format!("LOCK.FENCE k me {ahead}")), int(ahead));
        me.say("LOCK.RELEASE k me");
    }
    let mut last = ahead as u64;
    for _ in 0..2 {
        for server in &mut nodes.0 {
            server.kill();
            server.start_again();
        }
        let locks = nodes.client_now().await;
        let guard = locks.with(&Options::new().ttl(ms(1_000))).lock("k").await.unwrap();
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        guard.release().await;
    }
}

/// Three nodes whose wall clocks are further apart than the skew: a free lock stays obtainable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_clocks_differ_by_more_than_the_skew() {
    let nodes = Nodes::start_with(3, || Setup::new().wall_clock());
    nodes.0[1].wall_clock().set(-60);
    nodes.0[2].wall_clock().set(60);
    let locks = nodes.client().await;
    let mut last = 0;
    for _ in 0..5 {
        let guard = locks.lock("k").await.unwrap();
        assert!(guard.token() > last);
        last = guard.token();
        guard.release().await;
    }
}

/// A grant that arrives after the end of its validity does not count as held, and is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_counted_after_its_validity() {
    let nodes = Nodes::start(1);
    let proxy = crate::proxy::Proxy::before(&nodes.0[0]).await;
    let locks = palisade_client::Client::new([proxy.address()]).unwrap();
    connected(&locks).await;
    proxy.delay(ms(300));
    let options = Options::new().ttl(ms(400)).node_timeout(ms(10_000));
    assert_eq!(locks.with(&options).try_lock("k").await.unwrap_err().kind(), ErrorKind::Expired);
    until("it is given back", async || nodes.holding("k") == 0).await;
}

/// A client is frozen together with a majority: no later answer revives its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_extensions_do_not_revive_a_lock() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&Options::new().ttl(ms(800))).lock("k").await.unwrap();
    {
        let _frozen = [Frozen::new(&nodes.0[0]), Frozen::new(&nodes.0[1])];
        guard.lost().await;
    }
    tokio::time::sleep(ms(100)).await;
    assert!(guard.is_lost() && !guard.is_valid());
    assert_eq!(guard.extend().await.unwrap_err().kind(), ErrorKind::Lost);
}
