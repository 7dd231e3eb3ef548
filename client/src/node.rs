//! One node: its connections, who it is, and what it answers.
//!
//! One connection carries all requests; it is made, watched and made again by a task of its own, so that no caller waits for
//! a node that is down. Requests that wait in the node's queues have connections of their own, or everything behind them
//! would wait too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palisade_core::quorum::NodeId;
use rand::RngExt;
use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, Value,
};
use socket2::TcpKeepalive;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::address::url_of;
use crate::wire::{self, Trouble};
use crate::{Error, ErrorKind, clock};

/// How long a connection may take to be made, and the node to say who it is.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// First and longest pause between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A connection on which requests have gone unanswered for so long is given up: it may be half open.
const SILENCE: Duration = Duration::from_millis(500);

/// The contract that this client speaks, as LOCK.NODE numbers it.
const PROTOCOL: u64 = 1;

/// A connection that waits is probed by the system after so long a silence, so often, so many times: one that is half open
/// is noticed within a quarter of a minute.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(3), 3);

/// Idle connections for waiting that are kept.
const IDLE_WAITERS: usize = 16;

/// A node of the list.
#[derive(Debug)]
pub struct Node {
    name: String,
    client: redis::Client,
    state: watch::Sender<State>,
    /// The number of the last connection that was found broken.
    broken: Arc<watch::Sender<u64>>,
    /// When the oldest request was sent that has gone unanswered, in microseconds since boot; 0: none has.
    silent_since: AtomicU64,
    waiters: Mutex<Vec<Link>>,
}

/// A connection, and which server is at its other end.
#[derive(Clone, Debug)]
pub struct Link {
    connection: MultiplexedConnection,
    /// Connections of this node are numbered from 1.
    number: u64,
    /// The server.
    pub id: NodeId,
}

#[derive(Clone, Debug)]
enum State {
    /// Never connected yet.
    Connecting,
    Up(Link),
    Down(Trouble),
}

impl Node {
    /// A node at `address`, the one with this number in the list, as [`url_of`] takes them. Nothing is connected yet.
    pub fn new(number: usize, address: &str) -> Result<Self, Error> {
        // Not the address itself: there may be a password in it.
        let wrong =
            |why: String| Error::new(ErrorKind::Configuration, format!("address number {number} is no use: {why}"));
        let info = url_of(address).into_connection_info().map_err(|why| {
            wrong(format!("not an address ({why}); it must be like host:6379, [::1]:6379, redis://user:password@host:6379 or unix:///path"))
        })?;
        let name = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port}"),
            ConnectionAddr::Unix(path) => path.display().to_string(),
            other => other.to_string(),
        };
        let (time, interval, retries) = KEEPALIVE;
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(redis);
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true).set_keepalive(keepalive));
        let client = redis::Client::open(info).map_err(|why| wrong(why.to_string()))?;
        let state = watch::Sender::new(State::Connecting);
        let (broken, silent_since) = (Arc::new(watch::Sender::new(0)), AtomicU64::new(0));
        Ok(Self { name, client, state, broken, silent_since, waiters: Mutex::new(vec![]) })
    }

    /// Its address, without passwords.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Nothing that was known of it counts any more: it is connected to anew.
    pub fn forget(&self) {
        self.state.send_replace(State::Connecting);
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps a connection up, for ever.
    pub async fn stay_connected(&self) {
        let mut pause = BACK_OFF.0;
        let mut broken = self.broken.subscribe();
        for number in 1.. {
            match self.connect(number).await {
                Ok(link) => {
                    info!(node = self.name, id = format!("{:032x}", link.id.0), "connected");
                    let made = Instant::now();
                    self.silent_since.store(0, Ordering::Relaxed);
                    self.state.send_replace(State::Up(link));
                    let _ = broken.wait_for(|&broken| broken >= number).await;
                    warn!(node = self.name, "the connection is given up");
                    self.state.send_replace(State::Down(Trouble::Broken("the connection broke".to_owned())));
                    if made.elapsed() > BACK_OFF.1 {
                        pause = BACK_OFF.0;
                        continue;
                    }
                }
                Err(trouble) => {
                    debug!(node = self.name, %trouble, "no connection");
                    self.state.send_replace(State::Down(trouble));
                }
            }
            // Not all clients at the same moment, nor one again and again.
            let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            sleep(jittered).await;
            pause = (pause * 2).min(BACK_OFF.1);
        }
    }

    /// Which server it is, as soon as it is connected.
    pub async fn connected(&self, by: Instant) -> Result<NodeId, Trouble> {
        self.link(by).await.map(|link| link.id)
    }

    /// Sends `command` and returns what is answered by `deadline`, with the server that answered.
    pub async fn ask(&self, command: &Cmd, deadline: Instant) -> (Option<NodeId>, Result<Value, Trouble>) {
        let mut link = match self.link(deadline).await {
            Ok(link) => link,
            Err(trouble) => return (None, Err(trouble)),
        };
        let sent = clock::boot_now().as_us();
        let reply = timeout_at(deadline, link.connection.send_packed_command(command)).await;
        (Some(link.id), self.heard(&link, sent, reply.ok()))
    }

    /// Sends `command`, which may wait in the node's queue, on a connection of its own; to be answered within `patience`.
    /// Dropped meanwhile, the connection is closed, and with it the request leaves the queue.
    pub async fn ask_waiting(&self, command: &Cmd, patience: Duration) -> (Option<NodeId>, Result<Value, Trouble>) {
        // Who waits can wait for a connection, but not for a node that is known to be down.
        let connect_by = Instant::now() + CONNECT_TIMEOUT.min(patience);
        if let Err(trouble) = self.link(connect_by).await {
            return (None, Err(trouble));
        }
        let idle = self.waiters.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(link) = idle {
            let (id, reply) = self.ask_on(link, command, patience).await;
            // One that was idle may have been closed meanwhile.
            if !matches!(reply, Err(Trouble::Broken(_))) {
                return (id, reply);
            }
        }
        match timeout_at(connect_by, self.connect(0)).await.unwrap_or(Err(Trouble::Silent)) {
            Ok(link) => self.ask_on(link, command, patience).await,
            Err(trouble) => (None, Err(trouble)),
        }
    }

    async fn ask_on(
        &self,
        mut link: Link,
        command: &Cmd,
        patience: Duration,
    ) -> (Option<NodeId>, Result<Value, Trouble>) {
        let mut states = self.state.subscribe();
        let reply = tokio::select! {
            reply = timeout(patience, link.connection.send_packed_command(command)) => match reply {
                Ok(reply) => Trouble::or_value(reply),
                Err(_) => Err(Trouble::Silent),
            },
            // The other connection to the node broke: this one may be half open.
            _ = states.wait_for(|state| matches!(state, State::Down(_))) => {
                Err(Trouble::Unreachable("the node is down".to_owned()))
            }
        };
        let id = link.id;
        if matches!(reply, Ok(_) | Err(Trouble::Refused(..))) {
            let mut idle = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_WAITERS {
                idle.push(link);
            }
        }
        (Some(id), reply)
    }

    fn heard(
        &self,
        link: &Link,
        sent_us: u64,
        reply: Option<Result<Value, redis::RedisError>>,
    ) -> Result<Value, Trouble> {
        match reply.map(Trouble::or_value) {
            Some(Err(trouble)) if !matches!(trouble, Trouble::Refused(..)) => {
                give_up(&self.broken, link.number);
                Err(trouble)
            }
            Some(answer) => {
                self.silent_since.store(0, Ordering::Relaxed);
                answer
            }
            None => {
                let since = self.silent_since.load(Ordering::Relaxed);
                if since == 0 {
                    self.silent_since.store(sent_us, Ordering::Relaxed);
                } else if clock::boot_now().as_us().saturating_sub(since) > SILENCE.as_micros() as u64 {
                    give_up(&self.broken, link.number);
                }
                Err(Trouble::Silent)
            }
        }
    }

    /// The connection; waits for the very first one, and for no other.
    async fn link(&self, deadline: Instant) -> Result<Link, Trouble> {
        let known = |state: &State| match state {
            State::Connecting => None,
            State::Up(link) => Some(Ok(link.clone())),
            State::Down(trouble) => Some(Err(trouble.clone())),
        };
        if let Some(link) = known(&self.state.borrow()) {
            return link;
        }
        let mut states = self.state.subscribe();
        match timeout_at(deadline, states.wait_for(|state| known(state).is_some())).await {
            Ok(Ok(state)) => known(&state).unwrap_or(Err(Trouble::Silent)),
            _ => Err(Trouble::Unreachable("no connection yet".to_owned())),
        }
    }

    /// A new connection to a server that can be a node.
    async fn connect(&self, number: u64) -> Result<Link, Trouble> {
        let broken = Arc::clone(&self.broken);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                // The server hung up: noticed at once, not by the next request.
                if push.kind == PushKind::Disconnection {
                    give_up(&broken, number);
                }
                Ok::<(), SendError>(())
            });
        let unreachable = |why: String| Trouble::Unreachable(why);
        let connected = async {
            let mut connection = self
                .client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| unreachable(format!("it cannot be reached: {error}")))?;
            let node = connection.send_packed_command(&redis::cmd("LOCK.NODE")).await;
            let node = Trouble::or_value(node).map_err(|trouble| match trouble {
                Trouble::Refused(code, text) if code == "ERR" && text.contains("unknown command") => {
                    unreachable("the server has no lock module: start it with --loadmodule libpalisade.so".to_owned())
                }
                trouble => trouble,
            })?;
            let id = wire::node_id(&node).ok_or_else(|| unreachable("its LOCK.NODE has no id".to_owned()))?;
            let protocol = wire::number(&node, "protocol").unwrap_or(0);
            if protocol != PROTOCOL {
                return Err(unreachable(format!(
                    "its lock module speaks protocol {protocol}, this client {PROTOCOL}: upgrade the older of them"
                )));
            }
            if wire::text(&node, "role").as_deref() != Some("master") {
                return Err(unreachable("it is a replica: give the address of a master".to_owned()));
            }
            Ok(Link { connection, number, id })
        };
        let limit = CONNECT_TIMEOUT;
        timeout(limit, connected).await.unwrap_or_else(|_| Err(unreachable("it does not answer".to_owned())))
    }
}

/// The connection with this number is of no use any more: another one is made.
fn give_up(broken: &watch::Sender<u64>, number: u64) {
    broken.send_if_modified(|last| {
        let news = number > *last;
        *last = number.max(*last);
        news
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for address in
            ["http://user:secret@host", "redis://user:secret", "unix:///x?db=a&pass=secret", "rediss//:secret@host"]
        {
            if let Err(error) = Node::new(3, address) {
                assert_eq!(error.kind(), ErrorKind::Configuration);
                assert!(error.to_string().contains("number 3") && !error.to_string().contains("secret"), "{error}");
            }
        }
        let builder = crate::Client::builder().node("redis://user:secret@host");
        assert!(!format!("{builder:?} {:?}", builder.clone().build().unwrap()).contains("secret"));
    }
}
