//! One question to one server, whether it is a member or not, over a connection of its own that joins no set.

use std::sync::Arc;

use palisade_quorum::NodeId;
use redis::{AsyncConnectionConfig, Cmd, Value};
use tokio::time::timeout;

use crate::net::access::Way;
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::wire;
use crate::values::failure::Why;

/// Which server answered, and what.
#[derive(Debug)]
pub struct Answered {
    pub id: NodeId,
    /// For so many milliseconds it grants nothing.
    pub guard_ms: u64,
    pub value: Value,
}

/// Sends `command` to the server at the other end of `way`; if it is to be a certain one, to that alone.
///
/// # Errors
/// It does not answer in time, is another one, or refuses.
pub async fn ask(way: &Arc<Way>, expects: Option<NodeId>, command: &Cmd) -> Result<Answered, Why> {
    let asked = async {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
        let mut connection = way.connect(config).await?;
        let node = Why::or_value(connection.send_packed_command(&redis::cmd("LOCK.NODE")).await)?;
        let id = wire::node_id(&node).ok_or_else(|| Why::Unfit("its LOCK.NODE has no id".to_owned()))?;
        if expects.is_some_and(|expects| expects != id) {
            return Err(Why::Unfit("another server is there than the member".to_owned()));
        }
        let guard_ms = wire::number(&node, "guard_ms").unwrap_or(0);
        let value = Why::or_value(connection.send_packed_command(command).await)?;
        Ok(Answered { id, guard_ms, value })
    };
    timeout(CONNECT_TIMEOUT, asked).await.unwrap_or(Err(Why::Silent))
}
