//! The error of an attempt that no majority granted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{Acquire, Answer, Ask, NodeId, Obstacle, Out, Wanted, first_as, majority};
use tokio::time::Instant;
use tracing::debug;

use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::wire;
use crate::run::limit::within;
use crate::values::attempt_name::{is_same_request, name_of};
use crate::values::clock;
use crate::values::shown_key::ShownKey;
use crate::{Error, ErrorKind, Holder, Why};

/// The reason why each node did not grant, and the servers that answered, at the end of an attempt.
pub struct Seen {
    /// For each node, the reason why it did not grant.
    pub whys: Vec<Option<Why>>,
    /// For each node, the server that answered.
    pub ids: Vec<Option<NodeId>>,
}

impl Seen {
    /// Creates the state before any of this many nodes has answered.
    pub fn nothing(nodes: usize) -> Self {
        Self { whys: vec![None; nodes], ids: vec![None; nodes] }
    }

    /// Stops waiting for the nodes that have not answered `ask`, since the caller's time is over.
    pub fn stop_waiting(&mut self, answered: &[bool], ask: Ask, machine: &mut Acquire) {
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
pub async fn refused(
    nodes: &Arc<Nodes>,
    lease: &Lease,
    machine: &Acquire,
    seen: Seen,
    asked: (Given, Option<Instant>),
) -> Error {
    let error = why_refused(nodes, lease, machine, seen, asked).await;
    debug!(key = %ShownKey(&lease.key), nodes = nodes.len(), %error, "not granted");
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
                _ => holder(nodes, lease, &outs, (given, by)).await,
            };
            // The error already names the holder, so nodes that only say that the lock is held add nothing.
            whys.iter_mut().zip(outs).filter(|(_, out)| *out == Some(Out::Contended)).for_each(|(why, _)| *why = None);
            let is_own = holder.as_ref().is_some_and(|holder| is_held_before(lease, holder));
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

/// Returns the holder of the lock, from the first node that can name one. If the request names its owner, asks as many
/// nodes as it takes to know whether this owner or others hold the lock on more of them: a grant on a single node may be
/// left over. Returns `None` if nodes that do not tell would decide. Asks only nodes where another attempt holds the
/// lock, until `by`.
async fn holder(
    nodes: &Nodes,
    lease: &Lease,
    outs: &[Option<Out>],
    (given, by): (Given, Option<Instant>),
) -> Option<Holder> {
    let command = wire::info(&lease.key);
    let contended = nodes.list.iter().zip(outs).filter(|(_, out)| **out == Some(Out::Contended));
    let mut asked: FuturesUnordered<_> = contended.map(|(node, _)| node.ask(&command, given, None)).collect();
    let (mut own, mut other) = ((0, None), (0, None));
    // A node that is not asked may have refused the request without being counted yet.
    let mut untold = nodes.len();
    while let Some(Some((_, reply))) = within(by, asked.next()).await {
        let Some(holder) = reply.ok().and_then(|info| wire::holder(&info)) else { continue };
        if !lease.is_named() {
            return Some(holder);
        }
        untold -= 1;
        let (count, first) = if is_held_before(lease, &holder) { &mut own } else { &mut other };
        *count += 1;
        first.get_or_insert(holder);
        if other.0 > own.0 + untold || own.0 >= other.0 + untold {
            break;
        }
    }
    match (own, other) {
        ((owns, own), (others, other)) if owns >= others => own.or(other),
        ((owns, _), (others, other)) => other.filter(|_| others > owns + untold),
    }
}

/// Returns whether the lease's owner already holds the lock by another request. An earlier attempt of this request,
/// which a slow node granted late, is being released and does not count.
fn is_held_before(lease: &Lease, holder: &Holder) -> bool {
    let (one, other) = (&holder.owner, &lease.owner);
    lease.is_named() && name_of(one) == name_of(other) && !is_same_request(one, other)
}
