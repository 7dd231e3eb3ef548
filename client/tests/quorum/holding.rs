//! Held locks: they are extended and healed, and their loss is noticed.

use std::time::Instant;

use palisade_client::{ErrorKind, Options, Released};

use crate::fixture::{Nodes, ms, until};
use crate::harness::Frozen;
use crate::harness::Setup;
use crate::proxy::{Proxy, proxied};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_extended_in_the_background_until_the_longest_hold() {
    let (_nodes, locks) = Nodes::with_client(3).await;
    let options = Options::new().ttl(ms(900)).max_hold(ms(2_000));
    let start = Instant::now();
    let guard = locks.with(&options).lock("k").await.unwrap();
    guard.lost().await;
    assert!(start.elapsed() > ms(1_800), "it was extended: {:?}", start.elapsed());
    assert!(!guard.is_valid());
    assert_eq!(guard.release().await, Released::AlreadyExpired);
}

/// A lock is extended whether it was free at once or was waited for. In the first case it used to end after its first
/// lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_extended_however_it_was_taken() {
    let (_nodes, locks) = Nodes::with_client(3).await;
    let options = Options::new().ttl(ms(2_000));
    let tried = locks.with(&options).try_lock("tried").await.unwrap();
    let waited = locks.with(&options).lock("waited").await.unwrap();
    // The validity of the first lease is over.
    tokio::time::sleep(ms(2_500)).await;
    assert!(tried.is_valid() && waited.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_extended_it_is_lost_when_validity_ends() {
    let (_nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&Options::new().ttl(ms(400)).auto_extend(false)).try_lock("k").await.unwrap();
    let valid_for = guard.valid_for();
    let start = Instant::now();
    guard.lost().await;
    assert!(guard.is_lost() && start.elapsed() + ms(5) >= valid_for);
    assert_eq!(guard.extend().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.reenter().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await, Released::AlreadyExpired);
}

/// Each node in turn loses everything and is guarded when it comes back; the holder does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_every_node() {
    let setup = || Setup::new().module_arguments(&["max-ttl", "1500", "max-clock-skew", "100"]);
    let mut nodes = Nodes::start_with(5, setup);
    let locks = nodes.client().await;
    let guard = locks.with(&Options::new().ttl(ms(1_500))).lock("k").await.unwrap();
    let first = guard.token();
    for n in 0..5 {
        nodes.0[n].kill();
        nodes.0[n].start_again();
        until("the node has it again", async || {
            assert!(guard.is_valid(), "lost at the restart of node {n}");
            nodes.holding("k") == 5
        })
        .await;
    }
    assert!(guard.is_valid() && guard.token() >= first);
    let other = nodes.client_now().await;
    let options = Options::new().ttl(ms(1_500));
    assert_eq!(other.with(&options).try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
    let token = guard.token();
    guard.release().await;
    assert!(other.with(&options).lock("k").await.unwrap().token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_network_is_a_lost_lock_in_time() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    for how in [Proxy::swallow, Proxy::cut, Proxy::swallow_answers] {
        let guard = locks.with(&Options::new().ttl(ms(1_000))).lock("k").await.unwrap();
        proxies.iter().for_each(how);
        guard.lost().await;
        assert!(!guard.is_valid());
        // No other client can have held the lock before: the leases still run.
        let direct = nodes.client().await;
        let next = direct.lock("k").await.unwrap();
        assert!(next.token() > guard.token());
        next.release().await;
        proxies.iter().for_each(Proxy::pass);
        drop(guard);
        until("the client is back", async || locks.try_lock("back").await.is_ok()).await;
        until("nothing is left", async || nodes.holding("k") == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_under_a_lost_lock_is_cancelled() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let frozen: Vec<_> = nodes.0[1..].iter().collect();
    let result = locks
        .with(&Options::new().ttl(ms(700)))
        .with_lock("k", async |guard| {
            let _frozen: Vec<_> = frozen.iter().map(|server| Frozen::new(server)).collect();
            tokio::time::sleep(ms(60_000)).await;
            guard.token()
        })
        .await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extended_by_hand() {
    let (_nodes, locks) = Nodes::with_client(3).await;
    let options = Options::new().ttl(ms(2_000)).auto_extend(false);
    let guard = locks.with(&options).try_lock("k").await.unwrap();
    let before = guard.valid_for();
    tokio::time::sleep(ms(50)).await;
    assert!(guard.valid_for() < before);
    guard.extend().await.unwrap();
    assert!(guard.valid_for() > before - ms(45));
}
