//! Hands a granted lock over to the caller of the request. The client's thread acquires it, and the caller may be on
//! another one, so the grant is on its way for a moment.

use std::sync::Arc;
use std::time::Duration;

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

/// A granted request. If this is dropped before the caller has received it, the lock that it acquired is released.
#[derive(Debug)]
pub struct Handed {
    granted: Granted,
    /// The lock that the request acquired; `None` if the owner held it before.
    acquired: Option<Acquired>,
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
    /// Wraps the grant of a lock that the request acquired.
    pub fn new(granted: Granted, acquired: Acquired) -> Self {
        Self { granted, acquired: Some(acquired) }
    }

    /// Wraps the grant of a lock that the owner held before.
    pub fn of_before(granted: Granted) -> Self {
        Self { granted, acquired: None }
    }

    /// Returns the grant to the caller, whose lock it is from now on.
    pub fn receive(mut self) -> Granted {
        self.acquired = None;
        self.granted
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(acquired) = self.acquired.take() {
            acquired.release_later();
        }
    }
}

impl Acquired {
    /// Releases the lock in the background, unless another request of its owner has used it meanwhile.
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
