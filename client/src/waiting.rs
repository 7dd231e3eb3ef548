//! Waiting for a lock in the queues of the nodes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::quorum::{Turn, TurnProgress, majority};
use palisade_core::{Token, Wanted};
use rand::RngExt;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;

use crate::give_back::{GiveBack, Tally};
use crate::node::CONNECT_TIMEOUT;
use crate::nodes::Nodes;
use crate::options::Checked;
use crate::wire::{self, Lease};
use crate::{Error, ErrorKind};

/// A wait is renewed so often, in its place: a node that hangs or was replaced is noticed, and asked again.
const RENEWED: Duration = Duration::from_secs(20);

/// Of more waits than this over one listener each is renewed as many times more seldom, and asked again so much later: nodes and this
/// process are not kept busy by waiting alone.
const WAITS_AT_ONCE: usize = 1_000;

/// A node that cannot be waited on is asked again after so long, and after no longer than that.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How much later than it promised a node may answer, before its connection is taken for dead.
pub const LATE: Duration = Duration::from_secs(1);

/// Waits until a majority says that the lock is free for this acquisition, for up to `patience`; then the lock is to be
/// acquired at once; of several permits, with the number that most nodes keep for it if this client `chooses` it. `None`: it did not become free, or the nodes let nobody wait just now. Dropped meanwhile, or in vain, the
/// request leaves every queue: its connections close, or it is given back. Nodes are told how many wait `behind` it in this process, and again at each renewal.
///
/// # Errors
/// A majority refuses to be waited for at all.
pub async fn turn(
    nodes: &Arc<Nodes>,
    lease: Lease,
    ticket: Token,
    patience: Duration,
    (chooses, behind): (bool, &Tally),
    checked: Checked,
) -> Result<Option<Lease>, Error> {
    let lease = Arc::new(lease);
    let mut give_back = GiveBack::new(nodes, &lease, checked);
    let deadline = Instant::now() + patience;
    let ask = |node: usize, after: Duration| {
        let (nodes, lease) = (&nodes, &lease);
        async move {
            sleep(after).await;
            // Else it is not known what the node can be told: it would hear neither the note nor how many wait behind.
            nodes.list[node].is_tried(&lease.key, Instant::now() + CONNECT_TIMEOUT.min(patience)).await;
            let many = 1 + nodes.list[node].waits_heard(&lease.key) / WAITS_AT_ONCE;
            let renewed = (RENEWED * many as u32).mul_f64(rand::rng().random_range(0.8..1.0));
            let at_a_time = deadline.saturating_duration_since(Instant::now()).min(renewed);
            let behind = nodes.list[node].knows_behind(&lease.key).then(|| behind.count());
            let command = lease.wait(at_a_time.as_millis() as u64, ticket, behind);
            (node, nodes.list[node].ask_to_wait(&command, lease, at_a_time + LATE).await)
        }
    };
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(|node| ask(node, Duration::ZERO)).collect();
    let mut machine = Turn::begin(nodes.len());
    let mut whys = vec![None; nodes.len()];
    let (mut turn, mut superseded, mut over) = (false, pin!(nodes.superseded()), pin!(sleep_until(deadline)));
    lease.class.round();
    debug!(key = %lease.shown_key(), nodes = nodes.len(), "waits in the queues of the nodes");
    loop {
        let (node, (id, reply)) = tokio::select! {
            biased;
            Some(answered) = asked.next() => answered,
            // It is waited for in the next version of the set, with the same ticket.
            () = &mut superseded => {
                whys.fill(None);
                break;
            }
            // Nodes that do not answer are not waited for after that.
            () = &mut over => break,
            else => break,
        };
        let kept = reply.as_ref().ok().and_then(wire::kept_number);
        let goes_on = Instant::now() < deadline;
        match reply {
            Ok(_) if kept.is_some() => {}
            Ok(_) if goes_on => {
                asked.push(ask(node, Duration::ZERO));
                continue;
            }
            Ok(_) => {}
            // What does not pass by itself.
            Err(failure) if failure.is_lasting() => whys[node] = Some(failure.to_string()),
            Err(_) if goes_on => asked.push(ask(node, again(nodes.list[node].waits_heard(&lease.key)))),
            Err(_) => {}
        }
        match machine.on_answer(node, id.zip(kept)) {
            TurnProgress::Goes => {}
            TurnProgress::Free => {
                turn = true;
                break;
            }
            TurnProgress::Impossible => break,
        }
    }
    debug!(key = %lease.shown_key(), nodes = nodes.len(), turn, "waited");
    // Those that did not answer leave their queues: their connections close, or their nodes are told.
    drop(asked);
    if turn {
        give_back.disarm();
        drop(give_back);
        if let Wanted::Permit { limit, .. } = lease.wanted()
            && chooses
        {
            lease.wants(Wanted::Permit { limit, number: machine.number(rand::random()) });
        }
        return Ok(Arc::into_inner(lease));
    }
    if whys.iter().flatten().count() > nodes.len() - majority(nodes.len()) {
        let text = "too few nodes let this client wait for the lock";
        return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys)).lasting(true));
    }
    Ok(None)
}

/// How long after it failed a node is asked again, where so many wait over its listener.
fn again(waits: usize) -> Duration {
    let pause = AGAIN.0.mul_f64(1.0 + waits as f64 / (WAITS_AT_ONCE as f64 / 5.0));
    pause.min(AGAIN.1).mul_f64(rand::rng().random_range(0.5..1.0))
}
