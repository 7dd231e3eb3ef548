//! Readers together, a writer alone, in order of arrival.

use std::time::Instant;

use palisade_client::{ErrorKind, Options, Released};

use super::{gives_away, grants, has, modes, waited_on};
use crate::fixture::{Nodes, until};
use crate::harness::{Setup, patience};
use crate::proxy::proxied;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_read_together_and_a_writer_writes_alone() {
    for nodes in [1, 5].map(Nodes::start) {
        let count = nodes.0.len();
        // Otherwise the token may still rise after the writer has the lock.
        nodes.follow_their_clocks().await;
        let (locks, others) = (nodes.client().await, nodes.client().await);
        let (lock, other) = (locks.with(&Options::new().note("import")).rw_lock("k"), others.rw_lock("k"));
        let readers = (lock.read().await.unwrap(), other.read().await.unwrap(), other.try_read().await.unwrap());
        until("all have all", async || modes(&nodes) == vec![["shared"; 3]; count]).await;
        assert_eq!(lock.try_write().await.unwrap_err().kind(), ErrorKind::Contended);
        assert_eq!(others.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
        let writes = tokio::spawn(async move { lock.write().await.unwrap() });
        until("the writer waits", async || waited_on(&nodes, 1) == count).await;
        assert_eq!(other.try_read().await.unwrap_err().kind(), ErrorKind::Contended, "the writer is before it");
        let read = readers.0.token().max(readers.1.token()).max(readers.2.token());
        readers.0.release().await;
        readers.1.release().await;
        until("one reader is left", async || modes(&nodes) == vec![["shared"]; count]).await;
        assert!(!writes.is_finished());
        readers.2.release().await;
        let writing = writes.await.unwrap();
        assert!(writing.token() > read);
        let error = other.try_read().await.unwrap_err();
        assert_eq!((error.kind(), error.holder().unwrap().note.as_str()), (ErrorKind::Contended, "import"));
        let reads = tokio::spawn({
            let other = other.clone();
            async move { other.read().await.unwrap() }
        });
        // The reader waits on the nodes that have granted the lock to the writer. A node that received the readers'
        // releases last may have reserved the lock for the reader.
        until("a reader waits", async || waited_on(&nodes, 1) > count / 2).await;
        let (written, owner) = (writing.token(), writing.owner().to_vec());
        let reading = writing.downgrade().await.unwrap();
        let beside = reads.await.unwrap();
        assert_eq!((reading.token(), reading.owner()), (written, &owner[..]));
        assert!(reading.is_valid() && beside.token() > written);
        assert_eq!(other.try_write().await.unwrap_err().kind(), ErrorKind::Contended);
        reading.extend().await.unwrap();
        assert_eq!((reading.release().await, beside.release().await), (Released::Released, Released::Released));
        assert!(other.write().await.unwrap().token() > written);
        until("nothing is left", async || nodes.holding("k") == 0).await;
    }
}

/// Readers of several clients share the lock after one round trip each, whatever tokens the nodes gave to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_need_one_round() {
    let nodes = Nodes::start(5);
    nodes.follow_their_clocks().await;
    let (locks, others) = (nodes.client().await, nodes.client().await);
    // Another reader's token is ahead, by a different amount on each node: a reader's token does not have to exceed it.
    for (n, server) in nodes.0.iter().enumerate() {
        let mut client = server.client();
        let ahead = client.say("LOCK.NODE").field("clock_us").as_int() + 1_500_000 + n as i64;
        assert_eq!(client.say(&format!("LOCK.ACQUIRE k somebody 60000 SHARED FENCE {ahead}")).as_int(), ahead);
    }
    nodes.say("CONFIG RESETSTAT");
    let mut readers = vec![];
    for n in 0..20 {
        readers.push(if n % 2 == 0 { &locks } else { &others }.rw_lock("k").try_read().await.unwrap());
    }
    until("every node has heard of all", async || nodes.calls("lock.acquire") == [20; 5]).await;
    for command in ["lock.fence", "lock.info", "lock.wait", "lock.release"] {
        assert_eq!(nodes.calls(command), [0; 5], "{command}");
    }
    assert!(readers.is_sorted_by(|one, other| one.token() < other.token()));
    assert_eq!(modes(&nodes), vec![["shared"; 21]; 5]);
}

/// A later reader does not get ahead of a waiting writer, and readers that waited get in together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_passes_the_other() {
    // A client that does not run when its turn comes would be passed over after 20 ms.
    let patient = || Setup::new().module_arguments(&["handoff-window", "10000"]);
    for count in [1, 3] {
        let nodes = Nodes::start_with(count, patient);
        // For the nodes, each client is a process of its own.
        let mut locks = vec![];
        for _ in 0..4 {
            locks.push(nodes.client().await.rw_lock("k"));
        }
        let [first, second, third, fourth] = <[_; 4]>::try_from(locks).unwrap();
        let reading = first.read().await.unwrap();
        let writes = tokio::spawn(async move { second.write().await.unwrap() });
        until("the writer waits", async || waited_on(&nodes, 1) == count).await;
        let reads = tokio::spawn(async move { third.read().await.unwrap() });
        let also = tokio::spawn(async move { fourth.read().await.unwrap() });
        until("all wait", async || waited_on(&nodes, 3) == count).await;
        let read = reading.token();
        reading.release().await;
        let writing = writes.await.unwrap();
        assert!(!reads.is_finished() && !also.is_finished() && writing.token() > read);
        let written = writing.token();
        writing.release().await;
        // Neither reader is released before both have the lock.
        let both = (reads.await.unwrap(), also.await.unwrap());
        assert!(both.0.is_valid() && both.1.is_valid());
        assert!(both.0.token() > written && both.1.token() > written);
    }
}

/// In one process, requests for one key first queue behind each other. Readers hold the lock together all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_process_read_together() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let lock = nodes.client().await.rw_lock("k");
        let writing = lock.write().await.unwrap();
        let read = |_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await.unwrap() })
        };
        let reads: Vec<_> = (0..5).map(read).collect();
        until("one of them waits", async || waited_on(&nodes, 1) == count).await;
        writing.release().await;
        let mut guards = vec![];
        for read in reads {
            guards.push(read.await.unwrap());
        }
        assert!(guards.iter().all(|guard| guard.is_valid()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_down_is_in_nobodys_way() {
    let nodes = Nodes::start(3);
    let (proxies, locks) = proxied(&nodes).await;
    proxies[1].cut();
    let lock = locks.rw_lock("k");
    let readers = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
    until("the writer waits", async || waited_on(&nodes, 1) == 2).await;
    let read = readers.0.token().max(readers.1.token());
    readers.0.release().await;
    readers.1.release().await;
    let writing = waits.await.unwrap();
    assert!(writing.token() > read);
    proxies[2].cut();
    // Until the client knows that its connection is broken, the remaining node may be the first to answer, and report
    // the writer.
    let start = Instant::now();
    while lock.try_read().await.unwrap_err().kind() != ErrorKind::NoQuorum {
        assert!(start.elapsed() < patience(), "a majority is down");
    }
}

/// A node that lost the grant of a reader, or of a writer that became one, grants it again in shared mode. So it is
/// granted beside another reader, where a writer would not get in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_healed_as_a_reader() {
    let nodes = Nodes::start(3);
    let lock = nodes.client().await.rw_lock("k");
    let writing = lock.write().await.unwrap();
    until("all have it", async || nodes.holding("k") == 3).await;
    let (was_writer, reader) = (writing.downgrade().await.unwrap(), lock.read().await.unwrap());
    until("all have both", async || modes(&nodes) == vec![["shared"; 2]; 3]).await;
    for reading in [&was_writer, &reader] {
        gives_away(&nodes.0[0], "SHARED");
        super::extend(reading).await;
        until("it has the reader again", async || has(&nodes.0[0], reading)).await;
        assert!(grants(&nodes.0[0]).iter().all(|grant| grant.field("mode").as_text() == "shared"));
    }
}
