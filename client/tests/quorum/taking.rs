//! Acquiring a lock: in one round if all nodes are well, refused with the reason if not.

use palisade_client::{Client, ErrorKind, Options, Released, blocking};

use crate::fixture::{Nodes, connected, ms, until};
use crate::harness::{Setup, int};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_round_one_token_a_majority() {
    let nodes = Nodes::start_with(5, || Setup::new().module_arguments(&["max-clock-skew", "100"]));
    let locks = nodes.client().await;
    // A new node's tokens start where those of an earlier incarnation may have ended. Until the clock gets there, each
    // node continues from its own start. It issues no token above a ceiling, which it raises within moments.
    let clock = || nodes.0[0].client().say("LOCK.NODE").field("clock_us").as_int() as u64;
    let started = clock();
    until("every node follows its clock", async || {
        let now = clock();
        now > started + 5_500_000 && nodes.0.iter().all(|server| server.info("token_ceiling") > now + 2_000_000)
    })
    .await;
    nodes.say("CONFIG RESETSTAT");
    let guard = locks.with(&Options::new().note("me")).try_lock("k").await.unwrap();
    assert!(guard.is_valid() && guard.valid_for() <= ms(9_900) && guard.key() == b"k");
    until("every node has it", async || nodes.holding("k") == 5).await;
    for info in nodes.say("LOCK.INFO k") {
        assert_eq!(
            (info.field("token").as_int(), info.field("note").as_text()),
            (guard.token() as i64, "me".to_owned())
        );
    }
    let rounds = nodes.say("INFO commandstats");
    assert!(rounds.iter().all(|stats| !stats.as_text().to_lowercase().contains("lock.fence")), "one round");
    assert_eq!(guard.release().await, Released::Released);
    assert_eq!(nodes.holding("k"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_is_contended_and_its_holder_named() {
    for count in [1, 3] {
        let (nodes, locks) = Nodes::with_client(count).await;
        let other = nodes.client().await;
        let guard = locks.with(&Options::new().note("web-3, pid 4711")).try_lock("k").await.unwrap();
        let error = other.try_lock("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended);
        let holder = error.holder().unwrap();
        assert_eq!(holder.note, "web-3, pid 4711");
        // Only one node answers: if nodes had issued different tokens before, its own may differ.
        let token = guard.token();
        assert!(count > 1 || holder.token == token);
        assert!(error.to_string().contains("web-3, pid 4711"), "{error}");
        guard.release().await;
        let next = other.try_lock("k").await.unwrap();
        assert!(next.token() > token);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_guards_share_one_grant() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let outer = locks.lock("k").await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert_eq!(inner.token(), outer.token());
    until("every node has two holds", async || {
        nodes.say("LOCK.INFO k").iter().all(|info| info.field("holds") == int(2))
    })
    .await;
    assert_eq!(outer.release().await, Released::StillHeld(1));
    assert!(inner.is_valid());
    assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(inner.release().await, Released::Released);
    assert_eq!(nodes.holding("k"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_guard_gives_the_lock_back() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let inner = {
        let outer = locks.lock("k").await.unwrap();
        outer.reenter().await.unwrap()
    };
    assert!(inner.is_valid());
    drop(inner);
    until("it is free", async || nodes.holding("k") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_out_of_bounds_are_named() {
    let (nodes, locks) = Nodes::with_client(1).await;
    let error = locks.with(&Options::new().ttl(ms(0))).try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    // The node's error names its own bound.
    let error = locks.with(&Options::new().ttl(ms(60_001))).try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.nodes()[0].why.to_string().contains("ttl must be an integer from 1 to 60000"), "{error}");
    assert_eq!(nodes.holding("k"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_the_margin_eats_is_never_held() {
    let (_nodes, locks) = Nodes::with_client(1).await;
    let options = Options::new().ttl(ms(1)).node_timeout(ms(1_000));
    assert_eq!(locks.with(&options).try_lock("k").await.unwrap_err().kind(), ErrorKind::Expired);
}

#[test]
fn the_blocking_face_has_the_same_names() {
    let nodes = Nodes::start(3);
    let locks = blocking::Client::new(nodes.addresses()).unwrap();
    let slow = Options::new().node_timeout(ms(10_000));
    let guard = locks.with(&slow).try_lock("k").unwrap();
    guard.extend().unwrap();
    assert!(guard.is_valid() && !guard.is_lost() && guard.token() > 0 && guard.valid_for() > ms(0));
    assert_eq!(locks.try_lock("k").unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(guard.reenter().unwrap().release(), Released::StillHeld(1));
    assert_eq!(guard.release(), Released::Released);
    assert_eq!(locks.with_lock("k", |guard| guard.key().to_vec()).unwrap(), b"k");
    drop(locks.lock("k").unwrap());
    locks.lock("k").unwrap().release();
    let gone = locks.with(&Options::new().ttl(ms(200)).auto_extend(false)).lock("k").unwrap();
    gone.lost();
    assert!(gone.is_lost());
    assert_eq!(gone.release(), Released::AlreadyExpired);
    locks.close().unwrap();
    assert_eq!(locks.lock("k").unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_is_the_same() {
    let nodes = Nodes::start(1);
    let locks = Client::new(nodes.addresses()).unwrap();
    connected(&locks).await;
    let value = locks.with_lock("k", async |guard| guard.token()).await.unwrap();
    let guard = locks.lock("k").await.unwrap();
    assert!(guard.token() > value);
    guard.extend().await.unwrap();
    assert_eq!(guard.release().await, Released::Released);
}
