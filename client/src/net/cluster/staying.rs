//! Keeps the map of a cluster up to date: renews it when a master fails or redirects, and periodically.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rand::RngExt;
use rand::seq::IndexedRandom;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::map::{SLOTS, View};
use super::views::{best, failure_of_server, questions, read, view_of};
use super::{Cluster, MapStatus};
use crate::net::bounds::CONNECT_TIMEOUT;
use crate::net::node::Node;
use crate::net::pace::Given;
use crate::values::failure::Why;

/// Pause between renewals of the map while all masters answer. While one does not, or a slot has no master, it is
/// `TROUBLED`.
const CALM: Duration = Duration::from_secs(10);
const TROUBLED: Duration = Duration::from_millis(200);

/// Minimum pause between renewals of the map of slots, whatever causes them.
const LEAST: Duration = Duration::from_millis(50);

/// Number of servers asked for their map of slots at a time, since one of them may be cut off and have an old one.
const ASKED: usize = 3;

impl Cluster {
    /// Keeps the map of slots up to date. Never returns.
    pub async fn stay_informed(self: Arc<Self>) {
        loop {
            match self.view().await {
                Ok(view) => self.install(&view),
                Err(failure) => {
                    debug!(cluster = self.name(), %failure, "no map of the cluster");
                    self.known.send_if_modified(|known| match known {
                        // The old map is better than none.
                        MapStatus::Map(_) => false,
                        _ => {
                            *known = MapStatus::Failed(failure);
                            true
                        }
                    });
                }
            }
            let is_calm = match &*self.known.borrow() {
                MapStatus::Map(map) => {
                    map.slots.len() == usize::from(SLOTS) && map.masters.iter().all(|node| node.is_worth_asking())
                }
                MapStatus::Nothing | MapStatus::Failed(_) => false,
            };
            let pause = if is_calm { CALM } else { TROUBLED };
            let jittered = pause.mul_f64(rand::rng().random_range(0.7..1.0));
            sleep(LEAST).await;
            let _ = timeout(jittered, self.stale.notified()).await;
        }
    }

    /// Asks some servers how they see the cluster, and returns the best view.
    async fn view(&self) -> Result<View, Why> {
        let answering: Vec<_> = self.masters().into_iter().filter(|node| node.is_connected()).collect();
        let some: Vec<_> = answering.sample(&mut rand::rng(), ASKED).collect();
        let said = join_all(some.into_iter().map(ask_master)).await;
        if said.iter().all(Result::is_err) {
            // All other known servers are asked, also replicas, since one of them may have become a master.
            let replicas = match &*self.known.borrow() {
                MapStatus::Map(map) => map.replicas.clone(),
                MapStatus::Nothing | MapStatus::Failed(_) => vec![],
            };
            let replicas = replicas.iter().map(|place| self.seeds[0].to(&place.host, place.port));
            let ways: Vec<_> = self.seeds.iter().cloned().chain(replicas).collect();
            return view_of(&ways).await;
        }
        best(said)
    }
}

/// Asks a master how it sees the cluster, over its existing connection.
async fn ask_master(node: &Arc<Node>) -> Result<View, Why> {
    let Some(way) = node.way() else { return Err(Why::Silent) };
    let given = Given::Within { least: CONNECT_TIMEOUT / 4, most: CONNECT_TIMEOUT };
    let [info, slots] = &questions();
    let (info, slots) = (node.ask(info, given, None).await.1, node.ask(slots, given, None).await.1);
    let view = async || read(&info?, &slots?, way);
    view().await.map_err(|failure| failure_of_server(failure, way))
}
