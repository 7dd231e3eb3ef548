//! Finds locks that another process acquired for an owner, or this process before a restart.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::{Acquire, Held, Mode, Progress, Release, Released, Resumed, Wanted, majority, resume};
use redis::Value;
use tokio::sync::mpsc;

use super::owners::ByOwner;
use super::table::{Holding, Id, Slot};
use super::told::Told;
use super::views::{GrantView, Views};
use crate::net::calls::Calls;
use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::run::attempt::Taken;
use crate::run::checked::Checked;
use crate::run::orders;
use crate::values::attempt_name::name_of;
use crate::values::clock;
use crate::{Error, ErrorKind, Guard, Why};

/// Searches the nodes for a lock of this owner, and continues to keep it: the grant with this `token`, if that is named
/// and there is one. `None`: the owner holds none.
///
/// # Errors
/// `NoQuorum`: too few nodes answer to tell.
pub async fn find(
    this: &ByOwner,
    id: &Id,
    slot: &Slot,
    token: Option<u64>,
    checked: Checked,
) -> Result<Option<Holding>, Error> {
    let named = token.map(|token| Named { token, attempt: slot.known_by(token) });
    let mut found = search(this, id, named.as_ref(), checked).await?;
    slot.recall(found.as_mut());
    Ok(found)
}

/// The grant that a request names.
struct Named {
    token: u64,
    /// The attempt of the grant, if this process has given the owner this token. The grant's token may have risen since.
    attempt: Option<Arc<[u8]>>,
}

async fn search(this: &ByOwner, id: &Id, named: Option<&Named>, checked: Checked) -> Result<Option<Holding>, Error> {
    let nodes = this.nodes();
    let views = Views::ask(nodes, &id.key, None, checked.given, |views| own(views, id, named).is_some()).await;
    let Some(found) = own(&views, id, named) else { return Err(views.too_few()) };
    let Some((attempt, resumed)) = found else { return Ok(None) };
    let seen: Vec<_> = views.by_attempt().remove(&*attempt).unwrap_or_default();
    if seen.is_empty() {
        return Ok(None);
    }
    let lease = Arc::new(lease_of(&id.key, &attempt, &seen));
    let Some((mut held, mut calls)) = together(this, &lease, resumed, checked).await else {
        return Err(views.too_few());
    };
    if lease.wanted() == Wanted::Shared {
        let shares = |place| seen.iter().any(|(node, grant)| *node == place && grant.mode == Mode::Shared);
        held.continues_as_reader(shares).into_iter().for_each(|call| calls.make(0, call, checked.given));
    }
    let told = Told::shown(&views.tokens_of(&attempt));
    adopt(this, &lease, checked).await?;
    let holds = seen.iter().map(|(_, grant)| grant.holds).max().unwrap_or(1);
    lease.set_holds(holds);
    let newest = seen.iter().map(|(_, grant)| grant).max_by_key(|grant| grant.sequence);
    let sequence = newest.map_or(0, |grant| grant.sequence);
    if let Some(newest) = newest.filter(|_| sequence > 0) {
        lease.set_note(&newest.note, sequence);
    }
    let thread = this.client.thread()?;
    let taken = Taken { nodes: Arc::clone(nodes), held, calls, lease };
    let (shared, orders, lease) = orders::start(taken, checked, None, None);
    let guard = Guard::new(thread, nodes, lease, shared, orders, checked);
    Ok(Some(Holding { told, guard, holds, sequence, keeper: None, is_used: true, delivery: Weak::new() }))
}

/// The result of a search for an owner's lock: the attempt whose grants a majority has, and the state machine that
/// continues it. `Some(None)`: no majority has any. `None`: too few nodes answered to tell.
type Found = Option<Option<(Vec<u8>, Going)>>;

/// A state machine that continues an acquisition from the grants that nodes show, and its first progress.
type Going = (Acquire, Progress);

fn own(views: &Views, id: &Id, named: Option<&Named>) -> Found {
    let by_attempt = views.by_attempt();
    let own = || by_attempt.keys().filter(|attempt| name_of(attempt) == &*id.owner);
    // An owner may have two shared grants, by two processes.
    if let Some(Named { token, attempt }) = named {
        let is_named = |seen: &[u8]| views.tokens_of(seen).contains(token) || attempt.as_deref() == Some(seen);
        match own().find(|attempt| is_named(attempt)) {
            Some(attempt) => match resume(views.asked, &views.of_attempt(attempt), clock::boot_now()) {
                Resumed::Goes(goes) => return Some(Some((attempt.to_vec(), *goes))),
                Resumed::Open => return None,
                Resumed::NotHeld => {}
            },
            // Of the nodes that have such a grant, one is among any majority.
            None if !views.has_majority() => return None,
            None => {}
        }
    }
    for attempt in own() {
        if let Resumed::Goes(goes) = resume(views.asked, &views.of_attempt(attempt), clock::boot_now()) {
            return Some(Some((attempt.to_vec(), *goes)));
        }
    }
    // An attempt that no node shows may be on nodes that do not answer.
    let is_nowhere =
        |attempt: &[u8]| matches!(resume(views.asked, &views.of_attempt(attempt), clock::boot_now()), Resumed::NotHeld);
    (is_nowhere(b"") && own().all(|attempt| is_nowhere(attempt))).then_some(None)
}

/// Returns the lease of an attempt of which nodes show these grants.
fn lease_of(key: &Arc<[u8]>, attempt: &[u8], grants: &[(usize, &GrantView)]) -> Lease {
    let (_, first) = grants[0];
    // Once one node has converted a writer's grant, the owner relies on it as a reader.
    let is_shared = grants.iter().any(|(_, grant)| grant.mode == Mode::Shared);
    let mode = if is_shared { Mode::Shared } else { first.mode };
    let left_ms = grants.iter().map(|(_, grant)| grant.left_ms).max().unwrap_or(0);
    let left_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
    Lease::of_another(key, attempt, &first.note, wanted(mode), left_ms)
}

/// Returns whether a node has converted the lock to shared, because another process made its writer a reader.
///
/// # Errors
/// `NoQuorum`: too few nodes answer to tell.
pub async fn is_shared(this: &ByOwner, id: &Id, lease: &Lease, checked: Checked) -> Result<bool, Error> {
    let views = Views::ask(this.nodes(), &id.key, None, checked.given, Views::is_decided).await;
    if !views.is_decided() {
        return Err(views.too_few());
    }
    let seen = views.by_attempt().remove(&*lease.owner).unwrap_or_default();
    Ok(seen.iter().any(|(_, grant)| grant.mode == Mode::Shared))
}

/// Releases everything that nodes have of this owner, whether a majority has it or not; with `token`, only the grant of
/// that token, unless `slot` rules that out. Returns true if a majority had it until now.
///
/// A grant is released as soon as a node shows it, since another node may hang for longer than the lease lasts. Unless
/// a majority had the lock, the call waits for all nodes, since the last one may be the only one that has a grant. The
/// nodes are not searched again later, when they could show a new grant of this owner.
///
/// # Errors
/// `NoQuorum`: too few nodes answer to tell.
pub async fn free(this: &ByOwner, id: &Id, slot: &Slot, token: Option<u64>, checked: Checked) -> Result<bool, Error> {
    let nodes = this.nodes();
    let (show, mut shown) = mpsc::unbounded_channel();
    let is_asked = |attempt: &[u8], grants: &[(usize, &GrantView)]| {
        name_of(attempt) == &*id.owner
            && token.is_none_or(|token| {
                grants.iter().any(|(_, grant)| grant.token.get() == token) && !slot.rules_out(attempt, token)
            })
    };
    let hear = |views: &Views| {
        for (attempt, grants) in views.by_attempt().into_iter().filter(|(attempt, grants)| is_asked(attempt, grants)) {
            let _ = show.send(lease_of(&id.key, attempt, &grants));
        }
        false
    };
    let mut look = pin!(Views::ask(nodes, &id.key, None, checked.given, hear));
    let (mut views, mut begun, mut outcomes, mut open) = (None, HashSet::new(), FuturesUnordered::new(), None);
    while views.is_none() || !shown.is_empty() || !outcomes.is_empty() {
        tokio::select! {
            biased;
            Some(lease) = shown.recv() => {
                if begun.insert(Arc::clone(&lease.owner)) {
                    outcomes.push(give_back(nodes, lease, checked));
                }
            }
            all = &mut look, if views.is_none() => views = Some(all),
            Some(outcome) = outcomes.next() => match outcome {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => open = Some(error),
            },
        }
    }
    match (open, views) {
        (Some(error), _) => Err(error),
        (None, Some(views)) if !views.is_answered() => Err(views.too_few().before_release()),
        // None of the nodes that answered has a grant of this owner.
        (None, _) => Ok(false),
    }
}

/// Begins to release an attempt, also if nobody awaits the result. Returns whether a majority had it until now.
fn give_back(nodes: &Arc<Nodes>, lease: Lease, checked: Checked) -> impl Future<Output = Result<bool, Error>> + use<> {
    let giving = nodes.give_back(&Arc::new(lease), checked);
    let nodes = Arc::clone(&giving.nodes);
    let mut answers = giving.into_answers();
    async move {
        let (mut release, mut whys) = (Release::begin(nodes.len()), vec![None; nodes.len()]);
        while release.outcome() == Released::Unknown
            && let Some(told) = answers.recv().await
        {
            whys[told.place] = told.reply.as_ref().err().cloned();
            told.pass_to(&mut release);
        }
        match release.outcome() {
            Released::Released => Ok(true),
            Released::NotHeld => Ok(false),
            Released::Unknown => Err(Error::release_sent(nodes.errors(&whys))),
        }
    }
}

/// Marks the lock as adopted on a majority, so that a late release by the process that acquired it does not end it.
/// That process may only have been suspended. Or, before it ended, it may have sent the release of an attempt whose
/// grant it had not reported to the owner. (A lock that was reported to its owner is not released in this way.)
///
/// # Errors
/// `NoQuorum`: too few nodes adopted it.
async fn adopt(this: &ByOwner, lease: &Lease, checked: Checked) -> Result<(), Error> {
    let nodes = this.nodes();
    let (mut adopted, mut whys) = (0, vec![None; nodes.len()]);
    let mut answers = nodes.send_to_all(lease.adopt(), checked.given);
    while let Some((place, reply)) = answers.recv().await {
        match reply {
            Ok(Value::Int(_)) => adopted += 1,
            Ok(_) => whys[place] = Some(Why::NotHeld),
            Err(why) => whys[place] = Some(why),
        }
        if adopted >= majority(nodes.len()) {
            return Ok(());
        }
    }
    let text = format!("too few of {} nodes have the lock adopted for this process", nodes.len());
    Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys)))
}

/// Raises the tokens that the nodes have for the lock to a common one, if they differ.
async fn together(
    this: &ByOwner,
    lease: &Arc<Lease>,
    (mut machine, mut progress): Going,
    checked: Checked,
) -> Option<(Held, Calls)> {
    let nodes = this.nodes();
    let mut calls = Calls::new(nodes, lease);
    loop {
        match progress {
            Progress::Held(held) => return Some((held, calls)),
            Progress::TooLate | Progress::Impossible => return None,
            Progress::Goes(more) => {
                more.into_iter().for_each(|call| calls.make(0, call, checked.given));
            }
        }
        let reply = calls.next().await?;
        progress = machine.on_answer(reply.call.node, reply.id, reply.call.ask, reply.answer, clock::boot_now());
    }
}

fn wanted(mode: Mode) -> Wanted {
    match mode {
        Mode::Exclusive => Wanted::Exclusive,
        Mode::Shared => Wanted::Shared,
        Mode::Permit(permit) => Wanted::Permit { limit: permit.limit(), number: Some(permit.number()) },
    }
}
