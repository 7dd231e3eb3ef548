//! Readers, writers that become readers, and permits, on real servers.

use std::collections::BTreeSet;
use std::time::Instant;

use palisade_client::{Client, ErrorKind, Options, Permit, Released};

use crate::fixture::{Nodes, Register, ms, until};
use crate::harness::{Frozen, Setup, int, null};

/// The modes of the grants of `k` on each node.
fn modes(nodes: &Nodes) -> Vec<Vec<String>> {
    let of = |info: &crate::harness::Reply| match info {
        info if *info == null() => vec![],
        info => info.field("grants").as_list().iter().map(|grant| grant.field("mode").as_text()).collect(),
    };
    nodes.say("LOCK.INFO k HOLDERS 100").iter().map(of).collect()
}

fn numbers(permits: &[Permit]) -> Vec<u16> {
    permits.iter().map(Permit::number).collect::<BTreeSet<_>>().into_iter().collect()
}

/// How often each node was asked these commands since the statistics were reset.
fn calls(nodes: &Nodes, command: &str) -> Vec<u64> {
    let name = format!("cmdstat_{command}:calls=");
    let of = |stats: &crate::harness::Reply| {
        let text = stats.as_text().to_lowercase();
        let line = text.lines().find_map(|line| line.strip_prefix(&name)?.split(',').next()?.parse().ok());
        line.unwrap_or(0)
    };
    nodes.say("INFO commandstats").iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_read_together_and_a_writer_writes_alone() {
    for count in [1, 5] {
        let nodes = Nodes::start(count);
        let (locks, others) = (nodes.client().await, nodes.client().await);
        let (lock, other) = (locks.rw_lock("k"), others.rw_lock("k"));
        let readers = (lock.read().await.unwrap(), other.read().await.unwrap(), other.try_read().await.unwrap());
        until("all have all", async || modes(&nodes) == vec![["shared"; 3]; count]).await;
        assert_eq!(lock.try_write().await.unwrap_err().kind(), ErrorKind::Contended);
        let writes = tokio::spawn(async move { lock.write().await.unwrap() });
        until("the writer waits", async || nodes.0.iter().all(|server| server.info("waiters") == 1)).await;
        assert_eq!(other.try_read().await.unwrap_err().kind(), ErrorKind::Contended, "the writer is before it");
        let read = readers.0.token().max(readers.1.token()).max(readers.2.token());
        readers.0.release().await;
        readers.1.release().await;
        readers.2.release().await;
        let writing = writes.await.unwrap();
        assert!(writing.token() > read);
        let reads = tokio::spawn(async move { other.read().await.unwrap() });
        // On the nodes that the writer has; one that heard last of the readers' releases may keep the lock for the reader.
        let queued = || nodes.0.iter().filter(|server| server.info("waiters") == 1).count();
        until("a reader waits", async || queued() > count / 2).await;
        let written = writing.token();
        let reading = writing.downgrade().await.unwrap();
        let beside = reads.await.unwrap();
        assert_eq!(reading.token(), written);
        assert!(reading.is_valid() && beside.token() > written);
        reading.extend().await.unwrap();
        assert_eq!((reading.release().await, beside.release().await), (Released::Released, Released::Released));
        until("nothing is left", async || nodes.holding("k") == 0).await;
    }
}

/// Readers of several clients beside one another: one round trip each, whatever tokens the nodes gave to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_need_one_round() {
    let nodes = Nodes::start(5);
    nodes.follow_their_clocks().await;
    let (locks, others) = (nodes.client().await, nodes.client().await);
    let first = locks.rw_lock("k").read().await.unwrap();
    until("all have it", async || modes(&nodes) == vec![["shared"]; 5]).await;
    nodes.say("CONFIG RESETSTAT");
    let mut readers = vec![];
    for n in 0..20 {
        readers.push(if n % 2 == 0 { &locks } else { &others }.rw_lock("k").try_read().await.unwrap());
    }
    until("all have all", async || modes(&nodes) == vec![["shared"; 21]; 5]).await;
    assert_eq!((calls(&nodes, "lock.acquire"), calls(&nodes, "lock.fence")), (vec![20; 5], vec![0; 5]));
    assert!(first.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_permits_and_no_more() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let locks = nodes.client().await;
        let uploads = locks.with(&Options::new().note("upload")).semaphore("k", 3);
        let mut permits = vec![uploads.try_acquire().await.unwrap(), uploads.acquire().await.unwrap()];
        permits.push(uploads.try_acquire().await.unwrap());
        assert_eq!(numbers(&permits), [1, 2, 3]);
        let error = uploads.try_acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.holder().unwrap().note.as_str()), (ErrorKind::Contended, "upload"));
        for less in [1, 2] {
            assert_eq!(locks.semaphore("k", less).try_acquire().await.unwrap_err().kind(), ErrorKind::Contended);
        }
        // The one whose turn it is gets the number that is free.
        let waits = tokio::spawn({
            let uploads = uploads.clone();
            async move { uploads.acquire().await.unwrap() }
        });
        until("it waits", async || nodes.0.iter().all(|server| server.info("waiters") == 1)).await;
        let gone = permits.remove(1);
        let (number, token) = (gone.number(), gone.token());
        assert_eq!(gone.release().await, Released::Released);
        let next = waits.await.unwrap();
        assert_eq!(next.number(), number);
        assert!(next.token() > token);
        permits.push(next);
        for permit in &permits {
            permit.extend().await.unwrap();
        }
        drop(permits);
        until("nothing is left", async || nodes.holding("k") == 0).await;
    }
}

/// As many clients as permits, at once, again and again; how many rounds that takes is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_for_as_many_permits_as_there_are() {
    const TIMES: u64 = 10;
    let nodes = Nodes::start(5);
    let mut clients = vec![];
    for _ in 0..8 {
        clients.push(nodes.client().await);
    }
    nodes.say("CONFIG RESETSTAT");
    let start = Instant::now();
    for _ in 0..TIMES {
        let acquire = |locks: &Client| {
            let uploads = locks.with(&Options::new().node_timeout(ms(10_000))).semaphore("k", 8);
            tokio::spawn(async move { uploads.acquire().await.unwrap() })
        };
        let mut permits = vec![];
        for acquires in clients.iter().map(acquire).collect::<Vec<_>>() {
            permits.push(acquires.await.unwrap());
        }
        assert_eq!(numbers(&permits), [1, 2, 3, 4, 5, 6, 7, 8]);
        drop(permits);
        until("nothing is left", async || nodes.holding("k") == 0).await;
    }
    let mean = |command| calls(&nodes, command)[0] as f64 / (8 * TIMES) as f64;
    let [acquires, looks, waits] = ["lock.acquire", "lock.info", "lock.wait"].map(mean);
    println!(
        "{TIMES} bursts in {:?}: {acquires:.2} ACQUIRE, {looks:.2} INFO, {waits:.2} WAIT a permit",
        start.elapsed()
    );
}

/// Every node restarts without its data, one at a time: the permits outlive that, each with its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_and_readers_outlive_the_restart_of_every_node() {
    let setup = || Setup::new().module_arguments(&["max-ttl", "2000", "max-clock-skew", "0"]);
    let mut nodes = Nodes::start_with(3, setup);
    let locks = nodes.client().await;
    let options = Options::new().ttl(ms(2_000)).node_timeout(ms(1_000));
    let uploads = locks.with(&options).semaphore("k", 2);
    let permits = [uploads.acquire().await.unwrap(), uploads.acquire().await.unwrap()];
    let numbers = permits.each_ref().map(Permit::number);
    let writing = locks.with(&options).rw_lock("t").write().await.unwrap();
    let reading = writing.downgrade().await.unwrap();
    let count = |server: &crate::harness::Server, key: &str| match server.client().say(&format!("LOCK.INFO {key}")) {
        info if info == null() => int(0),
        info => info.field("holders"),
    };
    for n in 0..3 {
        nodes.0[n].kill();
        nodes.0[n].start_again();
        let healed = async || count(&nodes.0[n], "k") == int(2) && count(&nodes.0[n], "t") == int(1);
        until("it has them again", healed).await;
    }
    assert!(permits.iter().all(|permit| permit.is_valid()) && reading.is_valid());
    assert_eq!(permits.each_ref().map(Permit::number), numbers);
    for info in nodes.say("LOCK.INFO k HOLDERS 9") {
        let held: BTreeSet<_> =
            info.field("grants").as_list().iter().map(|grant| grant.field("permit").as_int()).collect();
        assert_eq!(held, BTreeSet::from([1, 2]));
    }
    for info in nodes.say("LOCK.INFO t") {
        assert_eq!(info.field("mode").as_text(), "shared");
    }
}

/// A reader that was paused past its lease, and what the resource knows by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_was_paused_is_refused_by_its_token() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let mut written = Register::default();
    let short = Options::new().ttl(ms(500)).auto_extend(false).node_timeout(ms(250));
    let paused = locks.with(&short).rw_lock("k").read().await.unwrap();
    let (token, looked) = (paused.token(), paused.is_valid());
    assert!(looked && written.write(token));
    let writing = locks.rw_lock("k").write().await.unwrap();
    assert!(written.write(writing.token()));
    assert!(!written.write(token), "it looked, was paused, and reads");
}

/// Nodes that hang are in nobody's way, and nobody is let in beside a holder that they have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_hangs() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let uploads = locks.semaphore("k", 2);
    let first = uploads.acquire().await.unwrap();
    let frozen = Frozen::new(&nodes.0[0]);
    let second = uploads.acquire().await.unwrap();
    assert_ne!(first.number(), second.number());
    assert_eq!(uploads.try_acquire().await.unwrap_err().kind(), ErrorKind::Contended);
    drop(frozen);
    first.release().await;
    assert!(uploads.acquire().await.is_ok());
}
