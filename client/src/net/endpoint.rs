//! A node of the list: a server, the master that Sentinels name, or a cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use palisade_quorum::NodeId;
use redis::io::tcp::TcpSettings;
use redis::{Cmd, Value};
use socket2::TcpKeepalive;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::net::access::{Access, Way};
use crate::net::address::Address;
use crate::net::bounds::UNHURRIED;
use crate::net::cluster::Cluster;
use crate::net::debt::Debt;
use crate::net::lease::Lease;
use crate::net::news::News;
use crate::net::node::{Common, First, Inbox, Node, Reach, Whereabouts};
use crate::net::pace::Given;
use crate::net::place::Place;
use crate::{Error, Why};

/// TCP keepalive of connections on which requests wait: idle time, interval and number of probes. A half-open
/// connection is noticed within 15 s.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(3), 3);

/// A node of the client's list. The first argument of a command is its key, unless a method says otherwise.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// One server, or the one that Sentinels name at present.
    One(Arc<Node>),
    /// A cluster of many servers.
    Cluster(Arc<Cluster>),
}

/// Returns the TCP settings of all connections.
fn tcp() -> TcpSettings {
    let (time, interval, retries) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

/// Creates the way to the server at `url`, which is address `number` in the list.
///
/// # Errors
/// Those of [`Way::new`].
pub fn way(number: usize, url: &str, access: &Arc<Access>) -> Result<Way, Error> {
    Ok(Way::new(number, url, access)?.with(|info| info.set_tcp_settings(tcp())))
}

impl Endpoint {
    /// Creates the node at `address`, which is number `number` in the list, from 1. Nothing is connected yet.
    ///
    /// # Errors
    /// `Configuration`: the address is invalid, or a file that `access` names cannot be read.
    pub fn new(number: usize, address: &Address, access: &Arc<Access>, common: &Common) -> Result<Self, Error> {
        let place = number - 1;
        Ok(match Place::of(number, address, access, |info| info.set_tcp_settings(tcp()))? {
            Place::Server(way) => Self::One(Arc::new(Node::new(place, Whereabouts::At(Arc::new(way)), common))),
            Place::Cluster(ways) => Self::Cluster(Cluster::new(place, ways, common)),
            Place::Sentinel(sentinels) => {
                Self::One(Arc::new(Node::new(place, Whereabouts::Named(Box::new(sentinels)), common)))
            }
            Place::Nowhere(name, why) => Self::One(Arc::new(Node::new(place, Whereabouts::Nowhere(name, why), common))),
        })
    }

    /// Returns the node's address or addresses, without passwords.
    pub fn name(&self) -> &str {
        match self {
            Self::One(node) => node.name(),
            Self::Cluster(cluster) => cluster.name(),
        }
    }

    /// Returns the node's reachability; a cluster is reachable if each of its masters is.
    pub fn reach(&self) -> Reach {
        let each = self.masters().into_iter().map(|master| match (self, master.reach()) {
            (Self::Cluster(_), Reach::Away(why)) => Reach::Away(why.of_server(master.name())),
            (_, reach) => reach,
        });
        each.reduce(|one, other| match (one, other) {
            (Reach::Away(why), _) | (_, Reach::Away(why)) => Reach::Away(why),
            (Reach::Unknown, _) | (_, Reach::Unknown) => Reach::Unknown,
            (Reach::Up, Reach::Up) => Reach::Up,
        })
        .unwrap_or(Reach::Unknown)
    }

    /// Returns the servers that serve locks, as far as they are known.
    pub fn masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Begins to connect, and to make pending releases, until another version supersedes this node's set.
    pub fn stay_connected(&self, news: &Arc<News>) {
        match self {
            Self::One(node) => {
                let (staying, following) = (Arc::clone(node), Arc::clone(node));
                let paying = Arc::clone(node);
                let release = move |debt: Arc<Debt>| {
                    let node = Arc::clone(&paying);
                    async move { node.ask(&debt.command, UNHURRIED, None).await.1 }.boxed()
                };
                let tasks = [
                    tokio::spawn(async move { staying.stay_connected().await }),
                    tokio::spawn(async move { following.follow().await }),
                    tokio::spawn(Arc::clone(node).pay(release)),
                ];
                let (node, news) = (Arc::clone(node), Arc::clone(news));
                tokio::spawn(async move {
                    news.is_over().await;
                    tasks.iter().for_each(JoinHandle::abort);
                    join_all(tasks).await;
                    node.retire("another version of the set of nodes took the place of the one that it was asked in");
                });
            }
            // Nothing has to end this task: a set with a cluster never changes.
            Self::Cluster(cluster) => drop(tokio::spawn(Arc::clone(cluster).stay_informed())),
        }
    }

    /// Returns the id of the server or cluster, once it is connected.
    pub async fn connected(&self, by: Instant) -> Result<NodeId, Why> {
        match self {
            Self::One(node) => node.reconnected(by).await,
            Self::Cluster(cluster) => cluster.connected(by).await,
        }
    }

    /// Sends `command`. See [`Node::ask`].
    pub async fn ask(
        &self,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        match self {
            Self::One(node) => node.ask(command, given, about).await,
            Self::Cluster(cluster) => Box::pin(cluster.ask(command, given, about)).await,
        }
    }

    /// Sends the bytes of a command about `key`, but only if that is possible at once. Returns whether it was. See
    /// [`Node::send_now`].
    pub fn send_now(
        &self,
        (key, packed): (&[u8], &[u8]),
        given: Given,
        about: Option<&Lease>,
        to: (&Arc<Inbox>, usize),
    ) -> bool {
        match self {
            Self::One(node) => node.send_now(packed, given, about, to),
            Self::Cluster(cluster) => {
                let master = cluster.known_master(key);
                master.is_some_and(|master| master.send_now(packed, given, about, to))
            }
        }
    }

    /// Returns the final answer of [`ask`](Self::ask) after the `first` one to `command`.
    pub async fn ask_after(
        &self,
        first: First,
        command: &Cmd,
        given: Given,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        match self {
            Self::One(_) => (first.0.map(|by| by.id), first.1),
            Self::Cluster(cluster) => Box::pin(cluster.ask_after(first, command, given, about)).await,
        }
    }

    /// Returns whether the node is a cluster: then another server may have an answer that one server lacks.
    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Sends `command`, which does not name a key, to the server of `key`.
    pub async fn ask_at(&self, key: &[u8], command: &Cmd, given: Given) -> (Option<NodeId>, Result<Value, Why>) {
        match self {
            Self::One(node) => node.ask(command, given, None).await,
            Self::Cluster(cluster) => cluster.ask_at(key, command, given, None).await,
        }
    }

    /// Sends `command`, which names no key, to each server of the node. Returns the answers with the servers' names.
    pub async fn ask_each(&self, command: &Cmd, given: Given) -> Vec<(String, Option<NodeId>, Result<Value, Why>)> {
        if let Self::Cluster(cluster) = self {
            // Waits until the cluster's masters are known.
            let _ = cluster.connected(Instant::now() + given.most()).await;
        }
        let ask = async |node: Arc<Node>| {
            let (id, reply) = node.ask(command, given, None).await;
            (node.name().to_owned(), id, reply)
        };
        join_all(self.masters().into_iter().map(ask)).await
    }

    /// Sends `command`, which reads a key. See [`Node::ask_tracked`].
    pub async fn ask_tracked(&self, command: Cmd, given: Given) -> (Option<NodeId>, u64, Result<Value, Why>) {
        match self {
            Self::One(node) => node.ask_tracked(command, given).await,
            Self::Cluster(cluster) => cluster.ask_tracked(command, given).await,
        }
    }

    /// Sends `command`, which may wait. See [`Node::ask_waiting`]. A cluster may answer Null before the time is over.
    pub async fn ask_waiting(
        &self,
        command: &Cmd,
        patience: Duration,
        about: Option<&Lease>,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        match self {
            Self::One(node) => node.ask_waiting(command, patience, about, false).await,
            Self::Cluster(cluster) => cluster.ask_waiting(command, patience, about).await,
        }
    }

    /// Sends a request to wait. See [`Node::ask_to_wait`]. From a cluster Null may come before the time is over, if the
    /// key's slot moved meanwhile.
    pub async fn ask_to_wait(
        &self,
        command: &Cmd,
        lease: &Lease,
        patience: Duration,
    ) -> (Option<NodeId>, Result<Value, Why>) {
        match self {
            Self::One(node) => node.ask_to_wait(command, lease, patience).await,
            Self::Cluster(cluster) => cluster.ask_to_wait(command, lease, patience).await,
        }
    }

    /// Returns [`Node::listener_waits`] of the server of `key`.
    pub fn listener_waits(&self, key: &[u8]) -> usize {
        self.master(key).map_or(0, |node| node.listener_waits())
    }

    /// Returns [`Node::has_many_blocked`] of the server of `key`.
    pub fn has_many_blocked(&self, key: &[u8]) -> bool {
        self.master(key).is_some_and(|node| node.has_many_blocked())
    }

    /// Returns whether to send a request about `key`: it can be answered, or fails at once with a lasting error.
    pub fn is_worth_asking(&self, key: &[u8]) -> bool {
        match self {
            Self::One(node) => node.is_worth_asking(),
            Self::Cluster(cluster) => cluster.is_worth_asking(key),
        }
    }

    /// Returns [`Node::answered_since`] of the server of `key`.
    pub fn answered_since(&self, key: &[u8], since: Instant) -> bool {
        self.master(key).is_some_and(|node| node.answered_since(since))
    }

    /// Returns [`Node::tracks_over`] of the server of `key`.
    pub fn tracks_over(&self, key: &[u8]) -> Option<u64> {
        self.master(key)?.tracks_over()
    }

    /// Waits until a connection to the server of `key` has been opened or has failed, but not longer than until `by`.
    pub async fn is_tried(&self, key: &[u8], by: Instant) {
        if let Some(node) = self.master(key) {
            // If the connection fails, the request itself reports that.
            let _ = node.connected(by).await;
        }
    }

    /// Returns [`Node::may_send_behind`] of the server of `key`.
    pub fn may_send_behind(&self, key: &[u8]) -> bool {
        self.master(key).is_some_and(|node| node.may_send_behind())
    }

    /// Registers a pending release, to be made as soon as the master of its key answers.
    pub fn owe(&self, debt: &Arc<Debt>) {
        // If nobody serves the slot of the lock, the lock ends with its lease.
        if let Some(node) = self.master(&debt.lease.key) {
            node.owe(debt);
        }
    }

    fn master(&self, key: &[u8]) -> Option<Arc<Node>> {
        match self {
            Self::One(node) => Some(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.known_master(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Client, ErrorKind};

    #[test]
    fn passwords_are_not_shown() {
        let addresses = [
            "http://user:secret@host",
            "redis://user:secret",
            "unix:///x?db=a&pass=secret",
            "rediss//:secret@host",
            "redis+cluster://user:secret@",
            "redis+sentinel://user:secret@h",
            "redis+sentinel://user:secret@h/locks?sentinelPasword=secret",
        ];
        for address in addresses {
            let error = Client::new(["a", "b", address]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains("number 3") && !error.to_string().contains("secret"), "{error}");
        }
        for scheme in [
            "redis://user:secret@host",
            "redis+cluster://user:secret@h",
            "redis+sentinel://u:secret@h/locks?sentinelPassword=secret",
        ] {
            let builder = Client::builder().node(scheme);
            assert!(!format!("{builder:?} {:?}", builder.clone().build().unwrap()).contains("secret"));
        }
    }
}
