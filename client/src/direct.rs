//! Parts that the program `palisade` uses to talk to single servers, and to plan changes of the set of nodes. Not
//! public API: they expose types of redis-rs.

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

/// Asks the client's nodes, and the members that they name, which set of nodes they know.
///
/// # Errors
/// Those of [`Client::connect`], if no thread can be started.
pub async fn survey(client: &Client) -> Result<Surveyed, Error> {
    let nodes = client.nodes();
    client.thread()?.run(async move { run::members::survey(&nodes).await }).await
}
