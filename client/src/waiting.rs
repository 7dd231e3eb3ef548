//! Waiting for a lock in the queues of the nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::Token;
use palisade_core::quorum::{Turn, TurnProgress};
use redis::Value;
use tokio::time::Instant;

use crate::nodes::{GiveBack, Nodes};
use crate::wire::Lease;

/// How much later than it promised a node may answer, before its connection is taken for dead.
pub const LATE: Duration = Duration::from_secs(1);

/// Waits until a majority says that the lock is free for this acquisition, for up to `patience`; whether it did. Then the
/// lock is to be acquired at once. Dropped meanwhile, or in vain, the request leaves every queue.
pub async fn turn(
    nodes: &Arc<Nodes>,
    lease: Lease,
    ticket: Token,
    patience: Duration,
    node_timeout: Duration,
) -> Option<Lease> {
    let lease = Arc::new(lease);
    let mut give_back = GiveBack::new(nodes, &lease, node_timeout);
    let command = lease.wait(patience.as_millis() as u64, ticket);
    let connect_by = Instant::now() + node_timeout;
    let ask = |node: usize| {
        let (nodes, command) = (&nodes, &command);
        async move { (node, nodes.list[node].ask_waiting(command, patience + LATE, connect_by).await) }
    };
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
    let mut machine = Turn::begin(nodes.len());
    let mut turn = false;
    while let Some((node, (id, reply))) = asked.next().await {
        let told = if matches!(reply, Ok(Value::Int(1))) { id } else { None };
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
    if !turn {
        return None;
    }
    give_back.disarm();
    drop(give_back);
    Arc::into_inner(lease)
}
