//! A master that Sentinels know and replace.

use std::sync::Arc;

use palisade_client::{Client, Credentials, ErrorKind};

use crate::cluster::{MAX_TTL_MS, options};
use crate::cluster_changes::{Judge, take_turns};
use crate::fixture::{connected, locking, until};
use crate::harness::{self, Sentinel, Server, Setup, text};

fn watched(sentinels: usize) -> (Server, Server, Vec<Sentinel>) {
    crate::told::listen();
    harness::watched(sentinels, MAX_TTL_MS)
}

fn addresses(sentinels: &[Sentinel]) -> Vec<String> {
    sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_and_followed() {
    let (mut master, replica, sentinels) = watched(3);
    // One of the Sentinels is down.
    let addresses = ["127.0.0.1:1".to_owned()].into_iter().chain(addresses(&sentinels).into_iter().skip(1));
    let locks = Client::builder().sentinel("locks", addresses).build().unwrap();
    connected(&locks).await;
    let guard = locks.with(&options()).lock("k").await.unwrap();
    assert_eq!((master.info("held"), replica.info("waiters")), (1, 0));
    let waiting = locking(&locks, &options(), "k");
    until("it waits", async || master.info("waiters") == 1).await;
    master.kill();
    guard.lost().await;
    let next = waiting.await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(replica.client().say("LOCK.INFO k").field("token").as_int() as u64, next.token());
}

/// Two manual fail-overs, there and back, while many tasks want a lock. The old master learns of its end 10 s after the
/// promotion. The clients learn of it within 3 s, or later on a busy machine, and their last leases run for 2 s. So the
/// new master is guarded for 10 s, as servers with the default of 60 s are for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_while_masters_take_turns() {
    const GUARDED_MS: u64 = 5 * MAX_TTL_MS;
    crate::told::listen();
    let (one, other, sentinels) = harness::watched(1, GUARDED_MS);
    let url = format!("redis+sentinel://{}/locks", addresses(&sentinels).join(","));
    let clients = [Client::new([&url]).unwrap(), Client::new([&url]).unwrap()];
    connected(&clients[0]).await;
    connected(&clients[1]).await;
    let judge = Arc::new(Judge::default());
    let workers: Vec<_> =
        (0..8).map(|n| tokio::spawn(take_turns(clients[n % 2].clone(), "k".to_owned(), Arc::clone(&judge)))).collect();
    for next in [&other, &one] {
        let before = judge.judge();
        // A master that does not yet know which leases may run would be guarded for a day.
        until("it knows how long leases may run", async || next.info("outstanding_ttl_ms") <= GUARDED_MS).await;
        until("some had it", async || judge.judge() > before + 20).await;
        tokio::task::block_in_place(|| {
            sentinels[0].fail_over();
            sentinels[0].wait_for_master(next);
        });
    }
    judge.is_over();
    for worker in workers {
        worker.await.unwrap();
    }
    println!("{} turns", judge.judge());
}

/// Sentinels have replaced a master that was cut off from them, but not from its clients: no client uses it any longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_knows_nothing_of_its_end_is_left() {
    let (old, new, sentinels) = watched(1);
    let locks = Client::builder().sentinel("locks", addresses(&sentinels)).build().unwrap();
    connected(&locks).await;
    // This is the state after a fail-over of which the old master does not know.
    new.client().say("REPLICAOF NO ONE");
    sentinels[0].say("SENTINEL REMOVE locks");
    sentinels[0].say(&format!("SENTINEL MONITOR locks 127.0.0.1 {} 1", new.port()));
    assert_eq!(old.client().say("ROLE").as_list()[0], text("master"));
    until("it is guarded there", async || {
        locks.with(&options()).try_lock("k").await.is_err_and(|error| error.kind() == ErrorKind::Guarded)
    })
    .await;
    let guard = locks.with(&options()).lock("k").await.unwrap();
    assert_eq!(new.client().say("LOCK.INFO k").field("token").as_int() as u64, guard.token());
    // A lock that the old master granted before ends with its lease, because no client extends it there.
    until("the old one holds nothing", async || old.info("held") == 0).await;
    assert_eq!(new.info("held"), 1);
    guard.release().await;
}

/// Sentinels have passwords of their own, which the client sends to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_credentials_of_their_own() {
    let (master, _replica, sentinels) = watched(1);
    master.client().say("ACL SETUSER app on >secret ~* &* +@all");
    assert_eq!(sentinels[0].say("ACL SETUSER watch on >other ~* &* +@all"), text("OK"));
    assert_eq!(sentinels[0].say("ACL SETUSER default off"), text("OK"));
    let host = &addresses(&sentinels)[0];
    let url = format!("redis+sentinel://app:secret@{host}/locks?sentinelUsername=watch&sentinelPassword=other");
    let locks = Client::new([&url]).unwrap();
    connected(&locks).await;
    let list = master.client().say("CLIENT LIST").as_text();
    assert!(list.lines().any(|line| line.contains("user=app")), "{list}");
    let credentials = |user: &str, password: &str| {
        let (user, password) = (user.to_owned(), password.to_owned());
        Credentials::from_fn(move || Ok((user.clone(), password.clone())))
    };
    let builder = Client::builder().sentinel("locks", [host]);
    let builder = builder.credentials(credentials("app", "secret")).sentinel_credentials(credentials("watch", "other"));
    connected(&builder.build().unwrap()).await;
    let locked_out = Client::builder().sentinel("locks", [host]).build().unwrap();
    let error = locked_out.connect().await.unwrap_err();
    assert!(error.to_string().contains("NOAUTH") && !error.to_string().contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_sentinels_is_told() {
    let (_master, _replica, sentinels) = watched(1);
    let told = async |client: Client| client.connect().await.unwrap_err().to_string();
    let unknown = Client::builder().sentinel("looks", addresses(&sentinels)).build().unwrap();
    let error = told(unknown.clone()).await;
    assert!(error.contains("watch no master of the name looks"), "{error}");
    assert_eq!(unknown.lock("k").await.unwrap_err().kind(), ErrorKind::NoQuorum, "it is not waited for");
    let nobody = told(Client::builder().sentinel("locks", ["127.0.0.1:1", "127.0.0.1:2"]).build().unwrap()).await;
    assert!(nobody.contains("no Sentinel tells where it is: 127.0.0.1:"), "{nobody}");
    let no_sentinel = Setup::new().replication().start();
    let error =
        told(Client::builder().sentinel("locks", [format!("127.0.0.1:{}", no_sentinel.port())]).build().unwrap()).await;
    assert!(error.contains("unknown command"), "{error}");
}
