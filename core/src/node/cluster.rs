//! A node in a cluster: the consequences for its memory when it reads which slots it serves.

use std::ops::RangeInclusive;

use crate::durability::start::token_floor;
use crate::durability::ties::Found;
use crate::guard::guard_ms;
use crate::guard::slots::{Gained, SlotSet};
use crate::node::Node;
use crate::values::time::{BootTime, Now};

impl Node {
    /// Notes that the node is part of a cluster. Its start knows the locks of slots that it has already, or it is
    /// guarded for them.
    pub fn begin_in_cluster(&mut self) {
        self.slots.begin();
    }

    /// Notes that the node serves the slots `owned` at `now`, and imports those of `imported`. Slots that came without
    /// their locks are guarded for the longest lease that this node may grant, since nobody knows what their former
    /// owner granted. No token is issued that the former owner can have issued.
    pub fn update_slots(&mut self, owned: &SlotSet, imported: SlotSet, now: Now) -> Gained {
        let until = now.boot.plus_ms(self.guard_ms(now.boot));
        if !self.slots.serves_just(owned) {
            // Locks that are free here may now be held elsewhere.
            self.watching.wake_all();
        }
        let gained = self.slots.seen(owned, imported, now.boot, until);
        if gained.unknown > 0 {
            self.pass_tokens_of_others(now);
        }
        gained
    }

    /// Raises the floor above every token that the former owner of a slot can have issued.
    fn pass_tokens_of_others(&mut self, now: Now) {
        self.tokens.raise_floor(token_floor(None, &Found::default(), now.wall_us, self.skew_ms));
    }

    /// Notes that the node is guarded as a whole for what it now takes over: the slots that it reads next need no guard
    /// of their own.
    pub fn cover_slots(&mut self) {
        self.slots.cover();
    }

    /// Notes that these slots are on their way here in one step with their locks, or no longer are.
    pub fn slots_arrive(&mut self, slots: RangeInclusive<u16>, are_on_their_way: bool) {
        self.slots.arriving(slots, are_on_their_way);
    }

    /// Notes that these slots have come here in one step with their locks.
    pub fn slots_came(&mut self, slots: RangeInclusive<u16>, now: Now) {
        self.slots.came(slots);
        self.pass_tokens_of_others(now);
    }

    /// Notes that the server deleted the live lock `name`, which would have ended at `end`, perhaps with its whole
    /// slot.
    pub fn dropped_in_slot(&mut self, name: &[u8], end: BootTime) {
        self.slots.drop_lock(name, end);
    }

    /// Resolves the cause of recent deletions: whole slots were emptied, or single keys. Returns the number of slots
    /// that are guarded for it.
    pub fn confirm_slot_flush(&mut self, is_flush: bool) -> usize {
        self.slots.confirm_flush(is_flush)
    }

    /// Returns the length of a guard armed at `now` for unknown leases, in milliseconds.
    pub fn guard_ms(&self, now: BootTime) -> u32 {
        guard_ms(self.ledger.outstanding_ttl().ms(now), self.skew_ms)
    }
}
