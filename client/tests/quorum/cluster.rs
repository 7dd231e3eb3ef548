//! A cluster of six: each lock lives on the master of its slot, as on one node. Also servers that are no cluster.

use std::time::Instant;

use palisade_client::{Client, ErrorKind, Loss, Options};

use crate::fixture::{connected, locking, ms, slot, until};
use crate::harness::{Frozen, Member, Setup, int, joined_with, null, patience, patient, wait_until};
pub use crate::harness::{MAX_TTL_MS, Six};

impl Six {
    pub async fn client(&self) -> Client {
        crate::told::listen();
        let client = Client::builder().cluster(self.seeds()).build().unwrap();
        connected(&client).await;
        client
    }
}

pub fn tcp(member: &Member) -> String {
    format!("127.0.0.1:{}", member.server.port())
}

/// Returns a key of the master with this number, of three.
pub fn key_of(master: usize) -> String {
    let bounds = [0..=5460, 5461..=10922, 10923..=16383];
    (0..).map(|n| format!("key{n}")).find(|key| bounds[master].contains(&slot(key))).unwrap()
}

pub fn options() -> Options {
    Options::new().ttl(ms(MAX_TTL_MS))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lock_is_at_the_master_of_its_slot() {
    let six = Six::start(60_000);
    let locks = six.client().await;
    let held = |member: &Member| member.server.info("held");
    let mut guards = vec![];
    for n in 0..60 {
        guards.push(locks.with(&options()).lock(format!("lock{n}")).await.unwrap());
    }
    let counts: Vec<_> = six.masters().map(held).collect();
    assert!(counts.iter().sum::<u64>() == 60 && counts.iter().all(|count| *count > 5), "{counts:?}");
    let other = six.client().await;
    for (n, guard) in guards.iter().enumerate() {
        let refused = other.with(&options()).try_lock(format!("lock{n}")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Contended);
        assert_eq!(refused.holder().unwrap().token, guard.token());
    }
    // The first lease is over, so the locks were extended.
    tokio::time::sleep(ms(MAX_TTL_MS + 500)).await;
    assert!(guards.iter().all(|guard| guard.is_valid()));
    for guard in guards {
        guard.release().await;
    }
    assert_eq!(six.masters().map(held).sum::<u64>(), 0);
    locks.close().await.unwrap();
}

/// A cluster supports everything that a node does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_sharing_permits_elections_and_watching() {
    let six = Six::start(60_000);
    let (locks, other) = (six.client().await, six.client().await);
    for master in 0..3 {
        let key = key_of(master);
        let mut changes = other.watch(&key).unwrap();
        assert!(changes.changed().await.unwrap().is_none());
        let guard = locks.with(&options().note("first")).lock(&key).await.unwrap();
        assert_eq!(changes.changed().await.unwrap().unwrap().token, guard.token());
        let waiting = locking(&other, &options(), &key);
        until("it waits", async || six.0[master].server.info("waiters") == 1).await;
        let first = guard.token();
        guard.release().await;
        let second = waiting.await.unwrap();
        assert!(second.token() > first);
        second.release().await;

        let rw = locks.with(&options()).rw_lock(format!("rw{key}"));
        let (one, two) = (rw.read().await.unwrap(), rw.read().await.unwrap());
        assert_eq!(rw.try_write().await.unwrap_err().kind(), ErrorKind::Contended);
        one.release().await;
        two.release().await;
        rw.write().await.unwrap().downgrade().await.unwrap().release().await;

        let permits = locks.with(&options()).semaphore(format!("permits{key}"), 2);
        let (one, two) = (permits.acquire().await.unwrap(), permits.acquire().await.unwrap());
        assert_ne!(one.number(), two.number());
        assert_eq!(permits.try_acquire().await.unwrap_err().kind(), ErrorKind::Contended);
        one.release().await;
        two.release().await;

        let election = format!("election{key}");
        let leadership = locks.with(&options()).election(&election).campaign("me").await.unwrap();
        let leader = other.election(&election).leader().await.unwrap().unwrap();
        assert_eq!((leader.term, &*leader.value), (leadership.term(), &b"me"[..]));
        leadership.resign().await;
    }
}

/// The client notices at once that a lock was taken away, also if it is one of many on a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_taken_away_is_lost_at_once() {
    let six = Six::start(60_000);
    let locks = six.client().await;
    let guard = locks.with(&options()).lock(key_of(1)).await.unwrap();
    six.0[1].client().say(&format!("LOCK.BREAK {}", key_of(1)));
    assert!(matches!(guard.lost().await, Loss::TakenAway(_)));
}

/// While one master is frozen, locks of the others are unaffected, and requests that wait for its locks continue when
/// it answers again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_concerns_its_own_locks_alone() {
    let six = Six::start(60_000);
    let locks = six.client().await;
    let keys: Vec<_> = (0..3).map(key_of).collect();
    let held = locks.with(&options()).lock(format!("{{{}}}held", keys[0])).await.unwrap();
    let frozen = Frozen::new(&six.0[1].server);
    let refused = locks.with(&options()).try_lock(&keys[1]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoQuorum, "{refused}");
    let waiting = locking(&locks, &options(), &keys[1]);
    // The other masters answer late on a busy machine. Requests that waited for the frozen one would take this long.
    let unhurried = options().node_timeout(ms(MAX_TTL_MS));
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < ms(MAX_TTL_MS + 1_000) || rounds <= 100 {
        for key in [&keys[0], &keys[2]] {
            locks.with(&unhurried).try_lock(key).await.unwrap().release().await;
            rounds += 1;
        }
    }
    assert!(start.elapsed() < patience(), "{rounds} rounds took {:?}", start.elapsed());
    assert!(held.is_valid());
    drop(frozen);
    waiting.await.unwrap().release().await;
}

/// Independent clusters are nodes of a quorum: a lock is on a majority of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_clusters_are_a_quorum() {
    let clusters: Vec<_> = (0..3).map(|_| joined_with(["0 8191", "8192 16383"], patient)).collect();
    let urls = |cluster: &[Member; 2]| format!("redis+cluster://{}", tcp(&cluster[0]));
    let locks = Client::new(clusters.iter().map(urls)).unwrap();
    locks.connect().await.unwrap();
    let exists = |key: &str| {
        let there = |member: &Member| member.client().say(&format!("EXISTS {key}")) == int(1);
        clusters.iter().flatten().filter(|member| there(member)).count()
    };
    for n in 0..8 {
        let key = format!("lock{n}");
        let guard = locks.with(&options()).lock(&key).await.unwrap();
        until("all have it", async || exists(&key) == 3).await;
        // One master of one cluster does not answer.
        let frozen: Vec<_> = clusters[n % 3].iter().map(|member| Frozen::new(&member.server)).collect();
        // A cluster that granted the lock late counts from the next round on.
        until("it is extended by the others", async || guard.extend().await.is_ok()).await;
        guard.release().await;
        let next = locks.with(&options()).lock(&key).await.unwrap();
        drop(frozen);
        next.release().await;
        until("nobody has it", async || exists(&key) == 0).await;
    }
    // One cluster, named by two of its servers, is one node.
    let twice = Client::new([urls(&clusters[0]), format!("redis+cluster://{}", tcp(&clusters[0][1]))]).unwrap();
    assert_eq!(twice.connect().await.unwrap_err().kind(), ErrorKind::NoQuorum);
    assert_eq!(twice.with(&options()).try_lock("k").await.unwrap_err().kind(), ErrorKind::NoQuorum);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_cluster_is_told() {
    let told = async |client: Client| {
        let error = client.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum);
        // The error is lasting, so the call does not wait.
        assert_eq!(client.lock("k").await.unwrap_err().kind(), ErrorKind::NoQuorum);
        error.to_string()
    };
    let alone = Setup::new().replication().start();
    let error = told(Client::builder().cluster([format!("127.0.0.1:{}", alone.port())]).build().unwrap()).await;
    assert!(error.contains("belongs to no cluster"), "{error}");
    let served = joined_with(["0 16383"], patient);
    let bare = Setup::new().replication().option("cluster-enabled", "yes").module_later().start();
    bare.client().say("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("it serves", || bare.client().say("GET x") == null());
    let error = told(Client::builder().cluster([format!("127.0.0.1:{}", bare.port())]).build().unwrap()).await;
    assert!(error.contains("no lock module") && error.contains(&bare.port().to_string()), "{error}");
    // One of the named servers is down.
    let locks = Client::builder().cluster(["127.0.0.1:1".to_owned(), tcp(&served[0])]).build().unwrap();
    connected(&locks).await;
    // No master serves the slot.
    served[0].client().say(&format!("CLUSTER DELSLOTS {}", slot("k")));
    let refused = locks.with(&options()).try_lock("k").await.unwrap_err();
    assert!(refused.kind() == ErrorKind::NoQuorum && refused.to_string().contains("CLUSTERDOWN"), "{refused}");
    let waiting = locking(&locks, &options(), "k");
    tokio::time::sleep(ms(300)).await;
    served[0].client().say(&format!("CLUSTER ADDSLOTS {}", slot("k")));
    waiting.await.unwrap().release().await;
}
