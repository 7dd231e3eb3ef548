//! A node in a cluster: what changes in its memory when the server's list of served slots changes.

use std::ops::RangeInclusive;

use crate::durability::start::token_floor;
use crate::durability::ties::Found;
use crate::guard::guard_ms;
use crate::guard::slot_set::SlotSet;
use crate::guard::slots::{Gained, Moves};
use crate::guard::sources::ServerId;
use crate::node::Node;
use crate::values::time::{BootTime, Now};

impl Node {
    /// Notes that the node is part of a cluster. The locks of the slots that it serves already were loaded at its
    /// start, or it is guarded because they may be missing.
    pub fn begin_in_cluster(&mut self) {
        self.slots.begin();
    }

    /// Notes that at `now` the node serves the slots `owned`, and that `moves` are under way. Slots that came without
    /// their locks are guarded for the longest lease that this node may grant, because nobody knows what their former
    /// owner granted; so are slots that were not exported to the end. Later tokens are larger than any that the other
    /// node can have issued.
    pub fn update_slots(&mut self, owned: &SlotSet, moves: Moves, now: Now) -> Gained {
        let until = now.boot.plus_ms(self.guard_ms(now.boot));
        if !self.slots.are_exactly(owned) {
            // A lock that is free here may now be held on another node, so every watched lock is checked.
            self.watching.wake_all();
        }
        let gained = self.slots.update(owned, moves, now.boot, until);
        if gained.unknown > 0 {
            self.pass_tokens_of_others(now);
        }
        gained
    }

    /// Raises the floor above every token that the former owner of a slot can have issued.
    fn pass_tokens_of_others(&mut self, now: Now) {
        self.tokens.raise_floor(token_floor(None, &Found::default(), now.wall_us, self.skew_ms));
    }

    /// Notes that the whole node is about to be guarded, so the slots that it gains next need no guard of their own.
    pub fn cover_slots(&mut self) {
        self.slots.cover();
    }

    /// Notes that these slots are coming from the node `from` in one step with their locks. `None`: they no longer are.
    pub fn on_slots_arriving(&mut self, slots: RangeInclusive<u16>, from: Option<ServerId>) {
        self.slots.on_arriving(slots, from);
    }

    /// Notes that these slots have come to this node in one step with their locks. It grants nothing in them until it
    /// knows what their source has forgotten.
    pub fn on_slots_arrived(&mut self, slots: RangeInclusive<u16>, now: Now) -> Gained {
        let gained = self.slots.on_arrived(slots, now.boot, now.boot.plus_ms(self.guard_ms(now.boot)));
        self.pass_tokens_of_others(now);
        gained
    }

    /// Returns the nodes that have to be asked now which grants they have forgotten: those from which slots come.
    pub fn ask_sources(&mut self, now: BootTime) -> Vec<ServerId> {
        self.slots.ask_sources(now)
    }

    /// Takes the answer of the node `from` to the question of the time `asked`: grants that it has forgotten may last
    /// for `forgotten_ms` from `now` on (0: it has forgotten none). Returns the number of slots that are guarded because
    /// of it, and of those that are now open.
    pub fn on_source_answer(
        &mut self,
        from: ServerId,
        asked: BootTime,
        forgotten_ms: u32,
        now: BootTime,
    ) -> (usize, usize) {
        // The other node's clock may be slower than this one's.
        let until = if forgotten_ms == 0 { BootTime::default() } else { now.plus_ms(guard_ms(forgotten_ms, 0)) };
        self.slots.on_source_answer(from, asked, now, until)
    }

    /// Returns the longest time, in milliseconds, for which a grant that this node has forgotten may still last; 0 if
    /// it has forgotten none.
    pub fn forgotten_ms(&self, now: BootTime) -> u32 {
        let guard = self.guard.armed(now).map(|armed| armed.until);
        let until = guard.into_iter().chain(self.slots.forgotten_until(now)).chain(self.evicted.last_end()).max();
        until
            .filter(|until| now <= *until)
            .map_or(0, |until| u32::try_from(until.ms_since_rounded_up(now).max(1)).unwrap_or(u32::MAX))
    }

    /// Notes that the server deleted the live lock `name`, whose lease would have ended at `end`. If it turns
    /// out that the server emptied the whole slot, the slot is guarded.
    pub fn on_dropped_in_slot(&mut self, name: &[u8], end: BootTime) {
        self.slots.drop_lock(name, end);
    }

    /// Notes what the recent deletions were: a flush of whole slots (true), or deletions of single keys. Returns the
    /// number of slots that are guarded because of it.
    pub fn confirm_slot_flush(&mut self, is_flush: bool) -> usize {
        self.slots.confirm_flush(is_flush)
    }

    /// Returns the length of a guard that is armed at `now` if nobody knows which leases run, in milliseconds.
    pub fn guard_ms(&self, now: BootTime) -> u32 {
        guard_ms(self.ledger.outstanding_ttl().ms(now), self.skew_ms)
    }
}
