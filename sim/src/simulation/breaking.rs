//! Locks that an operator breaks on all nodes, at one moment or on one node after another. Their holders notice.

use palisade_core::quorum::majority;

use super::agenda::Next;
use super::kinds::{Break, Fault, Kind};
use super::outcome::Failure;
use super::world::World;
use crate::client::Client;
use crate::history::{Event, Holder, Occurrence, TimeUs};

/// The part of a lease within which a round of extension begins and is answered.
const NOTICED_OF_TTL: (u64, u64) = (3, 5);

impl World<'_> {
    /// Breaks the lock of `key` on all nodes at this moment, as an operator. The holder learns of it in its next round.
    pub(super) fn break_everywhere(&mut self, key: u32) {
        let holders = self.holders(key);
        let count = self.plan.nodes.len();
        let mut tokens: Vec<_> = (0..count).map(|node| self.break_on(node, key)).collect();
        tokens.sort_unstable();
        // A holder's token is at most the largest that a majority of the nodes had. A token on fewer nodes was not yet
        // raised, or was not enough.
        if let Some(token) = tokens[count - majority(count)] {
            self.referee.is_taken_away(key, self.at, token);
        }
        self.tell(|| format!("key {key}: the locks with the tokens {tokens:?} are taken away"));
        self.breaks.insert(key, Break { at: self.at, in_turn: false });
        self.must_notice(holders);
    }

    /// Begins to break the lock of `key` on one node after another.
    pub(super) fn break_in_turn(&mut self, number: usize, key: u32) -> Result<(), Failure> {
        let holders = self.holders(key);
        self.break_next(number, 0, holders)
    }

    /// Breaks the lock on the next node, and makes `holders`, who held the lock at the beginning, extend it.
    pub(super) fn break_next(&mut self, number: usize, step: usize, holders: Vec<Holder>) -> Result<(), Failure> {
        let Fault { for_us, kind, .. } = self.plan.faults[number];
        let Kind::BreakInTurn { key, first, extends } = kind else { return Ok(()) };
        if !self.under_way[number] {
            return Ok(());
        }
        let count = self.plan.nodes.len();
        if step.is_multiple_of(2) {
            self.break_one((first + step / 2) % count, key);
        } else if extends {
            self.extend_now(&holders)?;
        }
        if step == 2 * (count - 1) {
            self.under_way[number] = false;
            self.must_notice(holders);
        } else {
            self.plan_at(self.at + for_us / (2 * count as u64), Next::BreaksInTurn(number, step + 1, holders));
        }
        Ok(())
    }

    /// Breaks the lock of `key` on `node` alone. Every holder may have lost its majority by that without knowing it.
    fn break_one(&mut self, node: usize, key: u32) {
        let token = self.break_on(node, key);
        if let Some(held) = self.referee.holders(key, self.at).map(|claim| claim.token).max() {
            self.referee.is_taken_away(key, self.at, held);
        }
        self.tell(|| format!("key {key}: the lock with token {token:?} is taken away on node {node}"));
        self.breaks.insert(key, Break { at: self.at, in_turn: true });
    }

    fn break_on(&mut self, node: usize, key: u32) -> Option<u64> {
        self.on_server(node, |server, now| server.break_lock(key, now)).flatten()
    }

    fn holders(&self, key: u32) -> Vec<Holder> {
        self.referee.holders(key, self.at).map(|claim| claim.who).collect()
    }

    /// Makes the `holders` that still rely on their lock extend it now, as a program may at any time.
    fn extend_now(&mut self, holders: &[Holder]) -> Result<(), Failure> {
        for who in holders {
            let (machine, client) = &self.clients[who.client as usize];
            if client.who() == *who && client.holding().is_some() && machine.paused_until <= self.at {
                self.on_client(who.client, Client::extend)?;
            }
        }
        Ok(())
    }

    fn must_notice(&mut self, holders: Vec<Holder>) {
        for who in holders {
            self.plan_at(self.at + self.ttl_us() * NOTICED_OF_TTL.0 / NOTICED_OF_TTL.1, Next::MustHaveLost(who));
        }
    }

    /// Returns true if an operator has broken the lock of `key` since that time, on all nodes at once or on at least
    /// one of them in turn.
    pub(super) fn is_broken_since(&self, key: u32, since: TimeUs) -> bool {
        self.breaks.get(&key).is_some_and(|last| last.at >= since)
    }

    /// Returns true if `event` is a grant that was requested before an operator broke the lock on the last of the
    /// nodes. The nodes may have broken this grant before its holder learns of it.
    pub(super) fn may_be_broken(&self, event: &Event) -> bool {
        let Occurrence::Held { since, .. } = event.what else { return false };
        self.breaks.get(&event.key).is_some_and(|last| last.in_turn && last.at >= since)
    }

    /// Checks that a holder whose lock was broken on all nodes more than a round ago no longer relies on it, provided
    /// that nodes answered.
    pub(super) fn must_have_lost(&mut self, who: Holder) -> Result<(), Failure> {
        let answered = self.nodes.iter().all(|node| node.machine.paused_until < self.at.saturating_sub(self.ttl_us()));
        if !answered || !self.is_calm_since(self.at) {
            return Ok(());
        }
        let (_, client) = &self.clients[who.client as usize];
        if client.who() == who && client.holding().is_some() {
            return Err(Failure::Conduct { client: who.client, wrong: "it relies on a lock that was taken away" });
        }
        self.totals.noticed += 1;
        Ok(())
    }
}
