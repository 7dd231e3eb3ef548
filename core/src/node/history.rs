//! What the node tells its history of: the ends of grants. (Those of waits the queues tell.)

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
    /// What is remembered of grants and waits that are over.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Hands the history to the driver, which publishes events and resets the log.
    pub fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    /// `happened` to the grant `id` of `lock` of `key` at `now`, which did not end.
    #[inline(always)]
    pub(crate) fn notice(&mut self, key: Key<'_>, lock: &Lock, id: GrantId, happened: Happened, now: BootTime) {
        if self.history.notices_grants() {
            let waiters = self.waiting.len_of(key);
            self.history.notice(key, (lock.mode(id), lock.grant(id)), happened, waiters, now);
        }
    }

    /// So many requests are told that somebody else has the lock of `key`.
    pub(crate) fn contended(&mut self, key: Key<'_>, count: u64) {
        self.counters.contended += count;
        self.history.contended(key, count);
    }

    /// All grants of `lock` of `key` end at `now`, by `ending`.
    #[inline(always)]
    pub(crate) fn lock_ends(&mut self, key: Key<'_>, lock: Option<&Lock>, ending: Ending, now: BootTime) {
        if matches!(ending, Ending::Broken | Ending::Deleted) {
            self.keepalives.left(key);
        }
        match lock {
            Some(Lock::Exclusive(grant)) if !self.history.wants(grant, ending, now) => {}
            Some(lock) => {
                let waiters = self.waiting.len_of(key);
                self.history.lock_ended(key, lock, ending, waiters, now);
            }
            None => {}
        }
    }

    /// One grant of several ends at `now`, by `ending`.
    pub(crate) fn grant_ends(&mut self, key: Key<'_>, of: (Mode, &Grant), ending: Ending, now: BootTime) {
        self.keepalives.ended(key, of.1.owner());
        if self.history.wants(of.1, ending, now) {
            let waiters = self.waiting.len_of(key);
            self.history.grant_ended(key, of, ending, waiters, now);
        }
    }

    /// The server takes `lock` from `key` at `now`, for a command that is not ours, and this node is who grants it.
    pub fn deleted(&mut self, key: Key<'_>, lock: &Lock, now: BootTime) {
        self.lock_ends(key, Some(lock), Ending::Deleted, now);
    }

    /// A flush takes `lock` from `key` at `now`.
    pub fn flushed(&mut self, key: Key<'_>, lock: &Lock, now: BootTime) {
        self.lock_ends(key, Some(lock), Ending::Flushed, now);
    }
}
