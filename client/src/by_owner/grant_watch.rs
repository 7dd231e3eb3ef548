//! Watches one grant of a lock that has several.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::shown::ShownGrant;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::run::watching;

/// A watch of grants on the nodes that have them. [`Watches`](super::watches::Watches) report changes of the oldest
/// grant only.
pub struct GrantWatch {
    nodes: Arc<Nodes>,
    /// For each grant and node that has it: the node's place, the grant's token there, and the sequence number of its
    /// note.
    at: Vec<(usize, u64, u64)>,
    /// One for each of these: done once the node reports a change.
    changes: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl GrantWatch {
    /// Watches `grants` of the lock `key` in place of what `before` watches. Goes on with `before` if it watches the
    /// same.
    pub fn of(before: Option<Self>, nodes: &Arc<Nodes>, key: &[u8], grants: &[&ShownGrant], given: Given) -> Self {
        let each = grants.iter().flat_map(|grant| grant.at.iter().map(|&(node, token)| (node, token, grant.sequence)));
        let at: Vec<_> = each.collect();
        if let Some(before) = before.filter(|before| Arc::ptr_eq(&before.nodes, nodes) && before.at == at) {
            return before;
        }
        let change = |&(node, token, sequence): &(usize, u64, u64)| {
            watching::change(Arc::clone(nodes), key.into(), node, (token, sequence), given).boxed()
        };
        Self { nodes: Arc::clone(nodes), changes: at.iter().map(change).collect(), at }
    }

    /// Returns once a node reports that a grant has ended there, or changed.
    pub async fn changed(watch: Option<&mut Self>) {
        if let Some(watch) = watch
            && watch.changes.next().await.is_some()
        {
            return;
        }
        pending().await
    }
}
