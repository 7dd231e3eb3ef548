//! Sends one command to one server, member or not, over a separate connection that states no version of a set.

use std::sync::Arc;

use palisade_quorum::NodeId;
use redis::{Cmd, Value, cmd};
use tokio::time::timeout;

use crate::net::access::Way;
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::server::Line;
use crate::net::wire;
use crate::values::failure::Why;

/// The answer to a command, and the server that gave it.
#[derive(Debug)]
pub struct Answered {
    pub id: NodeId,
    /// The server's answer to LOCK.NODE.
    pub node: Value,
    pub value: Value,
}

/// Sends `command` to the server at `way`. If `expects` is given, the server must have this id.
///
/// # Errors
/// The server does not answer in time, is another one, or refuses.
pub async fn ask(way: &Arc<Way>, expects: Option<NodeId>, command: &Cmd) -> Result<Answered, Why> {
    let asked = async {
        let mut line = Line::open(way).await?;
        let node = line.ask(&cmd("LOCK.NODE")).await.map_err(Why::of_node)?;
        let id = wire::node_id(&node).ok_or_else(|| Why::Unfit("its LOCK.NODE has no id".to_owned()))?;
        if expects.is_some_and(|expects| expects != id) {
            return Err(Why::Unfit("another server is there than the member".to_owned()));
        }
        let value = line.ask(command).await?;
        Ok(Answered { id, node, value })
    };
    timeout(CONNECT_TIMEOUT, asked).await.unwrap_or(Err(Why::Silent))
}
