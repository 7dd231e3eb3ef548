//! Waits for a lock in the queues of the nodes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{BootTime, NodeId, Token, WaitTask, Waiter};
use redis::Value;
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::net::bounds::{CONNECT_TIMEOUT, LATE};
use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::tally::Tally;
use crate::net::wire;
use crate::run::checked::Checked;
use crate::run::give_back::GiveBack;
use crate::values::clock;
use crate::{Error, ErrorKind, Why};

/// The result of a wait in the queues.
pub struct ReservedTurn {
    /// The acquisition that waited in the queues. A majority reserves the lock for it for a short time.
    pub lease: Lease,
    /// The number of the permit that most nodes reserve for it, 1 if none is wanted.
    pub number: u16,
}

/// A request in the queues of nodes.
struct Request<'a> {
    nodes: &'a Nodes,
    lease: &'a Lease,
    ticket: Token,
    patience: Duration,
    until: BootTime,
    behind: &'a Tally,
}

impl Request<'_> {
    /// Sends LOCK.WAIT to a node after `pause`. Returns its answer.
    async fn ask(&self, node: usize, pause: Duration) -> (usize, (Option<NodeId>, Result<Value, Why>)) {
        let (endpoint, key) = (&self.nodes.list[node], &self.lease.key);
        sleep(pause).await;
        // If there is no connection yet, the node's features are unknown. Then it would receive neither the note nor
        // the number of requests that wait behind this one.
        endpoint.is_tried(key, Instant::now() + CONNECT_TIMEOUT.min(self.patience)).await;
        let at_a_time_ms =
            Waiter::at_a_time_ms(self.until, endpoint.listener_waits(key), clock::boot_now(), rand::random());
        let behind = endpoint.may_send_behind(key).then(|| self.behind.count());
        let command = self.lease.wait(at_a_time_ms.into(), self.ticket, behind);
        let longest = Duration::from_millis(at_a_time_ms.into()) + LATE;
        (node, endpoint.ask_to_wait(&command, self.lease, longest).await)
    }

    /// Passes the reply of a node to `waiter`, and returns the next task.
    fn on_reply(&self, waiter: &mut Waiter, node: usize, id: Option<NodeId>, reply: Result<Value, Why>) -> WaitTask {
        let (now, random) = (clock::boot_now(), rand::random());
        let kept = reply.as_ref().ok().and_then(wire::reserved_number);
        match (reply, id.zip(kept)) {
            (Ok(_), Some((id, number))) => waiter.on_turn(node, id, number, random),
            (Ok(_), None) => waiter.on_nothing(node, now, random),
            (Err(why), _) => {
                let waits = self.nodes.list[node].listener_waits(&self.lease.key);
                waiter.on_failure(node, why.is_lasting(), waits, now, random)
            }
        }
    }
}

/// Waits in the queues until a majority reports the lock as free for this acquisition, for up to `patience`. `None`: it
/// did not become free, or the nodes accept no waiters now. If the future is dropped or ends without the lock, the
/// request leaves every queue: its connections close, or a release is sent. Nodes receive the number of requests
/// `behind` it in this process, again at each repetition.
///
/// # Errors
/// A majority refuses to let this client wait at all.
pub async fn turn(
    nodes: &Arc<Nodes>,
    lease: Lease,
    ticket: Token,
    patience: Duration,
    behind: &Tally,
    checked: Checked,
) -> Result<Option<ReservedTurn>, Error> {
    let lease = Arc::new(lease);
    let mut give_back = GiveBack::new(nodes, &lease, checked);
    let until = clock::after(patience);
    let mut waiter = Waiter::begin(nodes.len(), until);
    let request = Request { nodes, lease: &lease, ticket, patience, until, behind };
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(|node| request.ask(node, Duration::ZERO)).collect();
    let mut whys = vec![None; nodes.len()];
    let (mut superseded, mut over) = (pin!(nodes.superseded()), pin!(sleep(patience)));
    lease.class.round();
    debug!(key = %lease.shown_key(), nodes = nodes.len(), "waits in the queues of the nodes");
    let ended = loop {
        let (node, (id, reply)) = tokio::select! {
            biased;
            Some(answered) = asked.next() => answered,
            // The caller waits again in the next version, with the same ticket.
            () = &mut superseded => break WaitTask::Leave,
            // At this moment the wait ends, also for nodes that have not answered.
            () = &mut over => break waiter.leave(),
            else => break waiter.leave(),
        };
        if let Err(why) = &reply {
            whys[node] = why.is_lasting().then(|| why.clone());
        }
        match request.on_reply(&mut waiter, node, id, reply) {
            WaitTask::Go => {}
            WaitTask::Ask { node, after_ms } => {
                asked.push(request.ask(node, Duration::from_millis(after_ms.into())));
            }
            ended => break ended,
        }
    };
    debug!(key = %lease.shown_key(), nodes = nodes.len(), ?ended, "waited");
    // Requests without an answer leave their queues, because their connections close or a release is sent.
    drop(asked);
    match ended {
        WaitTask::Acquire(number) => {
            give_back.disarm();
            drop(give_back);
            Ok(Arc::into_inner(lease).map(|lease| ReservedTurn { lease, number }))
        }
        WaitTask::Refused => {
            let text = "too few nodes let this client wait for the lock";
            Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys)).lasting(true))
        }
        _ => Ok(None),
    }
}
