//! Clients that wait for one lock until they have it, each as an application of its own would: over its own
//! connections.

use std::time::Duration;

use palisade_client::{Client, Guard};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value, cmd};
use rslock::{LockGuard, LockManager};

use crate::server::connect;

/// The length of the leases, in milliseconds: none expires during a measurement.
pub const TTL_MS: u64 = 60_000;

/// The wait of LOCK.ACQUIRE, in milliseconds: longer than any measurement.
const WAIT_MS: u64 = 600_000;

/// The release of a `SET NX PX` lock: compares and deletes.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// A way to wait for a lock.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// `LOCK.ACQUIRE key owner ttl WAIT ms`, as any Redis client can send it.
    Palisade,
    /// Our Rust client.
    PalisadeClient,
    /// `SET NX PX`, repeatedly.
    Polling { every: Duration },
    /// rslock's `acquire`, with its own delay between tries or another one.
    Rslock { every: Option<Duration> },
}

/// A connected client that waits for a lock.
pub enum Waiter {
    Palisade { connection: MultiplexedConnection, key: String, owner: String },
    PalisadeClient { locks: Client, key: String, held: Option<Guard> },
    Polling { connection: MultiplexedConnection, key: String, owner: String, every: Duration },
    Rslock { locks: LockManager, key: String, held: Option<LockGuard> },
}

impl Waiter {
    /// Returns the `n`th client that waits for `key` on the servers with these `ports`, connected.
    pub async fn new(way: Way, ports: &[u16], key: &str, n: usize) -> Self {
        let (key, owner) = (key.to_owned(), format!("owner-{n:014}"));
        let addresses: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
        match way {
            Way::Palisade => Self::Palisade { connection: connect(ports[0]).await, key, owner },
            Way::PalisadeClient => {
                let locks = Client::new(addresses).unwrap();
                locks.connect().await.unwrap();
                Self::PalisadeClient { locks, key, held: None }
            }
            Way::Polling { every } => Self::Polling { connection: connect(ports[0]).await, key, owner, every },
            Way::Rslock { every } => {
                let mut locks = LockManager::new(addresses);
                if let Some(every) = every {
                    // rslock draws each delay between zero and this value.
                    locks.set_retry(u32::MAX, every * 2);
                }
                Self::Rslock { locks, key, held: None }
            }
        }
    }

    /// Waits until this client has the lock.
    pub async fn acquire(&mut self) {
        match self {
            Self::Palisade { connection, key, owner } => {
                let mut acquire = cmd("LOCK.ACQUIRE");
                acquire.arg(&*key).arg(&*owner).arg(TTL_MS).arg("WAIT").arg(WAIT_MS);
                let reply: Value = acquire.query_async(connection).await.unwrap();
                assert!(matches!(reply, Value::Array(_)), "{reply:?}");
            }
            Self::PalisadeClient { locks, key, held } => *held = Some(locks.lock(&*key).await.unwrap()),
            Self::Polling { connection, key, owner, every } => {
                let set = cmd("SET").arg(&*key).arg(&*owner).arg("NX").arg("PX").arg(TTL_MS).to_owned();
                while set.query_async::<Value>(connection).await.unwrap() != Value::Okay {
                    tokio::time::sleep(*every).await;
                }
            }
            Self::Rslock { locks, key, held } => {
                *held = Some(locks.acquire(key.as_str(), Duration::from_millis(TTL_MS)).await.unwrap());
            }
        }
    }

    /// Releases the lock.
    pub async fn release(&mut self) {
        match self {
            Self::Palisade { connection, key, owner } => {
                let left: Value = cmd("LOCK.RELEASE").arg(&*key).arg(&*owner).query_async(connection).await.unwrap();
                assert_eq!(left, Value::Int(0));
            }
            Self::PalisadeClient { held, .. } => drop(held.take().expect("it is held").release().await),
            Self::Polling { connection, key, owner, .. } => {
                let deleted: i64 = Script::new(RELEASE).key(&*key).arg(&*owner).invoke_async(connection).await.unwrap();
                assert_eq!(deleted, 1);
            }
            Self::Rslock { held, .. } => held.take().expect("it is held").release().await,
        }
    }
}
