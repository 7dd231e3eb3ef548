//! A held lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palisade_core::quorum::majority;
use redis::Value;
use tokio::sync::{mpsc, oneshot};

use crate::keeper::{End, Order, Shared};
use crate::nodes::Nodes;
use crate::options::Checked;
use crate::wire::Lease;
use crate::{Error, ErrorKind, NodeError, clock};

/// A lock that is held, as long as it [is valid](Guard::is_valid).
///
/// Check that before each step that must not happen without the lock, and give the [token](Guard::token) to the resource,
/// which refuses a smaller one than it has seen: no check on this side can catch a process that is paused right after it.
///
/// Dropping a guard gives the lock back in the background, best effort: release it where the runtime is about to end, or it is
/// free only when its lease ends. [`Guard::release`] also tells what came of it.
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct Guard {
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    checked: Checked,
    released: bool,
}

/// What a release came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lock is free for others, on every node.
    Released,
    /// One hold was given back; this many guards are left.
    StillHeld(u32),
    /// No majority had it any more: it had ended before, or the nodes lost it. What was done last may have been done
    /// without it.
    AlreadyExpired,
    /// These nodes did not answer: there it ends with its lease. A majority of the others is enough for the next holder.
    PartlyUnreachable(Vec<NodeError>),
}

impl Guard {
    pub(crate) fn new(
        nodes: &Arc<Nodes>,
        lease: Arc<Lease>,
        shared: Arc<Shared>,
        orders: mpsc::UnboundedSender<Order>,
        checked: Checked,
    ) -> Self {
        Self { nodes: Arc::clone(nodes), lease, shared, orders, checked, released: false }
    }

    /// The fencing token: larger than that of every earlier holder. It can rise while the lock is held (a node that lost it
    /// granted it again), and never falls: ask for it at each use.
    pub fn token(&self) -> u64 {
        self.shared.token()
    }

    /// The key that is locked.
    pub fn key(&self) -> &[u8] {
        &self.lease.key
    }

    /// The name under which the nodes know this acquisition: 20 random bytes, also of its other guards. Who knows it can
    /// release the lock: give it only to what runs under it.
    pub fn owner(&self) -> &[u8] {
        &self.lease.owner
    }

    /// Whether the lock may be relied on, now.
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// For how long the lock may be relied on, from now: counted on this machine's boot clock from before the nodes were
    /// asked, less 1 % of the ttl and 2 ms.
    pub fn valid_for(&self) -> Duration {
        clock::until(self.shared.valid_until())
    }

    /// Extends the lease to the ttl it was taken with, from now.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes did, and the lock stays valid as long as it was. `Lost`: it is not held any more.
    pub async fn extend(&self) -> Result<(), Error> {
        let (done, outcome) = oneshot::channel();
        let order = Order::Extend { ttl_ms: self.checked.ttl_ms, done };
        self.orders.send(order).map_err(|_| Error::lost())?;
        outcome.await.unwrap_or_else(|_| Err(Error::lost()))
    }

    /// One guard more of the same lock, for code that takes the lock it may have already. The lock is free when all of its
    /// guards have given it back.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes took notice. `Lost`: it is not held any more.
    pub async fn reenter(&self) -> Result<Guard, Error> {
        if !self.is_valid() {
            return Err(Error::lost());
        }
        let level = self.shared.holds.fetch_add(1, Ordering::AcqRel) + 1;
        // If this is given up, its hold goes again.
        let guard = Guard {
            nodes: Arc::clone(&self.nodes),
            lease: Arc::clone(&self.lease),
            shared: Arc::clone(&self.shared),
            orders: self.orders.clone(),
            checked: self.checked,
            released: false,
        };
        let replies = self.nodes.ask_all(&self.lease.reenter(level), self.checked.node_timeout).await;
        let yes = replies.iter().filter(|reply| matches!(reply, Ok(Value::Int(_)))).count();
        if yes >= majority(self.nodes.len()) {
            return Ok(guard);
        }
        let why = |reply: Result<Value, crate::wire::Trouble>| match reply {
            Ok(Value::Int(_)) => None,
            Ok(_) => Some("it does not have the lock".to_owned()),
            Err(trouble) => Some(trouble.to_string()),
        };
        let whys: Vec<_> = replies.into_iter().map(why).collect();
        Err(Error::new(ErrorKind::NoQuorum, "too few nodes took notice of the re-entry")
            .with_nodes(self.nodes.errors(&whys)))
    }

    /// Whether it was lost, or released by another guard.
    pub fn is_lost(&self) -> bool {
        self.shared.ended.borrow().is_some() || !self.is_valid()
    }

    /// Returns when the lock is lost: at the latest when its validity ends, whatever the network does, and before if it was
    /// taken away. Also when it was released through another guard.
    pub async fn lost(&self) {
        let mut ended = self.shared.ended.subscribe();
        // Its end is looked at here too, in case nobody is left to tell.
        let over = async {
            while self.is_valid() {
                tokio::time::sleep(self.valid_for()).await;
            }
        };
        tokio::select! {
            _ = ended.wait_for(Option::is_some) => {}
            () = over => {}
        }
    }

    /// Gives the lock back, or one of its holds, and tells what came of it.
    pub async fn release(mut self) -> Released {
        self.released = true;
        let left = self.shared.holds.fetch_sub(1, Ordering::AcqRel) - 1;
        if left > 0 {
            let _ = self.nodes.ask_all(&self.lease.release(left + 1), self.checked.node_timeout).await;
            return Released::StillHeld(left);
        }
        let (done, outcome) = oneshot::channel();
        if self.orders.send(Order::Release { done }).is_err() {
            return self.ended();
        }
        outcome.await.unwrap_or_else(|_| self.ended())
    }

    fn ended(&self) -> Released {
        match *self.shared.ended.borrow() {
            Some(End::Released) => Released::Released,
            Some(End::Lost) | None => Released::AlreadyExpired,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The keeper ends when its last guard is gone, and gives the lock back.
        if !self.released {
            self.shared.holds.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
