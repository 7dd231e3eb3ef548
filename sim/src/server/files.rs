//! A node's files: the state file, and the data.

use std::collections::BTreeMap;

use palisade_core::record::{Applied, Arrival, Here};
use palisade_core::{BootId, BootTime, CleanEnd, Lock, LocksDigest, NodeState, Now, record};

use super::Server;
use super::keys::{key_of, name};
use crate::rules::Rule;

impl Server {
    /// Does the periodic work, due ten times a second. For example, it raises the ceiling of tokens once half of the
    /// tokens up to it are used up.
    pub fn tick(&mut self, now: Now) {
        self.node.sweep(now.boot);
        if self.node.is_write_due(now) {
            self.save(now);
        }
    }

    pub(super) fn save(&mut self, now: Now) {
        self.to_write = self.node.state_to_write(false, now);
    }

    pub(super) fn save_first(&mut self, now: Now) {
        self.to_write = self.node.state_to_write(true, now);
    }

    /// Takes the next state that must be written to the state file, with its number.
    pub fn take_write(&mut self) -> Option<(u64, NodeState)> {
        self.to_write.take()
    }

    /// Returns the current state, for writing it at once.
    pub fn state_now(&mut self, now: Now) -> Option<(u64, NodeState)> {
        self.save(now);
        self.take_write()
    }

    /// Returns true if promises have to wait until a state is on disk.
    pub fn waits_for_disk(&self) -> bool {
        !self.node.ledger().is_ready()
    }

    /// Returns true if state `number`, or a later one, is on disk.
    pub fn has_saved(&self, number: u64) -> bool {
        self.node.ledger().has_on_disk(number)
    }

    /// Records that state `number`, with this ceiling, is on disk.
    pub fn written(&mut self, number: u64, ceiling: u64) {
        self.node.on_written(number, ceiling.max(self.node.tokens().ceiling()));
    }

    /// Returns the state file that a clean shutdown leaves.
    pub fn end_of_life(&mut self, now: Now) -> Option<NodeState> {
        self.save(now);
        // The files lack the evicted locks, so they do not prove that the node remembers every grant.
        let remembered = self.node.evicted().is_empty() || self.without.is(Rule::EvictedUnproved);
        let end = remembered.then(|| CleanEnd { at: now.boot, locks: self.digest(|deadline| now.boot <= deadline) });
        self.to_write.take().map(|(_, state)| NodeState { end, ..state })
    }

    /// Returns every lock as a record, as in a snapshot.
    pub fn records(&self, now: Now) -> Vec<(u32, Vec<u8>)> {
        self.as_records(&self.locks, now)
    }

    /// Returns every lock as a record, as the AOF and replicas know it from the changes that the node sent.
    pub fn told_records(&self, now: Now) -> Vec<(u32, Vec<u8>)> {
        self.as_records(&self.told, now)
    }

    /// Sends a change of the lock of `key` to the AOF and replicas.
    pub(super) fn tell(&mut self, key: u32, now: Now, write: impl FnOnce(&Lock, BootTime, BootId, &mut Vec<u8>)) {
        let Some(lock) = self.locks.get(&key) else { return };
        let mut bytes = vec![];
        write(lock, now.boot, self.boot, &mut bytes);
        let here = Here { arrival: Arrival::Stream, now: now.boot, boot: self.boot };
        // A record that its reader would reject changes nothing.
        if let Ok(told) = record::decode_told(&bytes, here)
            && let Ok(Applied::Anew(lock)) = record::apply(told, self.told.get_mut(&key))
        {
            self.told.insert(key, lock);
        }
    }

    /// Checks, if several clients hold the lock of `key`, that the AOF and replicas know the lock as it is.
    pub(super) fn is_told(&mut self, key: u32, now: Now) {
        let (held, told) = (self.locks.get(&key), self.told.get(&key));
        if held.into_iter().chain(told).any(|lock| lock.len() > 1) {
            let written = |lock: Option<&Lock>| {
                let mut bytes = vec![];
                lock.iter().for_each(|lock| record::encode(lock, now.boot, self.boot, &mut bytes));
                bytes
            };
            let is_same = written(held) == written(told);
            self.watch.replicas_know(is_same);
        }
    }

    fn as_records(&self, locks: &BTreeMap<u32, Lock>, now: Now) -> Vec<(u32, Vec<u8>)> {
        let record = |(key, lock): (&u32, &Lock)| {
            let mut bytes = vec![];
            record::encode(lock, now.boot, self.boot, &mut bytes);
            (*key, bytes)
        };
        locks.iter().map(record).collect()
    }

    /// Returns the ceiling and the longest lease that a master sends to its replicas.
    pub fn replica_news(&self, now: Now) -> (u64, u32) {
        let (ceiling, outstanding_ttl_ms, _) = self.node.replica_news(now);
        (ceiling, outstanding_ttl_ms)
    }

    pub(super) fn digest(&self, counts: impl Fn(BootTime) -> bool) -> LocksDigest {
        let mut digest = LocksDigest::default();
        self.locks.iter().for_each(|(key, lock)| digest.add(key_of(&name(*key)), lock, &counts));
        digest
    }
}
