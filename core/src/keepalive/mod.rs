//! Leases that the node renews by itself, each while the connection of its holder is open.
//!
//! A lock does not show that its lease is kept alive: the node extends it in time, just as its holder could. So a
//! replica, a file and a guard need not know that the node renews it. The end of the connection, a restart or a
//! promotion ends the renewing, never the lease.

mod places;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::places::{Places, Share};

use crate::lock::grant::Grant;
use crate::refusal::Refusal;
use crate::request::{Owner, Ttl};
use crate::values::key::Key;
use crate::values::limits::{KEEPALIVE_BYTES, RENEW_AGAIN_MS, RENEWAL_BYTES, RENEWALS_A_SECOND_MAX, RENEWALS_A_TTL};
use crate::values::time::BootTime;

/// The id of a connection on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The KEEPALIVE of an ACQUIRE: the node renews the lease while the connection `client` is open, for at most `ms`
/// milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    client: ClientId,
    ms: u32,
}

impl KeepAlive {
    /// Creates a KEEPALIVE of `ms` milliseconds, for a lease of `ttl` and the connection `client`. As `ms`, `None`
    /// stands for a word that is not a number.
    pub fn new(client: ClientId, ms: Option<u64>, ttl: Ttl) -> Result<Self, Refusal> {
        Ok(Self { client, ms: ttl.keep(ms)? })
    }
}

/// The owner whose lease the node keeps alive, and the key of its lock.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    db: u32,
    /// The key's name, shared by the leases of one lock.
    name: Arc<[u8]>,
    owner: Box<[u8]>,
}

impl Holder {
    /// Returns an upper bound of the memory that this holder and its lease take, in bytes.
    fn bytes(&self) -> usize {
        self.name.len() + self.owner.len() + KEEPALIVE_BYTES
    }

    /// Returns whether the lock has this name, one of those that leases share.
    fn is_of(&self, name: &Arc<[u8]>) -> bool {
        Arc::ptr_eq(&self.name, name)
    }
}

impl Ord for Holder {
    fn cmp(&self, other: &Self) -> Ordering {
        // A name may have a megabyte, so the leases of one lock share it.
        let names = || if self.is_of(&other.name) { Ordering::Equal } else { self.name.cmp(&other.name) };
        self.db.cmp(&other.db).then_with(names).then_with(|| self.owner.cmp(&other.owner))
    }
}

impl PartialOrd for Holder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Copy, Debug)]
struct KeptLease {
    client: ClientId,
    ttl: Ttl,
    /// The time at which the grant began. One of the owner that began at another time is another grant, and is not renewed.
    granted: BootTime,
    /// The time at which the node stops renewing: KEEPALIVE has a limit.
    until: BootTime,
    due: BootTime,
    /// True if the last check was refused, so that it is repeated.
    is_again: bool,
    share: Share,
    /// The departures of the lock and its database (`places.rs`) when the lock was last found in its key.
    seen: u64,
}

/// Returns how often a lease of `ttl` is renewed in a thousand seconds. A lease with a long key or owner counts as several,
/// because each renewal writes these bytes to the AOF.
fn renewals(ttl: Ttl, key: Key<'_>, owner: Owner<'_>) -> u64 {
    let parts = 1 + (key.name.len() + owner.bytes().len()) / RENEWAL_BYTES;
    parts as u64 * RENEWALS_A_TTL * 1_000_000 / u64::from(ttl.ms())
}

/// A lease whose check is due: the caller finds out whether it has to be renewed now.
#[derive(Clone, Debug)]
pub struct Renewal {
    holder: Arc<Holder>,
    kept: KeptLease,
}

impl Renewal {
    /// Returns the key of the lock whose lease may have to be renewed.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.holder.db, name: &self.holder.name }
    }

    /// Returns the connection whose end stops the renewing.
    pub fn client(&self) -> ClientId {
        self.kept.client
    }

    /// Returns the owner whose lease may have to be renewed.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner::new(&self.holder.owner).expect("an owner when it came")
    }

    /// Returns whether this grant of the owner is the one whose lease may have to be renewed.
    pub(crate) fn is_of(&self, grant: &Grant) -> bool {
        self.kept.granted == grant.granted()
    }

    /// Returns the new length of a lease that ends at `deadline` if the node renews it at `now`. `None` if the lease
    /// already lasts as long as KEEPALIVE asked for.
    pub(crate) fn ttl(&self, deadline: BootTime, now: BootTime) -> Option<Ttl> {
        let KeptLease { ttl, until, .. } = self.kept;
        if until.ms_since(deadline) == 0 {
            return None;
        }
        Ttl::new(Some(until.ms_since(now).min(ttl.ms().into())), ttl.ms()).ok()
    }

    /// Returns the time at which a lease that ends at `deadline` has to be renewed.
    pub(crate) fn due(&self, deadline: BootTime) -> BootTime {
        let left_us = u64::from(self.kept.ttl.ms()) * 1_000 * (RENEWALS_A_TTL - 1) / RENEWALS_A_TTL;
        BootTime::from_us(deadline.as_us().saturating_sub(left_us))
    }
}

/// Leases, each with the time at which its check is due.
type Planned = BTreeSet<(BootTime, Arc<Holder>)>;

/// Returns the lease whose check has been due longest at `now`.
fn first_due(planned: &Planned, now: BootTime) -> Option<Arc<Holder>> {
    planned.first().filter(|(due, _)| *due <= now).map(|(_, holder)| Arc::clone(holder))
}

/// The leases that a node keeps alive by renewing them.
#[derive(Clone, Debug, Default)]
pub struct KeepAlives {
    kept: BTreeMap<Arc<Holder>, KeptLease>,
    due: Planned,
    /// The checks that are repeated, because the node or the server refused the last one.
    again: Planned,
    places: Places,
    /// The renewals in a thousand seconds that waiting requests will need once they are granted.
    waiting: u64,
}

/// The leases of one lock that a node keeps alive.
#[derive(Clone, Debug)]
pub struct KeptLock<'a> {
    all: &'a KeepAlives,
    db: u32,
    name: Arc<[u8]>,
}

impl KeptLock<'_> {
    /// Returns the milliseconds for which the node still renews `owner`'s lease, counted from `now`. `None` if it does
    /// not renew the grant that began at `granted`.
    pub fn left_ms(&self, owner: Owner<'_>, granted: BootTime, now: BootTime) -> Option<u64> {
        let kept = self.all.kept.get(&self.holder(owner.bytes())).filter(|kept| kept.granted == granted);
        kept.map(|kept| kept.until.ms_since(now))
    }

    fn holder(&self, owner: &[u8]) -> Holder {
        Holder { db: self.db, name: Arc::clone(&self.name), owner: owner.into() }
    }
}

impl KeepAlives {
    /// Returns the number of leases that the node keeps alive.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns whether the node keeps no lease alive.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns the leases of the lock of `key`; `None` if the node keeps none of them alive.
    pub fn of(&self, key: Key<'_>) -> Option<KeptLock<'_>> {
        let name = if self.is_empty() { None } else { self.places.name(key) };
        name.map(|name| KeptLock { all: self, db: key.db, name })
    }

    /// Refuses another lease of `ttl` if the node would renew more leases a second than its maximum. Waiting requests
    /// count as if they were granted. A lease that is already kept alive, and would be renewed no more often, is not
    /// refused, so it may move to another connection.
    pub fn ensure_room(&self, key: Key<'_>, owner: Owner<'_>, ttl: Ttl) -> Result<(), Refusal> {
        let needed = renewals(ttl, key, owner);
        if !self.has_room(needed) && needed > self.renewals_of(key, owner) {
            Err(Refusal::KeepAliveFull)
        } else {
            Ok(())
        }
    }

    /// Returns whether this many more renewals in a thousand seconds are within the node's maximum.
    fn has_room(&self, renewals: u64) -> bool {
        self.places.renewals() + self.waiting + renewals <= RENEWALS_A_SECOND_MAX * 1_000
    }

    /// Notes that a request waits for a lease that is to be kept alive: its renewals count from now on.
    pub fn begin_wait(&mut self, key: Key<'_>, owner: Owner<'_>, ttl: Ttl) {
        self.waiting += renewals(ttl, key, owner);
    }

    /// Notes that a request for which [`KeepAlives::begin_wait`] was called no longer waits.
    pub fn end_wait(&mut self, key: Key<'_>, owner: Owner<'_>, ttl: Ttl) {
        self.waiting -= renewals(ttl, key, owner);
    }

    /// Returns the renewals in a thousand seconds that count for this owner's lease, 0 if none do.
    fn renewals_of(&self, key: Key<'_>, owner: Owner<'_>) -> u64 {
        let kept = self.holder(key, owner.bytes()).and_then(|holder| self.kept.get_key_value(&holder));
        let here = kept.filter(|(holder, kept)| self.places.is_here(holder, kept.seen));
        here.map_or(0, |(_, kept)| kept.share.renewals)
    }

    /// Returns the holder under which a lease of the lock of `key` is listed; `None` if no lease of that lock is kept
    /// alive.
    fn holder(&self, key: Key<'_>, owner: &[u8]) -> Option<Holder> {
        self.of(key).map(|lock| lock.holder(owner))
    }

    /// Returns the time at which the next lease has to be checked.
    pub(crate) fn next_due(&self) -> Option<BootTime> {
        if self.places.has_too_many_left() {
            return Some(BootTime::default());
        }
        self.due.first().map(|(due, _)| *due).into_iter().chain(self.next_again()).min()
    }

    /// Returns the time at which the next refused check has to be repeated.
    pub(crate) fn next_again(&self) -> Option<BootTime> {
        self.again.first().map(|(due, _)| *due)
    }

    /// Begins to renew the lease of `ttl` that `owner` has of the lock of `key`, by the grant that began at `granted`. If
    /// the request is repeated over another connection, the lease is bound to that one, and is renewed until the later
    /// of both KEEPALIVE times.
    pub fn keep(
        &mut self,
        key: Key<'_>,
        owner: Owner<'_>,
        granted: BootTime,
        ttl: Ttl,
        keep: KeepAlive,
        now: BootTime,
    ) {
        let name = self.places.name(key).unwrap_or_else(|| key.name.into());
        let holder = Arc::new(Holder { db: key.db, name, owner: owner.bytes().into() });
        // The answer to an earlier request may come after a later grant of the owner.
        if self.kept.get(&holder).is_some_and(|kept| kept.granted > granted) {
            return;
        }
        let mut until = now.plus_ms(keep.ms);
        if let Some(kept) = self.remove(&holder) {
            until = until.max(kept.until);
        }
        let share = Share { renewals: renewals(ttl, key, owner), bytes: holder.bytes() };
        let seen = self.places.add(&holder, share);
        let kept = KeptLease { client: keep.client, ttl, granted, until, due: now, is_again: false, share, seen };
        let due = Renewal { holder: Arc::clone(&holder), kept }.due(now.plus_ms(ttl.ms()));
        self.kept.insert(Arc::clone(&holder), KeptLease { due, ..kept });
        self.due.insert((due, holder));
    }

    /// Takes the lease whose check has been due longest at `now`, except those whose last check was refused. If no check
    /// is due, but the locks of too many leases have left their keys (DEL, RENAME, ...), takes one of these leases. The
    /// caller checks the lease and reports the result; otherwise it is checked again soon ([`KeepAlives::take_again`]).
    pub(crate) fn take_due(&mut self, now: BootTime) -> Option<Renewal> {
        let holder = first_due(&self.due, now).or_else(|| self.places.take_left(&self.kept))?;
        self.take(holder, now)
    }

    /// Takes the lease whose refused check has to be repeated and has been due longest at `now`.
    pub(crate) fn take_again(&mut self, now: BootTime) -> Option<Renewal> {
        let holder = first_due(&self.again, now)?;
        self.take(holder, now)
    }

    fn take(&mut self, holder: Arc<Holder>, now: BootTime) -> Option<Renewal> {
        let renewal = Renewal { kept: *self.kept.get(&holder)?, holder };
        self.plan(&renewal.holder, now.plus_ms(RENEW_AGAIN_MS), true);
        Some(renewal)
    }

    /// Schedules the next check of this lease for the time `due`.
    pub(crate) fn schedule_check(&mut self, renewal: &Renewal, due: BootTime) {
        self.plan(&renewal.holder, due, false);
    }

    fn plan(&mut self, holder: &Arc<Holder>, due: BootTime, is_again: bool) {
        if let Some(kept) = self.kept.get_mut(holder) {
            let before = (kept.due, Arc::clone(holder));
            if kept.is_again {
                self.again.remove(&before)
            } else {
                self.due.remove(&before)
            };
            (kept.due, kept.is_again) = (due, is_again);
            let planned = if is_again { &mut self.again } else { &mut self.due };
            planned.insert((due, Arc::clone(holder)));
        }
    }

    /// Notes that the lock of this lease was found in its key, so that the lease counts towards the node's maximum of
    /// renewals, again if the lock had left. Returns false if it had, and if there is no room for it any more.
    pub(crate) fn found(&mut self, renewal: &Renewal) -> bool {
        let has_room = self.has_room(renewal.kept.share.renewals);
        let Some(kept) = self.kept.get_mut(&renewal.holder) else { return false };
        let counts = has_room || self.places.is_here(&renewal.holder, kept.seen);
        if counts {
            self.places.on_found(&renewal.holder, &mut kept.seen, kept.share);
        }
        counts
    }

    /// Notes that the lock left `key`, by whatever command. Its leases do not count towards the node's maximum of
    /// renewals until their next check finds the lock there again.
    #[inline(always)]
    pub(crate) fn on_lock_gone(&mut self, key: Key<'_>) {
        if !self.is_empty() {
            self.places.on_lock_gone(key);
        }
    }

    /// Notes that all locks of the database `db` left their keys; `None` stands for all databases.
    pub(crate) fn on_flushed(&mut self, db: Option<u32>) {
        self.places.on_flushed(db);
    }

    /// Stops renewing this lease, whatever its KEEPALIVE asked for.
    pub fn end(&mut self, renewal: &Renewal) {
        self.remove(&renewal.holder);
    }

    /// Notes that the grant of `owner` ended, so that its lease is no longer renewed.
    #[inline(always)]
    pub(crate) fn on_grant_ended(&mut self, key: Key<'_>, owner: &[u8]) {
        if !self.is_empty() {
            self.end_of(key, owner);
        }
    }

    #[inline(never)]
    fn end_of(&mut self, key: Key<'_>, owner: &[u8]) {
        if let Some(holder) = self.holder(key, owner) {
            self.remove(&holder);
        }
    }

    /// Notes that a repeated request of the owner was answered with `grant`. If the lease that is kept alive belongs to
    /// another grant, whose lock left the key by SWAPDB or RENAME, the node stops renewing it.
    #[inline]
    pub(crate) fn end_of_another(&mut self, key: Key<'_>, grant: &Grant) {
        if !self.is_empty() {
            let holder = self.holder(key, grant.owner());
            let is_other = |holder: &Holder| self.kept.get(holder).is_some_and(|kept| kept.granted != grant.granted());
            if let Some(holder) = holder.filter(is_other) {
                self.remove(&holder);
            }
        }
    }

    fn remove(&mut self, holder: &Holder) -> Option<KeptLease> {
        let (holder, kept) = self.kept.remove_entry(holder)?;
        self.places.remove(&holder, kept.seen, kept.share);
        if kept.is_again {
            self.again.remove(&(kept.due, holder))
        } else {
            self.due.remove(&(kept.due, holder))
        };
        Some(kept)
    }

    /// Stops renewing all leases, because the node now follows a master. Waiting requests count until they end.
    pub(crate) fn clear(&mut self) -> Self {
        let waiting = self.waiting;
        std::mem::replace(self, Self { waiting, ..Self::default() })
    }
}
