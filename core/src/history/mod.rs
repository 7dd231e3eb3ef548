//! A node's memory of past grants and waits, for people: no rule reads it.
//!
//! The engine and the queues report each end here. With log and events off, that costs two comparisons.

pub mod ending;
pub mod grant_events;
pub mod json;
pub mod log;
pub mod prefixes;
mod shortened;
pub mod times;
pub mod top;

use crate::history::ending::Ending;
use crate::history::grant_events::{GrantEvent, Happened, Outbox};
use crate::history::log::{FailedWait, Log};
use crate::history::prefixes::Prefixes;
use crate::history::top::Top;
use crate::lock::Lock;
use crate::lock::grant::Grant;
use crate::values::key::Key;
use crate::values::limits::LOGGED_TOGETHER_MAX;
use crate::values::mode::Mode;
use crate::values::prefixes::KeyPrefixes;
use crate::values::time::BootTime;

/// The keys that LOCK.TOP shows: those that requests waited for most, or were refused most.
#[derive(Clone, Debug, Default)]
pub struct Contention {
    /// The time from which on requests are counted.
    pub since: BootTime,
    /// Keys that requests waited for.
    pub waited: Top,
    /// Keys whose lock was refused to requests at once, because another owner held it.
    pub refused: Top,
}

/// The history of a node: the log, unpublished events, contended keys, and figures by key prefix.
#[derive(Clone, Debug)]
pub struct History {
    log: Log,
    contention: Contention,
    prefixes: Prefixes,
    outbox: Outbox,
    /// True if beginnings and changes of grants are recorded too: for subscribers of events, or for the figures by key
    /// prefix.
    notices_grants: bool,
    /// The end of a grant is recorded if its request waited at least this long, in milliseconds.
    from_ms: u64,
    /// The end of a grant is recorded if it was held at least this long, in microseconds.
    from_us: u64,
}

impl Default for History {
    fn default() -> Self {
        let contention = Contention::default();
        let (log, prefixes, outbox) = (Log::default(), Prefixes::default(), Outbox::default());
        let mut history = Self { log, contention, prefixes, outbox, notices_grants: false, from_ms: 0, from_us: 0 };
        history.look_from();
        history
    }
}

impl History {
    /// Sets `lock.log-max-len`, `lock.log-slower-than` in milliseconds (`None`: the log keeps nothing) and
    /// `lock.events`.
    pub(crate) fn configure(&mut self, log_max_len: u32, log_slower_than_ms: Option<u32>, events: bool) {
        self.log.configure(log_max_len, log_slower_than_ms);
        self.outbox.configure(events);
        self.look_from();
    }

    /// Sets the key prefixes that have figures of their own (`lock.metrics-prefixes`).
    pub(crate) fn count_by(&mut self, prefixes: &KeyPrefixes) {
        self.prefixes.configure(prefixes);
        self.look_from();
    }

    fn look_from(&mut self) {
        self.notices_grants = self.outbox.is_on() || !self.prefixes.is_empty();
        self.from_ms = if self.notices_grants { 0 } else { self.log.slower_than_ms() };
        self.from_us = self.from_ms.saturating_mul(1_000);
    }

    /// Returns the log of ended grants and failed waits, for LOCK.LOG.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Removes all entries of the log, for LOCK.LOG RESET.
    pub fn reset_log(&mut self) {
        self.log.reset();
    }

    /// Returns the most contended keys, for LOCK.TOP.
    pub fn contention(&self) -> &Contention {
        &self.contention
    }

    /// Counts contended keys from zero again, from `now` on.
    pub fn reset_contention(&mut self, now: BootTime) {
        self.contention = Contention { since: now, ..Contention::default() };
    }

    /// Returns the figures by key prefix, for INFO.
    pub fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// Returns whether beginnings and changes of grants are recorded. Their ends may be recorded even if not.
    #[inline(always)]
    pub(crate) fn notices_grants(&self) -> bool {
        self.notices_grants
    }

    /// Records `happened`, a change of `grant` other than its end, at `now`. The grant is of the lock of `key`, for
    /// which `waiters` requests wait.
    #[cold]
    pub(crate) fn notice(
        &mut self,
        key: Key<'_>,
        grant: (Mode, &Grant),
        happened: Happened,
        waiters: usize,
        now: BootTime,
    ) {
        if !self.prefixes.is_empty() && matches!(happened, Happened::Granted | Happened::HandedOver) {
            self.prefixes.of(key.name).grants += 1;
        }
        self.outbox.push(key, grant, happened, waiters, now);
    }

    /// Returns whether there are unpublished events.
    pub fn has_events(&self) -> bool {
        self.outbox.has_events()
    }

    /// Removes and returns the oldest unpublished event, for the driver to publish.
    pub fn take_event(&mut self) -> Option<GrantEvent> {
        self.outbox.pop()
    }

    /// Returns how many events were dropped after those that were taken, because there were too many unpublished ones.
    pub fn take_missed_events(&mut self) -> u64 {
        self.outbox.take_missed()
    }

    /// Counts `count` requests that found the lock of `key` held by another owner.
    pub(crate) fn count_contended(&mut self, key: Key<'_>, count: u64) {
        if !self.prefixes.is_empty() {
            self.prefixes.of(key.name).contended += count;
        }
    }

    /// Records that a request for the lock of `key` got it after waiting `us` microseconds.
    pub(crate) fn record_wait(&mut self, key: Key<'_>, us: u64) {
        if !self.prefixes.is_empty() {
            self.prefixes.of(key.name).waits.record(us);
        }
    }

    /// Counts a request that waits for the lock of `key`.
    pub(crate) fn count_wait(&mut self, key: Key<'_>) {
        self.contention.waited.count(key);
    }

    /// Counts a request that was refused the lock of `key`, which another owner holds.
    pub(crate) fn count_refusal(&mut self, key: Key<'_>) {
        self.contention.refused.count(key);
    }

    /// Returns whether an end of `grant` at `now`, for the reason `ending`, goes into the log, the events or the
    /// figures.
    #[inline(always)]
    pub(crate) fn is_recorded(&self, grant: &Grant, ending: Ending, now: BootTime) -> bool {
        now.us_since(grant.granted()) >= self.from_us
            || grant.waited().ms() >= self.from_ms
            || (ending == Ending::Broken && self.log.is_on())
    }

    /// Records that `grant` of the lock of `key` ends at `now` for the reason `ending`, or ended earlier with its
    /// lease. `waiters` requests wait for the lock.
    #[cold]
    pub(crate) fn grant_ended(
        &mut self,
        key: Key<'_>,
        (mode, grant): (Mode, &Grant),
        ending: Ending,
        waiters: usize,
        now: BootTime,
    ) {
        let (ending, at) = match grant.is_expired(now) {
            true if grant.is_unconnected() => (Ending::Unconnected, grant.deadline()),
            true => (Ending::Expired, grant.deadline()),
            false => (ending, now),
        };
        if !self.prefixes.is_empty() {
            self.prefixes.of(key.name).held.record(at.us_since(grant.granted()));
        }
        self.outbox.push(key, (mode, grant), Happened::Ended(ending), waiters, at);
        self.log.push_grant(key, (mode, grant), ending, waiters, at);
    }

    /// Records that all grants of `lock` of `key` end at `now`. If there are very many, only some are recorded.
    #[cold]
    pub(crate) fn lock_ended(&mut self, key: Key<'_>, lock: &Lock, ending: Ending, waiters: usize, now: BootTime) {
        for (mode, grant) in lock.grants().take(LOGGED_TOGETHER_MAX) {
            if self.is_recorded(grant, ending, now) {
                self.grant_ended(key, (mode, grant), ending, waiters, now);
            }
        }
    }

    /// Records that a request for the lock of `key` failed: at `now`, or at the end of its wait if that was earlier.
    /// `waiters` other requests still wait.
    pub(crate) fn record_failed_wait(
        &mut self,
        key: Key<'_>,
        wait: FailedWait<'_>,
        ending: Ending,
        waiters: usize,
        now: BootTime,
    ) {
        self.log.push_wait(key, wait, ending, waiters, now.min(wait.until));
    }

    /// Records that the lock last deleted from `key` was evicted by the server.
    pub(crate) fn was_evicted(&mut self, Key { db, name }: Key<'_>) {
        self.log.deleted_by(Ending::Evicted, LOGGED_TOGETHER_MAX, |entry| entry.db == db && *entry.name == *name);
        self.outbox.deleted_by(Ending::Evicted, LOGGED_TOGETHER_MAX, |event| event.db == db && *event.name == *name);
    }

    /// Notices that `lock` came to a key. If it was deleted from another key just before, that was a RENAME, and the
    /// records say so from now on.
    pub(crate) fn on_lock_arrived(&mut self, lock: &Lock) {
        if self.log.is_empty() && !self.outbox.has_events() {
            return;
        }
        for (mode, grant) in lock.grants().take(LOGGED_TOGETHER_MAX).filter(|(_, grant)| !grant.is_from_outside()) {
            let about = log::About::Grant(grant.token(), mode);
            let is_same = |entry: &log::Entry| entry.about == about && *entry.owner == *grant.owner();
            self.log.deleted_by(Ending::Renamed, LOGGED_TOGETHER_MAX, is_same);
            let is_same = |event: &GrantEvent| {
                (event.token, event.mode) == (grant.token(), mode) && *event.owner == *grant.owner()
            };
            self.outbox.deleted_by(Ending::Renamed, LOGGED_TOGETHER_MAX, is_same);
        }
    }

    /// Corrects the records: the last flush was the start of a reload, so its locks did not end.
    pub(crate) fn on_reloaded(&mut self) {
        self.log.unflush();
        self.outbox.unflush();
    }
}
