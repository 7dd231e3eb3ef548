//! An attempt to acquire a lock on a majority of the nodes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::{Acquire, Held, Progress, majority};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::net::bounds::WINDOW;
use crate::net::calls::Calls;
use crate::net::home::{home, once_home};
use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::tally::Tally;
use crate::run::checked::Checked;
use crate::run::give_back::GiveBack;
use crate::run::refusal::{Seen, refused};
use crate::values::clock;
use crate::{Error, ErrorKind, Why};

/// An acquired lock, and the calls that are not answered yet.
pub struct Taken {
    /// The nodes that were asked.
    pub nodes: Arc<Nodes>,
    pub held: Held,
    pub calls: Calls,
    pub lease: Arc<Lease>,
}

/// A wait in the queue of a single node.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// Maximum time in the queue.
    pub patience: Duration,
    /// Counts the callers of this process that wait behind this one; their number is reported to the node.
    pub behind: &'a Tally,
}

/// Waits until `by`; never returns if there is no limit. The time is checked only on the client's thread.
async fn reached(by: Option<Instant>) {
    match by {
        Some(by) => {
            once_home().await;
            sleep_until(by).await;
        }
        None => std::future::pending().await,
    }
}

/// Waits until an attempt may begin.
///
/// # Errors
/// `by` is reached first.
async fn turn(nodes: &Nodes, by: Option<Instant>) -> Result<Option<SemaphorePermit<'_>>, Error> {
    tokio::select! {
        biased;
        turn = nodes.admission.turn() => Ok(turn),
        () = async { home().await; reached(by).await }, if by.is_some() => Err(not_begun()),
    }
}

/// Acquires the lock with one round to all nodes, and a second one if their tokens differ; until `by`, if there is a
/// limit. With a `wait`, the request waits in the queue of the only node. If the future is dropped or the lock is
/// refused, all nodes release what they granted.
pub async fn acquire(
    nodes: &Arc<Nodes>,
    lease: Lease,
    checked: Checked,
    by: Option<Instant>,
    wait: Option<Wait<'_>>,
) -> Result<Taken, Error> {
    let lease = Arc::new(lease);
    // This comes before the clock is read, so the lease does not run while this waits. A request that waits in a
    // node's queue takes no turn here: it would keep others of this process from beginning.
    let _turn = if wait.is_none() { turn(nodes, by).await? } else { None };
    let mut give_back = GiveBack::new(nodes, &lease, checked);
    let start = clock::boot_now();
    let (mut machine, first) = Acquire::begin(nodes.len(), checked.ttl_ms, nodes.clock.propose(), start);
    let ask = first[0].ask;
    lease.class.round();
    // True once there is a second round, which may take several calls.
    let mut is_aligned = false;
    let mut calls = Calls::new(nodes, &lease);
    match wait {
        Some(Wait { patience, behind }) => calls.make_waiting(first[0], checked.given, patience, behind),
        None => first.into_iter().for_each(|call| calls.make(0, call, checked.given)),
    }
    calls.wait_for(majority(nodes.len()));
    let mut seen = Seen::nothing(nodes.len());
    let mut answered = vec![false; nodes.len()];
    let (mut over, mut is_superseded) = (pin!(reached(by)), pin!(nodes.superseded_at_home()));
    let mut is_over = false;
    loop {
        let reply = tokio::select! {
            biased;
            Some(reply) = calls.next() => reply,
            () = &mut over => {
                seen.stop_waiting(&answered, ask, &mut machine);
                is_over = true;
                break;
            }
            // The grants so far are released, and the caller asks again in the next version of the set.
            () = &mut is_superseded => return Err(superseded()),
            else => break,
        };
        let node = reply.call.node;
        answered[node] = true;
        (seen.whys[node], seen.ids[node]) = (reply.why, reply.id);
        let now = clock::boot_now();
        machine.on_waited(reply.waited_ms, now);
        match machine.on_answer(node, reply.id, reply.call.ask, reply.answer, now) {
            Progress::Goes(more) => {
                if !more.is_empty() && !std::mem::replace(&mut is_aligned, true) {
                    lease.class.round();
                }
                more.into_iter().for_each(|call| calls.make(0, call, checked.given));
            }
            Progress::Held(held) => {
                give_back.disarm();
                return Ok(Taken { nodes: Arc::clone(nodes), held, calls, lease });
            }
            Progress::TooLate => return Err(too_late()),
            // A server that has granted this attempt was also asked under another name. Its answer under that name will
            // show this, so it is waited for.
            Progress::Impossible if answered.contains(&false) && seen.whys.iter().flatten().any(Why::is_owned) => {}
            Progress::Impossible if machine.obstacle().is_some() => break,
            // The nodes that have not answered may show whether other owners hold the lock, so they are waited for.
            Progress::Impossible => {}
        }
    }
    drop(give_back);
    home().await;
    // Boxed, as it is rare and large.
    let refused = Box::pin(refused(nodes, &lease, &machine, seen, (checked.given, by))).await;
    // A wait is long: an earlier answer of the node says nothing about its end.
    let is_cut_short = is_over && wait.is_none() && refused.kind() == ErrorKind::NoQuorum;
    Err(if is_cut_short { refused.cut_short() } else { refused })
}

fn too_late() -> Error {
    Error::new(
        ErrorKind::Expired,
        "the nodes granted the lock so late that nothing of its lease is left to rely on: use a longer ttl, or find out why \
         they are slow",
    )
}

/// Returns the error of an attempt that has to be repeated in the next version of the set. Callers of the client never
/// get it.
fn superseded() -> Error {
    Error::new(ErrorKind::NoQuorum, "the set of nodes changed meanwhile")
}

/// Returns the error of an attempt that ran out of time before it could begin, behind others of this process.
fn not_begun() -> Error {
    let text = format!("this client has more than {WINDOW} locks to ask for at once, and was not done with them");
    Error::new(ErrorKind::NoQuorum, text).cut_short()
}
