//! Many waits of one process: one more connection to each node receives all answers. This test runs in a process of its
//! own, because it counts descriptors.

#![allow(clippy::disallowed_methods)]

#[allow(dead_code)]
#[path = "../quorum/fixture.rs"]
mod fixture;
#[allow(dead_code, unused_imports)]
#[path = "../../../tests/harness/mod.rs"]
mod harness;
#[allow(dead_code)]
#[path = "../quorum/proxy.rs"]
mod proxy;

use std::ops::Range;
use std::time::{Duration, Instant};

use palisade_client::{Client, Guard, Options};
use tokio::task::JoinSet;

use crate::fixture::{Nodes, connected, locking, ms, until};
use crate::harness::{Frozen, Server, Setup};
use crate::proxy::proxied;

/// A stub for the fixture, which expects this module: no test here listens to trace events.
mod told {
    pub fn listen() {}
}

/// Makes the tests of this file run one after the other, because they count resources of their process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Locks these names on each node, for a holder outside this process.
fn hold(servers: &[Server], keys: Range<usize>) {
    say(servers, keys, |n| format!("LOCK.ACQUIRE k{n} holder 3600000"));
}

/// Releases the locks, one after the other.
fn release(servers: &[Server], keys: Range<usize>) {
    say(servers, keys, |n| format!("LOCK.RELEASE k{n} holder LEVEL 1"));
}

fn say(servers: &[Server], keys: Range<usize>, line: impl Fn(usize) -> String) {
    let lines: Vec<_> = keys.map(line).collect();
    for server in servers {
        let mut client = server.client();
        lines.chunks(500).for_each(|some| drop(client.pipeline(some)));
    }
}

fn setup() -> Setup {
    Setup::new().module_arguments(&["max-ttl", "3600000", "handoff-window", "20"])
}

fn options() -> Options {
    Options::new().ttl(ms(60_000)).node_timeout(Duration::from_secs(10)).auto_extend(false)
}

/// Starts one task for each lock, which waits for it.
fn all_wait(client: &Client, keys: Range<usize>) -> JoinSet<Guard> {
    let mut waiting = JoinSet::new();
    for n in keys {
        let client = client.clone();
        waiting.spawn(async move { client.with(&options()).lock(format!("k{n}")).await.unwrap() });
    }
    waiting
}

/// Returns the number of open descriptors of this process, including those of its tests.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until `count` requests wait on each node.
async fn wait_on(servers: &[Server], count: usize) {
    let all_wait = || servers.iter().all(|server| server.info("waiters") == count as u64);
    until(&format!("{count} wait on each node"), async || all_wait()).await;
}

/// Waits until all tasks get their locks.
async fn are_served(mut waiting: JoinSet<Guard>) {
    while let Some(served) = waiting.join_next().await {
        drop(served.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_keys_wait_with_less_than_a_hundred_descriptors() {
    let _alone = ALONE.lock().await;
    const KEYS: usize = 10_000;
    let nodes = Nodes::start_with(5, setup);
    let client = nodes.client().await;
    hold(&nodes.0, 0..KEYS);
    let memory = nodes.0[0].client().info_field("used_memory");
    let start = Instant::now();
    let mut cancelled = all_wait(&client, 0..KEYS / 2);
    let waiting = all_wait(&client, KEYS / 2..KEYS);
    wait_on(&nodes.0, KEYS).await;
    let (open, took) = (descriptors(), start.elapsed());
    let each = (nodes.0[0].client().info_field("used_memory") - memory) / KEYS as u64;
    println!("{KEYS} wait: {open} descriptors, {each} bytes each on a node, after {took:?}");
    assert!(open < 100, "{open} descriptors");
    for server in &nodes.0 {
        // A wait that is renewed at this moment is not in the queue.
        until("the listener hears of all waits", async || server.info("waiters_heard") == KEYS as u64).await;
        let connections = server.client().info_field("connected_clients");
        assert!(connections <= 4, "{connections} connections");
    }
    // Half of the tasks are cancelled, and leave every queue.
    cancelled.shutdown().await;
    wait_on(&nodes.0, KEYS / 2).await;
    // All locks are released; the tasks that still wait are served.
    let start = Instant::now();
    release(&nodes.0, 0..KEYS);
    are_served(waiting).await;
    println!("{} served in {:?}, {} descriptors", KEYS / 2, start.elapsed(), descriptors());
    wait_on(&nodes.0, 0).await;
    assert!(descriptors() < 100, "{} descriptors", descriptors());
}

/// Requests that waited at a killed node are sent again when the node is back. The other nodes serve them meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_and_started_again() {
    let _alone = ALONE.lock().await;
    const KEYS: usize = 300;
    let mut nodes = Nodes::start_with(3, setup);
    let client = nodes.client().await;
    hold(&nodes.0, 0..KEYS);
    let (first, second) = (all_wait(&client, 0..100), all_wait(&client, 100..KEYS));
    wait_on(&nodes.0, KEYS).await;
    nodes.0[2].kill();
    release(&nodes.0[..2], 0..100);
    are_served(first).await;
    // The node no longer knows any lock, so each request has its turn there. A request gets its lock when the next of
    // the other nodes releases it.
    nodes.0[2].start_again();
    nodes.0[2].lift();
    until("they ask there", async || nodes.0[2].info("listeners") == 1).await;
    nodes.0[0].kill();
    release(&nodes.0[1..2], 100..KEYS);
    are_served(second).await;
    wait_on(&nodes.0[1..], 0).await;
}

/// If the network to a node is cut or half open, requests leave the queues of that node. They return to their places
/// once it works again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_fails() {
    let _alone = ALONE.lock().await;
    const KEYS: usize = 200;
    let nodes = Nodes::start_with(3, setup);
    let (proxies, client) = proxied(&nodes).await;
    hold(&nodes.0, 0..KEYS);
    let (first, second) = (all_wait(&client, 0..100), all_wait(&client, 100..KEYS));
    wait_on(&nodes.0, KEYS).await;
    proxies[0].cut();
    wait_on(&nodes.0[..1], 0).await;
    proxies[0].pass();
    wait_on(&nodes.0, KEYS).await;
    proxies[1].swallow();
    // The client notices the silence.
    wait_on(&nodes.0[1..2], 0).await;
    release(&nodes.0, 0..100);
    are_served(first).await;
    proxies[1].pass();
    wait_on(&nodes.0, KEYS - 100).await;
    release(&nodes.0, 100..KEYS);
    are_served(second).await;
    wait_on(&nodes.0, 0).await;
}

/// If listening connections are closed, the nodes remove their requests from the queues. The client sends these requests
/// again, and they get their places back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_killed_costs_nobody_its_place() {
    let _alone = ALONE.lock().await;
    let nodes = Nodes::start_with(3, || setup().module_arguments(&["max-ttl", "3600000", "handoff-window", "10000"]));
    let (one, other) = (nodes.client().await, nodes.client().await);
    hold(&nodes.0, 0..1);
    let mut first = all_wait(&one, 0..1);
    wait_on(&nodes.0, 1).await;
    let listeners = |server: &Server| {
        let list = server.client().say("CLIENT LIST").as_text();
        let of = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("id=").map(str::to_owned));
        list.lines().filter(|line| line.to_lowercase().contains("cmd=lock.hear")).filter_map(of).collect::<Vec<_>>()
    };
    let of_first: Vec<_> = nodes.0.iter().map(listeners).collect();
    assert!(of_first.iter().all(|ids| ids.len() == 1), "{of_first:?}");
    let mut second = all_wait(&other, 0..1);
    wait_on(&nodes.0, 2).await;
    for (server, ids) in nodes.0.iter().zip(&of_first) {
        server.client().say(&format!("CLIENT KILL ID {}", ids[0]));
    }
    until("they are gone", async || {
        nodes.0.iter().zip(&of_first).all(|(server, ids)| !listeners(server).contains(&ids[0]))
    })
    .await;
    wait_on(&nodes.0, 2).await;
    release(&nodes.0, 0..1);
    let guard = tokio::select! {
        guard = first.join_next() => guard.unwrap().unwrap(),
        _ = second.join_next() => panic!("the second was served first"),
    };
    guard.release().await;
    are_served(second).await;
}

/// While a node is suspended, the others serve the requests. Requests that callers cancel meanwhile leave that node's
/// queue once it resumes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_while_waits_are_given_up() {
    let _alone = ALONE.lock().await;
    const KEYS: usize = 100;
    let nodes = Nodes::start_with(3, setup);
    let client = nodes.client().await;
    hold(&nodes.0, 0..KEYS);
    let (mut gives_up, waiting) = (all_wait(&client, 0..50), all_wait(&client, 50..KEYS));
    wait_on(&nodes.0, KEYS).await;
    let frozen = Frozen::new(&nodes.0[0]);
    gives_up.shutdown().await;
    wait_on(&nodes.0[1..], 50).await;
    release(&nodes.0[1..], 50..KEYS);
    are_served(waiting).await;
    drop(frozen);
    wait_on(&nodes.0, 0).await;
}

/// If the user may not listen, each wait has a connection of its own, as with nodes that do not know LOCK.HEAR.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_not_listen_waits_as_before() {
    let _alone = ALONE.lock().await;
    let nodes = Nodes::start_with(5, setup);
    nodes.say("ACL SETUSER app on >secret ~* +@all -lock.hear");
    let holder = nodes.client().await;
    for (addresses, is_heard) in [(nodes.addresses(), true), (nodes.addresses_as_app("secret"), false)] {
        let client = Client::new(addresses).unwrap();
        connected(&client).await;
        let held = holder.with(&options()).lock("k").await.unwrap();
        let waits = locking(&client, &options(), "k");
        // The lock may not be held on the node that received the previous release last.
        let waiters = |field: &str| nodes.0.iter().filter(|server| server.info(field) == 1).count();
        until("it waits", async || waiters("waiters") >= 3).await;
        assert_eq!(waiters("waiters_heard") >= 3, is_heard);
        held.release().await;
        waits.await.unwrap().release().await;
    }
}

/// On a single node the first few requests wait for the lock itself, each on a connection; the others wait for their
/// turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_on_one_node_with_few_connections() {
    let _alone = ALONE.lock().await;
    const KEYS: usize = 500;
    let nodes = Nodes::start_with(1, setup);
    let client = nodes.client().await;
    hold(&nodes.0, 0..KEYS);
    let waiting = all_wait(&client, 0..KEYS);
    wait_on(&nodes.0, KEYS).await;
    let connections = nodes.0[0].client().info_field("connected_clients");
    assert!(connections < 60, "{connections} connections");
    release(&nodes.0, 0..KEYS);
    are_served(waiting).await;
    wait_on(&nodes.0, 0).await;
}
