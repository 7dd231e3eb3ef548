//! Locks under names that the caller chooses: taken by one request, extended and given back by others, also of another process.
//!
//! For those who speak for holders that are elsewhere, as `palisade agent` does. What holds a lock for itself uses
//! [`Client::lock`](crate::Client::lock), whose guard knows more.
//!
//! A name is one holder's, and new for each acquisition. On the nodes each *attempt* has a name of its own that begins with it and ends in
//! [`SUFFIX_BYTES`] of chance, so that no late message of one attempt can touch another.

use std::time::Duration;

use palisade_core::{Mode, Wanted};

use crate::{Client, Error, NodeError};

/// So much of an owner's name on the nodes is the attempt's.
pub const SUFFIX_BYTES: usize = 17;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = palisade_core::limits::OWNER_BYTES_MAX - SUFFIX_BYTES;

/// Locks by the names of their owners; of [`Client::by_owner`].
#[derive(Clone, Debug)]
pub struct ByOwner {
    client: Client,
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
    /// The fencing token.
    pub token: u64,
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
    pub suspect: bool,
    /// For how long it is extended by itself.
    pub keepalive: Duration,
}

/// One who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownWaiter {
    /// The name that it waits under.
    pub owner: Vec<u8>,
    /// For how long.
    pub waited: Duration,
    /// For people.
    pub note: Vec<u8>,
    /// `exclusive`, `shared` or `permit`.
    pub mode: String,
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
    /// The longest lease that all nodes take.
    pub max_ttl: Duration,
    /// Their wall clock, the one in the middle, in microseconds since 1970.
    pub clock_us: u64,
    /// Those that cannot be asked, and why.
    pub unreachable: Vec<NodeError>,
}

#[allow(unused_variables, clippy::unused_async)]
impl ByOwner {
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// Takes a lock; `None`: somebody else holds it. Dropped meanwhile, the request leaves every queue and nothing stays locked.
    ///
    /// # Errors
    /// `Owned`, `Guarded`, `NoQuorum`, `Expired`, `BadArgument`, `Closed`.
    pub async fn take(&self, take: Take) -> Result<Option<Granted>, Error> {
        todo!()
    }

    /// The keeper's connection has ended: nothing is extended for it any more.
    pub fn keeper_ended(&self, keeper: Keeper) {
        todo!()
    }

    /// Gives one hold back, or all down to a level, and tells how many are left; `None`: this owner does not hold it. Without a token it also
    /// ends this owner's waiting (its `take` returns `None`).
    pub async fn release(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        token: Option<u64>,
    ) -> Result<Option<u32>, Error> {
        todo!()
    }

    /// The lease lasts at least so long from when this was called; its token. `None`: this owner does not hold it.
    pub async fn extend(
        &self,
        key: &[u8],
        owner: &[u8],
        ttl: Duration,
        token: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        todo!()
    }

    /// One hold more, or at least `level` of them; how many there are.
    pub async fn reenter(
        &self,
        key: &[u8],
        owner: &[u8],
        level: Option<u32>,
        ttl: Option<Duration>,
    ) -> Result<Option<u32>, Error> {
        todo!()
    }

    /// Its writer is a reader from now on; its token.
    pub async fn share(&self, key: &[u8], owner: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        todo!()
    }

    /// Puts `text` in the place of the note; its number.
    pub async fn note(
        &self,
        key: &[u8],
        owner: &[u8],
        text: &[u8],
        sequence: Option<u64>,
        token: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        todo!()
    }

    /// What is left of the grant with this token; `None`: nobody holds it with this token.
    pub async fn check(&self, key: &[u8], token: u64) -> Result<Option<Duration>, Error> {
        todo!()
    }

    /// Who holds it and who waits, with at most so many of each listed; `None`: it is free, and if `waiters` are asked for, nobody waits either.
    pub async fn info(&self, key: &[u8], waiters: Option<usize>) -> Result<Option<Shown>, Error> {
        todo!()
    }

    /// Returns as soon as the lock is not held with this token and note any more (none: as soon as it is not free), with how it is then; or
    /// `Ok(None)` after so long.
    pub async fn watch(
        &self,
        key: &[u8],
        known: Option<(u64, Option<u64>)>,
        wait: Duration,
    ) -> Result<Option<Shown>, Error> {
        todo!()
    }

    /// Ends all grants, or the one with this token; the largest token of those.
    pub async fn break_lock(&self, key: &[u8], token: Option<u64>) -> Result<Option<u64>, Error> {
        todo!()
    }

    /// What the nodes are together.
    pub async fn nodes(&self) -> Result<NodeSet, Error> {
        todo!()
    }

    /// How many locks are held here, how many requests wait, and how many watch.
    pub fn counts(&self) -> (usize, usize, usize) {
        todo!()
    }
}
