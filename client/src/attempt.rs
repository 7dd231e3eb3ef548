//! One attempt to take a lock on a majority of the nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use palisade_core::quorum::{Acquire, Ask, Held, Out, Progress, majority};

use crate::nodes::{Calls, GiveBack, Nodes};
use crate::options::Checked;
use crate::wire::{self, Lease};
use crate::{Error, ErrorKind, clock};

/// A lock that was taken, and what is still under way: late answers.
pub struct Taken {
    pub held: Held,
    pub calls: Calls,
    pub lease: Arc<Lease>,
}

/// Takes it with one round to all nodes, and a second one where their tokens differ. Dropped meanwhile, or refused, it is
/// given back everywhere.
pub async fn acquire(nodes: &Arc<Nodes>, lease: Lease, checked: Checked) -> Result<Taken, Error> {
    let lease = Arc::new(lease);
    let mut give_back = GiveBack::new(nodes, &lease, checked.node_timeout);
    let start = clock::boot_now();
    let (mut machine, first) = Acquire::begin(nodes.len(), checked.ttl_ms, nodes.clock.propose(), start);
    let call = |call| nodes.call(&lease, 0, call, checked.node_timeout);
    let mut calls: Calls = first.into_iter().map(call).collect();
    let mut whys = vec![None; nodes.len()];
    while let Some(reply) = calls.next().await {
        let node = reply.call.node;
        whys[node] = reply.why;
        match machine.on_answer(node, reply.id, reply.call.ask, reply.answer, clock::boot_now()) {
            Progress::Goes(more) => {
                calls.extend(more.into_iter().map(call));
            }
            Progress::Held(held) => {
                give_back.disarm();
                return Ok(Taken { held, calls, lease });
            }
            Progress::TooLate => return Err(too_late()),
            Progress::Impossible => break,
        }
    }
    drop(give_back);
    let outs: Vec<_> = machine.outs().collect();
    Err(refused(nodes, &lease, &outs, whys, checked.node_timeout).await)
}

/// Takes it on the one node there is, waiting there for up to `patience`: one round trip and the wait.
pub async fn acquire_waiting(
    nodes: &Arc<Nodes>,
    lease: Lease,
    checked: Checked,
    patience: Duration,
) -> Result<Option<Taken>, Error> {
    let lease = Arc::new(lease);
    let mut give_back = GiveBack::new(nodes, &lease, checked.node_timeout);
    let start = clock::boot_now();
    let proposal = nodes.clock.propose();
    let command = lease.acquire_waiting(checked.ttl_ms, proposal, patience.as_millis() as u64);
    let (id, reply) = nodes.list[0].ask_waiting(&command, patience + crate::waiting::LATE).await;
    let (reply, waited_ms) = match reply {
        Ok(value) => match wire::granted_after_wait(&value) {
            Some((token, waited_ms)) => (Ok(token), waited_ms),
            None => return Ok(None),
        },
        Err(trouble) => (Err(trouble), 0),
    };
    let (answer, why) = nodes.heard(reply);
    // The lease began when the wait ended.
    let granted = start.plus_us(waited_ms * 1_000);
    let (mut machine, _) = Acquire::begin(1, checked.ttl_ms, proposal, granted);
    let ask = Ask::Acquire { ttl_ms: checked.ttl_ms, proposal, retry: false };
    match machine.on_answer(0, id, ask, answer, clock::boot_now()) {
        Progress::Held(held) => {
            give_back.disarm();
            Ok(Some(Taken { held, calls: Calls::new(), lease }))
        }
        Progress::TooLate => Err(too_late()),
        Progress::Goes(_) => Ok(None),
        Progress::Impossible => {
            let outs: Vec<_> = machine.outs().collect();
            Err(refused(nodes, &lease, &outs, vec![why], checked.node_timeout).await)
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

/// Why no majority granted it.
async fn refused(
    nodes: &Arc<Nodes>,
    lease: &Lease,
    outs: &[Option<Out>],
    mut whys: Vec<Option<String>>,
    timeout: Duration,
) -> Error {
    for (out, why) in outs.iter().zip(&mut whys) {
        match out {
            Some(Out::Duplicate) => {
                *why = Some("it is the same server as another address of the list: give each node once".to_owned());
            }
            None => *why = None,
            _ => {}
        }
    }
    let of = |which: fn(&Out) -> bool| outs.iter().flatten().filter(|out| which(out)).count();
    let failed = of(|out| matches!(out, Out::Failed | Out::Duplicate));
    let guarded_ms = |out: &Out| if let Out::Guarded { ms } = out { Some(*ms) } else { None };
    let mut guarded: Vec<u64> = outs.iter().flatten().filter_map(guarded_ms).collect();
    let (count, needed) = (nodes.len(), majority(nodes.len()));
    if failed > count - needed {
        // What the nodes themselves call an error is the request's fault.
        let is_error = |why: &str| why.starts_with("ERR ") || why.starts_with("WRONGTYPE ");
        if whys.iter().flatten().filter(|why| is_error(why)).count() >= failed {
            let text = format!("{failed} of {count} nodes refuse such a request");
            return Error::new(ErrorKind::BadArgument, text).with_nodes(nodes.errors(&whys));
        }
        let text = format!("{failed} of {count} nodes cannot be asked, and {needed} are needed");
        return Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys));
    }
    if of(|out| *out == Out::Contended) > 0 {
        let holder = nodes.holder(lease, outs, timeout).await;
        let text = "somebody else holds the lock: wait for it with `lock`, or try later";
        return Error::new(ErrorKind::Contended, text).with_holder(holder);
    }
    if !guarded.is_empty() {
        guarded.sort_unstable();
        // As soon as so many of them serve that a majority can be had.
        let serving_needed = (needed + failed + guarded.len()).saturating_sub(count).max(1);
        let ms = guarded[serving_needed.min(guarded.len()) - 1];
        let text =
            format!("{} of {count} nodes may have forgotten grants and are guarded: try again later", guarded.len());
        return Error::new(ErrorKind::Guarded, text)
            .with_nodes(nodes.errors(&whys))
            .with_retry_after(Duration::from_millis(ms));
    }
    let text = format!("no {needed} of {count} nodes granted it");
    Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys))
}
