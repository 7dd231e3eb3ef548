//! Moments of many requests and few answers: bursts of requests, and stalls of a majority. As long as nothing else goes
//! wrong, leases last through such moments, and clients that ask for a lock until a time limit get it.

use palisade_core::Wanted;
use palisade_core::quorum::{ROUNDS_A_LEASE, majority};

use super::agenda::Next;
use super::caller::PATIENCE_US;
use super::kinds::Kind;
use super::outcome::Failure;
use super::world::World;
use crate::history::{Holder, TimeUs};
use crate::server::shares_stripe;

/// Microseconds in a millisecond.
const MS: u64 = 1_000;

/// The times for which a majority is stopped, in turn, in microseconds.
const STOPPED_US: [u64; 4] = [150 * MS, 250 * MS, 200 * MS, 220 * MS];
/// The largest part of a lease for which a majority is stopped: a fifth. Longer times in [`STOPPED_US`] are cut to it.
const STOPPED_OF_TTL: u64 = 5;

/// The divisor of a lease that gives the length of each stop, if a majority is stopped at the interval at which clients
/// extend.
const STOPPED_IN_STEP_OF_TTL: u64 = 10;

/// The time between two stops, in which all nodes answer, in microseconds.
const ANSWERS_US: u64 = 900 * MS;

/// The time from one burst to the next, in microseconds.
const BURST_US: u64 = 1_300 * MS;

/// The first of the keys that only one client wants.
const APART: u32 = 1_000;

impl World<'_> {
    /// Repeats the action of a fault in progress.
    pub(super) fn again(&mut self, number: usize, turn: usize) -> Result<(), Failure> {
        if !self.under_way[number] {
            return Ok(());
        }
        let next_us = match self.plan.faults[number].kind {
            Kind::Stalls { first, in_step: false } => self.stall(first + turn, turn) + ANSWERS_US,
            Kind::Stalls { first, in_step: true } => {
                self.stop_majority(first + turn, self.ttl_us() / STOPPED_IN_STEP_OF_TTL);
                self.ttl_us() / u64::from(ROUNDS_A_LEASE)
            }
            Kind::Bursts { apart } => {
                self.burst(apart)?;
                BURST_US
            }
            _ => return Ok(()),
        };
        self.plan_at(self.at + next_us, Next::Again(number, turn + 1));
        Ok(())
    }

    /// Stops a majority of the nodes, from `first` on. Returns the length of the stop, in microseconds.
    fn stall(&mut self, first: usize, turn: usize) -> u64 {
        let stopped_us = STOPPED_US[turn % STOPPED_US.len()].min(self.ttl_us() / STOPPED_OF_TTL);
        self.stop_majority(first, stopped_us);
        stopped_us
    }

    fn stop_majority(&mut self, first: usize, for_us: u64) {
        let count = self.plan.nodes.len();
        for n in 0..majority(count) {
            let until = &mut self.nodes[(first + n) % count].machine.paused_until;
            *until = (*until).max(self.at + for_us);
        }
    }

    pub(super) fn ttl_us(&self) -> u64 {
        u64::from(self.plan.ttl_ms) * MS
    }

    /// Makes all idle clients ask for a lock at this moment.
    fn burst(&mut self, apart: bool) -> Result<(), Failure> {
        for number in 0..self.clients.len() as u32 {
            let (machine, client) = &self.clients[number as usize];
            let is_asking = self.taking[number as usize].is_some();
            if client.is_idle() && !is_asking && !machine.down && machine.paused_until <= self.at && !self.quiet {
                let key = if apart { self.key_of_its_own(number) } else { 0 };
                self.take(number, key, Wanted::Exclusive, Some(PATIENCE_US))?;
            }
        }
        Ok(())
    }

    /// Returns a key that only this client wants. It shares no stripe of tokens with a hostile client's keys, since the
    /// loss of a disk breaks the order of tokens in a stripe that was raised far ahead.
    fn key_of_its_own(&self, client: u32) -> u32 {
        let beside = (APART..).filter(|key| shares_stripe(*key, self.plan.keys));
        beside.take(client as usize + 1).last().unwrap_or(APART)
    }

    /// Records that a client no longer holds a lock, because it released or lost it. A loss is a failure if nothing has
    /// gone wrong since the grant, and no operator broke the lock.
    pub(super) fn end_holding(&mut self, who: Holder, key: u32, since: TimeUs, lost: bool) -> Result<(), Failure> {
        match (self.is_calm_since(since), lost) {
            (true, true) if self.is_broken_since(key, since) => Ok(()),
            (true, true) => Err(Failure::Lost { client: who.client, key }),
            (true, false) => {
                self.totals.kept += 1;
                Ok(())
            }
            (false, _) => Ok(()),
        }
    }

    /// Records that a fault other than a burst or a stall lasts until `end`. Its consequences last until every guard
    /// and every lease have ended.
    pub(super) fn break_things_until(&mut self, end: TimeUs) {
        let (ttl_ms, max_ttl_ms) = (u64::from(self.plan.ttl_ms), u64::from(self.plan.max_ttl_ms));
        let guard_ms = max_ttl_ms.max(ttl_ms) + u64::from(self.plan.skew_ms);
        self.wrong_until = self.wrong_until.max(end + (2 * guard_ms + ttl_ms + 1_000) * MS);
    }

    /// Returns true if, since that time, nothing has gone wrong except bursts and stalls.
    pub(super) fn is_calm_since(&self, since: TimeUs) -> bool {
        self.plan.is_calm() && self.wrong_until <= since
    }
}
