//! Breaks a lock on all nodes, for operators: all its grants, or those with one token.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use palisade_quorum::Breaking;
use redis::{Value, cmd};

use super::earlier::Earlier;
use super::owners::ByOwner;
use super::views::{View, Views};
use crate::net::nodes::Nodes;
use crate::run::checked::Checked;
use crate::{Error, ErrorKind, Why};

/// The largest number of looks whether the grants are gone. All but the last end those that have come back.
const LOOKS_MAX: usize = 3;

/// The tokens of the grants that a node ended, one for each that it was asked to end; `None`: it did not have that
/// grant.
type Ended = Vec<Option<u64>>;

impl ByOwner {
    /// Breaks all grants of `key`, or the one with this token. Returns the largest token among them.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answered, or have ended them for good.
    pub async fn break_lock(&self, key: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        let earlier = Earlier::default();
        let work = move |this, key: Arc<[u8]>, checked| {
            let earlier = earlier.clone();
            async move { earlier.or(break_lock(&this, &key, token, checked).await) }
        };
        self.run_on(key, work).await
    }
}

/// Breaks the grants of `key` with this token, or all grants. Returns the largest token among those that ended.
async fn break_lock(this: &ByOwner, key: &[u8], token: Option<u64>, checked: Checked) -> Result<Option<u64>, Error> {
    let (own, others) = held_attempts(this, key, token).await;
    let attempts = own.iter().cloned().collect();
    let whys = vec![None; this.nodes().len()];
    let mut one = Break { nodes: this.nodes(), key, checked, attempts, others, largest: None, whys };
    match token {
        Some(token) => one.end_with(token).await?,
        None => one.end_all().await,
    }
    // Another owner may have been granted the lock meanwhile, because it was broken.
    for slot in this.table.of_key(key) {
        let mut held = slot.held.lock().await;
        if held.as_ref().is_some_and(|held| own.iter().any(|attempt| **attempt == *held.guard.lease().owner)) {
            *held = None;
        }
    }
    one.until_gone().await?;
    Ok(one.largest)
}

/// A break in progress.
struct Break<'a> {
    nodes: &'a Arc<Nodes>,
    key: &'a [u8],
    checked: Checked,
    /// The attempts whose grants are to end, as far as they are known.
    attempts: BTreeSet<Vec<u8>>,
    /// The attempts that certainly do not have the token that was named.
    others: Vec<Vec<u8>>,
    /// The largest token of the grants that have ended.
    largest: Option<u64>,
    /// For each node, the reason why it does not count.
    whys: Vec<Option<Why>>,
}

impl Break<'_> {
    /// Ends all grants.
    async fn end_all(&mut self) {
        // A grant on fewer nodes may be the beginning of one that its owner gets because of the break.
        let views = Views::ask(self.nodes, self.key, None, self.checked.given, Views::is_decided).await;
        self.attempts.extend(views.perhaps_held());
        self.end(vec![vec![None]; self.nodes.len()]).await;
    }

    /// Ends the grants with this token, whatever tokens they have on other nodes.
    ///
    /// # Errors
    /// `NoQuorum`: nothing has ended, and a node that did not answer, or does not list all holders, may have the token.
    async fn end_with(&mut self, token: u64) -> Result<(), Error> {
        let mut breaking = Breaking::begin(token, self.attempts.iter().cloned());
        let mut not_listed;
        loop {
            let views = Views::ask(self.nodes, self.key, None, self.checked.given, |_| false).await;
            let mut shown = views.tokens();
            // A slow node may have granted the lock with a token of an earlier grant, until that is raised.
            for grants in shown.iter_mut().flatten() {
                grants.retain(|(attempt, other)| *other != token || !self.others.contains(attempt));
            }
            let named = shown.iter().flatten().flatten().filter(|(_, other)| *other == token);
            self.attempts.extend(named.map(|(attempt, _)| attempt.clone()));
            let of_node = breaking.on_shown(&shown);
            self.whys = views.whys();
            not_listed = views.are_cut().then(|| views.too_few());
            let of_node = of_node.into_iter().map(|tokens| tokens.into_iter().map(Some).collect()).collect();
            if !breaking.on_ended(&self.end(of_node).await) {
                break;
            }
        }
        if self.largest.is_some() {
            return Ok(());
        }
        if let Some(error) = not_listed {
            return Err(error);
        }
        if breaking.is_hidden() {
            let text =
                "no node that answered shows this token, and the lock is held: a node that did not answer may have it";
            return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(self.nodes.errors(&self.whys)));
        }
        Ok(())
    }

    /// Looks whether the grants are gone. A request of their owner may have been on its way, and have brought one back
    /// on a node that had ended it. Such a grant is ended again, but not for ever.
    ///
    /// # Errors
    /// `NoQuorum`: a majority has one of the grants, or may have it.
    async fn until_gone(&mut self) -> Result<(), Error> {
        self.check_answers("too few nodes answered that they ended it")?;
        for look in 1..=LOOKS_MAX {
            let are_gone = |views: &Views| views.are_gone(&self.attempts);
            let has_answered = |(why, view): (&Option<Why>, &Option<View>)| why.is_some() || view.is_some();
            let enough = |views: &Views| are_gone(views) && self.whys.iter().zip(&views.by_node).all(has_answered);
            let views = Views::ask(self.nodes, self.key, None, self.checked.given, enough).await;
            let shown = views.tokens().into_iter().map(Option::unwrap_or_default);
            let of_node: Vec<Vec<_>> = shown.map(|grants| self.tokens_to_end(grants)).collect();
            // A node that has the grant again is no majority, but it would keep others out for a lease.
            if are_gone(&views) && (look == LOOKS_MAX || of_node.iter().all(Vec::is_empty)) {
                return Ok(());
            }
            self.whys = views.whys();
            for (why, _) in self.whys.iter_mut().zip(&of_node).filter(|(_, tokens)| !tokens.is_empty()) {
                *why = Some(Why::Broken("it granted the lock to the same holder again".to_owned()));
            }
            if look < LOOKS_MAX {
                self.end(of_node).await;
            }
        }
        self.check_answers("too few nodes have ended it for good: break it again")
    }

    /// Fails with this text if too few nodes count.
    fn check_answers(&self, text: &str) -> Result<(), Error> {
        self.nodes.need_majority(&self.whys, text).map_err(Error::perhaps_done)
    }

    /// Returns the tokens of the grants to end, of those that a node shows.
    fn tokens_to_end(&self, shown: Vec<(Vec<u8>, u64)>) -> Vec<Option<u64>> {
        shown.into_iter().filter(|(attempt, _)| self.attempts.contains(attempt)).map(|(_, token)| Some(token)).collect()
    }

    /// Makes each node end the grants with the tokens listed for it, or all grants (`None`). A node with an empty list
    /// is not asked. Returns for each node whether it ended all of them; `None`: it did not answer.
    async fn end(&mut self, of_node: Vec<Vec<Option<u64>>>) -> Vec<Option<bool>> {
        let mut ended = vec![None; self.nodes.len()];
        let asked = of_node.into_iter().enumerate().filter(|(_, tokens)| !tokens.is_empty());
        let replies = join_all(asked.map(|(place, tokens)| self.ask(place, tokens))).await;
        for (place, reply) in replies {
            ended[place] = reply.as_ref().ok().map(|ended| ended.iter().all(Option::is_some));
            self.largest = self.largest.max(reply.iter().flatten().copied().flatten().max());
            self.whys[place] = reply.err();
        }
        ended
    }

    async fn ask(&self, place: usize, tokens: Vec<Option<u64>>) -> (usize, Result<Ended, Why>) {
        let mut ended = vec![];
        for token in tokens {
            let mut command = cmd("LOCK.BREAK");
            command.arg(self.key);
            if let Some(token) = token {
                command.arg("TOKEN").arg(token);
            }
            match self.nodes.list[place].ask(&command, self.checked.given, None).await.1 {
                Ok(Value::Int(token)) => ended.push(u64::try_from(token).ok()),
                Ok(_) => ended.push(None),
                Err(why) => return (place, Err(why)),
            }
        }
        (place, Ok(ended))
    }
}

/// Returns the names of this process's attempts that hold `key`: those whose owners received this token, or all; and
/// those that certainly do not have this token.
async fn held_attempts(this: &ByOwner, key: &[u8], token: Option<u64>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut named, mut others) = (vec![], vec![]);
    for slot in this.table.of_key(key) {
        let held = slot.held.lock().await;
        let Some(held) = held.as_ref() else { continue };
        let attempt = || held.guard.lease().owner.to_vec();
        if held.is(token) {
            named.push(attempt());
        } else if token.is_some_and(|token| held.told.rules_out(token)) {
            others.push(attempt());
        }
    }
    (named, others)
}
