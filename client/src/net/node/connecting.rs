//! Opens connections to a node.

use std::sync::Arc;

use palisade_quorum::NodeId;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use tokio::time::{Instant, timeout};

use super::link::{Link, Waiter};
use super::{Node, State, Whereabouts};
use crate::net::access::Way;
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::line::Line;
use crate::net::wire;
use crate::values::failure::Why;

/// The protocol version of this client, as LOCK.NODE numbers it.
const PROTOCOL: u64 = 1;

/// Feature of LOCK.NODE: the node accepts a note with LOCK.WAIT, and the number of requests that wait behind it in the
/// client.
const BEHIND: &str = "behind";

/// Feature of LOCK.NODE: one connection receives the answers to many waits.
const HEAR: &str = "hear";

/// Feature of LOCK.NODE: the node knows the set of nodes.
const MEMBERS: &str = "members";

/// Errors about nodes of a set with versions.
const ANOTHER_SERVER: &str = "another server is there than the member of the set: it was replaced, or lost its state file. Remove the member \
                              from the set, and add the server that is there";
const IN_A_SET: &str =
    "it is a member of a set of nodes that changes, where each node is one server: give the addresses of those servers";
const TOO_OLD_FOR_MEMBERS: &str = "its lock module is too old for a set of nodes that changes: upgrade it";

/// A server's description of itself.
struct Greeting {
    id: NodeId,
    knows_behind: bool,
    hears: bool,
}

impl Node {
    /// Opens a connection for requests, to a server that can be a node.
    pub(super) async fn connect(&self, number: u64) -> Result<Link, Why> {
        self.to_server(false, async |way| {
            let (mut connection, driver, lent) = way.open().await?;
            let greeted = async {
                let Greeting { id, knows_behind, hears } = self.greet(&mut connection).await?;
                // Tracks keys that are read over this connection, but not changes by the connection itself.
                let mut tracking = redis::cmd("CLIENT");
                tracking.arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
                let tracks = matches!(connection.send_packed_command(&tracking).await, Ok(Value::Okay));
                Ok((id, tracks, knows_behind, hears))
            };
            // A server that closes the connection may have answered before. So the end of the driver is not taken as a
            // failure: each pending request still gets its answer, or an error.
            let driven = async {
                driver.await;
                std::future::pending::<std::convert::Infallible>().await
            };
            let (id, tracks, knows_behind, hears) = tokio::select! {
                biased;
                greeted = greeted => greeted?,
                never = driven => match never {},
            };
            let stream = lent.take().map_err(|why| Why::Unreachable(why.to_string()))?;
            Ok(Link { line: Arc::new(Line::new(stream)), way, number, id, tracks, knows_behind, hears })
        })
        .await
    }

    /// Opens a connection for requests that wait there; it tracks no keys.
    pub(super) async fn connect_to_wait(&self) -> Result<Waiter, Why> {
        self.to_server(true, async |way| {
            let config =
                AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
            let mut connection = way.connect(config).await?;
            let Greeting { id, .. } = self.greet(&mut connection).await?;
            Ok(Waiter { connection, way, id })
        })
        .await
    }

    /// Opens a connection within the time limit. If `again`, connects to the server that has the connection for
    /// requests, and does not ask Sentinels.
    async fn to_server<T>(&self, again: bool, connect: impl AsyncFnOnce(Arc<Way>) -> Result<T, Why>) -> Result<T, Why> {
        let within = async |way| timeout(CONNECT_TIMEOUT, connect(way)).await.unwrap_or_else(|_| Err(Why::late()));
        let sentinels = match &self.server {
            Whereabouts::At(way) => return within(Arc::clone(way)).await,
            Whereabouts::Nowhere(_, why) => return Err(Why::Unfit(why.clone())),
            Whereabouts::Named(sentinels) => sentinels,
        };
        let known = match &*self.state.borrow() {
            State::Up(link) if again => Some(Arc::clone(&link.way)),
            _ => None,
        };
        let way = match known {
            Some(way) => way,
            None => Arc::new(sentinels.master().await?),
        };
        within(Arc::clone(&way)).await.map_err(|failure| failure.of_server(way.name()))
    }

    /// Asks the server at the other end whether it can serve as this node.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> Result<Greeting, Why> {
        let asked = Instant::now();
        let node = connection.send_packed_command(&redis::cmd("LOCK.NODE")).await;
        let node = Why::or_value(node).map_err(|why| why.of_node().before_asked())?;
        let took = asked.elapsed();
        wire::ensure_no_agent(&node)?;
        let id = wire::node_id(&node).ok_or_else(|| Why::Unfit("its LOCK.NODE has no id".to_owned()))?;
        let protocol = wire::number(&node, "protocol").unwrap_or(0);
        if protocol != PROTOCOL {
            return Err(Why::Unfit(format!(
                "its lock module speaks protocol {protocol}, this client {PROTOCOL}: upgrade the older of them"
            )));
        }
        if !wire::is_master(&node) {
            let is_fixed = matches!(self.server, Whereabouts::At(_)) && !self.is_in_cluster;
            let todo = if is_fixed { ": give the address of a master" } else { "" };
            return Err(Why::Unreachable(format!("it is a replica{todo}")));
        }
        // Another server than the member must not answer for it.
        if self.id.is_some_and(|member| member != id) {
            return Err(Why::Unfit(ANOTHER_SERVER.to_owned()));
        }
        self.answers().pace.on_answer(took, Instant::now());
        let features = wire::text(&node, "features").unwrap_or_default();
        let knows = |word| features.split(' ').any(|feature| feature == word);
        self.join(connection, knows(MEMBERS)).await?;
        Ok(Greeting { id, knows_behind: knows(BEHIND), hears: knows(HEAR) })
    }
}

impl Node {
    /// States the version of the set that this client works with. A node that knows a later version refuses, and
    /// reports that one.
    async fn join(&self, connection: &mut MultiplexedConnection, knows_members: bool) -> Result<(), Why> {
        let news = &self.common.news;
        if !knows_members {
            return match news.version() {
                0 => Ok(()),
                _ => Err(Why::Unfit(TOO_OLD_FOR_MEMBERS.to_owned())),
            };
        }
        let answer = connection.send_packed_command(&wire::join(news.version())).await;
        let lacks = "+lock.members, or changes of the set of nodes are missed";
        let answer = Why::or_value(answer).map_err(|why| why.before_asked().asking_for(lacks))?;
        let members = wire::members(&answer)
            .ok_or_else(|| Why::Unfit(format!("it answered {answer:?} when it was asked for the set of nodes")))?;
        if members.version <= news.version() {
            return Ok(());
        }
        if !news.follows {
            return Err(Why::Unfit(IN_A_SET.to_owned()));
        }
        news.record(members);
        Err(Why::Unreachable("it was told of another set of nodes, which this client takes up".to_owned()))
    }
}
