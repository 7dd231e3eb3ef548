//! Breaks a lock on all nodes, for operators: all its grants, or those with one token.

use std::sync::Arc;

use futures_util::future::join_all;
use palisade_quorum::{Breaking, majority};
use redis::{Value, cmd};

use super::earlier::Earlier;
use super::owners::ByOwner;
use super::views::Views;
use crate::net::nodes::Nodes;
use crate::run::checked::Checked;
use crate::{Error, ErrorKind, Why};

/// The tokens of the grants that a node ended, one for each that it was asked to end; `None`: it did not have that
/// grant.
type Ended = Vec<Option<u64>>;

impl ByOwner {
    /// Breaks all grants of `key`, or the one with this token. Returns the largest token among them.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answered.
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
    let nodes = this.nodes();
    let (mut whys, mut largest) = (vec![None; nodes.len()], None);
    let attempts = held_attempts(this, key, token).await;
    let mut breaking = token.map(|token| Breaking::begin(token, attempts.clone()));
    let mut not_listed = None;
    loop {
        let of_node = match &mut breaking {
            None => vec![vec![None]; nodes.len()],
            Some(breaking) => {
                let views = Views::ask(nodes, key, None, checked.given, |_| false).await;
                let of_node = breaking.on_shown(&views.tokens());
                whys = views.whys();
                not_listed = views.are_cut().then(|| views.too_few());
                of_node.into_iter().map(|tokens| tokens.into_iter().map(Some).collect()).collect()
            }
        };
        let mut ended = vec![None; nodes.len()];
        for (place, reply) in ask_all(nodes, key, of_node, checked).await {
            ended[place] = reply.as_ref().ok().map(|ended| ended.iter().all(Option::is_some));
            largest = largest.max(reply.iter().flatten().copied().flatten().max());
            whys[place] = reply.err();
        }
        if !breaking.as_ref().is_some_and(|breaking| breaking.on_ended(&ended)) {
            break;
        }
    }
    if largest.is_none()
        && let Some(error) = not_listed
    {
        return Err(error);
    }
    if largest.is_none() && breaking.is_some_and(|breaking| breaking.is_hidden()) {
        let text =
            "no node that answered shows this token, and the lock is held: a node that did not answer may have it";
        return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys)));
    }
    // Another owner may have been granted the lock meanwhile, because it was broken.
    for slot in this.table.of_key(key) {
        let mut held = slot.held.lock().await;
        if held.as_ref().is_some_and(|held| attempts.iter().any(|attempt| **attempt == *held.guard.lease().owner)) {
            *held = None;
        }
    }
    if whys.iter().flatten().count() > nodes.len() - majority(nodes.len()) {
        let text = "too few nodes answered that they ended it";
        return Err(Error::new(ErrorKind::NoQuorum, text).with_nodes(nodes.errors(&whys)).perhaps_done());
    }
    Ok(largest)
}

/// Makes each node end the grants with the tokens listed for it, or all grants (`None`). A node with an empty list is
/// not asked.
async fn ask_all(
    nodes: &Nodes,
    key: &[u8],
    of_node: Vec<Vec<Option<u64>>>,
    checked: Checked,
) -> Vec<(usize, Result<Ended, Why>)> {
    let ask = async |place: usize, tokens: Vec<Option<u64>>| {
        let mut ended = vec![];
        for token in tokens {
            let mut command = cmd("LOCK.BREAK");
            command.arg(key);
            if let Some(token) = token {
                command.arg("TOKEN").arg(token);
            }
            match nodes.list[place].ask(&command, checked.given, None).await.1 {
                Ok(Value::Int(token)) => ended.push(u64::try_from(token).ok()),
                Ok(_) => ended.push(None),
                Err(why) => return (place, Err(why)),
            }
        }
        (place, Ok(ended))
    };
    let asked = of_node.into_iter().enumerate().filter(|(_, tokens)| !tokens.is_empty());
    join_all(asked.map(|(place, tokens)| ask(place, tokens))).await
}

/// Returns the names of this process's attempts that hold `key`: those whose owners received this token, or all.
async fn held_attempts(this: &ByOwner, key: &[u8], token: Option<u64>) -> Vec<Vec<u8>> {
    let mut attempts = vec![];
    for slot in this.table.of_key(key) {
        if let Some(held) = slot.held.lock().await.as_ref().filter(|held| held.is(token)) {
            attempts.push(held.guard.lease().owner.to_vec());
        }
    }
    attempts
}
