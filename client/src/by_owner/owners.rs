//! The owners that a process acts for.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::shown::Standing;
use super::table::{Holding, Keeper, Table};
use super::watches::Watches;
use crate::net::home::is_home;
use crate::net::nodes::Nodes;
use crate::net::tally::Tally;
use crate::run::checked::Checked;
use crate::run::give_back::GiveBack;
use crate::values::attempt_name::SUFFIX_BYTES;
use crate::{Client, Error, ErrorKind, Options};

/// Assumed length of a lease that another process acquired: a node that does not answer is asked to release it for this
/// long.
const LEASE_OF_ANOTHER: Duration = Duration::from_secs(60);

/// Maximum length of an owner's name, in bytes: what the nodes allow, less the suffix of each attempt.
pub const NAME_BYTES_MAX: usize = palisade_quorum::limits::OWNER_BYTES_MAX - SUFFIX_BYTES;

/// Maximum number of holds of one lock that are released at the end of the program ([`ByOwner::give_back`]).
const HOLDS_RELEASED_MAX: u32 = 64;

/// Locks under owners' names that the caller chooses; created by [`Client::by_owner`].
#[derive(Clone, Debug)]
pub struct ByOwner {
    shared: Arc<Shared>,
    /// The nodes of the version of the set that a request works with.
    nodes: Arc<Nodes>,
}

/// The state that all requests share.
#[derive(Debug)]
pub struct Shared {
    pub(super) client: Client,
    pub(super) table: Table,
    pub(super) watches: Watches,
    pub(super) waiting: Tally,
    pub(super) watching: Tally,
    /// The checked options for requests about a lock that another process may have acquired.
    of_another: Result<Checked, Error>,
}

impl Deref for ByOwner {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Client {
    /// Returns the locks under names that the caller chooses, for a program that acts for holders elsewhere.
    ///
    /// ```no_run
    /// # use palisade_client::{Client, Error};
    /// # async fn run(locks: Client) -> Result<(), Error> {
    /// let by_owner = locks.by_owner();
    /// println!("{:?} holds left", by_owner.release(b"orders:42", b"worker 7", Some(1), None).await?);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(hidden)]
    pub fn by_owner(&self) -> ByOwner {
        let shared = Shared {
            client: self.clone(),
            table: Table::default(),
            watches: Watches::default(),
            waiting: Tally::default(),
            watching: Tally::default(),
            of_another: self.options().clone().ttl(LEASE_OF_ANOTHER).checked(),
        };
        ByOwner { shared: Arc::new(shared), nodes: self.nodes() }
    }
}

impl ByOwner {
    pub(super) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// Returns a copy that works with the client's current version of the set.
    pub(super) fn now(&self) -> Self {
        Self { nodes: self.client.nodes(), ..self.clone() }
    }

    /// Returns the options for a lease of length `ttl`. The time that a node has to answer is that of the client's
    /// defaults.
    pub(super) fn options(&self, ttl: Duration) -> Options {
        self.client.options().clone().ttl(ttl)
    }

    /// Returns the checked options for requests about a lock that another process may have acquired.
    pub(super) fn of_another(&self) -> Result<Checked, Error> {
        self.of_another.clone()
    }

    /// Runs `work` on the client's thread, in one version of the set. If the set changes and the work fails, runs it
    /// again in the next version.
    pub(super) async fn run<T, F>(&self, work: impl Fn(Self) -> F + Send + 'static) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let this = self.clone();
        let in_version = move |nodes| work(Self { nodes, ..this.clone() });
        let (nodes, given) = (self.client.nodes(), self.of_another()?.given);
        let (thread, work) = (self.client.thread()?, async move { nodes.on_present(given, in_version).await });
        // An agent's requests are on the client's thread already.
        if is_home() { work.await } else { thread.run(work).await? }
    }

    /// Runs `work` for `key`, with the options for a lock that another process may have acquired. See [`ByOwner::run`].
    pub(super) async fn run_on<T, F>(
        &self,
        key: &[u8],
        work: impl Fn(Self, Arc<[u8]>, Checked) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (key, checked) = (Arc::<[u8]>::from(key), self.of_another()?);
        self.run(move |this| work(this, Arc::clone(&key), checked)).await
    }

    /// Stops extending locks for `keeper`, whose connection has ended.
    pub fn keeper_ended(&self, keeper: Keeper) {
        let Ok(thread) = self.client.thread() else { return };
        let this = self.clone();
        // Runs after every request that the connection made and has cancelled by now.
        thread.spawn(async move {
            for id in this.table.keeper_ended(keeper) {
                let slot = this.table.slot(&id);
                let mut held = slot.held.lock().await;
                if let Some(held) = held.as_mut().filter(|held| held.keeper == Some(keeper)) {
                    held.keeper = None;
                    held.guard.keep(None);
                }
                drop(held);
                this.table.forget(&id, slot);
            }
        });
    }

    /// Returns the nodes, and which of them are reachable, without asking them.
    pub fn standing(&self) -> Standing {
        Standing::of(&self.now().nodes)
    }

    /// Returns the numbers of locks that this process holds, of its waiting requests and of its watching requests.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.table.held(), self.waiting.count(), self.watching.count())
    }

    /// Releases the locks that this process holds, at the end of a program; [`Client::close`] waits for that. Locks
    /// that are not released last until their leases end, and their owners may continue with another process. Not
    /// released are locks of which `stays` returns true for the key and the owner, locks that another process or this
    /// one has adopted, and those with more than 64 holds.
    pub fn give_back(&self, stays: impl Fn(&[u8], &[u8]) -> bool) {
        let (Ok(thread), Ok(checked)) = (self.client.thread(), self.of_another()) else { return };
        for (id, slot) in self.table.drain() {
            let nodes = self.client.nodes();
            let counted = nodes.under_way.begin();
            let is_released = !stays(&id.key, &id.owner);
            thread.spawn(async move {
                if let Some(Holding { guard, holds, .. }) = slot.held.lock().await.take() {
                    // Each release ends one hold, or none if the lock was adopted.
                    let releases = if is_released { holds.min(HOLDS_RELEASED_MAX) } else { 0 };
                    (0..releases).for_each(|_| drop(GiveBack::new(&nodes, guard.lease(), checked)));
                    guard.leave().await;
                }
                drop(counted);
            });
        }
    }
}

/// Refuses an invalid owner's name.
pub(super) fn checked_owner(owner: &[u8]) -> Result<(), Error> {
    if (1..=NAME_BYTES_MAX).contains(&owner.len()) {
        return Ok(());
    }
    let text = format!("owner must be 1 to {NAME_BYTES_MAX} bytes long, not {}", owner.len());
    Err(Error::new(ErrorKind::BadArgument, text))
}
