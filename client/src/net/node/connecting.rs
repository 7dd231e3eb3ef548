//! Connecting to a server that can be a node.

use std::sync::Arc;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::time::{Instant, timeout};

use super::link::{Link, give_up};
use super::{Node, State, Whereabouts};
use crate::net::access::Way;
use crate::net::bounds::{CONNECT_TIMEOUT, WINDOW};
use crate::net::wire;
use crate::values::failure::Why;

/// The contract that this client speaks, as LOCK.NODE numbers it.
const PROTOCOL: u64 = 1;

/// The word of LOCK.NODE for a node that takes a note with LOCK.WAIT, and how many wait behind a request.
const BEHIND: &str = "behind";

/// The word of LOCK.NODE for a node where one connection hears of many waits.
const HEAR: &str = "hear";

/// The word of LOCK.NODE for a node that knows of the set of nodes.
const MEMBERS: &str = "members";

/// Why a node of a set that has versions cannot be asked.
const ANOTHER_SERVER: &str = "another server is there than the member of the set: it was replaced, or lost its state file. Remove the member \
                              from the set, and add the server that is there";
const IN_A_SET: &str =
    "it is a member of a set of nodes that changes, where each node is one server: give the addresses of those servers";
const TOO_OLD_FOR_MEMBERS: &str = "its lock module is too old for a set of nodes that changes: upgrade it";

impl Node {
    /// A new connection to a server that can be a node.
    pub(super) async fn connect(&self, number: u64) -> Result<Link, Why> {
        let sentinels = match &self.server {
            Whereabouts::At(way) => return self.connect_to(Arc::clone(way), number).await,
            Whereabouts::Nowhere(_, why) => return Err(Why::Unfit(why.clone())),
            Whereabouts::Named(sentinels) => sentinels,
        };
        let known = match &*self.state.borrow() {
            // Where the connection for requests leads to, the others lead to.
            State::Up(link) if number == 0 => Some(Arc::clone(&link.way)),
            _ => None,
        };
        let way = match known {
            Some(way) => way,
            None => Arc::new(sentinels.master().await?),
        };
        let connected = self.connect_to(Arc::clone(&way), number).await;
        connected.map_err(|failure| failure.of_server(way.name()))
    }

    async fn connect_to(&self, way: Arc<Way>, number: u64) -> Result<Link, Why> {
        let (broken, tracked, place) = (Arc::clone(&self.broken), Arc::clone(&self.common.tracked), self.place);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WINDOW)
            .set_push_sender(move |push: PushInfo| {
                match push.kind {
                    // The server hung up: noticed at once, not by the next request.
                    PushKind::Disconnection => give_up(&broken, number),
                    PushKind::Invalidate => tracked.changed(place, &push.data),
                    _ => {}
                }
                Ok::<(), SendError>(())
            });
        let connected = async {
            let mut connection = way.connect(config).await?;
            let asked = Instant::now();
            let node = connection.send_packed_command(&redis::cmd("LOCK.NODE")).await;
            let node = Why::or_value(node).map_err(|why| why.of_node().before_asked())?;
            let took = asked.elapsed();
            let id = wire::node_id(&node).ok_or_else(|| Why::Unfit("its LOCK.NODE has no id".to_owned()))?;
            let protocol = wire::number(&node, "protocol").unwrap_or(0);
            if protocol != PROTOCOL {
                return Err(Why::Unfit(format!(
                    "its lock module speaks protocol {protocol}, this client {PROTOCOL}: upgrade the older of them"
                )));
            }
            if wire::text(&node, "role").as_deref() != Some("master") {
                let is_fixed = matches!(self.server, Whereabouts::At(_)) && !self.is_in_cluster;
                let todo = if is_fixed { ": give the address of a master" } else { "" };
                return Err(Why::Unreachable(format!("it is a replica{todo}")));
            }
            // What another server says is nobody's answer.
            if self.id.is_some_and(|member| member != id) {
                return Err(Why::Unfit(ANOTHER_SERVER.to_owned()));
            }
            self.answers().pace.heard_after(took, Instant::now());
            let features = wire::text(&node, "features").unwrap_or_default();
            let knows = |word| features.split(' ').any(|feature| feature == word);
            self.join(&mut connection, knows(MEMBERS)).await?;
            // Of keys that are looked at, and not of what this connection changes itself. Those that wait do not look.
            let mut tracking = redis::cmd("CLIENT");
            tracking.arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
            let tracks = number > 0 && matches!(connection.send_packed_command(&tracking).await, Ok(Value::Okay));
            Ok(Link { connection, way, number, id, tracks, knows_behind: knows(BEHIND), hears: knows(HEAR) })
        };
        let limit = CONNECT_TIMEOUT;
        timeout(limit, connected).await.unwrap_or_else(|_| Err(Why::late()))
    }

    /// Says which version of the set this client works with. A node that was told a later one takes nothing from it, and tells which.
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
        news.is_told(members);
        Err(Why::Unreachable("it was told of another set of nodes, which this client takes up".to_owned()))
    }
}
