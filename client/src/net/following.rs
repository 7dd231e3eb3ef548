//! One version of the set of nodes takes the place of another one while the client works: what is under way goes over.
//!
//! Nodes keep numbered versions of the set (`Membership` of palisade-core). Each version that a client works with is a [`Nodes`] of its own, with
//! connections of its own, each of which says the version as its first word. So nothing that is asked in one version is ever answered
//! over a connection of another one. A node that was told a later version ends such connections, and tells it to whoever connects
//! again: then that version takes the place of the one before.
//!
//! - A request that is under way over a connection of the version before counts there if it is answered. Nothing else is sent in that version.
//! - Who was taking a lock begins anew, with the same ticket; what was granted is given back.
//! - A held lock is extended by a majority of the new version from then on ([`Held::move_to`](palisade_quorum::Held::move_to)).
//! - What is to be given back is, wherever the node is in the new version; at one that left it ends with its lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use palisade_quorum::NodeId;
use redis::{Cmd, Value};
use tokio::time::timeout;
use tracing::info;

use crate::net::debt::Debt;
use crate::net::endpoint::Endpoint;
use crate::net::home::once_home;
use crate::net::node::First;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::{Error, ErrorKind, Why};

/// So long a request that came to nothing waits, at most, to learn whether nodes ended its connections because there is another version; and no longer than a
/// node is given to answer.
const TELLS: Duration = Duration::from_millis(500);

impl Nodes {
    /// The version that took the place of this one, if any did.
    fn next(&self) -> Option<Arc<Self>> {
        self.set.next.borrow().clone()
    }

    /// The version that the client works with now.
    pub fn latest(self: &Arc<Self>) -> Arc<Self> {
        let mut latest = Arc::clone(self);
        while let Some(next) = latest.next() {
            latest = next;
        }
        latest
    }

    /// Whether another version took the place of this one.
    pub fn is_superseded(&self) -> bool {
        self.set.next.borrow().is_some()
    }

    /// Returns when another version took the place of this one.
    pub async fn superseded(&self) {
        // The sender is here, so it cannot fail.
        let _ = self.set.next.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns when another version took the place of this one, to what has come to the client's thread; what ends before that learns it then.
    pub async fn superseded_at_home(&self) {
        once_home().await;
        self.superseded().await;
    }

    /// Whether another version takes the place of this one, now that something came to nothing: a node that ended its connection may have been
    /// told of one, which is known when it is connected to again.
    pub async fn was_superseded(&self, given: Given) -> bool {
        let nodes = self.masters();
        let settled = join_all(nodes.iter().map(|node| node.is_settled()));
        let told = async {
            settled.await;
            if self.set.news.told.borrow().is_some() {
                self.superseded().await;
            }
        };
        tokio::select! {
            biased;
            () = self.superseded() => {}
            _ = timeout(TELLS.min(given.most()), told) => {}
        }
        self.is_superseded()
    }

    /// Gives way to the first later version of which a node tells.
    pub async fn give_way(self: Arc<Self>) {
        let members = self.set.news.later().await;
        let (before, version, nodes) = (self.set.news.version(), members.version, members.list.len());
        info!(before, version, nodes, "takes up another version of the set of nodes");
        let next = self.with(members);
        next.stay_connected();
        self.set.next.send_replace(Some(Arc::clone(&next)));
        self.set.news.is_over.send_replace(true);
        for place in 0..self.len() {
            if self.place_in(&next, place).is_none() {
                self.list[place].masters().iter().for_each(|node| node.leaves());
            }
        }
        self.hand_debts_over();
    }

    /// Where the node that is at `place` here is in `next`, which took the place of this.
    fn place_in(&self, next: &Self, place: usize) -> Option<usize> {
        let Endpoint::One(node) = &self.list[place] else { return None };
        next.list.iter().position(|other| matches!(other, Endpoint::One(other) if other.is_same_as(node)))
    }

    /// Who the servers of this version are.
    pub fn ids(&self) -> Vec<Option<NodeId>> {
        self.set.news.members.list.iter().map(|member| member.id.map(NodeId)).collect()
    }

    /// What `operation` comes to in the present version; it is begun anew if it comes to nothing while another one takes its place.
    pub async fn on_present<T, F>(
        self: &Arc<Self>,
        given: Given,
        mut operation: impl FnMut(Arc<Self>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut nodes = self.latest();
        loop {
            match operation(Arc::clone(&nodes)).await {
                Err(error) if error.kind() == ErrorKind::NoQuorum && nodes.was_superseded(given).await => {
                    nodes = nodes.latest();
                }
                done => return done,
            }
        }
    }

    /// What the node at `place` answers to `command`, which may be sent twice, beginning with what it answered at `first`: it is asked
    /// again where it is in the present version. And whether it may have done it already when it was asked before.
    pub async fn ask_wherever(
        self: &Arc<Self>,
        place: usize,
        command: &Cmd,
        given: Given,
        mut first: Option<First>,
    ) -> (Result<Value, Why>, bool) {
        let (mut nodes, mut place, mut is_repeated) = (Arc::clone(self), place, false);
        loop {
            let (_, reply) = match first.take() {
                Some(first) => nodes.list[place].ask_after(first, command, given, None).await,
                None => nodes.list[place].ask(command, given, None).await,
            };
            let is_answered = reply.as_ref().err().is_none_or(Why::is_lasting);
            if is_answered || !nodes.was_superseded(given).await {
                return (reply, is_repeated);
            }
            is_repeated |= reply.as_ref().err().is_some_and(Why::may_be_done);
            let next = nodes.latest();
            let Some(there) = nodes.place_in(&next, place) else { return (reply, is_repeated) };
            (nodes, place) = (next, there);
        }
    }

    /// `debt` is to be given back as soon as the node at `place` answers, wherever it is by then.
    pub fn owe(&self, place: usize, debt: &Arc<Debt>) {
        self.list[place].owe(debt);
        self.hand_debts_over();
    }

    /// What is owed to nodes of this version is owed to them in the next.
    fn hand_debts_over(&self) {
        let Some(next) = self.next() else { return };
        for place in 0..self.len() {
            let there = self.place_in(&next, place);
            for debt in self.list[place].masters().iter().flat_map(|node| node.owes_no_more()) {
                match there {
                    Some(there) => next.owe(there, &debt),
                    // It ends with its lease, where nobody asks any more.
                    None => debt.is_freed(),
                }
            }
        }
    }
}
