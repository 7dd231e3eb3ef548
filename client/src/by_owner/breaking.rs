//! Breaks a lock on the nodes, for any holder.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::majority;
use redis::{Value, cmd};

use super::owners::ByOwner;
use super::views::Views;
use crate::net::nodes::Nodes;
use crate::run::checked::Checked;
use crate::{Error, ErrorKind, Why};

/// Maximum number of attempts to break a grant whose tokens are raised meanwhile.
const TIMES: usize = 3;

/// The answer of one node.
type Answered = (usize, Result<Value, Why>);

impl ByOwner {
    /// Breaks all grants of `key`, or the one with this token. Returns the largest token among them.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answered.
    pub async fn break_lock(&self, key: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        let work = move |this, key: Arc<[u8]>, checked| async move { break_lock(&this, &key, token, checked).await };
        self.run_on(key, work).await
    }
}

/// Breaks the grants with this token, or all. Returns the largest token among those that ended.
async fn break_lock(this: &ByOwner, key: &[u8], token: Option<u64>, checked: Checked) -> Result<Option<u64>, Error> {
    let nodes = this.nodes();
    let (mut whys, mut largest) = (vec![None; nodes.len()], None);
    for _ in 0..TIMES {
        // An owner's tokens may differ from node to node. Each node gets its own, so all are asked for it.
        let mut of_node = vec![token; nodes.len()];
        let mut has = vec![false; nodes.len()];
        if let Some(token) = token {
            let views = Views::ask(nodes, key, None, checked.given, |_| false).await;
            let by_attempt = views.by_attempt();
            let attempt = attempt_with(this, key, token, &views).await;
            for (node, grant) in attempt.and_then(|attempt| by_attempt.get(&*attempt)).into_iter().flatten() {
                (of_node[*node], has[*node]) = (Some(grant.token.get()), true);
            }
        }
        let mut is_raised = false;
        for (place, reply) in ask_all(nodes, key, &of_node, checked).await {
            whys[place] = reply.as_ref().err().cloned();
            match reply {
                Ok(Value::Int(token)) => largest = largest.max(u64::try_from(token).ok()),
                Ok(_) => is_raised |= has[place],
                Err(_) => {}
            }
        }
        if !is_raised {
            break;
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

async fn ask_all(nodes: &Nodes, key: &[u8], tokens: &[Option<u64>], checked: Checked) -> Vec<Answered> {
    let ask = |place: usize| {
        let mut command = cmd("LOCK.BREAK");
        command.arg(key);
        if let Some(token) = tokens[place] {
            command.arg("TOKEN").arg(token);
        }
        async move { (place, nodes.list[place].ask(&command, checked.given, None).await.1) }
    };
    (0..nodes.len()).map(ask).collect::<FuturesUnordered<_>>().collect().await
}

/// Returns the attempt of the grant with this token.
async fn attempt_with(this: &ByOwner, key: &[u8], token: u64, views: &Views) -> Option<Vec<u8>> {
    for slot in this.table.of_key(key) {
        if let Some(held) = slot.held.lock().await.as_ref().filter(|held| held.is(Some(token))) {
            return Some(held.guard.lease().owner.to_vec());
        }
    }
    if let Some(grant) = views.agreed().into_iter().find(|grant| grant.is(token)) {
        return Some(grant.attempt);
    }
    // Otherwise the remains of an attempt that no majority granted.
    let by_attempt = views.by_attempt();
    let left = by_attempt.iter().find(|(_, grants)| grants.iter().any(|(_, grant)| grant.token.get() == token));
    left.map(|(attempt, _)| attempt.to_vec())
}
