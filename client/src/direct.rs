//! What the program `palisade` needs to speak to single servers. No part of the API: it has types of redis-rs in it.

pub use crate::net::access::Access;
pub use crate::net::place::Place;
pub use crate::net::server::{Server, ServerLink};
pub use crate::run::members::{Knows, Plan, Surveyed};
pub use crate::values::holder_id;
use crate::{Client, Error, run};

/// What [`Client::set_nodes`] with these addresses would do now.
///
/// # Errors
/// As of that, if it would fail at once.
pub async fn plan(client: &Client, addresses: Vec<String>) -> Result<Plan, Error> {
    let nodes = client.nodes();
    client.thread()?.run(async move { run::members::plan(&nodes, &addresses).await }).await?
}

/// Asks the nodes of the client, and the members that they tell of, what they know of the set.
///
/// # Errors
/// As of [`Client::connect`], if no thread can be started.
pub async fn survey(client: &Client) -> Result<Surveyed, Error> {
    let nodes = client.nodes();
    client.thread()?.run(async move { run::members::survey(&nodes).await }).await
}
