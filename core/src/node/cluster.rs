//! A node in a cluster: what follows for its memory when it looks which slots it serves.

use std::ops::RangeInclusive;

use crate::durability::start::token_floor;
use crate::durability::ties::Found;
use crate::guard::guard_ms;
use crate::guard::slots::{Gained, SlotSet};
use crate::node::Node;
use crate::values::time::{BootTime, Now};

impl Node {
    /// The node is part of a cluster. The locks of slots that it has already are known to its start, or it is guarded for them.
    pub fn begin_in_cluster(&mut self) {
        self.slots.begin();
    }

    /// The node serves the slots `owned` at `now`, and imports those of `imported`. What came without its locks is guarded as long as
    /// the longest lease that this node may grant, since nobody knows what the owner before granted, and no token is issued that
    /// the owner before can have issued.
    pub fn sees_slots(&mut self, owned: &SlotSet, imported: SlotSet, now: Now) -> Gained {
        let until = now.boot.plus_ms(self.guard_ms(now.boot));
        if !self.slots.serves_just(owned) {
            // Locks that are free here may be held elsewhere now.
            self.watching.wake_all();
        }
        let gained = self.slots.seen(owned, imported, now.boot, until);
        if gained.unknown > 0 {
            self.pass_tokens_of_others(now);
        }
        gained
    }

    /// No token is issued from now on that the owner of a slot before can have issued.
    fn pass_tokens_of_others(&mut self, now: Now) {
        self.tokens.raise_floor(token_floor(None, &Found::default(), now.wall_us, self.skew_ms));
    }

    /// The node is guarded as a whole for what it takes over now: slots that it finds with its next look need no guard beside.
    pub fn covers_slots(&mut self) {
        self.slots.cover();
    }

    /// These slots are on their way here in one step with their locks, or are so no more.
    pub fn slots_arrive(&mut self, slots: RangeInclusive<u16>, are_on_their_way: bool) {
        self.slots.arriving(slots, are_on_their_way);
    }

    /// These slots have come here in one step with their locks.
    pub fn slots_came(&mut self, slots: RangeInclusive<u16>, now: Now) {
        self.slots.came(slots);
        self.pass_tokens_of_others(now);
    }

    /// The live lock `name`, which would have ended at `end`, was deleted by the server: perhaps with its whole slot.
    pub fn dropped_in_slot(&mut self, name: &[u8], end: BootTime) {
        self.slots.drop_lock(name, end);
    }

    /// It is known by now what deleted locks of late: whole slots were emptied, or single keys. How many slots are guarded for it.
    pub fn confirm_slot_flush(&mut self, is_flush: bool) -> usize {
        self.slots.confirm_flush(is_flush)
    }

    /// How long a guard is that is armed at `now` for leases nobody knows, in milliseconds.
    pub fn guard_ms(&self, now: BootTime) -> u32 {
        guard_ms(self.ledger.outstanding_ttl().ms(now), self.skew_ms)
    }
}
