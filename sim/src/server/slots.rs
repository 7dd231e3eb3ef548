//! A node in a cluster: it serves some of the slots, and learns which.

use palisade_core::{Found as Ties, Now, SlotSet, guard_ms, slot_of, token_floor};

use super::{DB, Server, name};
use crate::rules::Rule;

impl Server {
    /// Whether it serves the slot of `key`: if not, it answers with an error (MOVED, CLUSTERDOWN).
    pub fn serves(&self, key: u32) -> bool {
        self.node.slots.is_known(&name(key))
    }

    /// It has just started, as part of a cluster in which these slots are its own: its start knows their locks, or is guarded.
    pub fn begin_in_cluster(&mut self, owned: &SlotSet, now: Now) {
        self.node.slots.begin();
        self.own_slots(owned, now);
    }

    /// From now on it owns the slots `owned`. Those that it gains come without their locks; the locks of those that it loses are
    /// deleted. Who waits there is told that its wait is over, since the lock is not here.
    pub fn own_slots(&mut self, owned: &SlotSet, now: Now) {
        if self.without.is(Rule::SlotsGuarded) {
            self.node.slots.cover();
        }
        let until = now.boot.plus_ms(guard_ms(self.node.ledger.outstanding_ttl().ms(now.boot), self.setup.skew_ms));
        let gained = self.node.slots.seen(owned, SlotSet::default(), now.boot, until);
        if gained.unknown > 0 && !self.without.is(Rule::SlotsFloor) {
            self.node.tokens.raise_floor(token_floor(None, &Ties::default(), now.wall_us, self.setup.skew_ms));
        }
        if gained.guarded > 0 {
            self.save_first(now);
        } else if gained.unknown > 0 {
            self.save(now);
        }
        self.delete_locks(|slot| !owned.contains(slot));
        let lost: Vec<Vec<u8>> =
            self.node.waiting.names(DB).filter(|name| !owned.contains(slot_of(name))).map(<[u8]>::to_vec).collect();
        for name in &lost {
            self.sent_away.extend(self.node.waiting.dismiss(DB, name, usize::MAX));
        }
    }

    /// All locks in the slot of `key` are dropped (CLUSTER FLUSHSLOT).
    pub fn flush_slot(&mut self, key: u32, now: Now) {
        let emptied = slot_of(&name(key));
        for (name, end) in self.delete_locks(|slot| slot == emptied) {
            if now.boot <= end {
                self.node.slots.drop_lock(&name, end);
            }
        }
        if self.node.slots.confirm_flush(!self.without.is(Rule::SlotsGuarded)) > 0 {
            self.save_first(now);
        }
        self.node.waiting.wake_at(DB, &name(key), now.boot);
    }

    /// Deletes the locks of some slots; answers their names, and when each would have ended.
    fn delete_locks(&mut self, of: impl Fn(u16) -> bool) -> Vec<([u8; 4], palisade_core::BootTime)> {
        let deleted = self.locks.iter().filter(|(key, _)| of(slot_of(&name(**key))));
        let deleted: Vec<_> = deleted.map(|(key, lock)| (*key, lock.deadline())).collect();
        deleted.iter().for_each(|(key, _)| self.end(*key));
        deleted.into_iter().map(|(key, end)| (name(key), end)).collect()
    }
}
