//! What a node keeps on its disk: the state file, and the data.

use std::collections::BTreeMap;

use palisade_core::{BootTime, CleanEnd, Lock, LocksDigest, Node, NodeState, Now, Refusal, record};

use super::{DB, Server, name};

impl Server {
    pub(super) fn ready(&self) -> Result<(), Refusal> {
        if self.saved < self.needed { Err(Refusal::NotYet) } else { Ok(()) }
    }

    /// Runs a rule that may need a token; where the ceiling is in its way, that is to be raised.
    pub(super) fn with_tokens<T>(
        &mut self,
        now: Now,
        mut rule: impl FnMut(&mut Node, &mut BTreeMap<u32, Lock>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let result = rule(&mut self.node, &mut self.locks);
        let stripes_changed = self.node.tokens.stripe_changes() > self.stripe_change;
        if matches!(result, Err(Refusal::NotYet)) && (self.wanted_ceiling(now) > self.ceiling || stripes_changed) {
            self.save(now);
        }
        result
    }

    /// Ten times a second: the ceiling is raised before half of its lead is used up.
    pub fn tick(&mut self, now: Now) {
        let stripes_changed = self.node.tokens.stripe_changes() > self.stripe_change;
        if stripes_changed || self.node.tokens.uses_up(self.ceiling, now.wall_us, self.setup.skew_ms) {
            self.save(now);
        }
    }

    pub(super) fn wanted_ceiling(&self, now: Now) -> u64 {
        self.node.tokens.wanted_ceiling(now.wall_us, self.setup.skew_ms)
    }

    pub(super) fn save(&mut self, now: Now) {
        self.node.tokens.sweep_stripes(now.boot);
        self.ceiling = self.ceiling.max(self.wanted_ceiling(now));
        let (stripes, stripe_change) = self.node.tokens.stripe_ceilings();
        self.stripe_change = stripe_change;
        let owed_ms = self.owed.ms(now.boot);
        self.states += 1;
        let state = NodeState {
            incarnation: self.incarnation,
            ceiling: self.ceiling,
            stripes,
            owed_ms,
            guard: self.node.saved_guard(now.boot),
            unproved_before: self.node.unproved_before(owed_ms, now.boot),
            ..NodeState::new(self.id, self.boot)
        };
        self.to_write = Some((self.states, state));
    }

    pub(super) fn save_first(&mut self, now: Now) {
        self.save(now);
        self.needed = self.states;
    }

    /// Takes what is to be written to the state file, with its number.
    pub fn take_write(&mut self) -> Option<(u64, NodeState)> {
        self.to_write.take()
    }

    /// Its state as it is, to be written at once.
    pub fn state_now(&mut self, now: Now) -> Option<(u64, NodeState)> {
        self.save(now);
        self.take_write()
    }

    /// Nothing is promised before a state is on the disk that is not there yet.
    pub fn waits_for_disk(&self) -> bool {
        self.ready().is_err()
    }

    /// State `number`, or a later one, is on the disk.
    pub fn has_saved(&self, number: u64) -> bool {
        self.saved >= number
    }

    /// State `number`, with this ceiling, is on the disk.
    pub fn written(&mut self, number: u64, ceiling: u64) {
        self.saved = self.saved.max(number);
        self.node.tokens.set_ceiling(ceiling.max(self.node.tokens.ceiling()));
        if number >= self.states {
            self.node.tokens.stripes_saved(self.stripe_change);
        }
    }

    /// The state file that a clean end leaves.
    pub fn end_of_life(&mut self, now: Now) -> Option<NodeState> {
        self.save(now);
        let end = Some(CleanEnd { at: now.boot, locks: self.digest(|deadline| now.boot <= deadline) });
        self.to_write.take().map(|(_, state)| NodeState { end, ..state })
    }

    /// Every lock, as records: what the server's own files have of them, if they have everything.
    pub fn records(&self, now: Now) -> Vec<(u32, Vec<u8>)> {
        let record = |(key, lock): (&u32, &Lock)| {
            let mut bytes = vec![];
            record::encode(lock, now.boot, self.boot, &mut bytes);
            (*key, bytes)
        };
        self.locks.iter().map(record).collect()
    }

    /// The ceiling and the longest lease that a master tells its replicas.
    pub fn tells_replicas(&self, now: Now) -> (u64, u32) {
        let far = self.node.tokens.ceiling_to_tell(now.wall_us, self.setup.skew_ms);
        (self.ceiling.max(far), self.owed.ms(now.boot))
    }

    pub(super) fn digest(&self, counts: impl Fn(BootTime) -> bool) -> LocksDigest {
        let mut digest = LocksDigest::default();
        for (key, lock) in self.locks.iter().filter(|(_, lock)| counts(lock.deadline())) {
            digest.add(DB, &name(*key), lock);
        }
        digest
    }
}
