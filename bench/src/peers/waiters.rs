//! Clients that wait for one lock until they have it, each as an application of its own would: over its own
//! connections.

use std::time::Duration;

use palisade_client::{Client, Guard};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion, Script, Value, cmd};
use rslock::{LockGuard, LockManager};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::etcd;
use crate::server::connect;

/// The length of the leases, in milliseconds: none expires during a measurement.
const TTL_MS: u64 = 60_000;

/// The wait of LOCK.ACQUIRE, in milliseconds: longer than any measurement.
const WAIT_MS: u64 = 600_000;

/// The release of a `SET NX PX` lock: compares and deletes.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// The acquisition of Redisson's lock: a hash with one field for the holder, which counts its holds. Nil if taken, else
/// the remaining milliseconds of the present hold.
const TRY_HASH: &str = "
local holder, ttl = ARGV[1], ARGV[2]
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], holder) == 0 then
  return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], holder, 1)
redis.call('pexpire', KEYS[1], ttl)
return nil";

/// The release of Redisson's lock, which notifies every waiter.
const RELEASE_HASH: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1";

/// A way to wait for a lock.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// `LOCK.ACQUIRE key owner ttl WAIT ms`, as any Redis client can send it.
    Palisade,
    /// Our Rust client, with one node.
    PalisadeClient,
    /// `SET NX PX`, repeatedly.
    Polling { every: Duration },
    /// rslock's `acquire`, with its own delay between tries or another one.
    Rslock { every: Option<Duration> },
    /// Redisson's pattern: a client that does not get the lock subscribes to a channel on which its release is
    /// announced.
    PubSub,
}

/// A way of waiting, with the server that it needs.
#[derive(Clone)]
pub enum Backend {
    Redis(Way, u16),
    Etcd(etcd::Client),
}

/// A connected client that waits for a lock.
pub enum Waiter {
    Palisade { connection: MultiplexedConnection, key: String, owner: String },
    PalisadeClient { locks: Client, key: String, held: Option<Guard> },
    Polling { connection: MultiplexedConnection, key: String, owner: String, every: Duration },
    Rslock { locks: LockManager, key: String, held: Option<LockGuard> },
    PubSub(Subscriber),
    Etcd { client: etcd::Client, session: i64, name: String, held: Vec<u8> },
}

impl Waiter {
    /// Returns the `n`th client that waits for `key`, connected.
    pub async fn new(backend: &Backend, key: &str, n: usize) -> Self {
        let (key, owner) = (key.to_owned(), format!("owner-{n:014}"));
        let address = |port: &u16| format!("redis://127.0.0.1:{port}");
        match backend {
            Backend::Redis(Way::Palisade, port) => Self::Palisade { connection: connect(*port).await, key, owner },
            Backend::Redis(Way::PalisadeClient, port) => {
                let locks = Client::new([address(port)]).unwrap();
                locks.connect().await.unwrap();
                Self::PalisadeClient { locks, key, held: None }
            }
            Backend::Redis(Way::Polling { every }, port) => {
                Self::Polling { connection: connect(*port).await, key, owner, every: *every }
            }
            Backend::Redis(Way::Rslock { every }, port) => {
                let mut locks = LockManager::new(vec![address(port)]);
                if let Some(every) = every {
                    // rslock draws each delay between zero and this value.
                    locks.set_retry(u32::MAX, *every * 2);
                }
                Self::Rslock { locks, key, held: None }
            }
            Backend::Redis(Way::PubSub, port) => Self::PubSub(Subscriber::new(*port, key, owner).await),
            Backend::Etcd(client) => {
                let mut client = client.clone();
                let session = client.session().await.unwrap();
                Self::Etcd { client, session, name: key, held: Vec::new() }
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
            Self::PubSub(subscriber) => subscriber.acquire().await,
            Self::Etcd { client, session, name, held } => *held = client.lock(name, *session).await.unwrap(),
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
            Self::PubSub(subscriber) => subscriber.release().await,
            Self::Etcd { client, held, .. } => client.unlock(std::mem::take(held)).await.unwrap(),
        }
    }
}

/// A client of Redisson's pattern. Its single connection carries answers and messages (RESP3); Redisson has one for
/// each.
pub struct Subscriber {
    connection: MultiplexedConnection,
    messages: UnboundedReceiver<redis::PushInfo>,
    key: String,
    channel: String,
    owner: String,
    take: Script,
    give_back: Script,
}

impl Subscriber {
    async fn new(port: u16, key: String, owner: String) -> Self {
        let address = redis::ConnectionAddr::Tcp("127.0.0.1".to_owned(), port).into_connection_info().unwrap();
        let settings = redis::RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        let no_delay = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(address.set_redis_settings(settings).set_tcp_settings(no_delay)).unwrap();
        let (sender, messages) = unbounded_channel();
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(sender);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let channel = format!("channel-of-{key}");
        let (take, give_back) = (Script::new(TRY_HASH), Script::new(RELEASE_HASH));
        Self { connection, messages, key, channel, owner, take, give_back }
    }

    /// Tries, subscribes, and tries again at each announced release or when the lock would have expired.
    async fn acquire(&mut self) {
        if self.try_acquire().await.is_none() {
            return;
        }
        self.connection.subscribe(&self.channel).await.unwrap();
        while let Some(ttl_ms) = self.try_acquire().await {
            let _ = tokio::time::timeout(Duration::from_millis(ttl_ms), self.message()).await;
        }
        self.connection.unsubscribe(&self.channel).await.unwrap();
    }

    /// Tries to take the lock. Returns `None` if it succeeded, else the remaining milliseconds of somebody else's hold.
    async fn try_acquire(&mut self) -> Option<u64> {
        let mut take = self.take.key(&self.key);
        take.arg(&self.owner).arg(TTL_MS).invoke_async(&mut self.connection).await.unwrap()
    }

    /// Waits for the next message that a lock was released.
    async fn message(&mut self) {
        while let Some(push) = self.messages.recv().await {
            if push.kind == redis::PushKind::Message {
                return;
            }
        }
    }

    async fn release(&mut self) {
        let mut give_back = self.give_back.key(&self.key);
        let left: Value =
            give_back.key(&self.channel).arg(&self.owner).invoke_async(&mut self.connection).await.unwrap();
        assert_eq!(left, Value::Int(1));
    }
}
