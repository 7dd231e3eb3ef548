//! The slots that leave this node: what it knows of them, and answers to the nodes to which they go.

use super::{InCluster, Slots};
use crate::guard::slot_set::SlotSet;
use crate::guard::sources::{ANSWERS_WITHIN_MS, MigrationId, ServerId, Unsettled};
use crate::tokens::told::TokenBounds;
use crate::values::time::BootTime;

/// The time for which a node tells that a migration of slots from it has ended well, in milliseconds. The target may have
/// asked for [`ANSWERS_WITHIN_MS`] before the node heard of the end, or begin to ask only now.
const ENDED_TOLD_MS: u32 = 2 * ANSWERS_WITHIN_MS;

/// The largest number of such migrations that a node tells. A target that does not hear of its own guards the slots.
pub(super) const ENDED_TOLD_MAX: usize = 1_000;

impl Slots {
    /// Notes that at `now` the migration `id` of slots to another node, in one step, has ended well.
    pub fn on_left(&mut self, id: MigrationId, now: BootTime) {
        if let Some(known) = &mut self.0 {
            known.left.push_back((id, now));
            if known.left.len() > ENDED_TOLD_MAX {
                known.left.pop_front();
            }
        }
    }

    /// Returns the migrations of slots to other nodes, in one step, that ended well a moment before `now`.
    pub fn left(&mut self, now: BootTime) -> Vec<MigrationId> {
        let Some(known) = &mut self.0 else { return Vec::new() };
        known.left.retain(|(_, end)| now <= end.plus_ms(ENDED_TOLD_MS));
        known.left.iter().map(|(id, _)| *id).collect()
    }

    /// Takes, at `now`, the bounds of the tokens that the node `to` has issued in the slots that move there key by key.
    /// They are 0 if it asked about other slots: then the earlier ones still count.
    pub fn on_issued(&mut self, to: ServerId, issued: TokenBounds, now: BootTime) {
        if let Some(known) = self.0.as_mut().filter(|_| issued.largest() > 0) {
            if known.left_out.get(&to).is_some_and(|since| now <= since.plus_ms(ANSWERS_WITHIN_MS)) {
                known.issued_in_vain.push(issued);
            } else if known.exported.values().any(|of| *of == to) {
                known.issued.insert(to, issued);
            }
        }
    }

    /// Returns the bounds of tokens that other nodes have issued, in moves that were given up since the last call.
    pub fn issued_in_vain(&mut self) -> Vec<TokenBounds> {
        self.0.as_mut().map_or_else(Vec::new, |known| std::mem::take(&mut known.issued_in_vain))
    }

    /// Returns the slots that move key by key to the node `to`.
    pub fn exported_to(&self, to: &ServerId) -> SlotSet {
        let mut slots = SlotSet::default();
        let exported = self.0.iter().flat_map(|known| &known.exported);
        exported.filter(|(_, node)| *node == to).for_each(|(slot, _)| slots.set(*slot, true));
        slots
    }

    /// Returns which of the slots that another node has `taken` over were not moved there to the end: this node serves the
    /// slot without exporting it, its server `has` keys there, or deleted locks.
    pub(crate) fn kept(&self, taken: &SlotSet, has: &SlotSet) -> SlotSet {
        let mut slots = SlotSet::default();
        let is_kept = |known: &InCluster, slot| known.is_known(slot) || known.lost.contains_key(&slot);
        let is_kept = |slot| self.0.as_ref().is_some_and(|known| is_kept(known, slot));
        taken.iter().filter(|&slot| has.contains(slot) || is_kept(slot)).for_each(|slot| slots.set(slot, true));
        slots
    }

    /// Returns the slots that this node has taken over from the node `from`, key by key, while that one may still answer.
    pub(crate) fn taken_from(&self, from: &ServerId, now: BootTime) -> SlotSet {
        let mut slots = SlotSet::default();
        let unsettled = self.0.iter().flat_map(|known| &known.unsettled);
        let is_taken = |at: &Unsettled| at.way.from == *from && at.way.by.is_none() && at.awaits_answer(now);
        unsettled.filter(|(_, at)| is_taken(at)).for_each(|(slot, _)| slots.set(*slot, true));
        slots
    }

    /// Returns the slots whose sources may still answer, for the node `to`. Those that came from that node itself, key by
    /// key, are left out: if they go back, it knows best what it has forgotten.
    pub(crate) fn unsettled(&self, to: &ServerId, now: BootTime) -> SlotSet {
        let mut slots = SlotSet::default();
        let unsettled = self.0.iter().flat_map(|known| &known.unsettled);
        let counts = |at: &Unsettled| at.awaits_answer(now) && (at.way.from != *to || at.way.by.is_some());
        unsettled.filter(|(_, at)| counts(at)).for_each(|(slot, _)| slots.set(*slot, true));
        slots
    }

    /// Returns the single slots in which this node may have forgotten grants, each with the latest end of these grants.
    /// That is the end of the slot's guard that is armed at `now`, or of locks that were deleted for an unknown reason.
    /// Slots whose sources may still answer ([`Slots::unsettled`]) do not count.
    pub(crate) fn forgotten(&self, now: BootTime) -> impl Iterator<Item = (u16, BootTime)> {
        self.0.iter().flat_map(move |known| {
            let silent = known.unsettled.iter().filter(move |(_, at)| !at.awaits_answer(now));
            let silent = silent.map(|(slot, at)| (*slot, at.until));
            let guarded = known.guards.iter().map(|(slot, guard)| (*slot, guard.until)).chain(silent);
            let armed = guarded.filter(move |(_, until)| now <= *until);
            armed.chain(known.dropped.iter().map(|(slot, until)| (*slot, *until)))
        })
    }

    /// Returns the single slots of whose grants the node is not sure at `now`. Slots whose sources may still answer do
    /// not count.
    pub(crate) fn doubted(&self, now: BootTime) -> impl Iterator<Item = u16> {
        self.0.iter().flat_map(move |known| {
            let slots = known.guards.keys().chain(known.unsettled.keys()).copied();
            let awaits = move |slot: &u16| known.unsettled.get(slot).is_some_and(|at| at.awaits_answer(now));
            slots.filter(move |slot| !awaits(slot) && known.ensure_not_doubted(*slot, now).is_err())
        })
    }
}
