//! Asks a node for the state of a lock, at once or at its next change.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use palisade_quorum::{BootTime, NodeId};
use redis::Value;
use tokio::time::sleep;

use crate::net::bounds::LATE;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::wire;
use crate::values::clock;
use crate::values::failure::Why;

/// Length of one watch of a node; without a change it answers after this time.
const WATCHED: Duration = Duration::from_secs(3);

/// Pause before a node that did not answer is asked again.
pub const AGAIN: Duration = Duration::from_millis(200);

/// Pause before a guarded node is asked again.
const GUARDED_AGAIN: Duration = Duration::from_secs(1);

/// The state that a node last reported: token and sequence; token 0 if the lock is free. `None` if there is nothing to
/// watch.
pub type Known = Option<(u64, u64)>;

/// A node's report of the lock's state, and the time at which it was asked.
#[derive(Debug)]
pub struct NodeReport {
    pub node: usize,
    /// The time at which the node was asked.
    pub asked: BootTime,
    pub what: Observation,
}

#[derive(Debug)]
pub enum Observation {
    /// The node reports the lock's state.
    Shows { id: NodeId, state: State, known: Known },
    /// The lock has not changed since the known state.
    Same { id: NodeId, known: Known },
    /// The node did not answer, for this reason.
    Silent(Why),
}

/// The state of a lock on one node.
#[derive(Debug)]
pub enum State {
    Free,
    /// The lock is free there, but the node may have forgotten its holder.
    Guarded,
    /// The lock is held, as LOCK.INFO describes it.
    Held(Value),
}

impl Observation {
    /// Returns the server that answered.
    pub fn id(&self) -> Option<NodeId> {
        match self {
            Self::Shows { id, .. } | Self::Same { id, .. } => Some(*id),
            Self::Silent(_) => None,
        }
    }
}

impl NodeReport {
    /// Returns the pause before the next request to this node, and the state that this request names as known, so that
    /// the node answers only when it changes.
    pub fn next(&self) -> (Known, Duration) {
        match &self.what {
            Observation::Shows { known: known @ Some(_), .. } | Observation::Same { known, .. } => {
                (*known, Duration::ZERO)
            }
            Observation::Shows { known: None, .. } => (None, GUARDED_AGAIN),
            Observation::Silent(_) => (None, AGAIN),
        }
    }
}

/// Asks a node for the lock's state, after the pause `after`. If its last report is `known`, the node answers at the
/// next change, otherwise at once.
pub fn ask(
    nodes: Arc<Nodes>,
    key: Arc<[u8]>,
    node: usize,
    known: Known,
    given: Given,
    after: Duration,
) -> BoxFuture<'static, NodeReport> {
    async move {
        sleep(after).await;
        let asked = clock::boot_now();
        let (id, reply) = match known {
            Some((token, sequence)) => {
                let command = wire::watch(&key, WATCHED.as_millis() as u64, token, sequence);
                nodes.list[node].ask_waiting(&command, WATCHED + LATE, None).await
            }
            None => nodes.list[node].ask(&wire::info(&key), given, None).await,
        };
        let what = match (id, reply) {
            (Some(id), Ok(Value::Nil)) if known.is_some() => Observation::Same { id, known },
            (Some(id), Ok(info)) => match known_of(&info) {
                Some((0, _)) => {
                    // LOCK.INFO shows a lock that a guarded node has forgotten as free, so the node is asked whether it
                    // is guarded.
                    let (server, reply) = nodes.list[node].ask_at(&key, &wire::node_of(&key), given).await;
                    match reply {
                        Ok(_) if server != Some(id) => {
                            Observation::Silent(Why::Broken("it was replaced by another server".to_owned()))
                        }
                        Ok(reply) if wire::text(&reply, "state").as_deref() == Some("serving") => {
                            Observation::Shows { id, state: State::Free, known: Some((0, 0)) }
                        }
                        Ok(_) => Observation::Shows { id, state: State::Guarded, known: None },
                        Err(why) => Observation::Silent(why),
                    }
                }
                Some(known) => Observation::Shows { id, state: State::Held(info), known: Some(known) },
                None => Observation::Silent(Why::Broken(format!("it answered {info:?}"))),
            },
            (_, Err(why)) => Observation::Silent(why),
            (None, Ok(_)) => Observation::Silent(Why::Broken("it is not known which server answered".to_owned())),
        };
        NodeReport { node, asked, what }
    }
    .boxed()
}

/// Waits until a node reports another state than `known`: the grant with this token has ended, or has a newer note or
/// another token.
pub async fn change(nodes: Arc<Nodes>, key: Arc<[u8]>, node: usize, known: (u64, u64), given: Given) {
    let mut after = Duration::ZERO;
    loop {
        let report = ask(Arc::clone(&nodes), Arc::clone(&key), node, Some(known), given, after).await;
        after = match report.what {
            Observation::Shows { .. } => return,
            Observation::Same { .. } => Duration::ZERO,
            Observation::Silent(_) => AGAIN,
        };
    }
}

/// Returns token and sequence number in a reply of LOCK.INFO or LOCK.WATCH; token 0 if the lock is free. `None` if the
/// reply has another form.
fn known_of(info: &Value) -> Option<(u64, u64)> {
    match info {
        Value::Nil => Some((0, 0)),
        info => Some((wire::number(info, "token")?, wire::number(info, "seq")?)),
    }
}
