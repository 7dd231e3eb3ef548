//! Sends the orders of guards to the renewer of their lock, the task that extends it. The renewer starts only when it
//! is needed, because most locks are released before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_channel::mpsc;
use tracing::Instrument;

use crate::Released;
use crate::net::home::Unfinished;
use crate::net::lease::Lease;
use crate::net::tally::Counted;
use crate::run::attempt::Taken;
use crate::run::checked::Checked;
use crate::run::give_back::Heard;
use crate::run::kept::SessionLife;
use crate::run::renewer::{self, Auto, Order, Renewer};
use crate::run::shared::Shared;
use crate::values::clock;

/// If a held lock needs an extension or other work within this time, its renewer starts at once.
const YOUNG: Duration = Duration::from_millis(100);

/// Sends orders to the renewer of a held lock. The renewer starts only when it is needed, because most locks are
/// released before.
#[derive(Debug)]
pub struct Orders(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    Young(Box<Renewer>),
    Kept(mpsc::UnboundedSender<Order>),
    /// The lock was released before the renewer was needed.
    Over,
}

impl Orders {
    /// Sends an order, starting the renewer if it has not started.
    ///
    /// # Errors
    /// The renewer has ended.
    pub fn send(&self, order: Order) -> Result<(), Ended> {
        match self.sender() {
            Some(orders) => orders.unbounded_send(order).map_err(|_| Ended),
            None => Err(Ended),
        }
    }

    /// Returns the lock, to release it at once, if its renewer has not started. `None` if the caller has to order the
    /// release from the renewer.
    pub fn release_young(&self) -> Option<Young> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Young(renewer) => Some(Young(renewer)),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Returns the sender of orders, starting the renewer if it has not started.
    fn sender(&self) -> Option<mpsc::UnboundedSender<Order>> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Young(renewer) => {
                let (orders, inbox) = mpsc::unbounded();
                *stage = Stage::Kept(orders.clone());
                drop(stage);
                renewer.start(inbox);
                Some(orders)
            }
            Stage::Kept(orders) => {
                *stage = Stage::Kept(orders.clone());
                Some(orders)
            }
            Stage::Over => None,
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unfinished for Orders {
    fn on_overdue(&self) {
        self.sender();
    }
}

/// The error of an order to a renewer that has ended.
#[derive(Debug)]
pub struct Ended;

/// A lock that is released before its renewer has started.
#[derive(Debug)]
pub struct Young(Box<Renewer>);

impl Young {
    /// Releases the lock, and returns the outcome as soon as a majority has answered.
    pub async fn release(mut self, counted: Counted) -> Released {
        let span = self.0.span();
        let released = async move {
            let mut giving = Heard::of(self.0.give_back(counted));
            self.0.released(&mut giving).await
        };
        released.instrument(span).await
    }

    /// Releases the lock in the background.
    pub fn release_later(mut self, counted: Counted) {
        let span = self.0.span();
        span.in_scope(|| self.0.release_in_background(counted));
    }
}

/// Begins to extend an acquired lock in the background, in the rounds of its session if it has one.
pub fn start(
    taken: Taken,
    checked: Checked,
    auto: Option<Auto>,
    session: Option<Arc<SessionLife>>,
) -> (Arc<Shared>, Arc<Orders>, Arc<Lease>) {
    let renewer = renewer::begin(taken, checked, auto, session);
    let ((shared, lease), home) = (renewer.shared(), renewer.home());
    let is_busy = renewer.is_busy_before(clock::after(YOUNG));
    let orders = Arc::new(Orders(Mutex::new(Stage::Young(Box::new(renewer)))));
    if is_busy {
        orders.on_overdue();
    } else {
        let unfinished: Weak<Orders> = Arc::downgrade(&orders);
        home.take_over(unfinished);
    }
    (shared, orders, lease)
}
