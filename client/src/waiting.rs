//! Waiting for a lock in the queues of the nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::Token;
use palisade_core::quorum::{Turn, TurnProgress, majority};
use redis::Value;

use crate::nodes::{GiveBack, Nodes};
use crate::wire::Lease;
use crate::{Error, ErrorKind};

/// How much later than it promised a node may answer, before its connection is taken for dead.
pub const LATE: Duration = Duration::from_secs(1);

/// Waits until a majority says that the lock is free for this acquisition, for up to `patience`; then the lock is to be
/// acquired at once. `None`: it did not become free, or the nodes let nobody wait just now. Dropped meanwhile, or in vain, the
/// request leaves every queue.
///
/// # Errors
/// A majority refuses to be waited for at all.
pub async fn turn(
    nodes: &Arc<Nodes>,
    lease: Lease,
    ticket: Token,
    patience: Duration,
    node_timeout: Duration,
) -> Result<Option<Lease>, Error> {
    let lease = Arc::new(lease);
    let mut give_back = GiveBack::new(nodes, &lease, node_timeout);
    let command = lease.wait(patience.as_millis() as u64, ticket);
    let ask = |node: usize| {
        let (nodes, command) = (&nodes, &command);
        async move { (node, nodes.list[node].ask_waiting(command, patience + LATE).await) }
    };
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
    let mut machine = Turn::begin(nodes.len());
    let mut whys = vec![None; nodes.len()];
    let mut turn = false;
    while let Some((node, (id, reply))) = asked.next().await {
        let told = if matches!(reply, Ok(Value::Int(1))) { id } else { None };
        // What does not pass by itself.
        if let Err(trouble) = reply
            && matches!(trouble.code(), Some("ERR" | "NOPERM" | "WRONGTYPE"))
        {
            whys[node] = Some(trouble.to_string());
        }
        match machine.on_answer(node, told) {
            TurnProgress::Goes => {}
            TurnProgress::Free => {
                turn = true;
                break;
            }
            TurnProgress::Impossible => break,
        }
    }
    // Those that did not answer close their connections here, and leave their queues with them.
    drop(asked);
    if turn {
        give_back.disarm();
        drop(give_back);
        return Ok(Arc::into_inner(lease));
    }
    if whys.iter().flatten().count() > nodes.len() - majority(nodes.len()) {
        let text = "too few nodes let this client wait for the lock";
        return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys)));
    }
    Ok(None)
}
