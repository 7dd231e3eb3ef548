//! What one node remembers beside the locks themselves.

pub mod cluster;
pub mod counters;
mod history;
pub mod incarnation;
mod members;
pub mod queue;
#[cfg(feature = "tamper")]
pub mod tamper;

use std::collections::VecDeque;

use crate::durability::ledger::Ledger;
use crate::guard::evicted::Evicted;
use crate::guard::flush::Flush;
use crate::guard::slots::Slots;
use crate::guard::{Guard, SavedGuard, guard_ms};
use crate::history::History;
use crate::keepalive::{KeepAlive, KeepAlives, Renewal};
use crate::lock::deadlines::Deadlines;
use crate::lock::grant::Grant;
use crate::lock::phase::Past;
use crate::members::Membership;
use crate::node::counters::Counters;
use crate::queue::breaking::Breaking;
use crate::queue::listening::Listeners;
use crate::queue::shares::Load;
use crate::queue::waiting::Waiting;
use crate::queue::watching::Watching;
use crate::refusal::Refusal;
use crate::request::{Owner, Ttl};
use crate::tokens::Tokens;
use crate::values::cause::Cause;
use crate::values::key::Key;
use crate::values::limits::{
    HANDOFF_WINDOW_DEFAULT_MS, LOG_LEN_DEFAULT, LOG_SLOWER_THAN_DEFAULT_MS, MAX_CLOCK_SKEW_DEFAULT_MS,
    MAX_WAITERS_DEFAULT, MAX_WAITING_BYTES_DEFAULT,
};
use crate::values::prefixes::KeyPrefixes;
use crate::values::time::BootTime;

/// What an operator sets for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `lock.max-clock-skew`, in milliseconds.
    pub max_clock_skew_ms: u32,
    /// `lock.max-waiters`.
    pub max_waiters: u32,
    /// `lock.max-waiting-bytes`.
    pub max_waiting_bytes: u64,
    /// `lock.handoff-window`, in milliseconds.
    pub handoff_window_ms: u32,
    /// `lock.log-max-len`.
    pub log_max_len: u32,
    /// `lock.log-slower-than`, in milliseconds; `None`: nothing is logged.
    pub log_slower_than_ms: Option<u32>,
    /// `lock.events`: what happens to grants is told to those who listen.
    pub events: bool,
}

/// One node's own memory: the rules read and write it, the locks live in the keys.
#[derive(Clone, Debug)]
pub struct Node {
    /// Highest tokens, so that no token ever repeats or falls.
    pub(crate) tokens: Tokens,
    /// When which lock's lease may have ended.
    pub(crate) deadlines: Deadlines,
    /// How often databases changed places.
    pub(crate) swaps: u32,
    /// Totals since load.
    pub(crate) counters: Counters,
    /// Refuses while grants may have been forgotten.
    pub(crate) guard: Guard,
    /// Locks granted before are of an incarnation that the node cannot prove to remember.
    pub(crate) trusted_since: BootTime,
    /// Locks that the server dropped to make room.
    pub(crate) evicted: Evicted,
    /// Live locks that a flush dropped, until it is clear whether it was the start of a reload.
    pub(crate) flush: Option<Flush>,
    /// In a cluster: what is known of its slots.
    pub(crate) slots: Slots,
    /// Requests that wait for a lock.
    pub(crate) waiting: Waiting,
    /// What is remembered of grants and waits that are over, for people.
    pub(crate) history: History,
    /// Clients that watch a lock.
    pub(crate) watching: Watching,
    /// Connections that hear the answers to requests of others.
    pub(crate) listeners: Listeners,
    /// The bounds of what waits, watches and listens: `lock.max-waiters` and `lock.max-waiting-bytes`.
    pub(crate) max_load: Load,
    /// Leases that are prolonged as long as a connection is open.
    pub(crate) keepalives: KeepAlives,
    /// Grants that an operator is breaking, slice by slice.
    pub(crate) breaking: VecDeque<Breaking>,
    /// The set of nodes that it is in.
    pub(crate) membership: Membership,
    /// What is on the disk, and must be.
    pub(crate) ledger: Ledger,
    /// `lock.max-clock-skew`, in milliseconds.
    pub(crate) skew_ms: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_clock_skew_ms: MAX_CLOCK_SKEW_DEFAULT_MS,
            max_waiters: MAX_WAITERS_DEFAULT,
            max_waiting_bytes: MAX_WAITING_BYTES_DEFAULT,
            handoff_window_ms: HANDOFF_WINDOW_DEFAULT_MS,
            log_max_len: LOG_LEN_DEFAULT,
            log_slower_than_ms: Some(LOG_SLOWER_THAN_DEFAULT_MS),
            events: false,
        }
    }
}

impl Node {
    /// A node that issues no token up to `token_floor`.
    pub fn new(token_floor: u64) -> Self {
        Self::with_tokens(Tokens::new(token_floor))
    }

    /// A node with these tokens.
    pub fn with_tokens(tokens: Tokens) -> Self {
        Self {
            tokens,
            deadlines: Deadlines::default(),
            swaps: 0,
            counters: Counters::default(),
            guard: Guard::default(),
            trusted_since: BootTime::default(),
            evicted: Evicted::default(),
            flush: None,
            slots: Slots::default(),
            waiting: Waiting::default(),
            history: History::default(),
            watching: Watching::default(),
            listeners: Listeners::default(),
            max_load: Load::DEFAULT_MAX,
            keepalives: KeepAlives::default(),
            breaking: VecDeque::new(),
            membership: Membership::default(),
            ledger: Ledger::without_file(),
            skew_ms: MAX_CLOCK_SKEW_DEFAULT_MS,
        }
    }

    /// What an operator sets for the rules.
    pub fn configure(&mut self, settings: Settings) {
        self.skew_ms = settings.max_clock_skew_ms;
        self.max_load = Load { places: settings.max_waiters.into(), bytes: settings.max_waiting_bytes };
        self.waiting.handoff_window_ms = settings.handoff_window_ms;
        self.history.configure(settings.log_max_len, settings.log_slower_than_ms, settings.events);
    }

    /// Figures are kept of the locks whose keys begin with these: `lock.metrics-prefixes`.
    pub fn count_by(&mut self, prefixes: &KeyPrefixes) {
        self.history.count_by(prefixes);
    }

    /// Highest tokens and ceilings.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// What is known of the past of `key`.
    pub(crate) fn past(&self, key: Key<'_>) -> Past {
        Past { last: self.tokens.last(key.name), swaps: self.swaps }
    }

    /// When which lock's lease may have ended.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Totals since load.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The guard of the whole node.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Locks granted before are of an incarnation that the node cannot prove to remember.
    pub fn trusted_since(&self) -> BootTime {
        self.trusted_since
    }

    /// Locks that the server dropped to make room.
    pub fn evicted(&self) -> &Evicted {
        &self.evicted
    }

    /// In a cluster: what is known of its slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Requests that wait for a lock.
    pub fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Clients that watch a lock.
    pub fn watching(&self) -> &Watching {
        &self.watching
    }

    /// Connections that hear the answers to requests of others.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// The same, for the driver, which tells them.
    pub fn listeners_mut(&mut self) -> &mut Listeners {
        &mut self.listeners
    }

    /// Leases that are prolonged as long as a connection is open.
    pub fn keepalives(&self) -> &KeepAlives {
        &self.keepalives
    }

    /// `owner` was told at `now` of its grant of the lock of `key`, a lease of `ttl`, and wants it kept.
    pub fn keep_alive(&mut self, key: Key<'_>, owner: Owner<'_>, ttl: Ttl, keep: KeepAlive, now: BootTime) {
        self.keepalives.keep(key, owner, ttl, keep, now);
    }

    /// The key of this lease holds no lock any more.
    pub fn stops_renewing(&mut self, renewal: &Renewal) {
        self.keepalives.end(renewal);
    }

    /// What is on the disk, and must be.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// `lock.max-clock-skew`, in milliseconds.
    pub fn skew_ms(&self) -> u32 {
        self.skew_ms
    }

    /// A cause arose at `now`: the node is guarded until `until` at least, also if the last flush turns out to be a reload.
    pub(crate) fn arm_guard(&mut self, cause: Cause, now: BootTime, until: BootTime) {
        self.guard.arm(cause, now, until);
        if let Some(flush) = &mut self.flush {
            flush.guard.arm(cause, now, until);
        }
    }

    /// What a later incarnation must know of the guard. Of single slots it does not tell which: all are guarded after a start.
    pub fn saved_guard(&self, now: BootTime) -> Option<SavedGuard> {
        let mut guard = self.guard;
        if let Some(until) = self.slots.guarded_until(now) {
            guard.arm(Cause::Slot, now, until);
        }
        guard.saved(now)
    }

    /// What a later incarnation must know of [`Node::trusted_since`]; zero: nothing, once the longest lease from before, of `outstanding_ttl_ms`,
    /// has ended.
    pub fn unproved_before(&self, outstanding_ttl_ms: u32, now: BootTime) -> BootTime {
        let may_be_left = now <= self.trusted_since.plus_ms(guard_ms(outstanding_ttl_ms, self.skew_ms));
        if may_be_left { self.trusted_since } else { BootTime::default() }
    }

    /// Whether the node cannot vouch for `grant` as long as it lasts: it came from outside, or from an incarnation that the node
    /// cannot prove to remember.
    pub fn is_suspect(&self, grant: &Grant) -> bool {
        grant.is_from_outside() || grant.granted < self.trusted_since
    }

    /// Refuses to grant `owner` the lock of `key` as long as another owner may hold it whom this node does not know: while the node or the
    /// key's slot is guarded, and where nobody holds the lock alone (`is_open`) while a grant of it that was evicted may last.
    #[inline(always)]
    pub(crate) fn ensure_may_grant(
        &self,
        key: Key<'_>,
        owner: Owner<'_>,
        is_open: bool,
        now: BootTime,
    ) -> Result<(), Refusal> {
        self.guard.ensure_open(now)?;
        self.slots.ensure_open(key.name, now)?;
        if is_open { self.evicted.ensure_open(key, owner, now) } else { Ok(()) }
    }

    /// Refuses what the node cannot vouch for: a grant that came from outside or from an incarnation it cannot prove to remember, and
    /// while it is guarded every grant from before the cause.
    pub(crate) fn ensure_trusted(&self, grant: &Grant, now: BootTime) -> Result<(), Refusal> {
        if self.is_suspect(grant) {
            return Err(Refusal::Suspect { left_ms: grant.deadline().ms_since_rounded_up(now) });
        }
        match self.guard.armed(now) {
            Some(armed) if grant.granted <= armed.since => self.guard.ensure_open(now),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, ms};

    /// What a flush dropped cannot be granted; what it left was never in doubt.
    #[test]
    fn a_flush_leaves_what_survives_it_as_sure_as_it_was() {
        let mut node = fixture::node();
        node.guard.arm(Cause::Flush, ms(10), ms(500));
        let grant = Grant::new(fixture::owner("me"), Default::default(), fixture::token(7), ms(5), fixture::ttl(1_000));
        assert_eq!(node.ensure_trusted(&grant, ms(20)), Ok(()));
        assert!(node.guard.ensure_open(ms(20)).is_err());
        node.guard.since_now(ms(20));
        assert_eq!(node.ensure_trusted(&grant, ms(20)), Ok(()), "on another boot too");
        node.guard.arm(Cause::Operator, ms(20), ms(30));
        node.guard.arm(Cause::Flush, ms(25), ms(600));
        assert!(node.ensure_trusted(&grant, ms(26)).is_err(), "an earlier cause stays");
    }
}
