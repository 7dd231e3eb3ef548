//! What a node says of a lock: at once, or as soon as it is not what it said before.

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

/// A node is watched for so long at a time: that nothing changed is heard so often.
const WATCHED: Duration = Duration::from_secs(3);

/// A node that does not answer is asked again after so long.
const AGAIN: Duration = Duration::from_millis(200);

/// And one that is guarded at the latest after so long.
const GUARDED_AGAIN: Duration = Duration::from_secs(1);

/// What a node said last: token and sequence; token 0 if the lock is free. `None`: nothing that can be watched for changes.
pub type Known = Option<(u64, u64)>;

/// What came of asking a node.
#[derive(Debug)]
pub struct Told {
    pub node: usize,
    /// When it was asked.
    pub asked: BootTime,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// The lock is so.
    Says { id: NodeId, state: State, known: Known },
    /// Nothing changed.
    Same { id: NodeId, known: Known },
    /// It did not answer, and why.
    Silent(Why),
}

/// A lock as one node has it.
#[derive(Debug)]
pub enum State {
    Free,
    /// It is free there, but the node may have forgotten who holds it.
    Guarded,
    /// As LOCK.INFO describes it.
    Held(Value),
}

impl What {
    /// The server that answered.
    pub fn id(&self) -> Option<NodeId> {
        match self {
            Self::Says { id, .. } | Self::Same { id, .. } => Some(*id),
            Self::Silent(_) => None,
        }
    }
}

impl Told {
    /// What to ask this node for next, and after how long.
    pub fn next(&self) -> (Known, Duration) {
        match &self.what {
            What::Says { known: known @ Some(_), .. } | What::Same { known, .. } => (*known, Duration::ZERO),
            What::Says { known: None, .. } => (None, GUARDED_AGAIN),
            What::Silent(_) => (None, AGAIN),
        }
    }
}

/// Asks a node: at once, or, if it is known what it said last, to tell when that changes.
pub fn ask(
    nodes: Arc<Nodes>,
    key: Arc<[u8]>,
    node: usize,
    known: Known,
    given: Given,
    after: Duration,
) -> BoxFuture<'static, Told> {
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
            (Some(id), Ok(Value::Nil)) if known.is_some() => What::Same { id, known },
            (Some(id), Ok(info)) => match known_of(&info) {
                Some((0, _)) => {
                    // What a guarded node has forgotten looks the same.
                    let (server, reply) = nodes.list[node].ask_at(&key, &redis::cmd("LOCK.NODE"), given).await;
                    match reply {
                        Ok(_) if server != Some(id) => {
                            What::Silent(Why::Broken("it was replaced by another server".to_owned()))
                        }
                        Ok(reply) if wire::text(&reply, "state").as_deref() == Some("serving") => {
                            What::Says { id, state: State::Free, known: Some((0, 0)) }
                        }
                        Ok(_) => What::Says { id, state: State::Guarded, known: None },
                        Err(why) => What::Silent(why),
                    }
                }
                Some(known) => What::Says { id, state: State::Held(info), known: Some(known) },
                None => What::Silent(Why::Broken(format!("it answered {info:?}"))),
            },
            (_, Err(why)) => What::Silent(why),
            (None, Ok(_)) => What::Silent(Why::Broken("it is not known which server answered".to_owned())),
        };
        Told { node, asked, what }
    }
    .boxed()
}

/// Token and sequence of what LOCK.INFO or LOCK.WATCH tell; token 0: it is free. `None`: it is no such answer.
fn known_of(info: &Value) -> Option<(u64, u64)> {
    match info {
        Value::Nil => Some((0, 0)),
        info => Some((wire::number(info, "token")?, wire::number(info, "seq")?)),
    }
}
