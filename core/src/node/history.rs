//! Reports the ends of grants to the node's history. (The queues report the ends of waits.)

use crate::history::History;
use crate::history::ending::Ending;
use crate::history::grant_events::Happened;
use crate::lock::Lock;
use crate::lock::grant::{Grant, GrantId};
use crate::node::Node;
use crate::values::key::Key;
use crate::values::mode::Mode;
use crate::values::time::BootTime;

impl Node {
    /// Returns the history of past grants and waits.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the history for the driver, which publishes events and resets the log.
    pub fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    /// Reports `happened` to the history: an event at `now`, other than its end, of the grant `id` of `lock` in `key`.
    #[inline(always)]
    pub(crate) fn notice(&mut self, key: Key<'_>, lock: &Lock, id: GrantId, happened: Happened, now: BootTime) {
        if self.history.notices_grants() {
            let waiters = self.waiting.len_of(key);
            self.history.notice(key, (lock.mode(id), lock.grant(id)), happened, waiters, now);
        }
    }

    /// Counts `count` requests for the lock of `key` whose answer was that another owner holds it.
    pub(crate) fn count_contended(&mut self, key: Key<'_>, count: u64) {
        self.counters.contended += count;
        self.history.count_contended(key, count);
    }

    /// Reports that all grants of `lock` of `key` end at `now`, for the reason `ending`.
    #[inline(always)]
    pub(crate) fn record_lock_end(&mut self, key: Key<'_>, lock: Option<&Lock>, ending: Ending, now: BootTime) {
        if matches!(ending, Ending::Broken | Ending::Deleted) {
            self.keepalives.on_lock_gone(key);
        }
        if !self.breaking.is_empty() && !matches!(ending, Ending::Deleted | Ending::Flushed) {
            self.end_breaks(key);
        }
        match lock {
            Some(Lock::Exclusive(grant)) if !self.history.is_recorded(grant, ending, now) => {}
            Some(lock) => {
                let waiters = self.waiting.len_of(key);
                self.history.lock_ended(key, lock, ending, waiters, now);
            }
            None => {}
        }
    }

    /// Reports that one of several grants of the lock of `key` ends at `now`, for the reason `ending`.
    pub(crate) fn record_grant_end(&mut self, key: Key<'_>, of: (Mode, &Grant), ending: Ending, now: BootTime) {
        self.keepalives.on_grant_ended(key, of.1.owner());
        if self.history.is_recorded(of.1, ending, now) {
            let waiters = self.waiting.len_of(key);
            self.history.grant_ended(key, of, ending, waiters, now);
        }
    }

    /// Reports that another command of the server deletes `lock` from `key` at `now`. Only the node that grants the
    /// lock reports that, no replica.
    pub fn record_deleted(&mut self, key: Key<'_>, lock: &Lock, now: BootTime) {
        self.record_lock_end(key, Some(lock), Ending::Deleted, now);
    }

    /// Reports that a flush deletes `lock` from `key` at `now`.
    pub fn record_flushed(&mut self, key: Key<'_>, lock: &Lock, now: BootTime) {
        self.record_lock_end(key, Some(lock), Ending::Flushed, now);
    }
}
