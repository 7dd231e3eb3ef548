//! Looks at a held lock on its nodes: where it was taken away, that is found at once, not when it is next extended.
//!
//! A look (`LOCK.CHECK`) asks the node to tell when the key changes ([`crate::net::tracking`]), so there is one look after each extension, and one
//! after each change by somebody else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use palisade_quorum::{Held, NodeId, Token};
use redis::Value;
use tokio::time::{Instant, sleep_until};

use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::net::pace::Given;
use crate::net::tracking::Tracking;
use crate::net::wire;
use crate::run::checked::Checked;
use crate::values::failure::Why;

/// Locks with shorter leases are not looked at, in milliseconds: they are extended within a second anyway, and looks would double
/// the requests of a process that holds hundreds of them.
const LEASE_LEAST_MS: u32 = 3_000;

/// A lock is looked at first when it has been held for so long: most are given back before, and cost nothing more.
const FIRST: Duration = Duration::from_millis(100);

/// So long after a look comes the next one at the same node, at the least: where the lock is one owner's alone, and where others
/// come and go.
const PAUSE_ALONE: Duration = Duration::from_millis(5);
const PAUSE_TOGETHER: Duration = Duration::from_millis(250);

/// What a look found.
#[derive(Debug)]
pub struct Missing {
    /// The node.
    pub node: usize,
    /// The server that answered.
    pub id: Option<NodeId>,
    /// It does not have this.
    pub token: Token,
}

/// What came of a look: the node, the server and its connection, the token that was looked for, and what was answered.
type Look = (usize, Option<NodeId>, u64, Token, Result<Value, Why>);

/// The looks at one lock.
pub struct Looking {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    given: Given,
    tracking: Option<Tracking>,
    begins: Instant,
    /// By node.
    at: Vec<At>,
    looks: FuturesUnordered<BoxFuture<'static, Look>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct At {
    /// The connection over which the node tells of changes.
    told_over: Option<u64>,
    /// When it is looked at next.
    next: Option<Instant>,
    last: Option<Instant>,
    is_under_way: bool,
}

impl Looking {
    /// A lock that has been held since then, if it is to be looked at.
    pub fn begin(nodes: &Arc<Nodes>, lease: &Arc<Lease>, checked: Checked, since: Instant) -> Option<Self> {
        if !checked.told_at_once || checked.ttl_ms < LEASE_LEAST_MS {
            return None;
        }
        let begins = since + FIRST;
        let at = vec![At { next: Some(begins), ..At::default() }; nodes.len()];
        let looks = FuturesUnordered::new();
        let (nodes, lease, given) = (Arc::clone(nodes), Arc::clone(lease), checked.extending);
        Some(Self { nodes, lease, given, tracking: None, begins, at, looks })
    }

    /// The lock was changed on `node` by this client itself: the node tells of nothing any more.
    pub fn was_changed(&mut self, node: usize) {
        self.at[node].told_over = None;
        self.plan(node);
    }

    /// Where the connection was made anew, the node tells of nothing any more.
    pub fn look_after(&mut self) {
        for node in 0..self.at.len() {
            let over = self.nodes.list[node].tracks_over(&self.lease.key);
            if over.is_some() && self.at[node].told_over != over {
                self.plan(node);
            }
        }
    }

    fn plan(&mut self, node: usize) {
        let pause = match self.lease.wanted() {
            palisade_quorum::Wanted::Exclusive => PAUSE_ALONE,
            _ => PAUSE_TOGETHER,
        };
        let at = &mut self.at[node];
        let due = at.last.map_or(self.begins, |last| (last + pause).max(Instant::now())).max(self.begins);
        at.next = Some(at.next.map_or(due, |next| next.min(due)));
    }

    /// The same of one that may be there; never returns if there is none.
    pub async fn goes_on(this: &mut Option<Self>, held: &Held) -> Missing {
        match this {
            Some(this) => this.missing(held).await,
            None => std::future::pending().await,
        }
    }

    /// Goes on until a node is found not to have it any more.
    async fn missing(&mut self, held: &Held) -> Missing {
        loop {
            let due = self.at.iter().filter(|at| !at.is_under_way).filter_map(|at| at.next).min();
            let is_tracked = self.tracking.is_some();
            let tracking = &mut self.tracking;
            let changed = async {
                match tracking {
                    Some(tracking) => tracking.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(look) = self.looks.next(), if !self.looks.is_empty() => {
                    if let Some(missing) = self.found(look) {
                        return missing;
                    }
                }
                nodes = changed, if is_tracked => {
                    for node in nodes {
                        self.was_changed(node);
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.look(held),
            }
        }
    }

    /// Looks at the nodes that it is time for.
    fn look(&mut self, held: &Held) {
        let now = Instant::now();
        let (nodes, key) = (&self.nodes, &self.lease.key);
        // Before the first look, or what changes right after it would not be heard.
        self.tracking.get_or_insert_with(|| nodes.tracked.track(key));
        for (node, at) in self.at.iter_mut().enumerate() {
            if at.is_under_way || at.next.is_none_or(|next| next > now) {
                continue;
            }
            at.next = None;
            // One that does not have it, or cannot tell, is not looked at before it has been extended there.
            let (Some(token), Some(_)) = (held.token_at(node), nodes.list[node].tracks_over(key)) else { continue };
            (at.last, at.is_under_way) = (Some(now), true);
            let (server, command, given) = (nodes.list[node].clone(), wire::check(key, token), self.given);
            let look = async move {
                let (id, over, answer) = server.look(command, given).await;
                (node, id, over, token, answer)
            };
            self.looks.push(look.boxed());
        }
    }

    fn found(&mut self, (node, id, over, token, answer): Look) -> Option<Missing> {
        let at = &mut self.at[node];
        at.is_under_way = false;
        match answer {
            // It changed meanwhile: the next look is planned.
            Ok(_) if at.next.is_some() => None,
            Ok(Value::Int(_)) => {
                at.told_over = Some(over);
                None
            }
            Ok(Value::Nil) => Some(Missing { node, id, token }),
            Ok(_) | Err(_) => None,
        }
    }
}
