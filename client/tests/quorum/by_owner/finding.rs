//! Owners whose grants this process has to find on the nodes first.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use palisade_client::ErrorKind;
use palisade_client::by_owner::{Take, Wanted};

use super::{TTL, again, patient, process, start, take, takes, taking};
use crate::fixture::{Nodes, ms, until};
use crate::harness::{Reply, Server, int, null, text};
use crate::proxy::{Proxy, before_each};

/// Two agents granted a shared lock to the same owner, each with its own token, and both have crashed. Another agent is
/// asked for each of the two grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_grants_of_one_owner_is_found_by_its_token() {
    let (nodes, one) = start(3).await;
    nodes.follow_their_clocks().await;
    let (other, locks) = (process(&nodes).await, process(&nodes).await);
    let reads = || Take { wanted: Wanted::Shared, ..take("me") };
    let (first, second) = (takes(&one, reads()).await, takes(&other, reads()).await);
    assert_ne!(first.token, second.token);
    until("all nodes have both", async || {
        nodes.0.iter().all(|server| server.client().say("LOCK.INFO k").field("holders").as_int() == 2)
    })
    .await;
    for token in [first.token, second.token] {
        assert!(locks.check(b"k", token).await.unwrap().is_some(), "{token} is held");
    }
    let mut found = vec![];
    for token in [first.token, second.token] {
        found.push(locks.extend(b"k", b"me", TTL, Some(token)).await.unwrap());
    }
    assert!(found.iter().all(Option::is_some), "{found:?} of {first:?} and {second:?}");
    for token in [first.token, second.token] {
        assert_eq!(locks.release(b"k", b"me", None, Some(token)).await.unwrap(), Some(0), "{token}");
    }
}

/// A reader, or the holder of a permit, asks another process for its lock just before the lease ends. The nodes extend it,
/// and their answers come too late. The owner gets that grant back, and no second one beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_whose_extension_is_answered_late_finds_the_extended_grant() {
    for wanted in [Wanted::Shared, Wanted::Permit { limit: 2, number: None }] {
        let (nodes, first) = start(3).await;
        let (proxies, addresses) = before_each(&nodes.0).await;
        let other = patient(&addresses).await.by_owner();
        let reads = |ttl| Take { ttl, wanted, ..again("me") };
        let grants = || nodes.say("LOCK.INFO k").into_iter().filter(|info| *info != null());
        // A node whose token is being raised is not asked to extend the lock until later.
        until("all nodes have one token", async || {
            let token = int(takes(&first, reads(ms(3_000))).await.token as i64);
            grants().filter(|grant| grant.field("token") == token).count() == 3
        })
        .await;
        let began = Instant::now();
        let attempt = nodes.0[0].client().say("LOCK.INFO k").field("owner");
        proxies.iter().for_each(Proxy::hold_extend);
        let retried = taking(&other, reads(TTL));
        let is_long = |grant: &Reply| grant.field("ttl").as_int() > 20_000;
        until("a majority has extended it", async || grants().filter(is_long).count() >= 2).await;
        until("its first lease has ended", async || began.elapsed() > ms(3_000)).await;
        proxies.iter().for_each(Proxy::pass);
        assert!(retried.await.unwrap().unwrap().is_some());
        let is_first = |grant: Reply| grant.field("owner") == attempt && grant.field("holders") == int(1);
        assert!(grants().all(is_first), "no second grant is beside it");
    }
}

/// An owner waits for a lock, and asks over another connection whether it has the lock. It gets the lock: its request
/// must say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_granted_says_so_whoever_finds_the_grant_first() {
    let (_nodes, locks) = start(3).await;
    let mut results = vec![];
    for round in 0..200 {
        let key = format!("k{round}");
        let of = |owner: &str| Take { key: key.clone().into(), wait: ms(20_000), ..take(owner) };
        let (asks, key) = (locks.clone(), key.clone().into_bytes());
        let asking = tokio::spawn(async move {
            loop {
                if let Some(token) = asks.extend(&key, b"me", TTL, None).await.unwrap() {
                    return token;
                }
            }
        });
        results.push(locks.take(of("me")).await);
        let _ = asking.await;
    }
    let refused: Vec<_> = results.iter().filter(|told| !matches!(told, Ok(Some(_)))).collect();
    assert!(refused.is_empty(), "{} of 200 were refused what they got: {:?}", refused.len(), refused[0]);
}

/// A node missed that a writer has become a reader, and the writer's agent has crashed. Another agent extends the lock
/// while a node has lost it: all nodes have it for a reader in the end, also one that answers late, and other readers get in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_continued_as_a_reader_although_a_node_calls_it_a_writer() {
    let nodes = Nodes::start(3);
    nodes.follow_their_clocks().await;
    let (proxies, addresses) = before_each(&nodes.0).await;
    let (locks, others) = (patient(&addresses).await.by_owner(), process(&nodes).await);
    for (key, late_ms) in [("soon", 0), ("late", 200)] {
        let attempt = "me#0123456789abcdef";
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        for (place, server) in nodes.0.iter().enumerate() {
            let reply = server.client().say(&format!("LOCK.ACQUIRE {key} {attempt} 4000 FENCE {now}"));
            assert!(reply.as_int() > 0, "{reply:?}");
            if place > 0 {
                assert!(server.client().say(&format!("LOCK.CONVERT {key} {attempt} SHARED")).as_int() > 0);
            }
        }
        let name = key.as_bytes();
        let shown = others.info(name, None).await.unwrap().unwrap();
        assert_eq!(shown.grants[0].mode.word(), "shared");
        proxies[0].delay(ms(late_ms));
        assert!(locks.extend(name, b"me", ms(4_000), None).await.unwrap().is_some());
        proxies[0].delay(ms(0));
        nodes.0[1].client().say(&format!("DEL {key}"));
        until("the nodes have it for a reader", async || {
            let extended = locks.extend(name, b"me", ms(4_000), None).await;
            assert!(!matches!(extended, Ok(None)), "it is held all the time");
            let infos = nodes.say(&format!("LOCK.INFO {key}"));
            infos.iter().all(|info| *info != null() && info.field("mode") == text("shared"))
        })
        .await;
        let read = others.take(Take { key: name.to_vec(), wanted: Wanted::Shared, ..take("you") }).await;
        assert!(matches!(read, Ok(Some(_))), "a reader beside a reader: {read:?}");
    }
}

/// A node missed that another process made the writer a reader, and that process has ended. The process that granted the
/// lock goes on with it: in the end all nodes have it for a reader, so that others can read though one of them is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_goes_on_as_a_reader_at_the_process_that_knew_a_writer() {
    let nodes = Nodes::start(3);
    nodes.follow_their_clocks().await;
    let (locks, others) = (process(&nodes).await, process(&nodes).await);
    takes(&locks, take("me")).await;
    until("every node has it", async || nodes.holding("k") == 3).await;
    let attempt = nodes.0[0].client().say("LOCK.INFO k").field("owner").as_text();
    for server in &nodes.0[1..] {
        assert!(server.client().say(&format!("LOCK.CONVERT k {attempt} SHARED")).as_int() > 0);
    }
    assert_eq!(others.info(b"k", None).await.unwrap().unwrap().grants[0].mode.word(), "shared");
    let again = Take { wanted: Wanted::Shared, retry: true, ..take("me") };
    assert!(locks.take(again).await.unwrap().is_some(), "it is a reader");
    for _ in 0..20 {
        assert!(locks.extend(b"k", b"me", TTL, None).await.unwrap().is_some());
        tokio::time::sleep(ms(50)).await;
    }
    let modes: Vec<_> = nodes.say("LOCK.INFO k").iter().map(|info| info.field("mode").as_text()).collect();
    assert_eq!(modes, ["shared"; 3], "the first node was not told for a second, though it answers");
}

/// A process that continued a lock re-enters it right after a node was added. The lease stays as long as its owner
/// asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_continued_does_not_grow_by_a_change_of_the_set() {
    let nodes = Nodes::start(4);
    let addresses = nodes.addresses();
    let of_three = async || patient(&addresses[..3]).await;
    let (one, other) = (of_three().await.by_owner(), of_three().await);
    let ttl = ms(10_000);
    takes(&one, Take { ttl, ..take("me") }).await;
    let locks = other.by_owner();
    assert!(locks.extend(b"k", b"me", ttl, None).await.unwrap().is_some());
    until("three nodes have it", async || nodes.holding("k") == 3).await;
    nodes.0[2].client().say("DEL k");
    other.set_nodes(addresses.clone()).await.unwrap();
    assert_eq!(locks.reenter(b"k", b"me", None, None).await.unwrap(), Some(2));
    let infos = nodes.say("LOCK.INFO k");
    let left: Vec<_> = infos.iter().filter(|info| **info != null()).map(|info| info.field("ttl").as_int()).collect();
    assert!(left.iter().all(|left| *left <= 10_000), "its owner asked for 10000 ms: {left:?}");
}

/// Makes the grant on a node suspect, as that of a node that has restarted.
fn restored(server: &Server) {
    let mut node = server.client();
    let dump = node.say("DUMP k");
    assert_eq!(node.send(&[b"RESTORE", b"k", b"0", dump.as_bytes(), b"REPLACE"]), text("OK"));
}

/// A node is not sure of the grant that it has. The others are, whichever answers first. If too many are not, nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_checked_by_the_nodes_that_are_sure_of_it() {
    let nodes = Nodes::start(3);
    let (proxies, addresses) = before_each(&nodes.0).await;
    let locks = patient(&addresses).await.by_owner();
    let token = takes(&locks, take("me")).await.token;
    until("every node has it", async || nodes.holding("k") == 3).await;
    restored(&nodes.0[0]);
    for slow in [1, 2] {
        proxies[slow].delay(ms(300));
        assert!(locks.check(b"k", token).await.unwrap().is_some(), "{slow}");
        assert!(!locks.info(b"k", None).await.unwrap().unwrap().grants[0].is_suspect, "{slow}");
        proxies[slow].delay(ms(0));
    }
    restored(&nodes.0[1]);
    assert_eq!(locks.check(b"k", token).await.unwrap_err().kind(), ErrorKind::NoQuorum);
    nodes.say("LOCK.BREAK k");
    assert_eq!(locks.check(b"k", token).await.unwrap(), None);
}

/// One of three nodes is down. A reader's grant is on both others, which is a majority. A process that checks it, or
/// replaces its note, gets an answer, although other readers come and go at that moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_checked_while_others_come_and_go_and_a_node_is_down() {
    let mut nodes = Nodes::start(3);
    nodes.follow_their_clocks().await;
    let (proxies, addresses) = before_each(&nodes.0).await;
    let (locks, others) = (process(&nodes).await, patient(&addresses).await.by_owner());
    // They reach one node a little later than the other, as over a network.
    proxies[1].delay(ms(2));
    drop(nodes.0.remove(2));
    tokio::time::sleep(ms(1_000)).await;
    let reads = |owner: String| Take { owner: owner.into_bytes(), wanted: Wanted::Shared, ..take("") };
    let token = takes(&locks, reads("me".to_owned())).await.token;
    let come_and_go = |task: u32| {
        let others = others.clone();
        tokio::spawn(async move {
            for n in 0_u32.. {
                let owner = format!("{task}-{n}");
                let _ = others.take(reads(owner.clone())).await;
                let _ = others.release(b"k", owner.as_bytes(), None, None).await;
            }
        })
    };
    let tasks: Vec<_> = (0..4).map(come_and_go).collect();
    let mut wrong = vec![];
    for n in 1..=100 {
        match locks.check(b"k", token).await {
            Ok(Some(_)) => {}
            other => wrong.push(format!("check: {other:?}")),
        }
        if let Err(error) = locks.note(b"k", b"me", format!("{n}").as_bytes(), None, None).await {
            wrong.push(format!("note: {error}"));
        }
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(wrong.is_empty(), "{} of 200 requests, such as {}", wrong.len(), wrong[0]);
}
