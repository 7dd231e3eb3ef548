//! Checks a held lock on its nodes, so that a lock that is taken away is noticed at once, and not only at the next
//! extension.
//!
//! A check (`LOCK.CHECK`) asks the node to report the next change of the key ([`crate::net::tracking`]). So there is
//! one check after each extension, and one after each change by another client.

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

/// Minimum lease of a lock that is checked, in milliseconds. Shorter leases are extended within a second anyway, and
/// checks would double the requests of a process that holds hundreds of them.
const LEASE_LEAST_MS: u32 = 3_000;

/// Time before the first check. Most locks are released earlier, and need no check.
const FIRST: Duration = Duration::from_millis(100);

/// Minimum pause between two checks at one node, for a lock that one owner holds alone. With several holders it is
/// `PAUSE_TOGETHER`, since each of them changes the lock.
const PAUSE_ALONE: Duration = Duration::from_millis(5);
const PAUSE_TOGETHER: Duration = Duration::from_millis(250);

/// The result of a check: the lock is missing on a node.
#[derive(Debug)]
pub struct Missing {
    /// The index of the node.
    pub node: usize,
    /// The id of the server that answered.
    pub id: Option<NodeId>,
    /// The token that was checked: the server has no grant with it.
    pub token: Token,
}

/// The outcome of a check: the node, the server and its connection, the checked token, and the answer.
type CheckAnswer = (usize, Option<NodeId>, u64, Token, Result<Value, Why>);

/// The checks of one held lock, with the state of each node.
pub struct Looking {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    given: Given,
    tracking: Option<Tracking>,
    begins: Instant,
    /// For each node, when the lock is checked there next.
    at: Vec<At>,
    looks: FuturesUnordered<BoxFuture<'static, CheckAnswer>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct At {
    /// The connection over which the node reports the next change.
    told_over: Option<u64>,
    /// The time of the next check.
    next: Option<Instant>,
    last: Option<Instant>,
    is_under_way: bool,
}

impl Looking {
    /// Begins to check a lock held since `since`; `None` if the options or the length of its lease exclude that.
    pub fn begin(nodes: &Arc<Nodes>, lease: &Arc<Lease>, checked: Checked, since: Instant) -> Option<Box<Self>> {
        if !checked.told_at_once || checked.ttl_ms < LEASE_LEAST_MS {
            return None;
        }
        let begins = since + FIRST;
        let at = vec![At { next: Some(begins), ..At::default() }; nodes.len()];
        let looks = FuturesUnordered::new();
        let (nodes, lease, given) = (Arc::clone(nodes), Arc::clone(lease), checked.extending);
        Some(Box::new(Self { nodes, lease, given, tracking: None, begins, at, looks }))
    }

    /// Plans a check of `node` after this client itself changed the lock there. The node does not report such a change,
    /// and stops tracking the key.
    pub fn was_changed(&mut self, node: usize) {
        self.at[node].told_over = None;
        self.plan(node);
    }

    /// Plans checks of nodes with a new connection, on which no changes are tracked yet.
    pub fn check_new_connections(&mut self) {
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

    /// Waits until a check finds that a node does not have the lock: see [`Self::missing`]. Without checks (`None`)
    /// waits forever.
    pub async fn next_missing(this: &mut Option<Box<Self>>, held: &Held) -> Missing {
        match this {
            Some(this) => Box::pin(this.missing(held)).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until a check finds that a node does not have the lock.
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
                    if let Some(missing) = self.on_check_answer(look) {
                        return missing;
                    }
                }
                nodes = changed, if is_tracked => {
                    for node in nodes {
                        self.was_changed(node);
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.send_checks(held),
            }
        }
    }

    /// Asks the nodes for which a check is due whether they still have the lock.
    fn send_checks(&mut self, held: &Held) {
        let now = Instant::now();
        let (nodes, key) = (&self.nodes, &self.lease.key);
        // Tracking begins before the first check, or a change right after the check would be missed.
        self.tracking.get_or_insert_with(|| nodes.tracked.track(key));
        for (node, at) in self.at.iter_mut().enumerate() {
            if at.is_under_way || at.next.is_none_or(|next| next > now) {
                continue;
            }
            at.next = None;
            // A node that does not have the lock, or cannot report changes, is checked only after the next extension
            // there.
            let (Some(token), Some(_)) = (held.token_at(node), nodes.list[node].tracks_over(key)) else { continue };
            (at.last, at.is_under_way) = (Some(now), true);
            let (server, command, given) = (nodes.list[node].clone(), wire::check(key, token), self.given);
            let look = async move {
                let (id, over, answer) = server.ask_tracked(command, given).await;
                (node, id, over, token, answer)
            };
            self.looks.push(look.boxed());
        }
    }

    fn on_check_answer(&mut self, (node, id, over, token, answer): CheckAnswer) -> Option<Missing> {
        let at = &mut self.at[node];
        at.is_under_way = false;
        match answer {
            // The lock changed meanwhile, and the next check is planned.
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
