//! A node in a cluster: serves some of the slots, and learns which.

use palisade_core::{Moves, Now, SlotSet, slot_of};

use super::Server;
use super::keys::{DB, key_of, name};
use crate::rules::Rule;

impl Server {
    /// Returns true if the node serves the slot of `key`; otherwise it answers with an error (MOVED, CLUSTERDOWN).
    pub fn serves(&self, key: u32) -> bool {
        self.node.slots().is_known(&name(key))
    }

    /// Starts the node in a cluster in which it already owns these slots. Either the node knows their locks from the
    /// start, or it is guarded.
    pub fn begin_in_cluster(&mut self, owned: &SlotSet, now: Now) {
        self.node.begin_in_cluster();
        self.own_slots(owned, now);
    }

    /// Sets the slots that the node owns. Gained slots come without their locks. The locks of lost slots are deleted,
    /// and waiting requests there end, since another node serves the lock.
    pub fn own_slots(&mut self, owned: &SlotSet, now: Now) {
        if self.without.is(Rule::SlotsGuarded) {
            self.node.cover_slots();
        }
        let gained = if self.without.is(Rule::SlotsFloor) {
            let until = now.boot.plus_ms(self.node.guard_ms(now.boot));
            self.node.tamper().slots.update(owned, Moves::default(), now.boot, until)
        } else {
            self.node.update_slots(owned, Moves::default(), now)
        };
        if gained.guarded > 0 {
            self.save_first(now);
        } else if gained.unknown > 0 {
            self.save(now);
        }
        self.delete_locks(|slot| !owned.contains(slot));
        let lost: Vec<Vec<u8>> =
            self.node.waiting().names(DB).filter(|name| !owned.contains(slot_of(name))).map(<[u8]>::to_vec).collect();
        for name in &lost {
            self.sent_away.extend(self.node.dismiss(key_of(name), usize::MAX, now.boot));
        }
    }

    /// Drops all locks in the slot of `key` (CLUSTER FLUSHSLOT).
    pub fn flush_slot(&mut self, key: u32, now: Now) {
        let emptied = slot_of(&name(key));
        for (name, end) in self.delete_locks(|slot| slot == emptied) {
            if now.boot <= end {
                self.node.on_dropped_in_slot(&name, end);
            }
        }
        if self.node.confirm_slot_flush(!self.without.is(Rule::SlotsGuarded)) > 0 {
            self.save_first(now);
        }
        self.node.on_lock_gone(key_of(&name(key)));
    }

    /// Deletes the locks of some slots. Returns their names, and the end of each lease.
    fn delete_locks(&mut self, of: impl Fn(u16) -> bool) -> Vec<([u8; 4], palisade_core::BootTime)> {
        let deleted = self.locks.iter().filter(|(key, _)| of(slot_of(&name(**key))));
        let deleted: Vec<_> = deleted.map(|(key, lock)| (*key, lock.end())).collect();
        deleted.iter().for_each(|(key, _)| self.end(*key));
        deleted.into_iter().map(|(key, end)| (name(key), end)).collect()
    }
}
