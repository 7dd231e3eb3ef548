//! An attempt to acquire a lock on a majority of the nodes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use palisade_quorum::{
    Acquire, Answer, Ask, Held, NodeId, Obstacle, Out, Progress, Wanted, first_as, granted_after, majority,
};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use crate::net::bounds::WINDOW;
use crate::net::calls::Calls;
use crate::net::home::{home, once_home};
use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::tally::Tally;
use crate::net::wire;
use crate::run::checked::Checked;
use crate::run::give_back::GiveBack;
use crate::run::limit::within;
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

/// The reason why each node did not grant, and the servers that answered, at the end of an attempt.
struct Seen {
    /// For each node, the reason why it did not grant.
    whys: Vec<Option<Why>>,
    /// For each node, the server that answered.
    ids: Vec<Option<NodeId>>,
}

impl Seen {
    /// Stops waiting for the nodes that have not answered `ask`, since the caller's time is over.
    fn stop_waiting(&mut self, answered: &[bool], ask: Ask, machine: &mut Acquire) {
        for node in (0..answered.len()).filter(|node| !answered[*node]) {
            self.whys[node] = Some(Why::Unanswered);
            machine.on_answer(node, None, ask, Answer::Failed, clock::boot_now());
        }
    }
}

/// Records for each server that answered under a second name that it counts once. Its answer under that name is
/// meaningless: the server has the grant under its first name.
fn count_once(whys: &mut [Option<Why>], nodes: &Nodes, outs: &[Option<Out>], ids: &[Option<NodeId>]) {
    let counts = |node: &usize| outs[*node].is_none();
    for node in (0..nodes.len()).filter(|node| !counts(node) && ids[*node].is_some()) {
        let others = || (0..nodes.len()).filter(|other| *other != node && ids[*other] == ids[node]);
        if let Some(other) = others().find(counts).or_else(|| first_as(ids, node)) {
            whys[node] = Some(nodes.same_server_as(other));
        }
    }
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
/// limit. If the future is dropped or the lock is refused, it is released on all nodes.
pub async fn acquire(nodes: &Arc<Nodes>, lease: Lease, checked: Checked, by: Option<Instant>) -> Result<Taken, Error> {
    let lease = Arc::new(lease);
    // This comes before the clock is read, so the lease does not run while this waits.
    let _turn = turn(nodes, by).await?;
    let mut give_back = GiveBack::new(nodes, &lease, checked);
    let start = clock::boot_now();
    let (mut machine, first) = Acquire::begin(nodes.len(), checked.ttl_ms, nodes.clock.propose(), start);
    let ask = first[0].ask;
    lease.class.round();
    // True once there is a second round, which may take several calls.
    let mut is_aligned = false;
    let mut calls = Calls::new(nodes, &lease);
    first.into_iter().for_each(|call| calls.make(0, call, checked.given));
    calls.wait_for(majority(nodes.len()));
    let mut seen = Seen { whys: vec![None; nodes.len()], ids: vec![None; nodes.len()] };
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
        match machine.on_answer(node, reply.id, reply.call.ask, reply.answer, clock::boot_now()) {
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
    Err(if is_over && refused.kind() == ErrorKind::NoQuorum { refused.cut_short() } else { refused })
}

/// Acquires the lock on a single node, waiting in its queue for up to `patience`, and for its answer until `over` if
/// there is a limit. Takes one round trip and the wait.
pub async fn acquire_waiting(
    nodes: &Arc<Nodes>,
    lease: Lease,
    checked: Checked,
    patience: Duration,
    over: Option<Instant>,
    behind: &Tally,
) -> Result<Option<Taken>, Error> {
    let lease = Arc::new(lease);
    let mut give_back = GiveBack::new(nodes, &lease, checked);
    let start = clock::boot_now();
    let proposal = nodes.clock.propose();
    let behind = nodes.list[0].knows_behind(&lease.key).then(|| behind.count());
    lease.class.round();
    let command = lease.acquire_waiting(checked.ttl_ms, proposal, patience.as_millis() as u64, behind);
    let asked = nodes.list[0].ask_waiting(&command, patience + crate::net::bounds::LATE, Some(&lease));
    let (id, reply) = tokio::select! {
        biased;
        asked = within(over, asked) => asked.unwrap_or((None, Err(Why::Silent))),
        () = nodes.superseded() => return Err(superseded()),
    };
    let reply = lease.checked(reply);
    let (reply, waited_ms) = match reply {
        Ok(value) => match wire::granted_after_wait(&value) {
            Some((token, waited_ms)) => (Ok(token), waited_ms),
            None => return Ok(None),
        },
        Err(failure) => (Err(failure), 0),
    };
    let ask = Ask::Acquire { ttl_ms: checked.ttl_ms, proposal, retry: false };
    let (answer, why) = nodes.heard(ask, reply);
    // The lease began when the wait ended.
    let granted = granted_after(start, waited_ms);
    let (mut machine, _) = Acquire::begin(1, checked.ttl_ms, proposal, granted);
    match machine.on_answer(0, id, ask, answer, clock::boot_now()) {
        Progress::Held(held) => {
            give_back.disarm();
            let calls = Calls::new(nodes, &lease);
            Ok(Some(Taken { nodes: Arc::clone(nodes), held, calls, lease }))
        }
        Progress::TooLate => Err(too_late()),
        Progress::Goes(_) => Ok(None),
        Progress::Impossible => {
            let seen = Seen { whys: vec![why], ids: vec![id] };
            Err(refused(nodes, &lease, &machine, seen, (checked.given, over)).await)
        }
    }
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

/// Returns the error of a lock that another owner holds.
pub fn contended(wanted: Wanted) -> Error {
    let text = match wanted {
        Wanted::Exclusive => "somebody else holds the lock: wait for it with `lock`, or try later",
        Wanted::Shared => "a writer holds the lock, or is before this reader: wait for it with `read`, or try later",
        Wanted::Permit { .. } => "no permit is free: wait for one with `acquire`, or try later",
    };
    Error::new(ErrorKind::Contended, text)
}

/// Returns the error of a lock that its owner already holds.
fn owned() -> Error {
    Error::new(ErrorKind::Owned, "this owner holds the lock already")
}

/// Returns the error of a lock that no majority granted.
async fn refused(
    nodes: &Arc<Nodes>,
    lease: &Lease,
    machine: &Acquire,
    seen: Seen,
    asked: (Given, Option<Instant>),
) -> Error {
    let error = why_refused(nodes, lease, machine, seen, asked).await;
    debug!(key = %lease.shown_key(), nodes = nodes.len(), %error, "not granted");
    error
}

async fn why_refused(
    nodes: &Arc<Nodes>,
    lease: &Lease,
    machine: &Acquire,
    seen: Seen,
    (given, by): (Given, Option<Instant>),
) -> Error {
    let outs: Vec<_> = machine.outs().collect();
    let Seen { mut whys, ids } = seen;
    let count_of = |whys: &[Option<Why>], of: fn(&Why) -> bool| whys.iter().flatten().filter(|why| of(why)).count();
    let wrong = count_of(&whys, Why::is_wrong);
    count_once(&mut whys, nodes, &outs, &ids);
    let lasting = count_of(&whys, Why::is_lasting);
    for (out, why) in outs.iter().zip(&mut whys) {
        if out.is_none() {
            *why = None;
        }
    }
    let failed = outs.iter().flatten().filter(|out| matches!(out, Out::Failed | Out::Duplicate)).count();
    let guarded = outs.iter().flatten().filter(|out| matches!(out, Out::Guarded { .. })).count();
    let (count, needed) = (nodes.len(), majority(nodes.len()));
    match machine.obstacle() {
        Some(Obstacle::Contended) => {
            // For a permit, the nodes are asked about all holders anyway.
            let holder = match lease.wanted() {
                Wanted::Permit { .. } if nodes.len() > 1 => None,
                _ => within(by, nodes.holder(lease, &outs, given)).await.flatten(),
            };
            // The error already names the holder, so nodes that only say that the lock is held add nothing.
            whys.iter_mut().zip(outs).filter(|(_, out)| *out == Some(Out::Contended)).for_each(|(why, _)| *why = None);
            let is_own = holder.as_ref().is_some_and(|holder| lease.is_held_by(holder));
            let error = if is_own { owned() } else { contended(lease.wanted()) };
            error.with_holder(holder).with_nodes(nodes.errors(&whys))
        }
        Some(Obstacle::Guarded { left_ms }) => {
            let text = format!("{guarded} of {count} nodes may have forgotten grants and are guarded: try again later");
            Error::new(ErrorKind::Guarded, text)
                .with_nodes(nodes.errors(&whys))
                .with_retry_after(Duration::from_millis(left_ms))
        }
        Some(Obstacle::Failed) if wrong >= failed && failed > 0 => {
            let text = format!("{failed} of {count} nodes refuse such a request");
            Error::new(ErrorKind::BadArgument, text).with_nodes(nodes.errors(&whys))
        }
        Some(Obstacle::Failed) if failed > count - needed => {
            nodes.cannot_be_asked(failed, &whys).lasting(lasting > count - needed)
        }
        Some(Obstacle::Failed) | None => {
            let text = format!("no {needed} of {count} nodes granted it");
            Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys))
        }
    }
}
