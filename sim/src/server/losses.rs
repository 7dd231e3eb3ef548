//! Losses of locks that their holders did not cause: flush, eviction, deletion by hand and BREAK. Also arms and lifts
//! the guard as an operator.

use palisade_core::Evictee;
use palisade_core::engine::{Reply as Outcome, Request as Does};
use palisade_core::{Now, Token};

use super::Server;
use super::keys::{key_of, name};
use crate::rules::Rule;

impl Server {
    /// Drops all locks (FLUSHALL).
    pub fn flush(&mut self, now: Now) {
        let dropped = self.node.flush(None).last();
        self.locks.clear();
        self.told.clear();
        if let Some(last) = dropped.filter(|_| !self.without.is(Rule::Guard)) {
            self.node.on_dropped(last, now.boot);
        }
        self.save_first(now);
    }

    /// Breaks the latest grant of `key` as an operator. Returns its token.
    pub fn break_last(&mut self, key: u32, now: Now) -> Option<u64> {
        let token = self.locks.get(&key)?.grants().last()?.1.token();
        let broken = self.perform(key, &Does::Break(Some(token)), None, now);
        let token = matches!(broken, Ok(Outcome::Token(_))).then_some(token.get())?;
        self.watch.was_broken(key, token);
        self.watch.holds(key, self.locks.get(&key), now);
        Some(token)
    }

    /// Returns the largest token among the holders of `key`.
    fn largest(&self, key: u32, now: Now) -> Option<Token> {
        let live = self.locks.get(&key)?.grants().filter(|(_, grant)| !grant.is_expired(now.boot));
        live.map(|(_, grant)| grant.token()).max()
    }

    /// Breaks the lock of `key` as an operator. Returns its largest token.
    pub fn break_lock(&mut self, key: u32, now: Now) -> Option<u64> {
        let token = if self.without.is(Rule::BrokenEnds) {
            self.largest(key, now)
        } else {
            match self.perform(key, &Does::Break(None), None, now) {
                Ok(Outcome::Token(token)) => Some(token),
                _ => None,
            }
        };
        let token = token?.get();
        self.watch.was_taken_away(key, token);
        self.watch.holds(key, self.locks.get(&key), now);
        Some(token)
    }

    /// Deletes `key` by hand. Returns the largest token of its lock.
    pub fn delete(&mut self, key: u32, now: Now) -> Option<u64> {
        let token = self.largest(key, now)?.get();
        self.end(key);
        self.node.on_lock_gone(key_of(&name(key)));
        self.watch.was_taken_away(key, token);
        Some(token)
    }

    /// Evicts `key` to free memory. The lock's holder does not learn of it. Returns true if the lease had not ended.
    pub fn evict(&mut self, key: u32, now: Now) -> bool {
        let Some(lock) = self.locks.get(&key).cloned() else { return false };
        let (name, is_live) = (name(key), !lock.is_expired(now.boot));
        self.end(key);
        if !self.without.is(Rule::EvictedBars) {
            self.node.evict(key_of(&name), Evictee::of(&lock), now);
        }
        self.node.on_lock_gone(key_of(&name));
        // The node's files lack the evicted lock.
        if is_live && !self.without.is(Rule::EvictedUnproved) {
            self.aof_life = false;
            self.save_first(now);
        }
        is_live
    }

    /// Arms the guard for `ms` as an operator.
    pub fn arm(&mut self, ms: u32, now: Now) {
        self.was_armed = true;
        self.node.guard_by_operator(Some(ms), now.boot);
        self.save_first(now);
    }

    /// Lifts the guard as an operator.
    pub fn lift(&mut self) {
        self.node.tamper().guard.lift();
    }
}
