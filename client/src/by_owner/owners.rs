//! The owners that a process speaks for.

use std::sync::Arc;
use std::time::Duration;

use super::shown::Standing;
use super::table::{Keeper, Table};
use super::watches::Watches;
use crate::net::nodes::Nodes;
use crate::net::tally::Tally;
use crate::run::checked::Checked;
use crate::values::attempt_name::SUFFIX_BYTES;
use crate::{Client, Error, ErrorKind, Options};

/// What is found of an owner may have a lease of this length, and is given back for as long where a node does not answer.
const LEASE_OF_ANOTHER: Duration = Duration::from_secs(60);

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = palisade_quorum::limits::OWNER_BYTES_MAX - SUFFIX_BYTES;

/// Locks by the names of their owners; of [`Client::by_owner`].
#[derive(Clone, Debug)]
pub struct ByOwner {
    pub(super) client: Client,
    /// Of the version of the set that a request works with.
    nodes: Arc<Nodes>,
    pub(super) table: Arc<Table>,
    pub(super) watches: Arc<Watches>,
    pub(super) waiting: Tally,
    pub(super) watching: Tally,
}

impl Client {
    /// Locks under names that the caller chooses, for a program that speaks for holders elsewhere.
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
        let (nodes, table, watches) = (self.nodes(), Arc::default(), Arc::default());
        let (waiting, watching) = (Tally::default(), Tally::default());
        ByOwner { client: self.clone(), nodes, table, watches, waiting, watching }
    }
}

impl ByOwner {
    pub(super) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// The same, in the version of the set that the client works with now.
    pub(super) fn now(&self) -> Self {
        Self { nodes: self.client.nodes(), ..self.clone() }
    }

    /// How a lease of this length is asked for. Of the client's defaults it has how long a node is given to answer.
    pub(super) fn options(&self, ttl: Duration) -> Options {
        self.client.options().clone().ttl(ttl)
    }

    /// How a node is asked about a lock that somebody else may have taken.
    pub(super) fn of_another(&self) -> Result<Checked, Error> {
        self.options(LEASE_OF_ANOTHER).checked()
    }

    /// Runs what `work` makes of this on the client's thread: in one version of the set, and again in the next if it comes to nothing in
    /// between.
    pub(super) async fn run<T, F>(&self, work: impl Fn(Self) -> F + Send + 'static) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let this = self.now();
        let in_version = move |nodes| work(Self { nodes, ..this.clone() });
        let (nodes, given) = (self.client.nodes(), self.of_another()?.given);
        self.client.thread()?.run(async move { nodes.on_present(given, in_version).await }).await?
    }

    /// The same of a key, about which a node is asked as about a lock that somebody else may have taken.
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

    /// The keeper's connection has ended: nothing is extended for it any more.
    pub fn keeper_ended(&self, keeper: Keeper) {
        let Ok(thread) = self.client.thread() else { return };
        let table = Arc::clone(&self.table);
        // After whatever that connection asked for and is given up by now.
        thread.spawn(async move {
            for id in table.keeper_ended(keeper) {
                let slot = table.slot(&id);
                let mut held = slot.held.lock().await;
                if let Some(held) = held.as_mut().filter(|held| held.keeper == Some(keeper)) {
                    held.keeper = None;
                    held.guard.keep(None);
                }
                drop(held);
                table.forget(&id, slot);
            }
        });
    }

    /// The nodes, and which of them can be asked, as is known without asking.
    pub fn standing(&self) -> Standing {
        Standing::of(&self.now().nodes)
    }

    /// How many locks are held here, how many requests wait, and how many watch.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.table.held(), self.waiting.count(), self.watching.count())
    }

    /// At the end of a program: all that is held is given back; [`Client::close`] waits for that. Otherwise it is left to its leases, and
    /// its owners may go on with another process.
    pub fn give_back(&self) {
        let Ok(thread) = self.client.thread() else { return };
        for slot in self.table.drain() {
            let counted = self.nodes().under_way.begin();
            thread.spawn(async move {
                if let Some(held) = slot.held.lock().await.take() {
                    held.guard.give_back().await;
                }
                drop(counted);
            });
        }
    }
}

/// Refuses what cannot be an owner's name.
pub(super) fn checked_owner(owner: &[u8]) -> Result<(), Error> {
    if (1..=NAME_BYTES_MAX).contains(&owner.len()) {
        return Ok(());
    }
    let text = format!("owner must be 1 to {NAME_BYTES_MAX} bytes long, not {}", owner.len());
    Err(Error::new(ErrorKind::BadArgument, text))
}
