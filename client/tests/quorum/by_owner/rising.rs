//! Locks whose token rises while another process acts for their owner.

use palisade_client::ErrorKind;
use palisade_client::by_owner::{ByOwner, Take, Wanted};

use super::{TTL, connected_again, patient, process, start, take, takes};
use crate::fixture::{Nodes, ms, until};
use crate::harness::int;
use crate::proxy::{Proxy, before_each};

/// A lock that one process acquired, and that another one extended after its token had risen.
struct Risen {
    nodes: Nodes,
    proxies: Vec<Proxy>,
    /// The process that acquired it, through the proxies. Its lease is so short that it does not hear of changes.
    first: ByOwner,
    other: ByOwner,
    /// The token that the owner received first, and the one that it received from the other process.
    tokens: [u64; 2],
}

impl Risen {
    async fn new() -> Self {
        let nodes = Nodes::start(3);
        let (proxies, addresses) = before_each(&nodes.0).await;
        let (first, other) = (patient(&addresses).await.by_owner(), process(&nodes).await);
        let granted = takes(&first, Take { ttl: ms(2_900), ..take("me") }).await;
        other.extend(b"k", b"me", TTL, None).await.unwrap().unwrap();
        until("every node has it", async || nodes.holding("k") == 3).await;
        let infos = nodes.say("LOCK.INFO k");
        let raised = infos.iter().map(|info| info.field("token").as_int()).max().unwrap() + 1_000;
        let fence = format!("LOCK.FENCE k {} {raised}", infos[0].field("owner").as_text());
        for server in &nodes.0 {
            until("its state file allows that", async || server.client().say(&fence) == int(raised)).await;
        }
        let risen = other.extend(b"k", b"me", TTL, None).await.unwrap().unwrap();
        assert!(risen > granted.token);
        Self { nodes, proxies, first, other, tokens: [granted.token, risen] }
    }
}

/// Both processes show the token that the owner received last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_shows_the_risen_token() {
    let Risen { first, other, tokens: [granted, risen], nodes: _nodes, proxies: _proxies } = Risen::new().await;
    for locks in [&first, &other] {
        let shown = locks.info(b"k", None).await.unwrap().unwrap();
        assert_eq!(shown.grants[0].token, risen);
        for token in [granted, risen] {
            assert!(first.check(b"k", token).await.unwrap().is_some(), "the first process told the owner of {granted}");
        }
    }
}

/// The first process forgot the lock, which the other one extended for longer. It still knows the token that it gave the
/// owner, also if it could not find the lock at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_token_names_the_grant_after_the_process_lost_sight_of_it() {
    let Risen { nodes, proxies, first, tokens: [granted, risen], .. } = Risen::new().await;
    until("its own copy of the lease has ended", async || first.counts().0 == 0).await;
    proxies[..2].iter().for_each(Proxy::cut);
    let release = async || first.release(b"k", b"me", Some(1), Some(granted)).await;
    assert_eq!(release().await.unwrap_err().kind(), ErrorKind::NoQuorum);
    proxies[..2].iter().for_each(Proxy::pass);
    connected_again(&first).await;
    assert_eq!(first.extend(b"k", b"me", TTL, Some(granted)).await.unwrap(), Some(risen));
    assert_eq!(first.release(b"k", b"me", Some(1), Some(granted)).await.unwrap(), Some(0));
    until("it is free", async || nodes.holding("k") == 0).await;
}

/// A request names a token that nobody has, such as that of a former lock of its owner. The process still knows the token
/// that it gave the owner first, before it rose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_a_foreign_token_makes_the_process_forget_no_token_of_the_grant() {
    let Risen { nodes: _nodes, proxies: _proxies, first, tokens: [granted, risen], .. } = Risen::new().await;
    let extend = async |token| first.extend(b"k", b"me", TTL, Some(token)).await.unwrap();
    assert_eq!(extend(granted).await, Some(risen));
    assert_eq!(extend(granted - 1_000).await, None, "nobody has that token");
    assert_eq!(extend(granted).await, Some(risen), "the owner holds the lock, and was told this token");
}

/// Two processes granted the owner a shared lock each. The token of the first grant has risen since. The first process is
/// asked for the other grant, and then for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_continues_another_grant_of_the_owner_forgets_no_token_of_its_own() {
    let (nodes, first) = start(3).await;
    nodes.follow_their_clocks().await;
    let other = process(&nodes).await;
    let reads = || Take { wanted: Wanted::Shared, ..take("me") };
    let granted = takes(&first, reads()).await.token;
    until("every node has it", async || nodes.holding("k") == 3).await;
    let attempt = nodes.0[0].client().say("LOCK.INFO k").field("owner").as_text();
    let risen = granted + 1_000;
    let fence = format!("LOCK.FENCE k {attempt} {risen}");
    for server in &nodes.0 {
        until("its state file allows that", async || server.client().say(&fence) == int(risen as i64)).await;
    }
    let extend = async |token| first.extend(b"k", b"me", TTL, Some(token)).await.unwrap();
    assert_eq!(extend(granted).await, Some(risen));
    let second = takes(&other, reads()).await.token;
    assert!(extend(second).await.is_some());
    assert_eq!(extend(granted).await, Some(risen), "the owner holds both, and was told this token");
}
