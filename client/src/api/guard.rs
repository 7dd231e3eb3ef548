//! The guard of a held lock: shows whether it is valid, extends it, and releases it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palisade_quorum::BootTime;
use tokio::sync::oneshot;

use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::run::checked::Checked;
use crate::run::orders::Orders;
use crate::run::renewer::{Auto, Order};
use crate::run::shared::Shared;
use crate::run::thread::Thread;
use crate::values::clock;
use crate::{Error, ErrorKind, Loss, NodeError, Released};

mod rounds;

pub(crate) use self::rounds::changes_meet;

/// A held lock, for as long as it [is valid](Guard::is_valid).
///
/// Check [`Guard::is_valid`] before each step that must not happen without the lock. Give the [token](Guard::token) to
/// the resource, which refuses a token smaller than the largest that it has seen. No check on this side can catch a
/// process that is paused right after it.
///
/// Dropping a guard releases the lock in the background. At the end of a program nothing runs in the background any
/// longer: [release](Guard::release) guards there, or [close](crate::Client::close) the client after them. Otherwise
/// the lock is free only when its lease ends. [`Guard::release`] also returns the outcome.
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct Guard {
    /// Keeps the client's thread alive while there is a guard.
    thread: Arc<Thread>,
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    shared: Arc<Shared>,
    orders: Arc<Orders>,
    checked: Checked,
    pub(super) released: bool,
}

impl Guard {
    pub(crate) fn new(
        thread: Arc<Thread>,
        nodes: &Arc<Nodes>,
        lease: Arc<Lease>,
        shared: Arc<Shared>,
        orders: Arc<Orders>,
        checked: Checked,
    ) -> Self {
        Self { thread, nodes: Arc::clone(nodes), lease, shared, orders, checked, released: false }
    }

    /// Returns the fencing token: larger than that of every earlier holder. It never falls, but can rise while the lock
    /// is held, because a node grants it late, or grants it again after a loss: read it at each use.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// println!("UPDATE orders SET … WHERE id = 42 AND token <= {}", guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> u64 {
        self.shared.token()
    }

    /// Returns the key of the lock.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// assert_eq!(guard.key(), b"orders:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.lease.key
    }

    /// Returns the owner, which names this acquisition on the nodes: 20 random bytes, the same for all guards of the
    /// lock. Anyone who knows it can release the lock: give it only to code that runs under the lock.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// assert_eq!(guard.owner().len(), 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.lease.owner
    }

    /// Returns the lease: the owner's name on the nodes, and the commands that carry it.
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Returns until when the lock may be relied on.
    pub(crate) fn valid_until(&self) -> BootTime {
        self.shared.valid_until()
    }

    /// Extends the lease to `ttl_ms`, from now.
    pub(crate) async fn extend_to(&self, ttl_ms: u32) -> Result<(), Error> {
        self.order(|done| Order::Extend { ttl_ms, done }).await
    }

    /// Starts or stops extending the lease in the background.
    pub(crate) fn keep(&self, auto: Option<Auto>) {
        // The order cannot be sent only if the lock is lost, which the guard reports itself.
        let _ = self.orders.send(Order::Keep { auto });
    }

    pub(crate) fn number(&self) -> u16 {
        self.lease.number()
    }

    /// Makes the lock's owner a reader. Returns once a majority has made the change.
    pub(crate) async fn share(&self) -> Result<(), Error> {
        if self.shared.holds.load(Ordering::Acquire) > 1 {
            let text = "other guards of this lock rely on it as a writer: release them before it is downgraded";
            return Err(Error::new(ErrorKind::BadArgument, text));
        }
        self.order(|done| Order::Share { done }).await
    }

    /// Makes the lock's owner a reader on all nodes, in the background.
    pub(crate) fn share_later(&self) {
        let (done, _) = oneshot::channel();
        let _ = self.orders.send(Order::Share { done });
    }

    /// Sends an order to the renewer, and returns its outcome. Also returns if the lock is lost, since an order sent at
    /// that moment may never be answered.
    async fn order<T>(&self, order: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Order) -> Result<T, Error> {
        let (done, outcome) = oneshot::channel();
        self.orders.send(order(done)).map_err(|_| self.shared.lost())?;
        tokio::select! {
            biased;
            told = outcome => told.unwrap_or_else(|_| Err(self.shared.lost())),
            _ = self.lost() => Err(self.shared.lost()),
        }
    }

    /// Proclaims `value` on all nodes. Returns the term once a majority has it.
    pub(crate) async fn proclaim(&self, value: Vec<u8>) -> Result<u64, Error> {
        self.order(|done| Order::Proclaim { value, done }).await.map(|(term, _)| term)
    }

    /// Returns whether the lock may be relied on now.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// if guard.is_valid() {
    ///     println!("charged with token {}", guard.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Returns for how long the lock may be relied on from now. This is counted on this machine's boot clock from
    /// before the nodes were asked, less 1 % of the ttl and 2 ms. Zero once the lock is no longer valid.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// if guard.valid_for() > std::time::Duration::from_secs(1) {
    ///     println!("time enough for one more step");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn valid_for(&self) -> Duration {
        clock::until(self.shared.valid_until())
    }

    /// Extends the lease from now to the ttl that the lock was acquired with.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// guard.extend().await?;
    /// println!("valid for {:?}", guard.valid_for());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes extended it; the lock stays valid until its previous end. `Lost`: the lock is no
    /// longer held.
    pub async fn extend(&self) -> Result<(), Error> {
        self.extend_to(self.checked.ttl_ms).await
    }

    /// Returns another guard of this lock, for code that acquires a lock it may already hold. The lock is free once all
    /// of its guards are released.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// let inner = guard.reenter().await?;
    /// assert_eq!(inner.token(), guard.token());
    /// inner.release().await; // still held
    /// guard.release().await; // free
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If nodes that were added to the set a moment ago do not have the lock yet, this extends the lease once.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes recorded the hold. `Lost`: the lock is no longer held.
    pub async fn reenter(&self) -> Result<Guard, Error> {
        if !self.is_valid() {
            return Err(self.shared.lost());
        }
        let level = self.shared.holds.fetch_add(1, Ordering::AcqRel) + 1;
        // If this call is cancelled, dropping the guard undoes the hold.
        let guard = Guard {
            thread: Arc::clone(&self.thread),
            nodes: Arc::clone(&self.nodes),
            lease: Arc::clone(&self.lease),
            shared: Arc::clone(&self.shared),
            orders: Arc::clone(&self.orders),
            checked: self.checked,
            released: false,
        };
        self.send_to_majority(self.lease.reenter(level), "took notice of the re-entry").await?;
        Ok(guard)
    }

    /// Returns whether the lock was lost, or released by another guard.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// while !guard.is_lost() {
    ///     println!("one more step");
    ///     # break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_lost(&self) -> bool {
        self.shared.ended.get().is_some() || !self.is_valid()
    }

    /// Returns the nodes' failures in the last round of extension, if that round did not extend the lock.
    #[doc(hidden)]
    pub fn not_extended(&self) -> Vec<NodeError> {
        self.shared.not_extended()
    }

    /// Waits until the lock is lost, and returns why. Returns at the latest when the validity ends, whatever the
    /// network does. If the lock is taken away, returns within two round trips
    /// ([`Options::told_at_once`](crate::Options::told_at_once)). Also returns when the lock is released through
    /// another guard.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// # let work = std::future::ready(());
    /// tokio::select! {
    ///     why = guard.lost() => println!("stopped: the lock is lost: {why}"),
    ///     () = work => println!("done"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> Loss {
        self.shared.ended.wait().await.clone()
    }

    /// Releases the lock, or one of its holds, and returns the outcome as soon as a majority has answered. The other
    /// nodes are released in the background, also those that answer only later.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let guard = locks.lock("orders:42").await?;
    /// use palisade_client::Released;
    ///
    /// if guard.release().await == Released::AlreadyExpired {
    ///     println!("what was done last may have been done without the lock");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Released {
        self.release_now().await
    }

    /// Releases the lock of a guard that its caller is about to drop.
    pub(super) async fn release_now(&mut self) -> Released {
        self.released = true;
        let left = self.shared.holds.fetch_sub(1, Ordering::AcqRel) - 1;
        if left > 0 {
            let _ = self.send_to_all(self.lease.release(left + 1), Result::is_ok).await;
            return Released::StillHeld(left);
        }
        self.give_back().await
    }

    /// Releases the lock with all of its holds.
    pub(crate) async fn give_back(&self) -> Released {
        let counted = self.nodes.under_way.begin();
        if let Some(young) = self.orders.release_young() {
            return self.thread.begin(young.release(counted)).await.unwrap_or_else(|_| self.ended());
        }
        let (done, outcome) = oneshot::channel();
        let order = Order::Release { done: Some(done), counted };
        if self.orders.send(order).is_err() {
            return self.ended();
        }
        outcome.await.unwrap_or_else(|_| self.ended())
    }

    /// Releases the lock with all of its holds, in the background.
    pub(crate) fn give_back_later(&self) {
        let counted = self.nodes.under_way.begin();
        if let Some(young) = self.orders.release_young() {
            return young.release_later(counted);
        }
        // If the renewer has ended, there is nothing to release.
        let _ = self.orders.send(Order::Release { done: None, counted });
    }

    /// Drops the guard of a lock whose owner the caller named, which releases nothing, and waits until this process no
    /// longer counts the lock as held.
    pub(crate) async fn leave(self) {
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.ended.wait().await;
    }

    /// Returns the error of a call whose lock was lost while it was under way, with this text.
    pub(crate) fn lost_meanwhile(&self, text: &str) -> Error {
        Error::new(ErrorKind::Lost, text).with_nodes(self.shared.lost().nodes().to_vec())
    }

    fn ended(&self) -> Released {
        match self.shared.ended.get() {
            Some(Loss::Released) => Released::Released,
            _ => Released::AlreadyExpired,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released && !self.lease.is_named() && self.shared.holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            // This was the last guard.
            self.give_back_later();
        }
    }
}
