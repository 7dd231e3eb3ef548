//! Asks servers for their views of a cluster.

use futures_util::future::join_all;
use redis::{Cmd, Value, cmd};
use tokio::time::timeout;

use super::map::View;
use crate::net::access::Way;
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::server::Line;
use crate::values::failure::Why;

/// Returns the name of a cluster with these servers.
pub fn cluster_name(seeds: &[Way]) -> String {
    format!("cluster of {}", seeds.iter().map(Way::name).collect::<Vec<_>>().join(", "))
}

/// Asks these servers over new connections how they see the cluster, and returns the best view.
///
/// # Errors
/// None of them answers.
pub async fn view_of(ways: &[Way]) -> Result<View, Why> {
    best(join_all(ways.iter().map(ask_server)).await)
}

pub(super) fn best(said: Vec<Result<View, Why>>) -> Result<View, Why> {
    let (views, failures): (Vec<_>, Vec<_>) = said.into_iter().partition(Result::is_ok);
    // A server that was removed from its cluster knows no shards.
    let views = views.into_iter().flatten().filter(|view| !view.shards.is_empty());
    if let Some(view) = views.max_by_key(|view| view.standing) {
        return Ok(view);
    }
    let failures: Vec<_> = failures.into_iter().filter_map(Result::err).collect();
    Err(match failures.is_empty() {
        true => Why::Unreachable("its servers know of no master with slots: CLUSTER ADDSLOTS".to_owned()),
        false => Why::Each(failures),
    })
}

pub(super) fn questions() -> [Cmd; 2] {
    [cmd("CLUSTER").arg("INFO").take(), cmd("CLUSTER").arg("SLOTS").take()]
}

pub(super) fn read(info: &Value, slots: &Value, way: &Way) -> Result<View, Why> {
    let wrong = || Why::Broken("it does not answer as a server of a cluster does".to_owned());
    View::read(info, slots, way.host().unwrap_or("127.0.0.1")).ok_or_else(wrong)
}

/// Asks a server how it sees the cluster, over a new connection.
async fn ask_server(way: &Way) -> Result<View, Why> {
    let asked = async {
        let mut line = Line::open(way).await?;
        let [info, slots] = &questions();
        read(&line.ask(info).await?, &line.ask(slots).await?, way)
    };
    let answer = timeout(CONNECT_TIMEOUT, asked).await;
    answer.unwrap_or(Err(Why::Silent)).map_err(|failure| failure_of_server(failure, way))
}

/// Adds the server's name to a failure.
pub(super) fn failure_of_server(why: Why, way: &Way) -> Why {
    why.before_asked().asking_for("+cluster|info +cluster|slots").of_server(way.name())
}
