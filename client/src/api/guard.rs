//! A held lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palisade_quorum::{BootTime, majority};
use redis::Value;
use tokio::sync::{mpsc, oneshot};

use crate::net::lease::Lease;
use crate::net::nodes::Nodes;
use crate::run::checked::Checked;
use crate::run::renewer::{Auto, Order, Shared};
use crate::run::thread::Thread;
use crate::values::clock;
use crate::{Error, ErrorKind, Loss, Released, Why};

/// A lock that is held, as long as it [is valid](Guard::is_valid).
///
/// Check that before each step that must not happen without the lock, and give the [token](Guard::token) to the resource,
/// which refuses a smaller one than it has seen: no check on this side can catch a process that is paused right after it.
///
/// Dropping a guard gives the lock back in the background. At the end of a program nothing is done in the background any more:
/// [release](Guard::release) guards there, or [close](crate::Client::close) the client after them, or the lock is free only when
/// its lease ends. [`Guard::release`] also tells what came of it.
#[derive(Debug)]
#[must_use = "the lock is given back when its guard is dropped"]
pub struct Guard {
    /// Lives as long as there is a guard.
    thread: Arc<Thread>,
    nodes: Arc<Nodes>,
    lease: Arc<Lease>,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    checked: Checked,
    pub(super) released: bool,
}

impl Guard {
    pub(crate) fn new(
        thread: Arc<Thread>,
        nodes: &Arc<Nodes>,
        lease: Arc<Lease>,
        shared: Arc<Shared>,
        orders: mpsc::UnboundedSender<Order>,
        checked: Checked,
    ) -> Self {
        Self { thread, nodes: Arc::clone(nodes), lease, shared, orders, checked, released: false }
    }

    /// The fencing token: larger than that of every earlier holder. It can rise while the lock is held (a node that lost it
    /// granted it again), and never falls: ask for it at each use.
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

    /// The key that is locked.
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

    /// The name under which the nodes know this acquisition: 20 random bytes, also of its other guards. Who knows it can
    /// release the lock: give it only to what runs under it.
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

    /// What it is called on the nodes, and how it is asked for there.
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Until when it may be relied on.
    pub(crate) fn valid_until(&self) -> BootTime {
        self.shared.valid_until()
    }

    /// Extends the lease to this length, from now.
    pub(crate) async fn extend_to(&self, ttl_ms: u32) -> Result<(), Error> {
        self.order(|done| Order::Extend { ttl_ms, done }).await
    }

    /// It is extended in the background from now on, or not any more.
    pub(crate) fn keep(&self, auto: Option<Auto>) {
        // If nobody reads it, the lock is lost.
        let _ = self.orders.send(Order::Keep { auto });
    }

    pub(crate) fn number(&self) -> u16 {
        self.lease.number()
    }

    /// Its owner is a reader from now on; returns when a majority knows.
    pub(crate) async fn share(&self) -> Result<(), Error> {
        if self.shared.holds.load(Ordering::Acquire) > 1 {
            let text = "other guards of this lock rely on it as a writer: release them before it is downgraded";
            return Err(Error::new(ErrorKind::BadArgument, text));
        }
        self.order(|done| Order::Share { done }).await
    }

    /// Gives an order, and returns what came of it. One that is given as the lock is lost may never be read, nor dropped.
    async fn order<T>(&self, order: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Order) -> Result<T, Error> {
        let (done, outcome) = oneshot::channel();
        self.orders.send(order(done)).map_err(|_| self.shared.lost())?;
        tokio::select! {
            biased;
            told = outcome => told.unwrap_or_else(|_| Err(self.shared.lost())),
            _ = self.lost() => Err(self.shared.lost()),
        }
    }

    /// Proclaims `value` on all nodes; returns its term when a majority has it.
    pub(crate) async fn proclaim(&self, value: Vec<u8>) -> Result<u64, Error> {
        self.order(|done| Order::Proclaim { value, done }).await.map(|(term, _)| term)
    }

    /// Whether the lock may be relied on, now.
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

    /// For how long the lock may be relied on, from now: counted on this machine's boot clock from before the nodes were
    /// asked, less 1 % of the ttl and 2 ms.
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

    /// Extends the lease to the ttl it was taken with, from now.
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
    /// `NoQuorum`: too few nodes did, and the lock stays valid as long as it was. `Lost`: it is not held any more.
    pub async fn extend(&self) -> Result<(), Error> {
        self.extend_to(self.checked.ttl_ms).await
    }

    /// One guard more of the same lock, for code that takes the lock it may have already. The lock is free when all of its
    /// guards have given it back.
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
    /// # Errors
    /// `NoQuorum`: too few nodes took notice. `Lost`: it is not held any more.
    pub async fn reenter(&self) -> Result<Guard, Error> {
        if !self.is_valid() {
            return Err(self.shared.lost());
        }
        let level = self.shared.holds.fetch_add(1, Ordering::AcqRel) + 1;
        // If this is given up, its hold goes again.
        let guard = Guard {
            thread: Arc::clone(&self.thread),
            nodes: Arc::clone(&self.nodes),
            lease: Arc::clone(&self.lease),
            shared: Arc::clone(&self.shared),
            orders: self.orders.clone(),
            checked: self.checked,
            released: false,
        };
        self.tell_majority(self.lease.reenter(level), "took notice of the re-entry").await?;
        Ok(guard)
    }

    /// Tells all nodes, and returns the numbers that they answered; they are a majority. `what` is what too few of them did otherwise.
    ///
    /// # Errors
    /// `NoQuorum`; `Lost`: so many do not have it that no majority is left.
    pub(crate) async fn tell_majority(&self, command: redis::Cmd, what: &str) -> Result<Vec<u64>, Error> {
        let (nodes, replies) = self.tell_all(command, |reply| matches!(reply, Ok(Value::Int(_)))).await?;
        let (mut numbers, mut whys) = (vec![], vec![None; nodes.len()]);
        for (why, reply) in whys.iter_mut().zip(replies) {
            match reply {
                Some(Ok(Value::Int(number))) => numbers.extend(u64::try_from(number)),
                Some(Ok(_)) => *why = Some(Why::NotHeld),
                Some(Err(failure)) => *why = Some(failure),
                None => {}
            }
        }
        let needed = majority(nodes.len());
        if numbers.len() >= needed {
            return Ok(numbers);
        }
        if whys.iter().flatten().filter(|why| **why == Why::NotHeld).count() > nodes.len() - needed {
            return Err(Error::lost());
        }
        Err(Error::new(ErrorKind::NoQuorum, format!("too few nodes {what}")).with_nodes(nodes.errors(&whys)))
    }

    /// Sends `command`, which may be sent twice, to every node, and returns which these are and what they answered as soon as a majority answered so, or all of
    /// them did.
    async fn tell_all(
        &self,
        command: redis::Cmd,
        counts: fn(&Result<Value, Why>) -> bool,
    ) -> Result<(Arc<Nodes>, Vec<Option<Result<Value, Why>>>), Error> {
        let (nodes, given) = (self.nodes.latest(), self.checked.given);
        let told = self.thread.run(async move {
            let mut replies: Vec<_> = nodes.list.iter().map(|_| None).collect();
            let mut answers = nodes.tell_all(command, given);
            let mut yes = 0;
            while yes < majority(nodes.len())
                && let Some((node, reply)) = answers.recv().await
            {
                yes += usize::from(counts(&reply));
                replies[node] = Some(reply);
            }
            (nodes, replies)
        });
        told.await
    }

    /// Whether it was lost, or released by another guard.
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
        self.shared.ended.borrow().is_some() || !self.is_valid()
    }

    /// Returns when the lock is lost, and why: at the latest when its validity ends, whatever the network does, and before if it was
    /// taken away, within two round trips ([`Options::told_at_once`](crate::Options::told_at_once)). Also when it was released through another
    /// guard.
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
        let mut ended = self.shared.ended.subscribe();
        // The sender is here, so it cannot fail.
        let loss = ended.wait_for(Option::is_some).await.ok().and_then(|loss| loss.clone());
        loss.unwrap_or(Loss::Closed)
    }

    /// Gives the lock back, or one of its holds, and tells what came of it: as soon as a majority has answered. The other nodes
    /// are told in the background, also those that answer only later.
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

    /// The same of a guard that is about to be dropped.
    pub(super) async fn release_now(&mut self) -> Released {
        self.released = true;
        let left = self.shared.holds.fetch_sub(1, Ordering::AcqRel) - 1;
        if left > 0 {
            let _ = self.tell_all(self.lease.release(left + 1), Result::is_ok).await;
            return Released::StillHeld(left);
        }
        self.give_back().await
    }

    /// Gives the lock back, whatever holds there are.
    pub(crate) async fn give_back(&self) -> Released {
        let (done, outcome) = oneshot::channel();
        let order = Order::Release { done: Some(done), counted: self.nodes.under_way.begin() };
        if self.orders.send(order).is_err() {
            return self.ended();
        }
        outcome.await.unwrap_or_else(|_| self.ended())
    }

    /// The same in the background.
    pub(crate) fn give_back_later(&self) {
        // If its renewer has ended, there is nothing to give back.
        let _ = self.orders.send(Order::Release { done: None, counted: self.nodes.under_way.begin() });
    }

    /// That it was lost meanwhile.
    pub(crate) fn lost_meanwhile(&self, text: &str) -> Error {
        Error::new(ErrorKind::Lost, text).with_nodes(self.shared.lost().nodes().to_vec())
    }

    fn ended(&self) -> Released {
        match *self.shared.ended.borrow() {
            Some(Loss::Released) => Released::Released,
            _ => Released::AlreadyExpired,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released && !self.lease.is_named() && self.shared.holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            // It was the last one.
            self.give_back_later();
        }
    }
}
