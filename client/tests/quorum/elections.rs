//! Elections on real servers: one leader per term, reported to every observer.

use std::time::{Duration, Instant};

use palisade_client::{Changes, Client, ErrorKind, Leader, Options, Released};

use crate::fixture::{Nodes, ms, until};
use crate::harness::{Setup, null, patience};
use crate::proxy::{Proxy, proxied};

const TTL_MS: u64 = 1_500;

fn options() -> Options {
    Options::new().ttl(ms(TTL_MS))
}

/// Waits until each node has this many watchers, which shows that nothing is polled.
async fn watched(nodes: &Nodes, watchers: u64) {
    until("all are watched", async || nodes.0.iter().all(|server| server.info("watchers") == watchers)).await;
}

/// Waits for the next change.
async fn next(leaders: &mut Changes<Option<Leader>>) -> Option<Leader> {
    tokio::time::timeout(patience(), leaders.changed()).await.expect("nothing is told").unwrap()
}

/// Expects that the next change is a leader with this term, sequence and value.
async fn expect(leaders: &mut Changes<Option<Leader>>, term: u64, sequence: u64, value: &str) {
    let leader = next(leaders).await.expect("somebody leads");
    assert_eq!((leader.term, leader.sequence, &*leader.value), (term, sequence, value.as_bytes()));
}

async fn leader(client: &Client, key: &str) -> Option<(u64, String)> {
    let leader = client.election(key).leader().await.unwrap();
    leader.map(|leader| (leader.term, String::from_utf8(leader.value).unwrap()))
}

/// Returns the number of nodes on which the note of `key` has this sequence number.
fn proclaimed(nodes: &Nodes, key: &str, sequence: i64) -> usize {
    let info = nodes.say(&format!("LOCK.INFO {key}"));
    info.iter().filter(|info| **info != null() && info.field("seq").as_int() == sequence).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_seen_by_all_and_hands_over() {
    let nodes = Nodes::start(5);
    let (one, two) = (nodes.client().await, nodes.client().await);
    let mut leaders = two.election("e").observe().unwrap();
    assert_eq!(next(&mut leaders).await, None);
    assert_eq!(leader(&two, "e").await, None);
    watched(&nodes, 1).await;
    // A holder that has not proclaimed itself is no leader.
    let guard = one.with(&options().note("term 7 a note that looks like it")).lock("e").await.unwrap();
    assert_eq!(leader(&two, "e").await, None);
    guard.release().await;

    let first = one.with(&options()).election("e").campaign("first").await.unwrap();
    // A node that grants late can raise the token, but never the term.
    assert!(first.key() == b"e" && first.term() <= first.token());
    assert_eq!(leader(&two, "e").await, Some((first.term(), "first".to_owned())), "told before it campaigned in vain");
    expect(&mut leaders, first.term(), 1, "first").await;
    first.proclaim("moved").await.unwrap();
    expect(&mut leaders, first.term(), 2, "moved").await;
    watched(&nodes, 1).await;

    let election = two.with(&options()).election("e");
    let waits = tokio::spawn(async move { election.campaign("second").await });
    until("it waits on a majority", async || nodes.0.iter().filter(|server| server.info("waiters") == 1).count() >= 3)
        .await;
    let resigned = Instant::now();
    let term = first.term();
    assert_eq!(first.resign().await, Released::Released);
    let second = waits.await.unwrap().unwrap();
    println!("handed over in {:?}", resigned.elapsed());
    assert!(second.term() > term);
    // Observers may have seen a moment without a leader in between.
    let told = next(&mut leaders).await;
    let told = if told.is_none() { next(&mut leaders).await } else { told };
    assert_eq!(told.map(|leader| (leader.term, leader.value)), Some((second.term(), b"second".to_vec())));
    second.resign().await;
    assert_eq!(next(&mut leaders).await, None);
    watched(&nodes, 1).await;
    assert_eq!(leader(&one, "e").await, None);
    two.close().await.unwrap();
    assert_eq!(leaders.changed().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_vanishes_is_followed_within_its_lease() {
    let nodes = Nodes::start(3);
    let other = nodes.client().await;
    let mut leaders = other.election("e").observe().unwrap();
    assert_eq!(next(&mut leaders).await, None);
    let mut took = vec![];
    for n in 0..3 {
        let (proxies, client) = proxied(&nodes).await;
        let first = client.with(&options()).election("e").campaign(format!("first {n}")).await.unwrap();
        expect(&mut leaders, first.term(), 1, &format!("first {n}")).await;
        let election = other.with(&options()).election("e");
        let waits = tokio::spawn(async move { election.campaign("next").await });
        until("it waits", async || nodes.0.iter().filter(|server| server.info("waiters") == 1).count() >= 2).await;
        // The leader is cut off: its messages no longer arrive, and observers get no report.
        let vanished = Instant::now();
        proxies.iter().for_each(Proxy::swallow);
        let second = waits.await.unwrap().unwrap();
        let proclaimed = vanished.elapsed();
        let mut told = next(&mut leaders).await;
        while told.as_ref().is_none_or(|leader| leader.term != second.term()) {
            assert!(told.is_none(), "{told:?}");
            told = next(&mut leaders).await;
        }
        took.push((proclaimed, vanished.elapsed()));
        assert!(second.term() > first.term());
        assert!(!first.is_valid(), "two lead");
        second.resign().await;
        assert_eq!(next(&mut leaders).await, None);
    }
    println!("ttl {TTL_MS} ms; vanished until the next has proclaimed, and until it is observed: {took:?}");
    // The lease counts from the last extension, so less than the ttl is left. The rest is for a busy machine.
    let fastest = took.iter().map(|(proclaimed, _)| *proclaimed).min().unwrap();
    assert!(fastest < ms(TTL_MS + 200), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_nodes_may_be_down() {
    let mut nodes = Nodes::start(5);
    let client = nodes.client().await;
    let mut leaders = client.election("e").observe().unwrap();
    assert_eq!(next(&mut leaders).await, None);
    let first = client.with(&options()).election("e").campaign("first").await.unwrap();
    expect(&mut leaders, first.term(), 1, "first").await;
    nodes.0[0].kill();
    nodes.0[3].kill();
    first.proclaim("still").await.unwrap();
    expect(&mut leaders, first.term(), 2, "still").await;
    assert_eq!(leader(&client, "e").await, Some((first.term(), "still".to_owned())));
    first.resign().await;
    assert_eq!(next(&mut leaders).await, None);
    let second = client.with(&options()).election("e").campaign("second").await.unwrap();
    expect(&mut leaders, second.term(), 1, "second").await;
    // With three nodes down, it is unknown who leads.
    nodes.0[4].kill();
    let told = client.election("e").leader().await.unwrap_err();
    assert_eq!((told.kind(), told.nodes().len()), (ErrorKind::NoQuorum, 3), "{told}");
    second.lost().await;
    assert_eq!(second.proclaim("late").await.unwrap_err().kind(), ErrorKind::Lost);
}

/// Each node in turn forgets everything, is guarded, and receives the proclamation again when it grants again;
/// observers notice nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_forgot_are_told_again() {
    let setup = || Setup::new().module_arguments(&["max-ttl", "1500", "max-clock-skew", "100"]);
    let mut nodes = Nodes::start_with(3, setup);
    let client = nodes.client().await;
    let first = client.with(&options()).election("e").campaign("first").await.unwrap();
    let mut leaders = client.election("e").observe().unwrap();
    expect(&mut leaders, first.term(), 1, "first").await;
    first.proclaim("second").await.unwrap();
    expect(&mut leaders, first.term(), 2, "second").await;
    for n in 0..3 {
        nodes.0[n].kill();
        nodes.0[n].start_again();
        until("the node has it again, proclaimed", async || {
            assert!(first.is_valid(), "lost at the restart of node {n}");
            proclaimed(&nodes, "e", 2) == 3
        })
        .await;
    }
    first.proclaim("third").await.unwrap();
    // No other change was reported meanwhile.
    expect(&mut leaders, first.term(), 3, "third").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_with_one_node_out_of_reach_sees_each_term() {
    let nodes = Nodes::start(3);
    let client = nodes.client().await;
    let (proxies, far) = proxied(&nodes).await;
    for (n, how) in [Proxy::swallow, Proxy::cut].into_iter().enumerate() {
        let mut leaders = far.election("e").observe().unwrap();
        assert_eq!(next(&mut leaders).await, None);
        how(&proxies[n]);
        for value in ["one", "two", "three"] {
            let leads = client.with(&options()).election("e").campaign(value).await.unwrap();
            expect(&mut leaders, leads.term(), 1, value).await;
            leads.resign().await;
            assert_eq!(next(&mut leaders).await, None);
        }
        proxies[n].pass();
    }
    // With two nodes out of reach the last report stays valid, and nothing is reported.
    let leads = client.with(&options()).election("e").campaign("last").await.unwrap();
    let mut leaders = far.election("e").observe().unwrap();
    expect(&mut leaders, leads.term(), 1, "last").await;
    proxies[0].cut();
    proxies[1].cut();
    leads.resign().await;
    let error = far.election("e").leader().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum);
    assert!(tokio::time::timeout(ms(300), leaders.changed()).await.is_err(), "a minority said that nobody leads");
    proxies.iter().for_each(Proxy::pass);
    assert_eq!(next(&mut leaders).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_and_refusals() {
    let nodes = Nodes::start(3);
    let client = nodes.client().await;
    let election = client.with(&options().wait(ms(100))).election("e");
    assert_eq!(election.campaign([0; 1_003]).await.unwrap_err().kind(), ErrorKind::BadArgument);
    let first = election.campaign([255; 1_002]).await.unwrap();
    assert_eq!(first.proclaim([0; 1_003]).await.unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(client.election("e").leader().await.unwrap().unwrap().value, [255; 1_002]);
    let error = client.with(&options().wait(ms(100))).election("e").campaign("late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    first.resign().await;
    // A candidate that is not allowed to proclaim does not lead.
    nodes.say("ACL SETUSER default -lock.note");
    let began = Instant::now();
    let error = client.with(&options()).election("e").campaign("mute").await.unwrap_err();
    assert_eq!((error.kind(), error.nodes().len() >= 2), (ErrorKind::NoQuorum, true), "{error}");
    assert!(error.to_string().contains("LOCK.NOTE") && began.elapsed() < Duration::from_secs(10));
    until("it was given back", async || nodes.holding("e") == 0).await;
}

#[test]
fn elections_run_without_async() {
    let nodes = Nodes::start(3);
    let client = palisade_client::blocking::Client::new(nodes.addresses()).unwrap();
    client.connect().unwrap();
    let election = client.with(&options()).election("e");
    let mut leaders = election.observe().unwrap();
    assert_eq!(leaders.next(), Some(None));
    let leads = election.campaign("here").unwrap();
    leads.proclaim("there").unwrap();
    assert!(leads.is_valid() && leads.valid_for() > ms(100) && leads.term() > 0);
    assert_eq!(election.leader().unwrap().map(|leader| leader.term), Some(leads.term()));
    let last = std::iter::from_fn(|| leaders.next()).flatten().find(|leader| leader.sequence == 2);
    assert_eq!(last.unwrap().value, b"there");
    assert_eq!(leads.resign(), Released::Released);
    assert_eq!(leaders.next(), Some(None));
    client.close().unwrap();
    assert_eq!(leaders.next(), None);
}
