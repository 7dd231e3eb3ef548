//! Several locks that are kept together: acquired all or none, extended together, and ended by the loss of one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use palisade_client::{ErrorKind, Loss, Options, Released, SessionEnd};
use rand::seq::IndexedRandom;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixture::{Nodes, Register, ms, until};
use crate::harness::patience;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_had_or_none() {
    let nodes = Nodes::start(3);
    let (locks, others) = (nodes.client().await, nodes.client().await);
    let held = others.lock("b").await.unwrap();
    let error = locks.with(&Options::new().wait(ms(300))).lock_all(["c", "b", "a", "a"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().starts_with("b: the lock was not free"), "{error}");
    for key in ["a", "c"] {
        until("what was taken before it is given back", async || nodes.holding(key) == 0).await;
    }
    held.release().await;
    let session = locks.lock_all(["c", "b", "a", "a"]).await.unwrap();
    assert_eq!(session.keys(), [b"a", b"b", b"c"]);
    assert!(!session.valid_for().is_zero() && session.get("d").is_none());
    assert_eq!(session.lock("b").await.unwrap_err().kind(), ErrorKind::Owned);
    for key in ["a", "b", "c"] {
        assert_eq!(others.try_lock(key).await.unwrap_err().kind(), ErrorKind::Contended, "{key}");
    }
    assert_eq!(session.release("b").await, Some(Released::Released));
    assert_eq!(session.release("b").await, None);
    others.lock("b").await.unwrap().release().await;
    let released = session.close().await;
    assert_eq!(released, [(b"a".to_vec(), Released::Released), (b"c".to_vec(), Released::Released)].into());
    assert_eq!((session.done().await, session.valid_for()), (SessionEnd::Closed, ms(0)));
    assert_eq!(session.lock("d").await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.lock_all::<&str>([]).await.unwrap_err().kind(), ErrorKind::BadArgument);
}

/// Regression: a task waited for a lock in a session that was over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_does_not_wait_in_a_session_that_is_over() {
    let nodes = Nodes::start(3);
    let (locks, others) = (nodes.client().await, nodes.client().await);
    let _held = others.lock("k").await.unwrap();
    let session = Arc::new(locks.session());
    let waiting = Arc::clone(&session);
    let waiting = tokio::spawn(async move { waiting.lock("k").await.map(|lock| lock.token()) });
    nodes.queued(1).await;
    session.close().await;
    let error = timeout(patience(), waiting).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    nodes.queued(0).await;
}

/// Two tasks of one session ask for one key, and the second one is refused. It used to wait forever, for its own
/// session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_that_ask_for_one_key() {
    let nodes = Nodes::start(3);
    let (locks, others) = (nodes.client().await, nodes.client().await);
    let held = others.lock("k").await.unwrap();
    let session = Arc::new(locks.session());
    let first = Arc::clone(&session);
    let first = tokio::spawn(async move { first.lock("k").await.map(|lock| lock.token()) });
    nodes.queued(1).await;
    for error in [session.lock("k").await.unwrap_err(), session.try_lock("k").await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Owned, "{error}");
    }
    held.release().await;
    assert!(first.await.unwrap().unwrap() > 0);
    // A later request gets the same answer.
    assert_eq!(session.lock("k").await.unwrap_err().kind(), ErrorKind::Owned);
    assert_eq!(session.release("k").await, Some(Released::Released));
    // A cancelled request no longer counts.
    let _held = others.lock("k").await.unwrap();
    assert!(tokio::time::timeout(ms(50), session.lock("k")).await.is_err());
    assert_eq!(session.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
}

/// A cancelled `lock_all` leaves nothing locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn given_up_it_holds_nothing() {
    let nodes = Nodes::start(3);
    let (locks, others) = (nodes.client().await, nodes.client().await);
    let held = others.lock("b").await.unwrap();
    let waits = tokio::spawn(async move { locks.lock_all(["a", "b"]).await });
    until("the first is held", async || nodes.holding("a") == 3).await;
    waits.abort();
    until("the first is given back", async || nodes.holding("a") == 0).await;
    held.release().await;
}

/// Twenty tasks of three clients acquire pairs and triples of six keys, named in any order. Nobody deadlocks, no key is
/// held twice, and tokens rise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_in_a_circle() {
    let nodes = Nodes::start(3);
    let mut clients = vec![];
    for _ in 0..3 {
        clients.push(nodes.client().await);
    }
    let registers = Arc::new(Mutex::new(HashMap::<&str, (bool, Register)>::new()));
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let (locks, registers) = (clients[n % 3].clone(), Arc::clone(&registers));
        tasks.spawn(async move {
            for turn in 0..5 {
                let keys: Vec<_> =
                    ["a", "b", "c", "d", "e", "f"].sample(&mut rand::rng(), 2 + turn % 2).copied().collect();
                let session = locks.lock_all(&keys).await.unwrap();
                for key in &keys {
                    let token = session.get(key).unwrap().token();
                    let mut registers = registers.lock().unwrap();
                    let (is_held, register) = registers.entry(key).or_default();
                    assert!(!std::mem::replace(is_held, true) && register.write(token), "{key} is held twice");
                }
                tokio::task::yield_now().await;
                for key in &keys {
                    registers.lock().unwrap().get_mut(key).unwrap().0 = false;
                }
                session.close().await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_that_is_lost_ends_it() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let options = Options::new().ttl(ms(3_000));
    let session = locks.with(&options).session();
    let (a, b) = (session.lock("a").await.unwrap(), session.read("b").await.unwrap());
    locks.rw_lock("b").read().await.unwrap().release().await;
    // The holder notices the break at its next extension at the latest.
    nodes.say("LOCK.BREAK a");
    let SessionEnd::Lost { key, loss } = session.done().await else { panic!("it was not closed") };
    assert_eq!(key, b"a");
    assert!(matches!(loss, Loss::TakenAway(_)), "{loss}");
    assert!(session.is_done() && a.is_lost() && session.valid_for().is_zero());
    let error = session.try_lock("c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().starts_with("the session lost a: somebody took it away"), "{error}");
    // The other lock is still valid, but is not extended any longer.
    assert!(b.is_valid());
    b.lost().await;
    let released = session.close().await;
    assert_eq!(released.values().collect::<Vec<_>>(), [&Released::AlreadyExpired, &Released::AlreadyExpired]);
}

/// A dropped session releases all of its locks, also while another part of the program has one of its guards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_it_gives_everything_back() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let session = locks.lock_all(["a", "b"]).await.unwrap();
    let part = session.get("a").unwrap();
    drop(session);
    for key in ["a", "b"] {
        until("it is given back", async || nodes.holding(key) == 0).await;
    }
    assert!(part.is_lost() && part.lost().await == Loss::Released);
}

#[test]
fn sessions_run_without_async() {
    let nodes = Nodes::start(3);
    let locks = palisade_client::blocking::Client::new(nodes.addresses()).unwrap();
    locks.connect().unwrap();
    let session = locks.lock_all(["a", "b"]).unwrap();
    let c = session.lock("c").unwrap();
    assert!(c.is_valid() && c.token() > 0 && session.valid_for() <= c.valid_for());
    assert_eq!(session.keys(), [b"a", b"b", b"c"]);
    assert_eq!(session.release("c"), Some(Released::Released));
    assert_eq!(session.try_lock("a").unwrap_err().kind(), ErrorKind::Owned);
    assert!(session.get("b").is_some_and(|lock| lock.is_valid()) && !session.is_done());
    assert_eq!(session.close().len(), 2);
    assert_eq!(session.done(), SessionEnd::Closed);
}

/// Locks that were acquired one after the other are extended together: a round of fifty takes a few reads of each node,
/// not fifty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_gets_a_round_in_one_write() {
    const LOCKS: u64 = 50;
    const ROUNDS: u64 = 4;
    let (nodes, locks) = Nodes::with_client(3).await;
    // Short leases are not checked between rounds.
    let session = locks.with(&Options::new().ttl(ms(2_900))).session();
    for n in 0..LOCKS {
        session.lock(format!("k-{n}")).await.unwrap();
    }
    // Counts for each node: its reads, and its extensions.
    let mut connections: Vec<_> = nodes.0.iter().map(|server| server.client()).collect();
    let mut figures = || -> Vec<[u64; 2]> {
        let of = |text: &str, name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
        };
        let info = connections.iter_mut().map(|connection| connection.say("INFO everything").as_text().to_owned());
        info.map(|text| [of(&text, "total_reads_processed:"), of(&text, "lock_extensions:")]).collect()
    };
    let before = figures();
    // The questions of this test cost one read each.
    let mut questions = 0;
    let start = Instant::now();
    let now = loop {
        tokio::time::sleep(ms(100)).await;
        let now = figures();
        questions += 1;
        if now.iter().zip(&before).all(|(now, before)| now[1] - before[1] >= ROUNDS * LOCKS) {
            break now;
        }
        assert!(start.elapsed() < patience(), "they are extended");
    };
    assert!(!session.is_done(), "{}", session.done().await);
    for (node, (now, before)) in now.iter().zip(&before).enumerate() {
        let (reads, extended) = (now[0] - before[0] - questions, now[1] - before[1]);
        println!("node {node}: {extended} extensions in {reads} reads");
        assert!(reads <= extended / 10, "node {node}: {extended} extensions in {reads} reads");
    }
    session.close().await;
}
