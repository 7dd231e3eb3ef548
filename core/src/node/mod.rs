//! A node's memory beside the locks themselves, which are in the keys.

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
use crate::gate::forgetting::Forgetting;
use crate::guard::evicted::Evicted;
use crate::guard::flush::Flush;
use crate::guard::slots::Slots;
use crate::guard::{Guard, SavedGuard, guard_ms};
use crate::history::History;
use crate::keepalive::KeepAlives;
use crate::lock::Lock;
use crate::lock::deadlines::Deadlines;
use crate::lock::grant::Grant;
use crate::lock::phase::Past;
use crate::lock::spare::Spare;
use crate::members::Membership;
use crate::node::counters::Counters;
use crate::queue::breaking::Breaking;
use crate::queue::listening::Listeners;
use crate::queue::shares::Load;
use crate::queue::waiting::Waiting;
use crate::queue::watching::Watching;
use crate::refusal::Refusal;
use crate::request::Owner;
use crate::tokens::Tokens;
use crate::values::cause::Cause;
use crate::values::key::Key;
use crate::values::limits::{
    HANDOFF_WINDOW_DEFAULT_MS, LOG_LEN_DEFAULT, LOG_SLOWER_THAN_DEFAULT_MS, MAX_CLOCK_SKEW_DEFAULT_MS,
    MAX_WAITERS_DEFAULT, MAX_WAITING_BYTES_DEFAULT,
};
use crate::values::prefixes::KeyPrefixes;
use crate::values::time::{BootTime, Now};
use crate::values::token::Token;

/// An operator's settings that the rules need, read from the server's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// By how much wall clocks may differ: `lock.max-clock-skew`, in milliseconds.
    pub max_clock_skew_ms: u32,
    /// The most requests that may wait at a time: `lock.max-waiters`.
    pub max_waiters: u32,
    /// The most bytes that waiting requests may take: `lock.max-waiting-bytes`.
    pub max_waiting_bytes: u64,
    /// The length of a reservation: `lock.handoff-window`, in milliseconds.
    pub handoff_window_ms: u32,
    /// The most entries of the log: `lock.log-max-len`.
    pub log_max_len: u32,
    /// The least time held or waited that is logged: `lock.log-slower-than`, in milliseconds; `None` logs nothing.
    pub log_slower_than_ms: Option<u32>,
    /// True if events of grants are published (`lock.events`).
    pub events: bool,
}

/// A node's own memory: the rules read and write it, the locks live in the keys.
#[derive(Clone, Debug)]
pub struct Node {
    /// The highest tokens issued and the ceilings, so that no token is ever issued twice or after a larger one.
    pub(crate) tokens: Tokens,
    /// The deadlines of all locks.
    pub(crate) deadlines: Deadlines,
    /// The gates that the node deletes when their KEEP is over.
    pub(crate) gates: Forgetting,
    /// Memory of locks that ended, used again for new locks.
    pub(crate) spare: Spare,
    /// The number of SWAPDBs since the start: after one, a lock may have come from another key.
    pub(crate) swaps: u32,
    /// Totals since the module was loaded, for INFO.
    pub(crate) counters: Counters,
    /// The guard, which refuses while grants may have been forgotten.
    pub(crate) guard: Guard,
    /// Locks granted before this time are suspect, because the node cannot prove that it remembers all of them.
    pub(crate) trusted_since: BootTime,
    /// Locks that the server evicted, and whose leases may still run.
    pub(crate) evicted: Evicted,
    /// Live locks that a flush dropped, until it is clear whether the flush was the start of a reload.
    pub(crate) flush: Option<Flush>,
    /// In a cluster, the slots that the node serves, and the guards of single slots.
    pub(crate) slots: Slots,
    /// Requests that wait for a lock.
    pub(crate) waiting: Waiting,
    /// Past grants and waits, for people.
    pub(crate) history: History,
    /// Clients that watch a lock.
    pub(crate) watching: Watching,
    /// Connections that receive the answers to waiting requests of other connections.
    pub(crate) listeners: Listeners,
    /// The most that requests, watchers and listeners may take at once: `lock.max-waiters` places,
    /// `lock.max-waiting-bytes` bytes.
    pub(crate) max_load: Load,
    /// Leases that the node renews while a connection is open.
    pub(crate) keepalives: KeepAlives,
    /// Grants that an operator's BREAK is ending, a slice at a time.
    pub(crate) breaking: VecDeque<Breaking>,
    /// True if a renewal that was refused before comes next, whatever else is due.
    pub(crate) is_renewals_turn: bool,
    /// The lock of readers that was last converted to an exclusive one, until the driver takes it.
    pub(crate) converted: Option<Box<Lock>>,
    /// The set of nodes that the node belongs to.
    pub(crate) membership: Membership,
    /// Which part of the node's state is on the disk, and what must be there before a promise.
    pub(crate) ledger: Ledger,
    /// By how much wall clocks may differ: `lock.max-clock-skew`, in milliseconds.
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
    /// Creates a node that issues no token up to `token_floor`.
    pub fn new(token_floor: u64) -> Self {
        Self::with_tokens(Tokens::new(token_floor))
    }

    /// Creates a node that continues with these tokens and ceilings.
    pub fn with_tokens(tokens: Tokens) -> Self {
        Self {
            tokens,
            deadlines: Deadlines::default(),
            gates: Forgetting::default(),
            spare: Spare::default(),
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
            is_renewals_turn: false,
            converted: None,
            membership: Membership::default(),
            ledger: Ledger::without_file(),
            skew_ms: MAX_CLOCK_SKEW_DEFAULT_MS,
        }
    }

    /// Applies an operator's settings to all parts of the node.
    pub fn configure(&mut self, settings: Settings) {
        self.skew_ms = settings.max_clock_skew_ms;
        self.max_load = Load { places: settings.max_waiters.into(), bytes: settings.max_waiting_bytes };
        self.waiting.handoff_window_ms = settings.handoff_window_ms;
        self.history.configure(settings.log_max_len, settings.log_slower_than_ms, settings.events);
    }

    /// Sets the key prefixes that have figures of their own: `lock.metrics-prefixes`.
    pub fn count_by(&mut self, prefixes: &KeyPrefixes) {
        self.history.count_by(prefixes);
    }

    /// Returns the highest tokens issued, and the ceilings.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Returns the tokens that `key` had before, as far as the node knows them.
    pub(crate) fn past(&self, key: Key<'_>) -> Past {
        Past { last: self.tokens.last(key.name), swaps: self.swaps }
    }

    /// Returns the deadlines of all locks.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Returns the gates that the node deletes when their KEEP is over.
    pub fn gates(&mut self) -> &mut Forgetting {
        &mut self.gates
    }

    /// Counts a token that a gate let pass (`passed`) or refused.
    pub fn count_gate(&mut self, passed: bool) {
        let count = if passed { &mut self.counters.gate_passes } else { &mut self.counters.gate_refusals };
        *count += 1;
    }

    /// Returns the totals since the module was loaded.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the guard of the whole node.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns the time before which granted locks are suspect, because the node cannot prove that it remembers all of
    /// them.
    pub fn trusted_since(&self) -> BootTime {
        self.trusted_since
    }

    /// Returns the locks that the server evicted, and whose leases may still run.
    pub fn evicted(&self) -> &Evicted {
        &self.evicted
    }

    /// Returns the slots that the node serves in a cluster, and the guards of single slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns the requests that wait for a lock.
    pub fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Returns the clients that watch a lock.
    pub fn watching(&self) -> &Watching {
        &self.watching
    }

    /// Returns the connections that receive the answers to waiting requests of other connections.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Returns the listeners for the driver, which sends them the answers.
    pub fn listeners_mut(&mut self) -> &mut Listeners {
        &mut self.listeners
    }

    /// Returns the leases that the node renews while a connection is open.
    pub fn keepalives(&self) -> &KeepAlives {
        &self.keepalives
    }

    /// Returns the leases that the node renews, for changes.
    pub fn keepalives_mut(&mut self) -> &mut KeepAlives {
        &mut self.keepalives
    }

    /// Returns the ledger: which part of the node's state is on the disk, and what must be there before a promise.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns by how much wall clocks may differ: `lock.max-clock-skew`, in milliseconds.
    pub fn skew_ms(&self) -> u32 {
        self.skew_ms
    }

    /// Arms the guard for `cause`, which arose at `now`, until `until` at least. The guard stays even if the last flush
    /// proves to be the start of a reload.
    pub(crate) fn arm_guard(&mut self, cause: Cause, now: BootTime, until: BootTime) {
        self.guard.arm(cause, now, until);
        if let Some(flush) = &mut self.flush {
            flush.guard.arm(cause, now, until);
        }
    }

    /// Returns the part of the guard that a later incarnation must know. It names no single slots, because a start
    /// guards all of them.
    pub fn saved_guard(&self, now: BootTime) -> Option<SavedGuard> {
        let mut guard = self.guard;
        if let Some(until) = self.slots.guarded_until(now) {
            guard.arm(Cause::Slot, now, until);
        }
        guard.saved(now)
    }

    /// Returns the value of [`Node::trusted_since`] for a later incarnation: zero once all leases from before that time
    /// have ended. The longest of them is `outstanding_ttl_ms`.
    pub fn unproved_before(&self, outstanding_ttl_ms: u32, now: BootTime) -> BootTime {
        let may_be_left = now <= self.trusted_since.plus_ms(guard_ms(outstanding_ttl_ms, self.skew_ms));
        if may_be_left { self.trusted_since } else { BootTime::default() }
    }

    /// Returns whether `grant` is suspect for good: it came from outside (RESTORE, for example), or began before
    /// [`Node::trusted_since`].
    pub fn is_suspect(&self, grant: &Grant) -> bool {
        grant.is_from_outside() || grant.granted < self.trusted_since
    }

    /// Refuses to grant `owner` the lock of `key` while an owner unknown to this node may hold it. That is so while the
    /// node or the key's slot is guarded. If nobody is known to hold it exclusively (`is_open`), it is also so while an
    /// evicted grant of the lock may last.
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

    /// Prepares the tokens of `key` for a grant with this proposal, if the key's slot moves to another node or comes from
    /// one. Refuses the grant if its token would be larger than that other node believes.
    #[inline(always)]
    pub(crate) fn prepare_token(&mut self, key: Key<'_>, proposal: Option<Token>, now: Now) -> Result<(), Refusal> {
        if self.slots.is_in_cluster() { self.prepare_token_in_cluster(key, proposal, now) } else { Ok(()) }
    }

    #[inline(never)]
    fn prepare_token_in_cluster(&mut self, key: Key<'_>, proposal: Option<Token>, now: Now) -> Result<(), Refusal> {
        if self.slots.exports(key.name) {
            self.tokens.ensure_told(key.name, proposal, now, self.skew_ms)?;
        }
        if let Some(answer) = self.slots.source_answer(key.name, now.boot) {
            self.tokens.pass_for(key.name, &answer.said.tokens);
        }
        Ok(())
    }

    /// Refuses to promise anything about a grant of which the node is not sure. Such a grant came from outside
    /// (RESTORE, for example), or began before [`Node::trusted_since`]. While the node is guarded, it is sure of no
    /// grant from before the cause of the guard.
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

    /// After a flush the guard refuses new grants. The node is as sure as before of the locks that survived the flush.
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
