//! Reports the state of a lock, and of the nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::majority;
use redis::cmd;
use tokio::time::{Instant, sleep, timeout_at};

use super::grant_watch::GrantWatch;
use super::owners::ByOwner;
use super::shown::{NodeSet, Shown, ShownGrant};
use super::table::Holding;
use super::views::{self, Views};
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::wire;
use crate::run::checked::Checked;
use crate::run::watching::AGAIN;
use crate::{Error, ErrorKind, NodeError, Why};

impl ByOwner {
    /// Returns the remaining time of the grant with this token, less the drift of clocks; `None` if nobody holds the
    /// lock with it.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answer, or vouch for the grant that they have.
    pub async fn check(&self, key: &[u8], token: u64) -> Result<Option<Duration>, Error> {
        let work = move |this, key: Arc<[u8]>, checked: Checked| async move {
            let shown = read_state(&this, &key, None, Some(token), checked.given).await?;
            let (suspect, sure): (Vec<_>, Vec<_>) =
                shown.with(&this, &key, token).await?.into_iter().partition(|grant| grant.is_suspect);
            if sure.is_empty() && !suspect.is_empty() {
                let text = "too few nodes vouch for it: the others may have forgotten that it was taken away";
                return Err(Error::new(ErrorKind::NoQuorum, text));
            }
            Ok(sure.into_iter().map(|grant| grant.ttl).max())
        };
        self.run_on(key, work).await
    }

    /// Returns the holders of the lock, and up to `waiters` waiters if requested. `None`: the lock is free and, if
    /// waiters were requested, none waits.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answer.
    pub async fn info(&self, key: &[u8], waiters: Option<usize>) -> Result<Option<Shown>, Error> {
        let work = move |this, key: Arc<[u8]>, checked: Checked| async move {
            read_state(&this, &key, waiters, None, checked.given).await
        };
        let shown = self.run_on(key, work).await?;
        let is_free = shown.grants.is_empty();
        let is_idle = waiters.is_none() || shown.waiters == 0 && shown.reserved.is_none();
        Ok((!(is_free && is_idle)).then_some(shown))
    }

    /// Waits until the lock is no longer in the state `known`: held with this token, with no newer note than this one;
    /// for token 0, free. Returns its new state, or `None` after `wait`.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answer at first. `Closed`.
    pub async fn watch(&self, key: &[u8], known: (u64, Option<u64>), wait: Duration) -> Result<Option<Shown>, Error> {
        let work = move |this, key: Arc<[u8]>, checked: Checked| async move {
            watch(&this, &key, known, wait, checked.given).await
        };
        self.run_on(key, work).await
    }

    /// Returns how many nodes serve, what a majority needs, and the guard if too few serve.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn node_set(&self) -> Result<NodeSet, Error> {
        let given = self.of_another()?.given;
        self.run(move |this| async move { Ok(nodes(this.nodes(), given).await) }).await
    }
}

/// Returns the state of the lock on a majority, merged with what this process knows of its own grants. If a `token` is
/// given, and there are holders but none has it so far, waits for all nodes: only a late one may show it. So it does while
/// too few nodes vouch for a grant.
async fn read_state(
    this: &ByOwner,
    key: &[u8],
    waiters: Option<usize>,
    token: Option<u64>,
    given: Given,
) -> Result<Shown, Error> {
    let is_told = |grants: &[ShownGrant]| match token {
        Some(token) => grants.is_empty() || grants.iter().any(|grant| grant.is(token) && !grant.is_suspect),
        None => !grants.iter().any(|grant| grant.is_suspect),
    };
    // What others hold does not matter to the grant with the token.
    let is_sure = |grant: &ShownGrant| token.is_some_and(|token| grant.is(token)) && !grant.is_suspect;
    let is_decided = |views: &Views| views.is_decided() || views.agreed().iter().any(is_sure);
    let enough = |views: &Views| is_decided(views) && is_told(&views.agreed());
    let views = Views::ask(this.nodes(), key, waiters, given, enough).await;
    if !is_decided(&views) {
        return Err(views.too_few());
    }
    let mut shown = views.shown();
    let slots = this.table.of_key(key);
    let places = shown.grants.iter().enumerate().map(|(place, grant)| (grant.attempt.clone(), place));
    let places: HashMap<_, _> = if slots.is_empty() { HashMap::new() } else { places.collect() };
    for slot in slots {
        // While a request changes the lock, only the nodes' answers count, and not what this process knows of it.
        let Ok(held) = slot.held.try_lock() else { continue };
        let Some(held) = &*held else { continue };
        if let Some(&place) = places.get(&*held.guard.lease().owner) {
            shown.grants[place].is_known_as(held);
        }
    }
    Ok(shown)
}

/// Asks all nodes for their state (LOCK.NODE), and returns a summary.
async fn nodes(nodes: &Arc<Nodes>, given: Given) -> NodeSet {
    let command = &cmd("LOCK.NODE");
    let ask = |place: usize| async move { (place, nodes.list[place].ask_each(command, given).await) };
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
    let (mut clocks, mut guards, mut places) = (vec![], vec![], HashMap::new());
    while let Some((place, answers)) = asked.next().await {
        // A cluster sends one answer for each master: it serves as a whole, or not at all.
        let (mut guard, mut all_answer) = (None, !answers.is_empty());
        if answers.is_empty() {
            let node = nodes.list[place].name().to_owned();
            set.unreachable
                .push(NodeError { node, why: Why::Unreachable("none of its masters is known yet".to_owned()) });
        }
        for (node, id, reply) in answers {
            let unknown = || Why::Broken("it is not known which server answered".to_owned());
            let counted = reply.and_then(|info| id.ok_or_else(unknown).map(|id| (id, info)));
            let counted = counted.and_then(|(id, info)| match places.get(&id) {
                Some(first) => Err(nodes.same_server_as(*first)),
                None => Ok((id, info)),
            });
            let (id, info) = match counted {
                Ok(counted) => counted,
                Err(why) => {
                    all_answer = false;
                    set.unreachable.push(NodeError { node, why });
                    continue;
                }
            };
            places.insert(id, place);
            set.id ^= id.0;
            if let Some(ms) = wire::number(&info, "max_ttl").map(Duration::from_millis) {
                set.max_ttl = Some(set.max_ttl.map_or(ms, |least: Duration| least.min(ms)));
            }
            clocks.extend(wire::number(&info, "clock_us"));
            guard = guard.max(views::guard(&info));
        }
        match guard {
            Some(guard) => guards.push(guard),
            None => set.serving += usize::from(all_answer),
        }
    }
    clocks.sort_unstable();
    set.clock_us = clocks.get(clocks.len() / 2).copied().unwrap_or(0);
    guards.sort();
    // The guard lasts until enough nodes for a majority serve.
    let missing = set.majority.saturating_sub(set.serving);
    set.guarded = missing.checked_sub(1).and_then(|last| guards.into_iter().nth(last));
    set
}

/// Waits until the lock differs from `known`, and returns its state. `None`: nothing changed in time.
async fn watch(
    this: &ByOwner,
    key: &[u8],
    known: (u64, Option<u64>),
    wait: Duration,
    given: Given,
) -> Result<Option<Shown>, Error> {
    let until = Instant::now() + wait;
    let mut watch = None;
    // The watch of the known grants, as long as the lock has others too.
    let mut own = None;
    // The attempts of the known grants. Their tokens may be raised, which is no change.
    let mut attempts: Option<Vec<Vec<u8>>> = None;
    let mut looked_again = known.0 == 0;
    let _counted = this.watching.begin();
    loop {
        let this = &this.now();
        // Too few nodes may answer for a while, which is no change: they are asked again.
        let mut is_answered = true;
        let token = (known.0 != 0 && attempts.is_none()).then_some(known.0);
        match read_state(this, key, None, token, given).await {
            Ok(shown) => {
                if attempts.is_none() {
                    let grants = shown.with(this, key, known.0).await?;
                    if grants.is_empty() && !looked_again {
                        // A request of the owner may have been changing the lock during the first look, so the nodes
                        // are asked once more.
                        looked_again = true;
                        continue;
                    }
                    attempts = Some(grants.into_iter().map(|grant| grant.attempt.clone()).collect());
                }
                let attempts = attempts.as_deref().unwrap_or_default();
                if !shown.is(known, attempts) {
                    return Ok(Some(shown));
                }
                let known: Vec<_> = shown.grants.iter().filter(|grant| attempts.contains(&grant.attempt)).collect();
                let has_others = known.len() < shown.grants.len().max(shown.listed);
                own = has_others.then(|| GrantWatch::of(own.take(), this.nodes(), key, &known, given));
            }
            Err(error) if watch.is_none() => return Err(error),
            Err(_) => is_answered = false,
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        let Some((_, changed)) = &mut watch else {
            // The lock may change before the nodes watch it, so their first report counts as a change.
            let begun = this.watches.of(&this.client, this.nodes(), key, given)?;
            let changed = begun.changed.clone();
            watch = Some((begun, changed));
            continue;
        };
        tokio::select! {
            biased;
            () = this.nodes().closed() => return Err(Error::closed()),
            () = this.nodes().superseded() => {}
            () = sleep(AGAIN), if !is_answered => {}
            () = GrantWatch::changed(own.as_mut()) => {}
            changed = timeout_at(until, changed.changed()) => match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Error::closed()),
                Err(_) => return Ok(None),
            }
        }
    }
}

impl ShownGrant {
    /// Completes this grant, which this process itself holds, by what nodes may not know yet: the validity, and the
    /// tokens that the owner received.
    fn is_known_as(&mut self, held: &Holding) {
        self.ttl = self.ttl.max(held.guard.valid_for());
        // Either may be the newer one: the owner may have gone on at another process.
        self.token = self.token.max(held.guard.token());
        self.tokens.extend(held.told.tokens());
    }
}

impl Shown {
    /// Returns the grants with this token.
    ///
    /// # Errors
    /// `NoQuorum`: none of those that nodes list has it, and they do not list all.
    async fn with(&self, this: &ByOwner, key: &[u8], token: u64) -> Result<Vec<&ShownGrant>, Error> {
        let named: Vec<_> = self.grants.iter().filter(|grant| grant.is(token)).collect();
        if !named.is_empty() || self.grants.is_empty() {
            return Ok(named);
        }
        // The token may have risen since the owner received it, or may be rising now: the grant is the same under each
        // token.
        for slot in this.table.of_key(key) {
            if let Some(held) = slot.held.lock().await.as_ref().filter(|held| held.is(Some(token)))
                && let Some(own) = self.grants.iter().find(|grant| *grant.attempt == *held.guard.lease().owner)
            {
                return Ok(vec![own]);
            }
        }
        if self.holders > self.grants.len() as u64 { Err(views::not_listed()) } else { Ok(vec![]) }
    }

    /// Returns whether one of `attempts` has a grant whose note is not newer than `sequence`. For token 0, returns
    /// whether the lock is free.
    fn is(&self, (token, sequence): (u64, Option<u64>), attempts: &[Vec<u8>]) -> bool {
        if token == 0 {
            return self.grants.is_empty();
        }
        let is_old = |grant: &ShownGrant| sequence.is_none_or(|sequence| grant.sequence <= sequence);
        self.grants.iter().any(|grant| attempts.contains(&grant.attempt) && is_old(grant))
    }
}
