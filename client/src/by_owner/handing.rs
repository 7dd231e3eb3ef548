//! Hands a granted lock over to the caller of the request. The client's thread acquires it, and the caller may be on
//! another one, so the grant is on its way for a moment.

use std::sync::Arc;
use std::time::Duration;

use super::delivery::Delivery;
use super::owners::ByOwner;
use super::table::{Holding, Id};
use crate::run::checked::Checked;
use crate::run::give_back::GiveBack;

/// An acquired lock. Counted from the request's arrival, it is valid for *waited + ttl*, less 1 % of the ttl and 2 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token of the grant.
    pub token: u64,
    /// Time from the request's arrival to the grant.
    pub waited: Duration,
    /// The number of the permit; 1 in the other modes.
    pub number: u16,
}

/// A granted request. If nobody receives the lock that it or an earlier one acquired, the lock is released.
#[derive(Debug)]
pub struct Handed {
    granted: Granted,
    /// The lock's delivery, if no caller had received the lock when this request was granted.
    delivery: Option<Arc<Delivery>>,
}

/// A lock that was just acquired.
#[derive(Debug)]
pub struct Acquired {
    pub this: ByOwner,
    pub id: Id,
    /// The name of the attempt on the nodes.
    pub attempt: Arc<[u8]>,
    pub checked: Checked,
}

impl Handed {
    /// Wraps the grant of a lock. Without a `delivery`, a caller has received the lock before.
    pub fn new(granted: Granted, delivery: Option<Arc<Delivery>>) -> Self {
        Self { granted, delivery }
    }

    /// Returns the grant to the caller, whose lock it is from now on.
    pub fn receive(self) -> Granted {
        if let Some(delivery) = &self.delivery {
            delivery.receive();
        }
        self.granted
    }
}

impl Acquired {
    /// Returns the delivery of this lock, which releases the lock if no caller receives it.
    pub fn deliver(self) -> Arc<Delivery> {
        Arc::new(Delivery::new(move || self.release_later()))
    }

    /// Releases the lock in the background, unless a request of its owner has changed it meanwhile.
    fn release_later(self) {
        let Self { this, id, attempt, checked } = self;
        let nodes = Arc::clone(this.nodes());
        let (home, counted) = (Arc::clone(&nodes.home), nodes.under_way.begin());
        home.spawn(async move {
            let slot = this.table.slot(&id);
            let mut held = slot.held.lock().await;
            let is_unused = |held: &mut Holding| !held.is_used && held.guard.lease().owner == attempt;
            if let Some(Holding { guard, keeper, .. }) = held.take_if(is_unused) {
                drop(GiveBack::new(&nodes, guard.lease(), checked));
                if let Some(keeper) = keeper {
                    this.table.stop_keeping(keeper, &id);
                }
                guard.leave().await;
            }
            drop(held);
            this.table.forget(&id, slot);
            drop(counted);
        });
    }
}
