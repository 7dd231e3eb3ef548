//! What the nodes tell of a lock, and of themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_core::quorum::majority;
use redis::{Value, cmd};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::views::Views;
use super::{ByOwner, NodeSet, Shown};
use crate::attempt_name::name_of;
use crate::nodes::Nodes;
use crate::options::Checked;
use crate::pace::Given;
use crate::thread::Running;
use crate::wire::NodeFailure;
use crate::{Error, ErrorKind, NodeError, wire};

/// How the lock is, as a majority has it.
pub async fn look(nodes: &Arc<Nodes>, key: &[u8], waiters: Option<usize>, given: Given) -> Result<Shown, Error> {
    let views = Views::ask(nodes, key, waiters, given, Views::is_decided).await;
    if views.is_decided() { Ok(views.shown()) } else { Err(views.too_few()) }
}

/// What is left of the grant with this token.
pub async fn check(this: &ByOwner, key: &[u8], token: u64, given: Given) -> Result<Option<Duration>, Error> {
    let shown = look(this.nodes(), key, None, given).await?;
    let of = |token: u64| {
        let grants = shown.grants.iter().filter(|grant| grant.is(token) && !grant.is_suspect);
        grants.map(|grant| grant.ttl).max()
    };
    if let Some(left) = of(token) {
        return Ok(Some(left));
    }
    // It may have risen since its owner was told, and be rising now: the grant is its owner's, with whichever token.
    for slot in this.table.of_key(key) {
        if let Some(held) = slot.held.lock().await.as_ref().filter(|held| held.is(Some(token))) {
            let owner = name_of(&held.guard.lease().owner);
            let own = shown.grants.iter().filter(|grant| grant.owner == owner && grant.token_max >= token);
            return Ok(own.filter(|grant| !grant.is_suspect).map(|grant| grant.ttl).max());
        }
    }
    Ok(None)
}

/// Ends the grants with this token, or all; the largest token of those that ended.
pub async fn break_lock(
    this: &ByOwner,
    key: &[u8],
    token: Option<u64>,
    checked: Checked,
) -> Result<Option<u64>, Error> {
    let nodes = this.nodes();
    let mut of_node = vec![token; nodes.len()];
    if let Some(token) = token {
        // An owner's tokens may differ from node to node: each is told its own.
        let views = Views::ask(nodes, key, None, checked.given, Views::is_decided).await;
        let by_attempt = views.by_attempt();
        let own = by_attempt.values().find(|grants| grants.iter().any(|(_, grant)| grant.token.get() == token));
        for (node, grant) in own.into_iter().flatten() {
            of_node[*node] = Some(grant.token.get());
        }
    }
    let ask = |place: usize| {
        let mut command = cmd("LOCK.BREAK");
        command.arg(key);
        if let Some(token) = of_node[place] {
            command.arg("TOKEN").arg(token);
        }
        async move { (place, nodes.list[place].ask(&command, checked.given, None).await.1) }
    };
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
    let (mut whys, mut largest) = (vec![None; nodes.len()], None);
    while let Some((place, reply)) = asked.next().await {
        match reply {
            Ok(Value::Int(token)) => largest = largest.max(u64::try_from(token).ok()),
            Ok(_) => {}
            Err(why) => whys[place] = Some(why.to_string()),
        }
    }
    for slot in this.table.of_key(key) {
        let mut held = slot.held.lock().await;
        if held.as_ref().is_some_and(|held| held.is(token)) {
            *held = None;
        }
    }
    if whys.iter().flatten().count() > nodes.len() - majority(nodes.len()) {
        let text = "too few nodes answered that they ended it";
        return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys)));
    }
    Ok(largest)
}

/// Who the nodes are, and whether they serve.
pub async fn nodes(nodes: &Arc<Nodes>, given: Given) -> NodeSet {
    let command = &cmd("LOCK.NODE");
    let ask = |place: usize| async move { (place, nodes.list[place].ask(command, given, None).await) };
    let mut asked: FuturesUnordered<_> = (0..nodes.len()).map(ask).collect();
    let mut set = NodeSet {
        id: 0,
        nodes: nodes.len(),
        serving: 0,
        majority: majority(nodes.len()),
        guarded: None,
        max_ttl: None,
        clock_us: 0,
        unreachable: vec![],
    };
    let (mut clocks, mut guards) = (vec![], vec![]);
    while let Some((place, (id, reply))) = asked.next().await {
        let (id, info) = match (id, reply) {
            (Some(id), Ok(info)) => (id, info),
            (id, reply) => {
                let why = match (id, reply) {
                    (_, Err(why)) => why,
                    (_, Ok(_)) => NodeFailure::Broken("it is not known which server answered".to_owned()),
                };
                let node = nodes.list[place].name().to_owned();
                set.unreachable.push(NodeError { node, why: why.to_string() });
                continue;
            }
        };
        set.id ^= id.0;
        if let Some(ms) = wire::number(&info, "max_ttl").map(Duration::from_millis) {
            set.max_ttl = Some(set.max_ttl.map_or(ms, |least: Duration| least.min(ms)));
        }
        clocks.extend(wire::number(&info, "clock_us"));
        match wire::text(&info, "state").as_deref() {
            Some("serving") => set.serving += 1,
            _ => guards.push((
                Duration::from_millis(wire::number(&info, "guard_ms").unwrap_or(0)),
                wire::text(&info, "guard_reason").unwrap_or_default(),
            )),
        }
    }
    clocks.sort_unstable();
    set.clock_us = clocks.get(clocks.len() / 2).copied().unwrap_or(0);
    guards.sort();
    // As soon as so many of them serve that a majority does.
    let missing = set.majority.saturating_sub(set.serving);
    set.guarded = missing.checked_sub(1).and_then(|last| guards.into_iter().nth(last));
    set
}

/// Keys that somebody here watches: each is watched once on the nodes, for all of them.
#[derive(Debug, Default)]
pub struct Watches(Mutex<HashMap<Vec<u8>, Weak<Watch>>>);

/// A key that is watched.
#[derive(Debug)]
struct Watch {
    changed: watch::Receiver<u64>,
    _running: Running<()>,
}

impl Watches {
    fn of(&self, this: &ByOwner, key: &[u8], given: Given) -> Result<Arc<Watch>, Error> {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.get(key).and_then(Weak::upgrade) {
            return Ok(watch);
        }
        if watches.len() == watches.capacity() {
            watches.retain(|_, watch| watch.strong_count() > 0);
        }
        let (nodes, watched): (_, Arc<[u8]>) = (Arc::clone(this.nodes()), key.into());
        let (changes, changed) = watch::channel(0);
        let running = this.client.thread()?.run(async move {
            let (tell, mut told) = mpsc::channel(1);
            let watching = crate::watch::watch(nodes, watched, given, tell);
            let counting = async {
                while told.recv().await.is_some() {
                    changes.send_modify(|count| *count += 1);
                }
            };
            tokio::join!(watching, counting);
        });
        let watch = Arc::new(Watch { changed, _running: running });
        watches.insert(key.to_vec(), Arc::downgrade(&watch));
        Ok(watch)
    }
}

/// Returns when the lock is not as is `known`, with how it is; `None`: nothing happened in time.
pub async fn watch(
    this: &ByOwner,
    key: &[u8],
    known: (u64, Option<u64>),
    wait: Duration,
    given: Given,
) -> Result<Option<Shown>, Error> {
    let until = Instant::now() + wait;
    let mut watch = None;
    let _counted = this.watching.begin();
    loop {
        // Too few nodes may answer for a while: that is no change.
        match look(this.nodes(), key, None, given).await {
            Ok(shown) if !shown.is(known) => return Ok(Some(shown)),
            Err(error) if watch.is_none() => return Err(error),
            Ok(_) | Err(_) => {}
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        let Some((_, changed)) = &mut watch else {
            // It may change before the nodes watch it: what they say at first is heard as a change.
            let begun = this.watches.of(this, key, given)?;
            let changed = begun.changed.clone();
            watch = Some((begun, changed));
            continue;
        };
        tokio::select! {
            biased;
            () = this.nodes().closed() => return Err(Error::closed()),
            changed = timeout_at(until, changed.changed()) => match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Error::closed()),
                Err(_) => return Ok(None),
            }
        }
    }
}

impl Shown {
    /// Whether it is this grant with this note; 0: free.
    fn is(&self, (token, sequence): (u64, Option<u64>)) -> bool {
        if token == 0 {
            return self.grants.is_empty();
        }
        let is_it =
            |grant: &super::ShownGrant| grant.is(token) && sequence.is_none_or(|sequence| grant.sequence <= sequence);
        self.grants.iter().any(is_it)
    }
}
