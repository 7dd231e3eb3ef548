//! Parts that the program `palisade` uses to talk to single servers, and to plan changes of the set of nodes. Not
//! public API: they expose types of redis-rs.

use palisade_quorum::Members;

pub use crate::net::access::Access;
pub use crate::net::place::Place;
pub use crate::net::server::{Server, ServerLink};
pub use crate::run::members::{Plan, ServerKnowledge, Surveyed};
pub use crate::values::holder_id;
use crate::{Client, Error, NodeError, run};

/// Returns what [`Client::set_nodes`] would do now with these addresses. Calls `waits` for each new node that does not
/// answer within a second and is asked again.
///
/// # Errors
/// Those of [`Client::set_nodes`], if it would fail at once.
pub async fn plan(
    client: &Client,
    addresses: Vec<String>,
    waits: impl Fn(NodeError) + Send + Sync + 'static,
) -> Result<Plan, Error> {
    let nodes = client.nodes();
    client.thread()?.run(async move { run::members::plan(&nodes, &addresses, &waits).await }).await?
}

/// Asks the client's nodes, and the members that they name, which set of nodes they know. The client itself does not
/// connect to them for that.
pub async fn survey(client: &Client) -> Surveyed {
    run::members::survey(&client.nodes()).await
}

/// Returns the set that the client works with; version 0 if no node has told it one.
pub fn members(client: &Client) -> Members {
    client.nodes().set.news.members.clone()
}

/// Returns the places of a set's members. The client reaches them in the same way: with the settings of the nodes that
/// its user named.
pub fn places(client: &Client, members: &Members) -> Vec<Place> {
    let nodes = client.nodes();
    members.list.iter().map(|member| nodes.set.ways.to(member).into()).collect()
}
