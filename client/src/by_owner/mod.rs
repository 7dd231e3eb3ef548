//! Locks under names that the caller chooses: taken by one request, extended and given back by others, also of another process.
//!
//! For those who speak for holders that are elsewhere, as `palisade agent` does. What holds a lock for itself uses
//! [`Client::lock`](crate::Client::lock), whose guard knows more.
//!
//! A name is one holder's, and new for each acquisition. On the nodes each *attempt* has a name of its own that begins with it and ends in 16
//! digits of chance, so that no late message of one attempt can touch another.

mod breaking;
mod changing;
mod finding;
mod table;
mod taking;
mod telling;
mod views;

use std::sync::Arc;
use std::time::Duration;

pub use palisade_core::{Mode, Permit, Wanted};

use self::changing::{Change, What, in_ms};
use self::table::{Id, Table};
use self::taking::Came;
pub use self::telling::Standing;
use self::telling::Watches;
pub use self::views::reliable;
pub use crate::net::node::Reach;
use crate::net::nodes::Nodes;
use crate::net::tally::Tally;
use crate::run::checked::Checked;
use crate::values::attempt_name::SUFFIX_BYTES;
use crate::values::clock;
use crate::{Client, Error, ErrorKind, NodeError, Options};

/// What is found of an owner may have a lease of this length, and is given back for as long where a node does not answer.
const LEASE_OF_ANOTHER: Duration = Duration::from_secs(60);

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = palisade_core::limits::OWNER_BYTES_MAX - SUFFIX_BYTES;

/// Locks by the names of their owners; of [`Client::by_owner`].
#[derive(Clone, Debug)]
pub struct ByOwner {
    client: Client,
    /// Of the version of the set that a request works with.
    nodes: Arc<Nodes>,
    table: Arc<Table>,
    watches: Arc<Watches>,
    waiting: Tally,
    watching: Tally,
}

/// What is to be taken, and how.
#[derive(Clone, Debug)]
pub struct Take {
    /// The lock.
    pub key: Vec<u8>,
    /// The owner's name, 1 to [`NAME_BYTES_MAX`] bytes.
    pub owner: Vec<u8>,
    /// Length of the lease.
    pub ttl: Duration,
    /// In which mode.
    pub wanted: Wanted,
    /// Waits for so long.
    pub wait: Duration,
    /// If the owner has it already, in this mode, that is as good, and is extended.
    pub retry: bool,
    /// For people.
    pub note: Vec<u8>,
    /// The lease is extended for so long, as long as this keeper has not [ended](ByOwner::keeper_ended).
    pub keepalive: Option<(Duration, Keeper)>,
}

/// Whose connection a lease lasts as long as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keeper(pub u64);

/// A lock that was taken: valid until *asked + waited + ttl*, less 1 % of the ttl and 2 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token.
    pub token: u64,
    /// How long it was waited for.
    pub waited: Duration,
    /// The number of the permit; 1 in the other modes.
    pub number: u16,
}

/// A lock as a majority of the nodes has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Who holds it: the oldest grants first. Empty: it is free.
    pub grants: Vec<ShownGrant>,
    /// How many hold it.
    pub holders: u64,
    /// How many wait for it, on the node where most do.
    pub waiters: u64,
    /// How many wait behind those in their clients, as far as they say, on the node where most do.
    pub waiters_behind: u64,
    /// The first of them.
    pub queue: Vec<ShownWaiter>,
    /// For whom it is kept, and for how long.
    pub reserved: Option<(Vec<u8>, Duration)>,
}

/// One who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownGrant {
    /// The name that it was taken under.
    pub owner: Vec<u8>,
    /// What the nodes call it.
    pub(crate) attempt: Vec<u8>,
    /// The fencing token: at least the one that its owner was told last. While its nodes are brought together it is the one to which they are brought.
    pub token: u64,
    /// Those that name it: its owner may have been told one of them, and nobody before it.
    pub(crate) tokens: Vec<u64>,
    /// In which mode.
    pub mode: Mode,
    /// How many holds there are.
    pub holds: u32,
    /// What is left of the lease on a majority.
    pub ttl: Duration,
    /// Since when.
    pub held: Duration,
    /// For people.
    pub note: Vec<u8>,
    /// The number of the note.
    pub sequence: u64,
    /// It keeps others out until its lease ends, and is nobody's.
    pub is_suspect: bool,
    /// For how long it is extended by itself.
    pub keepalive: Duration,
    /// Time since its lease was last extended, or begun, on the node where that is least.
    pub extended: Duration,
}

/// One who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownWaiter {
    /// The name that it waits under.
    pub owner: Vec<u8>,
    /// For how long.
    pub waited: Duration,
    /// It waits to be told that the lock is free (LOCK.WAIT), not to be granted it.
    pub is_turn: bool,
    /// For people.
    pub note: Vec<u8>,
    /// `exclusive`, `shared` or `permit`.
    pub mode: String,
    /// How many wait behind it in its client, as it says.
    pub behind: u64,
}

/// What the nodes are together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet {
    /// The same for every client of the same nodes, in whatever order.
    pub id: u128,
    /// How many there are.
    pub nodes: usize,
    /// How many grant locks now.
    pub serving: usize,
    /// How many are needed.
    pub majority: usize,
    /// If too few serve since too many are guarded: for how long, and why.
    pub guarded: Option<(Duration, String)>,
    /// The longest lease that all nodes take, of those that answered.
    pub max_ttl: Option<Duration>,
    /// Their wall clock, the one in the middle, in microseconds since 1970.
    pub clock_us: u64,
    /// Those that cannot be asked, or are a server that counts already, and why.
    pub unreachable: Vec<NodeError>,
}

impl ShownGrant {
    /// Whether it is the grant with this token.
    pub fn is(&self, token: u64) -> bool {
        self.tokens.contains(&token)
    }
}

impl ByOwner {
    pub(crate) fn new(client: &Client) -> Self {
        let (table, watches) = (Arc::default(), Arc::default());
        Self {
            client: client.clone(),
            nodes: client.nodes(),
            table,
            watches,
            waiting: Tally::default(),
            watching: Tally::default(),
        }
    }

    fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// The same, in the version of the set that the client works with now.
    fn now(&self) -> Self {
        Self { nodes: self.client.nodes(), ..self.clone() }
    }

    /// How a lease of this length is asked for. Of the client's defaults it has how long a node is given to answer.
    fn options(&self, ttl: Duration) -> Options {
        self.client.defaults().clone().ttl(ttl)
    }

    /// How a node is asked about a lock that somebody else may have taken.
    fn of_another(&self) -> Result<Checked, Error> {
        self.options(LEASE_OF_ANOTHER).checked()
    }

    /// Runs what `work` makes of this on the client's thread: in one version of the set, and again in the next if it comes to nothing in
    /// between.
    async fn run<T, F>(&self, work: impl Fn(Self) -> F + Send + 'static) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let this = self.now();
        let in_version = move |nodes| work(Self { nodes, ..this.clone() });
        let (nodes, given) = (self.client.nodes(), self.of_another()?.given);
        self.client.thread()?.run(async move { nodes.on_present(given, in_version).await }).await?
    }

    /// Takes a lock; `None`: somebody else holds it. Dropped meanwhile, the request leaves every queue and nothing stays locked.
    ///
    /// # Errors
    /// `Owned`, `Guarded`, `NoQuorum`, `TimedOut` (if it was not somebody else that stood in the way), `Expired`, `BadArgument`, `Closed`.
    pub async fn take(&self, take: Take) -> Result<Option<Granted>, Error> {
        let came = Came { at: clock::boot_now(), ticket: self.nodes().clock.ticket() };
        checked_owner(&take.owner)?;
        let checked = self.options(take.ttl).note(&take.note).checked()?;
        let take = Arc::new(take);
        let taking = move |this| {
            let take = Arc::clone(&take);
            async move { taking::take(&this, &take, checked, came).await }
        };
        self.run(taking).await
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

    /// Gives one hold back, or all down to a level, and tells how many are left; 0: a majority of the nodes had it until now. `None`: a
    /// majority did not have it, or this owner does not hold it with this token; what single nodes have of it is given back all the same.
    /// Without a token it also ends this owner's waiting (its `take` returns `None`).
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes tell whether this owner held it. Its text says whether the release was sent; nodes that did not answer are
    /// told then as soon as they do.
    pub async fn release(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        token: Option<u64>,
    ) -> Result<Option<u32>, Error> {
        let holds = self.change(key, owner, token, What::Release { level }).await?;
        Ok(holds.and_then(|holds| u32::try_from(holds).ok()))
    }

    /// The lease lasts at least so long from when this was called; its token. `None`: this owner does not hold it.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes did, and the lock stays valid as long as it was.
    pub async fn extend(
        &self,
        key: &[u8],
        owner: &[u8],
        ttl: Duration,
        token: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Extend { ttl_ms: in_ms(ttl) }).await
    }

    /// One hold more, or at least `level` of them; how many there are.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes took notice.
    pub async fn reenter(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        ttl: Option<Duration>,
    ) -> Result<Option<u32>, Error> {
        let holds = self.change(key, owner, None, What::Reenter { level, ttl_ms: ttl.map(in_ms) }).await?;
        Ok(holds.and_then(|holds| u32::try_from(holds).ok()))
    }

    /// Its writer is a reader from now on; its token. `None`: this owner does not hold it, or holds a permit.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes took notice.
    pub async fn share(&self, key: &[u8], owner: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Share).await
    }

    /// Puts `text` in the place of the note, unless one with a larger number is there; the number of the note that is there then.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes took it.
    pub async fn note(
        &self,
        key: &[u8],
        owner: &[u8],
        text: &[u8],
        sequence: Option<u64>,
        token: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        self.change(key, owner, token, What::Note { text: text.to_vec(), sequence }).await
    }

    async fn change(&self, key: &[u8], owner: &[u8], token: Option<u64>, what: What) -> Result<Option<u64>, Error> {
        let came = clock::boot_now();
        checked_owner(owner)?;
        let checked = self.of_another()?;
        let id = Id { key: key.into(), owner: owner.into() };
        self.run(move |this| {
            let (id, what) = (id.clone(), what.clone());
            async move {
                let slot = this.table.slot(&id);
                let changed = Change { this: &this, id: &id, token, checked, came }.make(&slot, what).await;
                this.table.forget(&id, slot);
                changed
            }
        })
        .await
    }

    /// What is left of the grant with this token, less what clocks may differ by; `None`: nobody holds it with this token.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes tell.
    pub async fn check(&self, key: &[u8], token: u64) -> Result<Option<Duration>, Error> {
        let (key, given) = (Arc::<[u8]>::from(key), self.of_another()?.given);
        self.run(move |this| {
            let key = Arc::clone(&key);
            async move { telling::check(&this, &key, token, given).await }
        })
        .await
    }

    /// Who holds it, and who waits if so many of them are asked for; `None`: it is free, and nobody who is asked for waits.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes tell.
    pub async fn info(&self, key: &[u8], waiters: Option<usize>) -> Result<Option<Shown>, Error> {
        let shown = self.look(key, waiters).await?;
        let is_free = shown.grants.is_empty();
        let is_idle = waiters.is_none() || shown.waiters == 0 && shown.reserved.is_none();
        Ok((!(is_free && is_idle)).then_some(shown))
    }

    async fn look(&self, key: &[u8], waiters: Option<usize>) -> Result<Shown, Error> {
        let (key, given) = (Arc::<[u8]>::from(key), self.of_another()?.given);
        self.run(move |this| {
            let key = Arc::clone(&key);
            async move { telling::look(&this, &key, waiters, given).await }
        })
        .await
    }

    /// Returns as soon as the lock is not held with this token, or has a newer note than this one (0: as soon as it is not free), with how
    /// it is then; `None` after so long.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes tell how it is at first. `Closed`.
    pub async fn watch(&self, key: &[u8], known: (u64, Option<u64>), wait: Duration) -> Result<Option<Shown>, Error> {
        let (key, given) = (Arc::<[u8]>::from(key), self.of_another()?.given);
        self.run(move |this| {
            let key = Arc::clone(&key);
            async move { telling::watch(&this, &key, known, wait, given).await }
        })
        .await
    }

    /// Ends all grants, or the one with this token; the largest token of those.
    ///
    /// # Errors
    /// `NoQuorum`: too few nodes answered.
    pub async fn break_lock(&self, key: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        let (key, checked) = (Arc::<[u8]>::from(key), self.of_another()?);
        self.run(move |this| {
            let key = Arc::clone(&key);
            async move { breaking::break_lock(&this, &key, token, checked).await }
        })
        .await
    }

    /// What the nodes are together.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn node_set(&self) -> Result<NodeSet, Error> {
        let given = self.of_another()?.given;
        self.run(move |this| async move { Ok(telling::nodes(this.nodes(), given).await) }).await
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

fn checked_owner(owner: &[u8]) -> Result<(), Error> {
    if (1..=NAME_BYTES_MAX).contains(&owner.len()) {
        return Ok(());
    }
    let text = format!("owner must be 1 to {NAME_BYTES_MAX} bytes long, not {}", owner.len());
    Err(Error::new(ErrorKind::BadArgument, text))
}
