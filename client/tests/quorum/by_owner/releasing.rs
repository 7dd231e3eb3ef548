//! Owners that release the locks that they hold, or what is left of them.

use palisade_client::by_owner::{ByOwner, Keeper, Take, Wanted};
use palisade_client::{Client, ErrorKind, Options};

use super::{TTL, connected_again, patient, patient_for, start, take, takes};
use crate::fixture::{Nodes, connected, ms, until};
use crate::harness::{Frozen, Reply, Server, int, patience};
use crate::proxy::before_each;

/// With two of five nodes down, three know the lock of a process that has ended, and another process extends it. With
/// three down, it is unknown whether the lock is held, and every request fails with `NoQuorum`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_down() {
    let nodes = Nodes::start(5);
    let gone = nodes.client().await.by_owner();
    let granted = takes(&gone, take("me")).await;
    let locks = nodes.client().await.by_owner();
    let mut frozen: Vec<_> = nodes.0[..2].iter().map(Frozen::new).collect();
    let token = locks.extend(b"k", b"me", TTL, None).await.unwrap().unwrap();
    assert!(token >= granted.token);
    assert!(locks.check(b"k", token).await.unwrap().is_some());
    let other = nodes.client_now().await.by_owner();
    frozen.push(Frozen::new(&nodes.0[2]));
    for locks in [&locks, &other] {
        let error = locks.extend(b"k", b"me", TTL, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum);
        assert_eq!(error.nodes().len(), 3, "{error}");
        assert_eq!(locks.check(b"k", granted.token).await.unwrap_err().kind(), ErrorKind::NoQuorum);
        assert_eq!(locks.release(b"k", b"me", Some(1), None).await.unwrap_err().kind(), ErrorKind::NoQuorum);
    }
    drop(frozen);
    until("what is owed is given back", async || nodes.holding("k") == 0).await;
}

/// An operator broke the lock on four of five nodes. The owner learns that it does not hold the lock. The fifth node
/// still gets the release before the client is closed, even if it answers last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_gives_back_what_a_minority_has() {
    let nodes = Nodes::start(5);
    let (proxies, addresses) = before_each(&nodes.0).await;
    let stray = "LOCK.ACQUIRE k me#0123456789abcdef 60000";
    for (level, is_named) in [(Some(1), false), (None, false), (None, true)] {
        let client = patient(&addresses).await;
        let tokens = nodes.say(stray);
        nodes.0[..4].iter().for_each(|server| drop(server.client().say("LOCK.BREAK k")));
        assert_eq!(nodes.holding("k"), 1);
        proxies[4].delay(ms(300));
        let token = is_named.then(|| tokens[4].as_int() as u64);
        let other = token.map(|token| token + 1);
        let locks = client.by_owner();
        if other.is_some() {
            assert_eq!(locks.release(b"k", b"me", level, other).await.unwrap(), None);
            assert_eq!(nodes.holding("k"), 1, "another token names another grant");
        }
        assert_eq!(locks.release(b"k", b"me", level, token).await.unwrap(), None);
        client.close().await.unwrap();
        assert_eq!(nodes.holding("k"), 0, "{level:?} {token:?}");
        proxies[4].delay(ms(0));
    }
}

/// A node hangs, from before this process first asked it or from later on. The other nodes receive the release all the
/// same, and their answers suffice. (A lease can end before the client gives up on a node that hangs.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_waits_for_no_node_that_hangs() {
    let (nodes, gone) = start(3).await;
    // The client does not give up on that node during this test.
    let addresses = nodes.addresses();
    let another = || patient_for(&addresses, 2 * patience());
    let before = another().await;
    for level in [Some(1), None] {
        for is_connected in [true, false] {
            let owner = format!("{level:?} {is_connected}");
            takes(&gone, take(&owner)).await;
            until("every node has it", async || nodes.holding("k") == 3).await;
            let hangs = Frozen::new(&nodes.0[0]);
            let client = if is_connected { before.clone() } else { another().await };
            let locks = client.by_owner();
            let releases = tokio::spawn(async move { locks.release(b"k", owner.as_bytes(), level, None).await });
            let is_free = |server: &Server| server.client().say("EXISTS k") == int(0);
            until("the others are free", async || nodes.0[1..].iter().all(is_free)).await;
            assert_eq!(releases.await.unwrap().unwrap(), Some(0));
            drop(hangs);
            until("it is free everywhere", async || nodes.holding("k") == 0).await;
        }
    }
}

/// A holder has another token on each node, and the token that is to be broken is on a node that hangs. The error must
/// not say that no grant has this token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_a_silent_node_may_have_is_not_gone() {
    let nodes = Nodes::start(3);
    // The break waits so long for the node that hangs.
    let locks = patient_for(&nodes.addresses(), ms(5_000)).await.by_owner();
    let granted = nodes.say("LOCK.ACQUIRE k me#0123456789abcdef 60000");
    let token = granted.iter().map(Reply::as_int).max().unwrap() + 10;
    nodes.0[2].client().insist(&format!("LOCK.FENCE k me#0123456789abcdef {token}"));
    let frozen = Frozen::new(&nodes.0[2]);
    let error = locks.break_lock(b"k", Some(token as u64)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NoQuorum && error.nodes().len() == 1, "{error}");
    drop(frozen);
    until("it answers, and all are broken", async || locks.break_lock(b"k", Some(token as u64)).await.is_ok()).await;
    assert_eq!(nodes.holding("k"), 0);
}

/// Starts nodes and one process, whose owner `me` holds the lock on all of them.
async fn held(count: usize) -> (Nodes, Client, ByOwner) {
    let nodes = Nodes::start(count);
    let client = patient(&nodes.addresses()).await;
    let locks = client.by_owner();
    takes(&locks, take("me")).await;
    until("every node has it", async || nodes.holding("k") == count).await;
    (nodes, client, locks)
}

/// This process knows two holds, and the lock is broken on four of five nodes before it notices. Releasing one hold
/// reports that the lock is not held, and the fifth node is released too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_is_given_back_of_a_broken_lock() {
    let (nodes, client, locks) = held(5).await;
    assert_eq!(locks.reenter(b"k", b"me", None, None).await.unwrap(), Some(2));
    nodes.0[..4].iter().for_each(|server| drop(server.client().say("LOCK.BREAK k")));
    assert_eq!(locks.release(b"k", b"me", None, None).await.unwrap(), None);
    let closed = client.close().await;
    assert_eq!(nodes.holding("k"), 0);
    closed.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_end_locks_are_left_or_given_back() {
    for (gives_back, stays) in [(false, false), (true, false), (true, true)] {
        let nodes = Nodes::start(3);
        let client = patient(&nodes.addresses()).await;
        let locks = client.by_owner();
        takes(&locks, take("me")).await;
        assert_eq!(locks.reenter(b"k", b"me", Some(3), None).await.unwrap(), Some(3));
        until("every node has it", async || nodes.holding("k") == 3).await;
        if gives_back {
            locks.give_back(|key, owner| (key, owner) == (b"k", b"me") && stays);
        }
        assert_eq!(client.close().await.is_ok(), gives_back, "a lock that stays on purpose is no error");
        drop((client, locks));
        let left = if gives_back && !stays { 0 } else { 3 };
        assert_eq!(nodes.holding("k"), left);
    }
}

/// The process that acquired a lock ends and releases its locks. Another process has extended one of these locks for
/// its owner meanwhile, so that lock stays held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_leaves_what_another_one_continues() {
    let (nodes, client, locks) = held(3).await;
    let next = patient(&nodes.addresses()).await.by_owner();
    assert!(next.extend(b"k", b"me", TTL, None).await.unwrap().is_some());
    locks.give_back(|_, _| false);
    let _ = client.close().await;
    assert_eq!(nodes.holding("k"), 3);
}

/// A release that leaves all holds, and a downgrade of a lock that is shared already, change nothing. Their answers
/// still say whether the owner has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_changes_nothing_is_asked_of_the_nodes() {
    let nodes = Nodes::start(3);
    let defaults = Options::new().node_timeout(ms(60_000)).told_at_once(false);
    let client = Client::builder().nodes(nodes.addresses()).defaults(defaults).build().unwrap();
    connected(&client).await;
    let locks = client.by_owner();
    for is_release in [true, false] {
        let change = async || match is_release {
            true => locks.release(b"k", b"me", Some(2), None).await.unwrap().is_some(),
            false => locks.share(b"k", b"me", None).await.unwrap().is_some(),
        };
        takes(&locks, Take { wanted: Wanted::Shared, ..take("me") }).await;
        until("every node has it", async || nodes.holding("k") == 3).await;
        assert!(change().await);
        nodes.say("LOCK.BREAK k");
        assert!(!change().await, "{is_release}");
    }
}

/// An operator breaks the lock on one node after the other, while its owner extends it. Each extension used to begin a
/// round that undid the break: nodes on which the lock was already broken granted it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_on_one_node_after_the_other_while_it_is_extended() {
    let nodes = Nodes::start(5);
    let locks = patient(&nodes.addresses()).await.by_owner();
    for _ in 0..20 {
        takes(&locks, take("me")).await;
        until("every node has it", async || nodes.holding("k") == 5).await;
        let extending = tokio::spawn({
            let locks = locks.clone();
            // In the meantime the owner may learn that too few nodes extended the lock.
            async move { while !matches!(locks.extend(b"k", b"me", TTL, None).await, Ok(None)) {} }
        });
        nodes.0.iter().for_each(|server| drop(server.client().say("LOCK.BREAK k")));
        until("its owner is told", async || extending.is_finished()).await;
        until("it is free everywhere", async || nodes.holding("k") == 0).await;
    }
}

/// An owner continues in another process, which makes a node grant the lock again. The first process does not know
/// that, and finds the lock missing on a second node. For it the lock is lost, and it must not release the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_loses_a_lock_leaves_it_to_the_next_one() {
    let (nodes, client, locks) = held(3).await;
    let next = patient(&nodes.addresses()).await.by_owner();
    let calls = |node: usize, command: &str| {
        let stats = nodes.0[node].client().say("INFO commandstats").as_text().to_lowercase();
        let calls = stats.split_once(&format!("cmdstat_{command}:calls=")).and_then(|(_, calls)| calls.split_once(','));
        calls.map_or(0, |(calls, _)| calls.parse::<u32>().unwrap())
    };
    let watched_by = async |processes: u32| {
        let is_watched = |node| calls(node, "lock.check") >= processes;
        until("it is watched", async || (0..3).all(is_watched)).await;
    };
    let take_away = async |node: usize, processes: u32| {
        let before = calls(node, "lock.fence");
        nodes.0[node].client().say("DEL k");
        until("each process has looked", async || calls(node, "lock.fence") >= before + processes).await;
    };
    watched_by(1).await;
    take_away(0, 1).await;
    until("the node has it again", async || {
        // It fails if its rounds meet those of the other process again and again.
        let _ = next.extend(b"k", b"me", TTL, None).await;
        nodes.holding("k") == 3
    })
    .await;
    watched_by(2).await;
    take_away(1, 2).await;
    until("the first process has lost it", async || locks.counts().0 == 0).await;
    client.close().await.unwrap();
    assert!(next.extend(b"k", b"me", TTL, None).await.unwrap().is_some());
    assert!(nodes.holding("k") >= 2);
}

/// An owner has two shared grants: one on a majority, and one on a single node, because its agent ended in the middle. The
/// owner gives the second one back by its token. It holds that on no majority, and the node releases it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_on_one_node_is_released_by_its_token_beside_another_of_its_owner() {
    let (nodes, locks) = start(3).await;
    nodes.follow_their_clocks().await;
    takes(&locks, Take { wanted: Wanted::Shared, ..take("me") }).await;
    until("every node has it", async || nodes.holding("k") == 3).await;
    let mut node = nodes.0[0].client();
    let token = node.say("LOCK.ACQUIRE k me#0123456789abcdef 30000 SHARED").as_int();
    assert_eq!(node.say("LOCK.INFO k").field("holders"), int(2));
    let released = locks.release(b"k", b"me", None, Some(token as u64)).await.unwrap();
    assert_eq!(released, None, "no majority had it");
    until("the node has released it", async || nodes.0[0].client().say("LOCK.INFO k").field("holders") == int(1)).await;
}

/// The tokens of two nodes are ahead of the third one's clock. The third node granted the lock late, so it shows the number
/// of an earlier grant of this owner, and it cannot raise that yet. A late release by that number is about the earlier
/// grant, which has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_an_earlier_grant_releases_nothing_although_a_slow_node_shows_it() {
    for keepalive in [None, Some((TTL, Keeper(1)))] {
        let nodes = Nodes::start(3);
        let (proxies, addresses) = before_each(&nodes.0).await;
        let locks = patient(&addresses).await.by_owner();
        let mut slow = nodes.0[2].client();
        let ahead = slow.say("LOCK.ACQUIRE other me 30000").as_int() + 60_000_000;
        nodes.0[..2]
            .iter()
            .for_each(|server| assert_eq!(server.client().say(&format!("LOCK.FLOOR RAISE {ahead}")), int(ahead)));
        proxies[2].cut();
        let granted = takes(&locks, Take { keepalive, ..take("me") }).await.token;
        let attempt = nodes.0[0].client().say("LOCK.INFO k").field("owner").as_text();
        let earlier = slow.say(&format!("LOCK.ACQUIRE k {attempt} 30000")).as_int() as u64;
        assert!(earlier < granted);
        slow.say("ACL SETUSER default -lock.fence");
        proxies[2].pass();
        connected_again(&locks).await;
        // The slow node may be one of the two that answer first, and cannot have the common token.
        until("two nodes have one token", async || {
            let released = locks.release(b"k", b"me", None, Some(earlier)).await;
            let is_told = !matches!(&released, Err(error) if error.kind() == ErrorKind::NoQuorum);
            assert!(!is_told || released == Ok(None), "{released:?}");
            is_told
        })
        .await;
        assert_eq!(slow.say("LOCK.INFO k").field("token"), int(earlier as i64), "it was not raised");
        assert_eq!(nodes.holding("k"), 3, "nobody released it");
        assert_eq!(locks.release(b"k", b"me", None, Some(granted)).await.unwrap(), Some(0));
    }
}
