//! Leases that the node prolongs by itself, each for as long as the connection of its holder is open.
//!
//! Nothing of this is in the lock: a lease that is kept alive is an ordinary one that is extended in time, as its holder could do it.
//! So a replica, a file and a guard need not know of it, and what ends with a connection, a restart or a promotion is the
//! extending, never the lease.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::refusal::Refusal;
use crate::request::{Owner, Ttl};
use crate::values::key::Key;
use crate::values::limits::{
    KEEPALIVE_BYTES, KEEPALIVES_LEFT_BYTES_MAX, RENEW_AGAIN_MS, RENEWALS_A_SECOND_MAX, RENEWALS_A_TTL,
};
use crate::values::time::BootTime;

/// Names a connection, on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// `KEEPALIVE` of an ACQUIRE: the lease is kept as long as this connection is open, for this long at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    client: ClientId,
    ms: u32,
}

impl KeepAlive {
    /// For a lease of `ttl` and the connection `client`, `ms` milliseconds. `None` stands for what is not a number at all.
    pub fn new(client: ClientId, ms: Option<u64>, ttl: Ttl) -> Result<Self, Refusal> {
        Ok(Self { client, ms: ttl.keep(ms)? })
    }
}

/// Whose lease is kept, of which lock.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Holder {
    db: u32,
    /// Leases of one lock share it.
    name: Arc<[u8]>,
    owner: Box<[u8]>,
}

impl Holder {
    fn new(Key { db, name }: Key<'_>, owner: Owner<'_>) -> Self {
        Self { db, name: name.into(), owner: owner.bytes().into() }
    }

    /// Returns how much memory it takes, or more.
    fn bytes(&self) -> usize {
        self.name.len() + self.owner.len() + KEEPALIVE_BYTES
    }

    fn is_of(&self, key: Key<'_>) -> bool {
        self.db == key.db && *self.name == *key.name
    }

    /// Stands before all of this lock.
    fn first(Key { db, name }: Key<'_>) -> Self {
        Self { db, name: name.into(), owner: Box::default() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    client: ClientId,
    ttl: Ttl,
    /// The holder was told of its grant by then; a later grant is another one.
    since: BootTime,
    /// Until when at the longest.
    until: BootTime,
    due: BootTime,
    /// Its lock left the key, and has not been found there since: it takes no room.
    has_left: bool,
}

impl Kept {
    /// Renewals in a thousand seconds.
    fn renewals(&self) -> u64 {
        if self.has_left { 0 } else { renewals(self.ttl) }
    }
}

/// Renewals in a thousand seconds of a lease of `ttl`.
fn renewals(ttl: Ttl) -> u64 {
    RENEWALS_A_TTL * 1_000_000 / u64::from(ttl.ms())
}

/// A lease that is to be looked at: it may have to be prolonged.
#[derive(Clone, Debug)]
pub struct Renewal {
    holder: Arc<Holder>,
    kept: Kept,
}

impl Renewal {
    /// The lock's key.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.holder.db, name: &self.holder.name }
    }

    /// The connection that must be open.
    pub fn client(&self) -> ClientId {
        self.kept.client
    }

    /// Whose lease.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner::new(&self.holder.owner).expect("an owner when it came")
    }

    /// A grant from after this is another one.
    pub(crate) fn since(&self) -> BootTime {
        self.kept.since
    }

    /// By how much the lease is prolonged at `now` if it ends at `deadline`; `None`: it will not be any more.
    pub(crate) fn ttl(&self, deadline: BootTime, now: BootTime) -> Option<Ttl> {
        let Kept { ttl, until, .. } = self.kept;
        if until.ms_since(deadline) == 0 {
            return None;
        }
        Ttl::new(Some(until.ms_since(now).min(ttl.ms().into())), ttl.ms()).ok()
    }

    /// When a lease that ends at `deadline` is prolonged.
    pub(crate) fn due(&self, deadline: BootTime) -> BootTime {
        let left_us = u64::from(self.kept.ttl.ms()) * 1_000 * (RENEWALS_A_TTL - 1) / RENEWALS_A_TTL;
        BootTime::from_us(deadline.as_us().saturating_sub(left_us))
    }
}

/// The leases that a node keeps alive.
#[derive(Clone, Debug, Default)]
pub struct KeepAlives {
    kept: BTreeMap<Arc<Holder>, Kept>,
    due: BTreeSet<(BootTime, Arc<Holder>)>,
    /// Leases whose locks left their keys, the earliest first; some may be back or over.
    left: VecDeque<Arc<Holder>>,
    left_bytes: usize,
    /// Renewals of all of them in a thousand seconds.
    renewals: u64,
}

impl KeepAlives {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Milliseconds for which the lease of the grant of `owner` of the time `granted` is kept at `now`, if it is.
    pub fn left_ms(&self, key: Key<'_>, owner: Owner<'_>, granted: BootTime, now: BootTime) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let kept = self.kept.get(&Holder::new(key, owner)).filter(|kept| granted <= kept.since);
        kept.map(|kept| kept.until.ms_since(now))
    }

    /// Refuses another lease of `ttl` while the node has as many to renew as it takes on. One that is kept already may be bound to
    /// another connection.
    pub fn ensure_room(&self, key: Key<'_>, owner: Owner<'_>, ttl: Ttl) -> Result<(), Refusal> {
        let is_full = self.renewals + renewals(ttl) > RENEWALS_A_SECOND_MAX * 1_000;
        if is_full && !self.kept.contains_key(&Holder::new(key, owner)) { Err(Refusal::KeepAliveFull) } else { Ok(()) }
    }

    /// When the next one is to be looked at.
    pub(crate) fn next_due(&self) -> Option<BootTime> {
        if self.has_too_many_left() { Some(BootTime::default()) } else { self.due.first().map(|(due, _)| *due) }
    }

    fn has_too_many_left(&self) -> bool {
        self.left_bytes > KEEPALIVES_LEFT_BYTES_MAX
    }

    /// `owner` was told at `now` of its grant of the lock of `key`, a lease of `ttl`: it is kept from now on. That of a repeated request
    /// is kept for its connection, and as long as the longer of both.
    pub(crate) fn keep(&mut self, key: Key<'_>, owner: Owner<'_>, ttl: Ttl, keep: KeepAlive, now: BootTime) {
        let first = Holder::first(key);
        let same_lock = self.kept.range::<Holder, _>(&first..).next().filter(|(other, _)| other.is_of(key));
        let name = same_lock.map_or(first.name, |(other, _)| Arc::clone(&other.name));
        let holder = Arc::new(Holder { db: key.db, name, owner: owner.bytes().into() });
        let mut until = now.plus_ms(keep.ms);
        if let Some(kept) = self.remove(&holder) {
            until = until.max(kept.until);
        }
        let kept = Kept { client: keep.client, ttl, since: now, until, due: now, has_left: false };
        let due = Renewal { holder: Arc::clone(&holder), kept }.due(now.plus_ms(ttl.ms()));
        self.renewals += kept.renewals();
        self.kept.insert(Arc::clone(&holder), Kept { due, ..kept });
        self.due.insert((due, holder));
    }

    /// Takes the one that has been due longest at `now`, if any is; before it one whose lock left its key, if these are too many. It comes
    /// again soon, unless it is told what came of it.
    pub(crate) fn take_due(&mut self, now: BootTime) -> Option<Renewal> {
        let left = self.take_left();
        let due = || self.due.first().filter(|(due, _)| *due <= now).map(|(_, holder)| Arc::clone(holder));
        let holder = left.or_else(due)?;
        let kept = *self.kept.get(&holder)?;
        let renewal = Renewal { holder, kept };
        self.look_at(&renewal, now.plus_ms(RENEW_AGAIN_MS));
        Some(renewal)
    }

    /// Takes one whose lock left its key and may be back, if these are too many.
    fn take_left(&mut self) -> Option<Arc<Holder>> {
        while self.has_too_many_left() {
            let holder = self.left.pop_front()?;
            self.left_bytes -= holder.bytes();
            if self.kept.get(&holder).is_some_and(|kept| kept.has_left) {
                return Some(holder);
            }
        }
        None
    }

    /// It is to be looked at then.
    pub(crate) fn look_at(&mut self, renewal: &Renewal, due: BootTime) {
        if let Some(kept) = self.kept.get_mut(&renewal.holder) {
            self.due.remove(&(kept.due, Arc::clone(&renewal.holder)));
            kept.due = due;
            self.due.insert((due, Arc::clone(&renewal.holder)));
            self.renewals -= kept.renewals();
            kept.has_left = false;
            self.renewals += kept.renewals();
        }
    }

    /// The lock left `key`, by whatever command: no lease of it takes room, unless it is found there again when it is next to be prolonged.
    #[inline(always)]
    pub(crate) fn left(&mut self, key: Key<'_>) {
        if !self.is_empty() {
            self.leave(|holder| holder.is_of(key), &Holder::first(key));
        }
    }

    /// The same of each lock of a database, or of all (`None`).
    pub(crate) fn flushed(&mut self, db: Option<u32>) {
        let first = Holder::first(Key { db: db.unwrap_or(0), name: b"" });
        self.leave(|holder| db.is_none_or(|db| holder.db == db), &first);
    }

    #[inline(never)]
    fn leave(&mut self, is_meant: impl Fn(&Holder) -> bool, first: &Holder) {
        for (holder, kept) in self.kept.range_mut::<Holder, _>(first..).take_while(|(holder, _)| is_meant(holder)) {
            self.renewals -= kept.renewals();
            if !std::mem::replace(&mut kept.has_left, true) {
                self.left_bytes += holder.bytes();
                self.left.push_back(Arc::clone(holder));
            }
        }
    }

    /// The lease is not kept any more.
    pub(crate) fn end(&mut self, renewal: &Renewal) {
        self.remove(&renewal.holder);
    }

    /// The grant of `owner` ended.
    #[inline(always)]
    pub(crate) fn ended(&mut self, key: Key<'_>, owner: &[u8]) {
        if !self.is_empty() {
            self.end_of(key, owner);
        }
    }

    #[inline(never)]
    fn end_of(&mut self, key: Key<'_>, owner: &[u8]) {
        self.remove(&Holder { db: key.db, name: key.name.into(), owner: owner.into() });
    }

    /// A repeated request of `owner` is answered with its grant of the time `granted`. What was kept before is the lease of another grant,
    /// whose lock left the key by SWAPDB or RENAME: no longer.
    #[inline]
    pub(crate) fn end_earlier(&mut self, key: Key<'_>, owner: Owner<'_>, granted: BootTime) {
        if !self.is_empty() {
            let holder = Holder::new(key, owner);
            if self.kept.get(&holder).is_some_and(|kept| kept.since < granted) {
                self.remove(&holder);
            }
        }
    }

    fn remove(&mut self, holder: &Holder) -> Option<Kept> {
        let (holder, kept) = self.kept.remove_entry(holder)?;
        self.due.remove(&(kept.due, holder));
        self.renewals -= kept.renewals();
        Some(kept)
    }

    /// None is kept any more: the node follows a master now.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
