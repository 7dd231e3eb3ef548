//! Readers together, a writer alone, and in the order in which they came.

use std::time::{Duration, Instant};

use palisade_client::{ErrorKind, Options};
use palisade_quorum::{Mode, Wanted};

use crate::{Nodes, extend, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_beside_readers_takes_one_round_trip() {
    let nodes = Nodes::start(5).await;
    let locks = nodes.client().await;
    // Readers whose tokens are far ahead, on each node another: nothing that a reader has to be above.
    for (n, node) in nodes.0.iter().enumerate() {
        node.grants_to("somebody", "k", Wanted::Shared, (1 << 52) + n as u64);
    }
    let one = locks.rw_lock("k").read().await.unwrap();
    let two = locks.rw_lock("k").try_read().await.unwrap();
    assert!(one.is_valid() && two.is_valid() && one.token() < two.token() && two.token() < 1 << 52);
    until("every node has heard of both", || nodes.asked("LOCK.ACQUIRE") == [2; 5]).await;
    for command in ["LOCK.FENCE", "LOCK.INFO", "LOCK.WAIT", "LOCK.RELEASE"] {
        assert_eq!(nodes.asked(command), [0; 5], "{command}");
    }
    for node in &nodes.0 {
        assert!(node.grants("k").iter().all(|grant| grant.mode == Mode::Shared));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_and_readers_keep_each_other_out() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let locks = nodes.client().await;
        let lock = locks.with(&Options::new().note("import")).rw_lock("k");
        let reading = lock.read().await.unwrap();
        assert_eq!(lock.try_write().await.unwrap_err().kind(), ErrorKind::Contended);
        assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
        let read = reading.token();
        reading.release().await;
        until("it is free", || nodes.holding("k") == 0).await;
        let writing = lock.try_write().await.unwrap();
        let error = lock.try_read().await.unwrap_err();
        assert_eq!((error.kind(), error.holder().unwrap().note.as_str()), (ErrorKind::Contended, "import"));
        let written = writing.token();
        assert!(written > read);
        writing.release().await;
        assert!(lock.read().await.unwrap().token() > written);
    }
}

/// A later reader does not pass a writer that waits, and readers that waited get in together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_passes_the_other() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        // Each a process of its own, as far as the nodes can tell.
        let mut locks = vec![];
        for _ in 0..4 {
            locks.push(nodes.client().await.rw_lock("k"));
        }
        let [first, second, third, fourth] = <[_; 4]>::try_from(locks).unwrap();
        let reading = first.read().await.unwrap();
        let writes = tokio::spawn(async move { second.write().await.unwrap() });
        until("the writer waits", || nodes.0.iter().all(|node| node.waiters("k") == 1)).await;
        let error = third.try_read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended, "a writer is before it");
        let reads = tokio::spawn(async move { third.read().await.unwrap() });
        let also = tokio::spawn(async move { fourth.read().await.unwrap() });
        until("all wait", || nodes.0.iter().all(|node| node.waiters("k") == 3)).await;
        let read = reading.token();
        reading.release().await;
        let writing = writes.await.unwrap();
        assert!(!reads.is_finished() && !also.is_finished() && writing.token() > read);
        let written = writing.token();
        writing.release().await;
        // Neither is released before both have it.
        let both = (reads.await.unwrap(), also.await.unwrap());
        assert!(both.0.is_valid() && both.1.is_valid());
        assert!(both.0.token() > written && both.1.token() > written);
    }
}

/// In one process those who want one key wait for each other first. Readers hold it together all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_process_read_together() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let locks = nodes.client().await;
        let writing = locks.rw_lock("k").write().await.unwrap();
        let reads: Vec<_> = (0..5)
            .map(|_| {
                let lock = locks.rw_lock("k");
                tokio::spawn(async move { lock.read().await.unwrap() })
            })
            .collect();
        until("one of them waits", || nodes.waited_on("k") == count).await;
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
    let nodes = Nodes::start(3).await;
    let locks = nodes.client().await;
    nodes.0[1].goes_down();
    let lock = locks.rw_lock("k");
    let readers = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
    until("the writer waits", || nodes.waited_on("k") == 2).await;
    let read = readers.0.token().max(readers.1.token());
    readers.0.release().await;
    readers.1.release().await;
    let writing = waits.await.unwrap();
    assert!(writing.token() > read);
    nodes.0[2].goes_down();
    // As long as its connection is not known to be broken, the one that is left may be the first to answer, that a writer holds it.
    let start = Instant::now();
    while lock.try_read().await.unwrap_err().kind() != ErrorKind::NoQuorum {
        assert!(start.elapsed() < Duration::from_secs(60), "a majority is down");
    }
}

/// A node that lost a reader's grant gives it back to the reader, as a reader's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_healed_as_a_reader() {
    let nodes = Nodes::start(3).await;
    let lock = nodes.client().await.rw_lock("k");
    let (reading, _other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    until("all have both", || nodes.0.iter().all(|node| node.grants("k").len() == 2)).await;
    nodes.0[0].forgets("k");
    // Beside whom a writer would not get in.
    nodes.0[0].grants_to("somebody", "k", Wanted::Shared, 1);
    extend(&reading).await;
    let healed = || nodes.0[0].grants("k").iter().any(|grant| grant.owner == reading.owner());
    until("it has the reader again", healed).await;
    assert!(nodes.0[0].grants("k").iter().all(|grant| grant.mode == Mode::Shared));
}

/// As docs/modes.md has it: a hold for each piece of work, and one who waits until all are given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_of_readers_and_a_writer_who_waits() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let locks = nodes.client().await;
        let latch = locks.rw_lock("k");
        let mut holds = vec![];
        for _ in 0..3 {
            holds.push(latch.read().await.unwrap());
        }
        let last = holds.pop().unwrap();
        let opens = tokio::spawn(async move { latch.write().await.unwrap().token() });
        until("it waits", || nodes.0.iter().all(|node| node.waiters("k") == 1)).await;
        let pieces: Vec<_> = holds.into_iter().map(|hold| tokio::spawn(hold.release())).collect();
        for piece in pieces {
            piece.await.unwrap();
        }
        until("one piece is left", || nodes.0.iter().all(|node| node.grants("k").len() == 1)).await;
        assert!(!opens.is_finished());
        let counted = last.token();
        last.release().await;
        assert!(opens.await.unwrap() > counted);
    }
}
