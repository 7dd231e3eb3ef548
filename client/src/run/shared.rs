//! The state that the guards of a held lock share with the task that extends it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use palisade_quorum::{BootTime, Held};
use tokio::sync::{SetOnce, oneshot};

use crate::run::kept::SessionLife;
use crate::{Error, Loss, NodeError};

/// Tells a guard the outcome of its order.
pub type Done = oneshot::Sender<Result<(), Error>>;

/// Tells all callers that wait the outcome.
pub fn answer(waiting: &mut Vec<Done>, outcome: &Result<(), Error>) {
    waiting.drain(..).for_each(|done| drop(done.send(outcome.clone())));
}

/// The state that guards and their renewer share.
#[derive(Debug)]
pub struct Shared {
    token: AtomicU64,
    valid_until_us: AtomicU64,
    /// The number of guards of the lock that have not been released.
    pub holds: AtomicU32,
    /// The end of the lock: it is lost, or was released.
    pub ended: SetOnce<Loss>,
    /// The nodes' errors in the last round, if it did not extend the lock.
    not_extended: Mutex<Vec<NodeError>>,
    /// The lock's session, if it has one, and the lock's key.
    pub session: Option<(Arc<SessionLife>, Vec<u8>)>,
}

impl Shared {
    pub fn new(held: &Held, session: Option<(Arc<SessionLife>, Vec<u8>)>) -> Self {
        Self {
            token: AtomicU64::new(held.token().get()),
            valid_until_us: AtomicU64::new(held.valid_until().as_us()),
            holds: AtomicU32::new(1),
            ended: SetOnce::new(),
            not_extended: Mutex::default(),
            session,
        }
    }

    pub fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    pub fn valid_until(&self) -> BootTime {
        BootTime::from_us(self.valid_until_us.load(Ordering::Acquire))
    }

    /// Returns the error of a call whose lock is lost, with what is known of the reason.
    pub fn lost(&self) -> Error {
        Error::lost().with_nodes(self.ended.get().map(|loss| loss.nodes().to_vec()).unwrap_or_default())
    }

    /// Returns the nodes' errors in the last round, if it did not extend the lock.
    pub fn not_extended(&self) -> Vec<NodeError> {
        self.not_extended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_not_extended(&self, nodes: &[NodeError]) {
        *self.not_extended.lock().unwrap_or_else(PoisonError::into_inner) = nodes.to_vec();
    }

    pub fn show(&self, held: &Held) {
        self.token.store(held.token().get(), Ordering::Release);
        self.valid_until_us.store(held.valid_until().as_us(), Ordering::Release);
    }

    pub fn end(&self, loss: Loss) {
        // From here on no guard is valid, however long the leases on the nodes run.
        self.valid_until_us.store(0, Ordering::Release);
        if self.ended.set(loss.clone()).is_ok()
            && let Some((session, key)) = &self.session
        {
            session.is_lost(key, &loss);
        }
    }
}
