//! The loss of a lock that is taken away is noticed at once, with the reason.

use palisade_client::{Guard, Loss, Options, Why};

use crate::fixture::{Nodes, ms, until};

/// Returns options with a ttl so long that no extension happens meanwhile.
fn long() -> Options {
    Options::new().ttl(ms(60_000))
}

/// Returns the number of keys that each node tracks.
fn tells_of(nodes: &Nodes) -> Vec<u64> {
    nodes.0.iter().map(|server| server.client().info_field("tracking_total_keys")).collect()
}

/// Waits until each node tracks one key, the lock's.
async fn told(nodes: &Nodes) {
    until("every node tells of it", async || tells_of(nodes).iter().all(|&keys| keys == 1)).await;
}

async fn taken_away(guard: &Guard) -> usize {
    match guard.lost().await {
        Loss::TakenAway(nodes) => {
            assert!(nodes.iter().all(|node| node.why == Why::NotHeld), "{nodes:?}");
            nodes.len()
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_asking_again_and_again() {
    for (count, how) in [(5, "LOCK.BREAK k"), (1, "DEL k"), (3, "FLUSHALL"), (1, "SET k x")] {
        let (nodes, locks) = Nodes::with_client(count).await;
        // A token that rises is a change, after which the lock is checked once more.
        nodes.follow_their_clocks().await;
        let guard = locks.with(&long()).lock("k").await.unwrap();
        told(&nodes).await;
        let looks = nodes.calls("lock.check");
        assert_eq!(looks, vec![1; count], "it was looked at once");
        nodes.say(how);
        if how.starts_with("SET") {
            // The key now holds a value that is no lock, which only the next extension shows.
            continue;
        }
        assert!(taken_away(&guard).await > count / 2);
        assert!(guard.is_lost() && !guard.is_valid());
        assert_eq!(nodes.calls("lock.extend"), vec![0; count], "nobody had to extend it to find out");
    }
}

/// The server does not report the holder's own changes to the holder, so the client has to check again after each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn also_after_an_extension_and_a_connection_that_was_made_anew() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&long()).lock("k").await.unwrap();
    told(&nodes).await;
    guard.extend().await.unwrap();
    until("it was looked at again", async || nodes.calls("lock.check").iter().all(|&looks| looks >= 2)).await;
    told(&nodes).await;
    nodes.say("CLIENT KILL TYPE normal SKIPME yes");
    let looks = nodes.calls("lock.check");
    until("it was looked at again", async || {
        // Until all nodes are connected again, some extensions fail.
        let _ = guard.extend().await;
        nodes.calls("lock.check").iter().zip(&looks).all(|(now, before)| now > before)
    })
    .await;
    nodes.say("LOCK.BREAK k");
    assert!(taken_away(&guard).await >= 2);
}

/// A lock that an operator breaks on one node after the other is not granted again in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_away_node_by_node_is_not_taken_back() {
    let (nodes, locks) = Nodes::with_client(5).await;
    nodes.follow_their_clocks().await;
    let guard = locks.with(&long()).lock("k").await.unwrap();
    told(&nodes).await;
    for (n, server) in nodes.0.iter().enumerate().take(3) {
        assert!(!guard.is_lost(), "{n} of five");
        server.client().say("LOCK.BREAK k");
        until("it was looked at", async || nodes.calls("lock.check")[n] == 2).await;
    }
    assert_eq!(taken_away(&guard).await, 3);
    until("it is given back to the others", async || nodes.holding("k") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_if_that_is_not_wanted_or_not_allowed() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&long().told_at_once(false)).lock("k").await.unwrap();
    tokio::time::sleep(ms(300)).await;
    nodes.say("LOCK.BREAK k");
    assert_eq!((nodes.calls("lock.check"), tells_of(&nodes)), (vec![0; 3], vec![0; 3]));
    assert!(guard.extend().await.is_err());
    assert!(taken_away(&guard).await >= 2);
    nodes.say("ACL SETUSER app on >secret ~* +@all -client|tracking");
    let locks = palisade_client::Client::new(nodes.addresses_as_app("secret")).unwrap();
    let guard = locks.with(&long()).lock("k").await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(nodes.calls("lock.check"), vec![0; 3]);
    guard.extend().await.unwrap();
    guard.release().await;
}

/// A lock that is released at once costs no additional commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_hold_is_not_looked_at() {
    let (nodes, locks) = Nodes::with_client(3).await;
    for _ in 0..20 {
        locks.with(&long()).lock("k").await.unwrap().release().await;
    }
    assert_eq!((nodes.calls("lock.check"), tells_of(&nodes)), (vec![0; 3], vec![0; 3]));
}

/// Three readers come, and one leaves: the others do not count as lost. When an operator breaks the lock, the holder
/// learns that its lock is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_readers() {
    let nodes = Nodes::start(3);
    let (locks, others) = (nodes.client().await, nodes.client().await);
    let one = locks.with(&long()).rw_lock("k").read().await.unwrap();
    // A node does not report changes to the connection that made them.
    let lock = others.rw_lock("k");
    let other = lock.read().await.unwrap();
    told(&nodes).await;
    other.release().await;
    let third = lock.read().await.unwrap();
    until("it was looked at again", async || nodes.calls("lock.check").iter().all(|&looks| looks >= 2)).await;
    for (who, reader) in [("the first", &one), ("the last", &third)] {
        assert!(!reader.is_lost(), "{who}: {}", reader.lost().await);
    }
    nodes.say("LOCK.BREAK k");
    assert!(taken_away(&one).await >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_it_was_lost() {
    let (mut nodes, locks) = Nodes::with_client(3).await;
    let guard = locks.with(&Options::new().ttl(ms(300)).auto_extend(false)).lock("a").await.unwrap();
    assert_eq!(guard.lost().await, Loss::NotExtended);
    let guard = locks.with(&Options::new().ttl(ms(300)).max_hold(ms(400))).lock("b").await.unwrap();
    assert_eq!(guard.lost().await, Loss::MaxHold);
    let guard = locks.with(&Options::new().ttl(ms(600))).lock("c").await.unwrap();
    nodes.0[1..].iter_mut().for_each(|server| server.kill());
    match guard.lost().await {
        Loss::TooFewNodes(named) => assert_eq!(named.len(), 2, "{named:?}"),
        other => panic!("{other}"),
    }
}
