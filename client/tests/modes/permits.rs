//! Permits: so many and no more, each with a number of its own.

use std::collections::BTreeSet;

use palisade_client::{Client, ErrorKind, Options, Permit};
use palisade_quorum::{Mode, Wanted};

use crate::node::Node;
use crate::{Nodes, extend, until};

fn numbers(permits: &[Permit]) -> Vec<u16> {
    permits.iter().map(Permit::number).collect::<BTreeSet<_>>().into_iter().collect()
}

fn of(limit: u16, number: u16) -> Wanted {
    Wanted::Permit { limit, number: Some(number) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_and_no_more() {
    for count in [1, 3, 5] {
        let nodes = Nodes::start(count).await;
        let locks = nodes.client().await;
        let uploads = locks.with(&Options::new().note("upload")).semaphore("k", 4);
        let mut permits = vec![];
        for _ in 0..2 {
            permits.push(uploads.try_acquire().await.unwrap());
            permits.push(uploads.acquire().await.unwrap());
        }
        assert_eq!(numbers(&permits), [1, 2, 3, 4]);
        let error = uploads.try_acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.holder().unwrap().note.as_str()), (ErrorKind::Contended, "upload"));
        assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
        let gone = permits.swap_remove(1);
        let (number, token) = (gone.number(), gone.token());
        gone.release().await;
        let next = uploads.acquire().await.unwrap();
        assert_eq!(next.number(), number);
        assert!(next.is_valid() && next.token() > token, "larger than every earlier one of its number");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_semaphore_takes_one_round_trip() {
    for count in [1, 5] {
        let nodes = Nodes::start(count).await;
        let permit = nodes.client().await.semaphore("k", 8).acquire().await.unwrap();
        until("all have it", || nodes.holding("k") == count).await;
        assert_eq!(nodes.asked("LOCK.ACQUIRE"), vec![1; count]);
        for command in ["LOCK.FENCE", "LOCK.INFO", "LOCK.WAIT"] {
            assert_eq!(nodes.asked(command), vec![0; count], "{command}");
        }
        for node in &nodes.0 {
            assert_eq!(node.grants("k")[0].mode.number(), permit.number());
        }
    }
}

/// As many clients as permits, at once: each has one, and nobody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_for_as_many_as_there_are() {
    let nodes = Nodes::start(5).await;
    let mut clients = vec![];
    for _ in 0..8 {
        clients.push(nodes.client().await);
    }
    nodes.0.iter().for_each(Node::hear_no_more);
    let acquire = |locks: &Client| {
        let uploads = locks.semaphore("k", 8);
        tokio::spawn(async move { uploads.acquire().await.unwrap() })
    };
    let mut permits = vec![];
    for acquires in clients.iter().map(acquire).collect::<Vec<_>>() {
        permits.push(acquires.await.unwrap());
    }
    assert_eq!(numbers(&permits), [1, 2, 3, 4, 5, 6, 7, 8]);
    let rounds = nodes.asked("LOCK.ACQUIRE");
    println!(
        "{rounds:?} rounds of eight clients, {:?} looks, {:?} waits",
        nodes.asked("LOCK.INFO"),
        nodes.asked("LOCK.WAIT")
    );
}

/// More clients than permits, which come again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_limit_at_a_time() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let held = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeMap::<u16, u64>::new()));
        let mut tasks = vec![];
        for _ in 0..6 {
            let uploads = nodes.client().await.semaphore("k", 2);
            let held = std::sync::Arc::clone(&held);
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let permit = uploads.acquire().await.unwrap();
                    assert!(
                        held.lock().unwrap().insert(permit.number(), permit.token()).is_none(),
                        "two have one number"
                    );
                    tokio::task::yield_now().await;
                    assert!((1..=2).contains(&permit.number()) && permit.is_valid());
                    held.lock().unwrap().remove(&permit.number());
                    permit.release().await;
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_healed_with_the_same_number() {
    for count in [1, 3] {
        let nodes = Nodes::start(count).await;
        let uploads = nodes.client().await.semaphore("k", 5);
        let mut permits = vec![];
        for _ in 0..3 {
            permits.push(uploads.acquire().await.unwrap());
        }
        until("all have all", || nodes.0.iter().all(|node| node.grants("k").len() == 3)).await;
        let last = permits.pop().unwrap();
        if count == 1 {
            // The only node knows the number that it chose, and the client names it from then on.
            extend(&last).await;
            continue;
        }
        nodes.0[0].forgets("k");
        extend(&last).await;
        until("it is healed", || !nodes.0[0].grants("k").is_empty()).await;
        assert_eq!(nodes.0[0].grants("k")[0].mode.number(), last.number());
        // Where somebody else has the number by now, there is none for this one.
        nodes.0[0].forgets("k");
        nodes.0[0].grants_to("somebody", "k", of(5, last.number()), 1);
        let asked = nodes.0[0].asked("LOCK.ACQUIRE");
        extend(&last).await;
        until("it was asked", || nodes.0[0].asked("LOCK.ACQUIRE") > asked).await;
        assert!(nodes.0[0].grants("k").iter().all(|grant| grant.owner != last.owner()));
        assert!(last.is_valid());
    }
}

/// Whoever says less is honoured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_differ() {
    let nodes = Nodes::start(3).await;
    let locks = nodes.client().await;
    let five = locks.semaphore("k", 5);
    let mut permits = vec![];
    for _ in 0..5 {
        permits.push(five.acquire().await.unwrap());
    }
    for less in [1, 2, 4] {
        assert_eq!(locks.semaphore("k", less).try_acquire().await.unwrap_err().kind(), ErrorKind::Contended, "{less}");
    }
    // Two are held that both limits allow: none is left of two, and all above two have to go first.
    while let Some(n) = permits.iter().position(|permit| permit.number() > 1) {
        assert_eq!(locks.semaphore("k", 2).try_acquire().await.unwrap_err().kind(), ErrorKind::Contended);
        permits.swap_remove(n).release().await;
        until("it is given back", || nodes.0.iter().all(|node| node.grants("k").len() == permits.len())).await;
    }
    let two = locks.semaphore("k", 2).try_acquire().await.unwrap();
    assert_eq!(two.number(), 2);
    assert_eq!(five.try_acquire().await.unwrap_err().kind(), ErrorKind::Contended, "the smaller limit counts");
    two.release().await;
    assert!(five.try_acquire().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_one_is_the_lock() {
    let nodes = Nodes::start(3).await;
    let locks = nodes.client().await;
    let only = locks.semaphore("k", 1).acquire().await.unwrap();
    assert_eq!(only.number(), 1);
    until("all have it", || nodes.holding("k") == 3).await;
    assert_eq!(nodes.0[0].grants("k")[0].mode, Mode::Exclusive);
    assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(locks.semaphore("k", 0).try_acquire().await.unwrap_err().kind(), ErrorKind::BadArgument);
}

/// The nodes keep different numbers for the one whose turn it is: it ends with one that a majority has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_with_numbers() {
    let nodes = Nodes::start(3).await;
    for node in &nodes.0 {
        node.grants_to("one", "k", of(2, 1), 1);
        node.grants_to("two", "k", of(2, 2), 1);
    }
    let uploads = nodes.client().await.semaphore("k", 2);
    let waits = tokio::spawn(async move { uploads.acquire().await.unwrap() });
    until("it waits", || nodes.waited_on("k") == 3).await;
    nodes.0[0].releases("one", "k");
    nodes.0[1].releases("two", "k");
    nodes.0[2].releases("two", "k");
    assert_eq!(waits.await.unwrap().number(), 2);
    // And where all keep the same, one attempt follows.
    nodes.0.iter().for_each(Node::hear_no_more);
    let uploads = nodes.client().await.semaphore("k", 2);
    nodes.0[0].releases("two", "k");
    nodes.0[1].releases("one", "k");
    nodes.0[2].releases("one", "k");
    let both = (uploads.acquire().await.unwrap(), uploads.acquire().await.unwrap());
    let (_one, two) = if both.0.number() == 1 { both } else { (both.1, both.0) };
    let waits = tokio::spawn(async move { uploads.acquire().await.unwrap() });
    until("it waits", || nodes.waited_on("k") == 3).await;
    nodes.0.iter().for_each(Node::hear_no_more);
    two.release().await;
    assert_eq!(waits.await.unwrap().number(), 2);
    assert!(nodes.asked("LOCK.ACQUIRE").iter().all(|asked| *asked <= 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_down_is_in_nobodys_way() {
    let nodes = Nodes::start(5).await;
    let locks = nodes.client().await;
    let uploads = locks.semaphore("k", 3);
    nodes.0[0].goes_down();
    nodes.0[4].goes_down();
    let mut permits = vec![];
    for _ in 0..3 {
        permits.push(uploads.acquire().await.unwrap());
    }
    assert_eq!(numbers(&permits), [1, 2, 3]);
    let waits = tokio::spawn({
        let uploads = uploads.clone();
        async move { uploads.acquire().await.unwrap() }
    });
    until("it waits", || nodes.waited_on("k") == 3).await;
    nodes.0[0].comes_up();
    let first = permits.swap_remove(0);
    let number = first.number();
    first.release().await;
    assert_eq!(waits.await.unwrap().number(), number);
    for down in [0, 1, 2] {
        nodes.0[down].goes_down();
    }
    assert_eq!(uploads.try_acquire().await.unwrap_err().kind(), ErrorKind::NoQuorum);
}

/// Two addresses that lead to one server are one vote for a number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_addresses_grants_once() {
    let nodes = Nodes(vec![Node::start(1).await, Node::start(1).await, Node::start(2).await]);
    let locks = nodes.client().await;
    let uploads = locks.semaphore("k", 2);
    let (one, two) = (uploads.acquire().await.unwrap(), uploads.acquire().await.unwrap());
    assert_ne!(one.number(), two.number());
    nodes.0[2].goes_down();
    one.release().await;
    two.release().await;
    let error = uploads.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
}
