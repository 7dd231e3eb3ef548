//! Permits: never more than the limit, each with a number of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use palisade_client::{Client, ErrorKind, Options, Permit, Released};

use super::{extend, gives_away, grants, has, modes, waited_on};
use crate::fixture::{Nodes, ms, until};
use crate::harness::{Frozen, Server, Setup, int};
use crate::proxy::proxied;

fn numbers(permits: &[Permit]) -> Vec<u16> {
    permits.iter().map(Permit::number).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Waits until each node has this many grants: a majority is enough for a permit, and the other nodes may be late.
async fn each_has(nodes: &Nodes, count: usize) {
    until("each node has every permit", async || nodes.0.iter().all(|server| grants(server).len() == count)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_and_no_more() {
    for count in [1, 3] {
        let (nodes, locks) = Nodes::with_client(count).await;
        let uploads = locks.with(&Options::new().note("upload")).semaphore("k", 3);
        let mut permits = vec![uploads.try_acquire().await.unwrap(), uploads.acquire().await.unwrap()];
        permits.push(uploads.try_acquire().await.unwrap());
        assert_eq!(numbers(&permits), [1, 2, 3]);
        each_has(&nodes, 3).await;
        let error = uploads.try_acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.holder().unwrap().note.as_str()), (ErrorKind::Contended, "upload"));
        assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
        // The next request in turn gets the free number.
        let waits = tokio::spawn({
            let uploads = uploads.clone();
            async move { uploads.acquire().await.unwrap() }
        });
        until("it waits", async || waited_on(&nodes, 1) == count).await;
        let gone = permits.remove(1);
        let (number, token) = (gone.number(), gone.token());
        assert_eq!(gone.release().await, Released::Released);
        let next = waits.await.unwrap();
        assert_eq!(next.number(), number);
        assert!(next.is_valid() && next.token() > token, "larger than every earlier one of its number");
        permits.push(next);
        for permit in &permits {
            permit.extend().await.unwrap();
        }
        drop(permits);
        until("nothing is left", async || nodes.holding("k") == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_semaphore_takes_one_round_trip() {
    for count in [1, 5] {
        let nodes = Nodes::start(count);
        nodes.follow_their_clocks().await;
        let locks = nodes.client().await;
        nodes.say("CONFIG RESETSTAT");
        let permit = locks.semaphore("k", 8).acquire().await.unwrap();
        until("all have it", async || nodes.holding("k") == count).await;
        assert_eq!(nodes.calls("lock.acquire"), vec![1; count]);
        for command in ["lock.fence", "lock.info", "lock.wait"] {
            assert_eq!(nodes.calls(command), vec![0; count], "{command}");
        }
        for server in &nodes.0 {
            assert_eq!(grants(server)[0].field("permit"), int(permit.number().into()));
        }
    }
}

/// More clients than permits acquire again and again. No more permits than the limit are held at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_limit_at_a_time() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let held = Arc::new(Mutex::new(BTreeMap::<u16, u64>::new()));
        let (mut clients, mut tasks) = (vec![], vec![]);
        for _ in 0..6 {
            clients.push(nodes.client().await);
        }
        // All clients ask at once, also for the first permits.
        for locks in clients {
            let uploads = locks.semaphore("k", 2);
            let held = Arc::clone(&held);
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let permit = uploads.acquire().await.unwrap();
                    let (number, token) = (permit.number(), permit.token());
                    assert!(held.lock().unwrap().insert(number, token).is_none(), "two have one number");
                    tokio::time::sleep(ms(5)).await;
                    assert!((1..=2).contains(&number) && permit.is_valid());
                    held.lock().unwrap().remove(&number);
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
    let nodes = Nodes::start(3);
    let uploads = nodes.client().await.semaphore("k", 5);
    let mut permits = vec![];
    for _ in 0..3 {
        permits.push(uploads.acquire().await.unwrap());
    }
    until("all have all", async || modes(&nodes) == vec![["permit"; 3]; 3]).await;
    let (last, first) = (permits.pop().unwrap(), &nodes.0[0]);
    assert_eq!(first.client().say("DEL k"), int(1));
    extend(&last).await;
    until("it is healed", async || has(first, &last)).await;
    let own = |grant: &crate::harness::Reply| grant.field("owner").as_bytes() == last.owner();
    assert_eq!(grants(first).into_iter().find(own).unwrap().field("permit"), int(last.number().into()));
    // Another owner has the number by now, so this one gets none.
    gives_away(first, &format!("LIMIT 5 PERMIT {}", last.number()));
    first.client().say("CONFIG RESETSTAT");
    extend(&last).await;
    until("it was asked", async || nodes.calls("lock.acquire")[0] > 0).await;
    assert!(!has(first, &last) && last.is_valid());
}

/// Clients ask with different limits: the smaller limit is honoured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_differ() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let five = locks.semaphore("k", 5);
    let mut permits = vec![];
    for _ in 0..5 {
        permits.push(five.acquire().await.unwrap());
    }
    for less in [1, 2, 4] {
        assert_eq!(locks.semaphore("k", less).try_acquire().await.unwrap_err().kind(), ErrorKind::Contended, "{less}");
    }
    // Two permits are held that both limits allow: a request with limit 2 gets none, until all numbers above two have
    // been released.
    while let Some(n) = permits.iter().position(|permit| permit.number() > 1) {
        assert_eq!(locks.semaphore("k", 2).try_acquire().await.unwrap_err().kind(), ErrorKind::Contended);
        permits.swap_remove(n).release().await;
        each_has(&nodes, permits.len()).await;
    }
    let two = locks.semaphore("k", 2).try_acquire().await.unwrap();
    assert_eq!(two.number(), 2);
    assert_eq!(five.try_acquire().await.unwrap_err().kind(), ErrorKind::Contended, "the smaller limit counts");
    two.release().await;
    assert!(five.try_acquire().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_one_is_the_lock() {
    let (nodes, locks) = Nodes::with_client(3).await;
    let only = locks.semaphore("k", 1).acquire().await.unwrap();
    assert_eq!(only.number(), 1);
    until("all have it", async || modes(&nodes) == vec![["exclusive"]; 3]).await;
    assert_eq!(locks.try_lock("k").await.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(locks.semaphore("k", 0).try_acquire().await.unwrap_err().kind(), ErrorKind::BadArgument);
}

/// The nodes reserve different permit numbers for the next waiter. It gets the number that a majority reserved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_with_numbers() {
    let nodes = Nodes::start(3);
    nodes.say("LOCK.ACQUIRE k one 60000 LIMIT 2 PERMIT 1");
    nodes.say("LOCK.ACQUIRE k two 60000 LIMIT 2 PERMIT 2");
    let release = |servers: &[Server], owner: &str| {
        servers.iter().for_each(|server| assert_eq!(server.client().say(&format!("LOCK.RELEASE k {owner}")), int(0)));
    };
    let uploads = nodes.client().await.semaphore("k", 2);
    let waits = tokio::spawn(async move { uploads.acquire().await.unwrap() });
    until("it waits", async || waited_on(&nodes, 1) == 3).await;
    release(&nodes.0[..1], "one");
    release(&nodes.0[1..], "two");
    assert_eq!(waits.await.unwrap().number(), 2);
    // If all nodes reserve the same number, one attempt is enough.
    let uploads = nodes.client().await.semaphore("k", 2);
    release(&nodes.0[..1], "two");
    release(&nodes.0[1..], "one");
    let both = (uploads.acquire().await.unwrap(), uploads.acquire().await.unwrap());
    let (_one, two) = if both.0.number() == 1 { both } else { (both.1, both.0) };
    each_has(&nodes, 2).await;
    let waits = tokio::spawn(async move { uploads.acquire().await.unwrap() });
    until("it waits", async || waited_on(&nodes, 1) == 3).await;
    nodes.say("CONFIG RESETSTAT");
    two.release().await;
    assert_eq!(waits.await.unwrap().number(), 2);
    assert!(nodes.calls("lock.acquire").iter().all(|asked| *asked <= 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_down_is_in_nobodys_way() {
    let nodes = Nodes::start(5);
    let (proxies, locks) = proxied(&nodes).await;
    let uploads = locks.semaphore("k", 3);
    proxies[0].cut();
    proxies[4].cut();
    let mut permits = vec![];
    for _ in 0..3 {
        permits.push(uploads.acquire().await.unwrap());
    }
    assert_eq!(numbers(&permits), [1, 2, 3]);
    let waits = tokio::spawn({
        let uploads = uploads.clone();
        async move { uploads.acquire().await.unwrap() }
    });
    until("it waits", async || waited_on(&nodes, 1) == 3).await;
    proxies[0].pass();
    let first = permits.swap_remove(0);
    let number = first.number();
    first.release().await;
    assert_eq!(waits.await.unwrap().number(), number);
    proxies[..3].iter().for_each(crate::proxy::Proxy::cut);
    assert_eq!(uploads.try_acquire().await.unwrap_err().kind(), ErrorKind::NoQuorum);
}

/// Nodes that hang delay no request, and no number is granted twice while a holder has it on nodes that hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_hangs() {
    let (nodes, locks) = Nodes::with_client(3).await;
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

/// Two addresses of one server count as one server for a permit number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_addresses_grants_once() {
    let mut nodes = Nodes::start(2);
    let [one, other] = [0, 1].map(|n| nodes.0[n].address());
    let locks = Client::new([one, nodes.alias(0), other]).unwrap();
    crate::fixture::connected(&locks).await;
    let uploads = locks.semaphore("k", 2);
    let (one, two) = (uploads.acquire().await.unwrap(), uploads.acquire().await.unwrap());
    assert_ne!(one.number(), two.number());
    nodes.0[1].kill();
    one.release().await;
    two.release().await;
    let error = uploads.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
}

/// Every node restarts without its data, one at a time. Two permits and a reader stay held, and the permits keep their
/// numbers.
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
    for n in 0..3 {
        nodes.0[n].kill();
        nodes.0[n].start_again();
        let is_shared = || nodes.0[n].client().say("EXISTS t") == int(1);
        until("it has them again", async || grants(&nodes.0[n]).len() == 2 && is_shared()).await;
    }
    assert!(permits.iter().all(|permit| permit.is_valid()) && reading.is_valid());
    assert_eq!(permits.each_ref().map(Permit::number), numbers);
    for server in &nodes.0 {
        let held: BTreeSet<_> = grants(server).iter().map(|grant| grant.field("permit").as_int()).collect();
        assert_eq!(held, BTreeSet::from([1, 2]));
    }
    for info in nodes.say("LOCK.INFO t") {
        assert_eq!(info.field("mode").as_text(), "shared");
    }
}
