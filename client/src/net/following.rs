//! Replaces one version of the set of nodes by another while the client works, and moves work in progress to it.
//!
//! Nodes keep numbered versions of the set (`Membership` of palisade-core). Each version that a client works with is a
//! [`Nodes`] of its own, with connections of its own, each of which begins by stating the version. So no request of one
//! version is ever answered over a connection of another. A node that learns of a later version closes the connections
//! of earlier ones, and reports that version to clients that reconnect. The client then works with the later version.
//!
//! - An outstanding request on a connection of the previous version counts there if it is answered. Nothing else is
//!   sent in that version.
//! - An acquisition begins anew, with the same ticket; its grants are released.
//! - A held lock is extended by a majority of the new version from then on
//!   ([`Held::move_to`](palisade_quorum::Held::move_to)).
//! - A pending release moves with its node to the new version; on a node that left, the lock ends with its lease.

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

/// Maximum time for which a failed request waits to learn whether the nodes closed its connections because of another
/// version of the set. It is never longer than the time that a node has to answer.
const TELLS: Duration = Duration::from_millis(500);

impl Nodes {
    /// Returns the version of the set that superseded this one, if there is one.
    fn next(&self) -> Option<Arc<Self>> {
        self.set.next.borrow().clone()
    }

    /// Returns the version of the set that the client works with now.
    pub fn latest(self: &Arc<Self>) -> Arc<Self> {
        let mut latest = Arc::clone(self);
        while let Some(next) = latest.next() {
            latest = next;
        }
        latest
    }

    /// Returns whether another version of the set superseded this one.
    pub fn is_superseded(&self) -> bool {
        self.set.next.borrow().is_some()
    }

    /// Waits until another version of the set supersedes this one.
    pub async fn superseded(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.set.next.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits, on the client's thread, until another version supersedes this one. On other threads it never returns:
    /// tasks there notice the other version at the end of their work.
    pub async fn superseded_at_home(&self) {
        once_home().await;
        self.superseded().await;
    }

    /// Returns, after a failure, whether another version supersedes this one. A node that closed its connection may
    /// know one, and reports it when the client connects again.
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

    /// Moves to the first later version of the set that a node reports.
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
                self.list[place].masters().iter().for_each(|node| node.leave());
            }
        }
        self.hand_debts_over();
    }

    /// Returns the index in `next`, the version after this one, of the node with the index `place` here.
    fn place_in(&self, next: &Self, place: usize) -> Option<usize> {
        let Endpoint::One(node) = &self.list[place] else { return None };
        next.list.iter().position(|other| matches!(other, Endpoint::One(other) if other.is_same_as(node)))
    }

    /// Returns the ids of the servers of this version of the set, where they are known.
    pub fn ids(&self) -> Vec<Option<NodeId>> {
        self.set.news.members.list.iter().map(|member| member.id.map(NodeId)).collect()
    }

    /// Returns the result of `operation` in the present version. If it fails because another version takes over, it is
    /// repeated there.
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

    /// Sends `command`, which may arrive twice, to the node at `place`. If the set changes, repeats it at the node's
    /// place in the new version. If there is a `first` answer already, begins with that. Also returns whether an
    /// earlier request may have taken effect.
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

    /// Registers a pending release, to be made as soon as the node at `place` answers, whatever its index is by then.
    pub fn owe(&self, place: usize, debt: &Arc<Debt>) {
        self.list[place].owe(debt);
        self.hand_debts_over();
    }

    /// Moves pending releases of this version to the next one.
    fn hand_debts_over(&self) {
        let Some(next) = self.next() else { return };
        for place in 0..self.len() {
            let there = self.place_in(&next, place);
            for debt in self.list[place].masters().iter().flat_map(|node| node.take_debts()) {
                match there {
                    Some(there) => next.owe(there, &debt),
                    // The node left the set, so the lock ends there with its lease.
                    None => debt.is_freed(),
                }
            }
        }
    }
}
