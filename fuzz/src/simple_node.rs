//! The simplest possible node: permits of one key, a queue ordered by tickets, reservations, and a guard.

use std::collections::BTreeMap;

use palisade_core::Token;
use palisade_core::quorum::{Answer, Ask, NodeId};

/// The name of an owner. Each attempt has a new name, except that an attempt after a wait has the name of that wait.
pub type Name = u64;

/// The length of a reservation, in microseconds.
const KEPT_US: u64 = 50_000;

/// A server with one lock. An exclusive lock is a permit with a limit of 1.
pub struct SimpleNode {
    pub id: u128,
    limit: u16,
    last: u64,
    /// The grants by permit number: owner, token, and the end of the lease.
    grants: BTreeMap<u16, (Name, u64, u64)>,
    kept: BTreeMap<u16, (Name, u64)>,
    queue: BTreeMap<(u64, Name), u64>,
    guarded_until: u64,
}

impl SimpleNode {
    pub fn new(id: u128, limit: u16, guarded_until: u64) -> Self {
        let (grants, kept, queue) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { id, limit, last: 0, grants, kept, queue, guarded_until }
    }

    pub fn server(&self) -> NodeId {
        NodeId(self.id)
    }

    /// Forgets everything except its tokens, as after a restart without data, and is guarded until `guarded_until`.
    pub fn forget(&mut self, guarded_until: u64) {
        *self = Self { last: self.last, ..Self::new(self.id, self.limit, guarded_until) };
    }

    /// Ends all grants, as an operator's BREAK does.
    pub fn take_away(&mut self) {
        self.grants.clear();
    }

    /// Returns the token of the grant that `name` has, if it has one.
    pub fn token_of(&self, name: Name) -> Option<u64> {
        self.grants.values().find(|(owner, ..)| *owner == name).map(|(_, token, _)| *token)
    }

    pub fn ask(&mut self, name: Name, number: u16, ask: Ask, now: u64) -> Answer {
        self.tidy(now);
        if now < self.guarded_until && !matches!(ask, Ask::Extend { .. }) {
            return Answer::Guarded { ms: (self.guarded_until - now).div_ceil(1_000) };
        }
        let is_free = self.is_free(number, name);
        let own = self.grants.values_mut().find(|(owner, ..)| *owner == name);
        let token = match (ask, own) {
            (Ask::Acquire { ttl_ms, proposal, .. }, None) if is_free => {
                self.last = proposal.get().max(self.last + 1);
                self.kept.remove(&number);
                self.grants.insert(number, (name, self.last, now + u64::from(ttl_ms) * 1_000));
                self.last
            }
            (Ask::Fence { token }, Some((_, own, _))) => {
                *own = token.get().max(*own);
                self.last = self.last.max(*own);
                *own
            }
            (Ask::Extend { ttl_ms, token }, Some((_, own, until))) if token.get() == *own => {
                *until = (now + u64::from(ttl_ms) * 1_000).max(*until);
                *own
            }
            (Ask::Acquire { retry: true, .. } | Ask::Share, Some((_, own, _))) => *own,
            _ => return Answer::No,
        };
        Token::new(token).map_or(Answer::No, Answer::Token)
    }

    /// Returns the permit numbers that are free for an attempt at `now`.
    pub fn free(&mut self, now: u64) -> Vec<u16> {
        self.tidy(now);
        (1..=self.limit).filter(|number| self.queue.is_empty() && self.is_free(*number, 0)).collect()
    }

    /// Adds the request of `name` to the queue, until `until`.
    pub fn wait(&mut self, name: Name, ticket: u64, until: u64) {
        self.queue.insert((ticket, name), until);
    }

    /// Ends the grant and the reservation of `name`, and removes its request from the queue.
    pub fn release(&mut self, name: Name) {
        self.grants.retain(|_, (owner, ..)| *owner != name);
        self.kept.retain(|_, (owner, _)| *owner != name);
        self.queue.retain(|(_, waits), _| *waits != name);
    }

    /// Serves the queue. Returns the names whose turn has come, each with the permit number reserved for it.
    pub fn pass_on(&mut self, now: u64) -> Vec<(Name, u16)> {
        self.tidy(now);
        let mut told = vec![];
        for number in 1..=self.limit {
            if now >= self.guarded_until
                && self.is_free(number, 0)
                && let Some(((_, name), _)) = self.queue.pop_first()
            {
                self.kept.insert(number, (name, now + KEPT_US));
                told.push((name, number));
            }
        }
        told
    }

    fn is_free(&self, number: u16, name: Name) -> bool {
        !self.grants.contains_key(&number) && self.kept.get(&number).is_none_or(|(kept_for, _)| *kept_for == name)
    }

    fn tidy(&mut self, now: u64) {
        self.grants.retain(|_, (.., until)| *until > now);
        self.kept.retain(|_, (_, until)| *until > now);
        self.queue.retain(|_, until| *until > now);
    }
}
