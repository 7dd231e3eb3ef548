//! A server that is examined, and its settings.

use std::collections::HashMap;

use palisade_client::Why;
use palisade_client::direct::{Place, Server, ServerLink};
use redis::{FromRedisValue, cmd};

use crate::info::Info;
use crate::node_failure::strange;
use crate::node_view::NodeView;
use crate::nodes::Node;
use crate::settings;

/// The server's settings that `doctor` checks.
const SETTINGS: [&str; 12] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "io-threads",
    "maxmemory",
    "maxmemory-policy",
    "timeout",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "tls-replication",
    "cluster-*",
    "lock.*",
];

/// The kind of node that a server belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The server is the whole node.
    #[default]
    Alone,
    /// One of the servers that Sentinels watch.
    OfSentinels,
    /// One of the servers of a cluster.
    OfCluster,
}

impl Part {
    /// Returns the kind to which the servers of this node belong.
    pub fn of(node: &Node) -> Self {
        match *node.place {
            Place::Server(_) | Place::Nowhere(..) => Self::Alone,
            Place::Cluster(_) => Self::OfCluster,
            Place::Sentinel(_) => Self::OfSentinels,
        }
    }
}

/// A server that was examined: its state and its settings.
#[derive(Clone, Debug, Default)]
pub struct Patient {
    pub view: NodeView,
    /// The settings by name; `None` if the server does not report them.
    pub settings: Option<HashMap<String, String>>,
    pub part: Part,
    /// True if the server is a replica of a server that serves locks.
    pub is_replica: bool,
    /// The server's report of its cluster; `None` if there is none.
    pub cluster: Option<Membership>,
}

impl Patient {
    /// Asks a server for its state and its settings, or records why it cannot be asked.
    pub async fn examine(server: &Server, part: Part, is_replica: bool) -> Self {
        let looked = match server.connect().await {
            Ok(link) => NodeView::read(link).await,
            Err(why) => Err(why),
        };
        match looked {
            Ok((view, mut link)) => {
                let cluster = if part == Part::OfCluster { Membership::ask(&mut link).await.ok() } else { None };
                Patient { view, settings: settings::ask(&mut link, &SETTINGS).await, part, is_replica, cluster }
            }
            Err(why) => {
                let view = NodeView::unreachable(server.number, server.name().to_owned(), why);
                Patient { view, part, is_replica, ..Patient::default() }
            }
        }
    }

    /// Returns a setting, or an empty text if it is unknown.
    pub fn setting(&self, name: &str) -> &str {
        self.settings.as_ref().and_then(|settings| settings.get(name)).map_or("", String::as_str)
    }
}

/// A server's report of its cluster.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    /// The fields of CLUSTER INFO.
    pub info: Info,
    /// The reply to CLUSTER NODES, one line per server.
    pub nodes: String,
}

impl Membership {
    /// Asks the server at the other end of `link` about its cluster.
    async fn ask(link: &mut ServerLink) -> Result<Self, Why> {
        let text = |value| String::from_redis_value(value).map_err(|why| strange("CLUSTER", why));
        let info = text(link.ask(cmd("CLUSTER").arg("INFO")).await?)?;
        let nodes = text(link.ask(cmd("CLUSTER").arg("NODES")).await?)?;
        Ok(Self { info: Info::of(&info), nodes })
    }
}
