//! The hash slots of a cluster: which of them this node has served without interruption, and in which it has to refuse
//! locks for a while.
//!
//! An imported slot brings its locks along, but not those that its former owner has forgotten, so that node is asked
//! first ([`Sources`]). A slot may also be given to the node without its locks: its master died, or an operator assigned
//! it. Then leases may still run that are unknown here, and the locks of that slot alone are guarded until all have
//! ended. The locks of a slot are also guarded if a flush of that slot drops them together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use crate::guard::slot_set::{CLUSTER_SLOTS, SlotSet, slot_of};
use crate::guard::sources::{ASK_AGAIN_MS, Answer, MigrationId, ServerId, Sources, Unsettled, Way};
use crate::refusal::Refusal;
use crate::tokens::told::TokenBounds;
use crate::values::time::BootTime;

mod leaving;

/// The result of reading which slots the node serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gained {
    /// The number of slots in which another node may have issued tokens: the node now serves them, begins to import
    /// them, or does not export them to the end.
    pub unknown: usize,
    /// The number of these slots that are guarded, because they came without their locks, or were not exported to the
    /// end.
    pub guarded: usize,
}

/// The slots that move key by key, to the node and away from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The slots that the node imports, each with the node from which it comes. `None` if that node cannot be reached,
    /// or does not serve the slot any more.
    pub imported: BTreeMap<u16, Option<ServerId>>,
    /// The slots that the node exports, each with the node to which it goes. That node grants the locks that are free
    /// here.
    pub exported: BTreeMap<u16, ServerId>,
}

/// Time after which a request in a slot that the node does not serve is looked at again, in milliseconds. The slot may
/// come back.
const LOOK_AGAIN_MS: u32 = 1_000;

/// Returns the refusal until `until`.
fn guarded(until: BootTime, now: BootTime) -> Refusal {
    Refusal::SlotGuarded { left_ms: until.ms_since_rounded_up(now).max(1) }
}

/// The slots that a node of a cluster serves, and their guards. Empty outside a cluster.
#[derive(Clone, Debug, Default)]
pub struct Slots(Option<Box<InCluster>>);

/// The guard of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotGuard {
    /// Until then owners unknown to the node may hold the slot's locks, so it grants none.
    until: BootTime,
    /// Until then owners known to the node may have lost their locks to unknown ones, so it vouches for no grant.
    doubted_until: BootTime,
}

#[derive(Clone, Debug, Default)]
struct InCluster {
    served: SlotSet,
    /// The slots that the node was importing key by key when it last read them. Each with its source, and the time at
    /// which this import was first read.
    imported: BTreeMap<u16, (Option<ServerId>, BootTime)>,
    /// The sources of imports that were given up, and that have not been asked since.
    given_up: BTreeSet<ServerId>,
    /// The slots that the node was exporting key by key when it last read them, each with the node to which it goes.
    exported: BTreeMap<u16, ServerId>,
    /// The bounds of the tokens that the nodes to which these slots go have issued.
    issued: BTreeMap<ServerId, TokenBounds>,
    /// Such bounds of moves that were given up since they were last taken.
    issued_in_vain: Vec<TokenBounds>,
    /// The nodes to which slots went in moves that were given up, each with the time at which that was read.
    left_out: BTreeMap<ServerId, BootTime>,
    /// The migrations of slots to other nodes, in one step, that ended well a moment ago, each with the time of its end.
    /// If one fails, its target may take the slots all the same, without the locks that were granted here since.
    left: VecDeque<(MigrationId, BootTime)>,
    /// The slots that are coming to this node in one step, with their locks.
    arriving: BTreeMap<u16, Way>,
    /// The slots that have come with their locks, while their sources have not answered.
    unsettled: BTreeMap<u16, Unsettled>,
    /// The nodes from which these slots come.
    sources: Sources,
    /// True if the guard of the whole node covers the slots that it gains next.
    covered: bool,
    /// The guard of each guarded slot.
    guards: BTreeMap<u16, SlotGuard>,
    /// The slots in which live locks were deleted for a reason that is not yet known. Each with the end of the last
    /// lease among these locks.
    dropped: BTreeMap<u16, BootTime>,
    /// The slots in which single live locks were deleted since the slots were last read, each with such an end.
    deleted: BTreeMap<u16, BootTime>,
    /// The slots in which single live locks were deleted before the node read that it does not serve the slot, each with such
    /// an end.
    lost: BTreeMap<u16, BootTime>,
}

impl InCluster {
    #[inline(never)]
    fn ensure_open(&self, name: &[u8], now: BootTime) -> Result<(), Refusal> {
        let slot = slot_of(name);
        match (self.guards.get(&slot), self.unsettled.get(&slot)) {
            (Some(&SlotGuard { until, .. }), _) if now <= until => Err(guarded(until, now)),
            (_, Some(unsettled)) if now <= unsettled.until => Err(guarded(unsettled.refuses_until(now), now)),
            _ => match self.source(slot, now)? {
                Some(source) if now <= source.until && source.said.forgotten.contains(slot) => {
                    Err(guarded(source.until, now))
                }
                _ => Ok(()),
            },
        }
    }

    /// Refuses if another node may grant locks in `slot`: this node neither serves it, nor imports it from a source
    /// that has just answered that it exports the slot to this node. While it imports the slot, returns that answer.
    #[inline(never)]
    fn source(&self, slot: u16, now: BootTime) -> Result<Option<&Answer>, Refusal> {
        if self.served.contains(slot) {
            return Ok(None);
        }
        let Some((from, since)) = self.imported.get(&slot) else {
            return Err(guarded(now.plus_ms(LOOK_AGAIN_MS), now));
        };
        let answer = from.as_ref().and_then(|from| self.sources.answer(from, *since, now));
        let exports =
            answer.filter(|answer| answer.said.exported.contains(slot) && !answer.said.unsettled.contains(slot));
        exports.map(Some).ok_or_else(|| guarded(now.plus_ms(ASK_AGAIN_MS), now))
    }

    #[inline(never)]
    fn ensure_vouched(&self, slot: u16, now: BootTime) -> Result<(), Refusal> {
        self.source(slot, now).and_then(|_| self.ensure_not_doubted(slot, now))
    }

    /// Refuses to vouch for grants in `slot` that came in one step from a node that may have forgotten later ones, or that
    /// has not said whether it has. (What comes key by key is suspect in itself.)
    fn ensure_not_doubted(&self, slot: u16, now: BootTime) -> Result<(), Refusal> {
        match (self.guards.get(&slot), self.unsettled.get(&slot)) {
            (Some(&SlotGuard { doubted_until, .. }), _) if now <= doubted_until => Err(guarded(doubted_until, now)),
            (_, Some(unsettled)) if unsettled.way.by.is_some() && now <= unsettled.until => {
                Err(guarded(unsettled.refuses_until(now), now))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether exactly these moves were under way when the node last read them.
    fn has(&self, moves: &Moves) -> bool {
        self.exported == moves.exported
            && moves.imported.iter().eq(self.imported.iter().map(|(slot, (from, _))| (slot, from)))
    }

    /// Guards `slot` until `until`. If the node `doubts` the slot's grants, it vouches for none of them until then.
    fn guard(&mut self, slot: u16, until: BootTime, doubts: bool) {
        let guard = self.guards.entry(slot).or_default();
        guard.until = until.max(guard.until);
        if doubts {
            guard.doubted_until = until.max(guard.doubted_until);
        }
    }

    /// Takes a slot that came with its locks. `None`: nobody knows whether all of them came, so the slot is guarded
    /// until `until`. It also is if it was here a moment ago, and the node from which it had come then has not answered.
    /// Returns whether the slot is guarded.
    fn take(&mut self, slot: u16, way: Option<Way>, now: BootTime, until: BootTime) -> bool {
        let way = way.filter(|way| self.unsettled.get(&slot).is_none_or(|earlier| earlier.way.from == way.from));
        match way {
            Some(way) => {
                self.unsettled.insert(slot, Unsettled { way, since: now, until });
            }
            None => self.guard(slot, until, true),
        }
        way.is_none()
    }

    /// Notes that the node serves the slots `owned`. Live locks that were deleted in other slots were perhaps deleted because
    /// another node took the slot over.
    fn note_lost(&mut self, owned: &SlotSet, now: BootTime) {
        for (slot, end) in std::mem::take(&mut self.deleted) {
            let last = self.lost.entry(slot).or_default();
            *last = end.max(*last);
        }
        self.lost.retain(|slot, end| now <= *end && !owned.contains(*slot));
    }

    #[inline(never)]
    fn must_read_slots(&self, slot: u16) -> bool {
        !self.is_known(slot) || self.dropped.contains_key(&slot)
    }

    /// Returns whether the node is the only one that grants locks in `slot`, as far as it has read. While it exports
    /// the slot, that has to be read each time: the move may have been given up.
    fn is_known(&self, slot: u16) -> bool {
        self.served.contains(slot) && !self.exported.contains_key(&slot)
    }
}

impl Slots {
    /// Notes that the node is part of a cluster. The slots that it serves already need no guard of their own: its start
    /// proves that it knows their locks, or it is guarded as a whole.
    pub fn begin(&mut self) {
        self.0 = Some(Box::default());
        self.cover();
    }

    /// Returns whether the node served exactly the slots `owned` when it last read them, and had these `moves` under way.
    pub(crate) fn are_exactly(&self, owned: &SlotSet, moves: &Moves) -> bool {
        self.0.as_ref().is_some_and(|known| known.served == *owned && known.has(moves))
    }

    /// Notes that the whole node is about to be guarded, so the slots that it gains next need no guard of their own.
    pub fn cover(&mut self) {
        if let Some(slots) = &mut self.0 {
            slots.covered = true;
        }
    }

    /// Notes that these slots are coming from the node `from` in one step with their locks, by the migration `by`.
    pub fn on_arriving(&mut self, slots: RangeInclusive<u16>, from: ServerId, by: MigrationId) {
        if let Some(known) = &mut self.0 {
            let way = Way { from, by: Some(by) };
            known.arriving.extend(slots.filter(|&slot| slot < CLUSTER_SLOTS).map(|slot| (slot, way)));
        }
    }

    /// Notes that the migration `by` of these slots to this node has failed.
    pub fn on_not_arriving(&mut self, slots: RangeInclusive<u16>, by: MigrationId) {
        if let Some(known) = &mut self.0 {
            known.arriving.retain(|slot, way| !slots.contains(slot) || way.by != Some(by));
        }
    }

    /// Notes that at `now` these slots have come to this node with their locks, by the migration `by`. It serves them
    /// from now on, but grants nothing in them until their source has said that this migration ended well, and what it
    /// forgot: without an answer until `until`.
    pub fn on_arrived(
        &mut self,
        slots: RangeInclusive<u16>,
        by: MigrationId,
        now: BootTime,
        until: BootTime,
    ) -> Gained {
        let mut gained = Gained::default();
        let Some(known) = &mut self.0 else { return gained };
        for slot in slots.filter(|&slot| slot < CLUSTER_SLOTS) {
            gained.unknown += 1;
            // The slot may have been read since it came. Or it counts as served because it left and came back unread.
            let way = known.arriving.remove(&slot).or(known.unsettled.get(&slot).map(|unsettled| unsettled.way));
            if way.is_some() || !known.served.contains(slot) {
                let way = way.map(|way| Way { by: Some(by), ..way });
                gained.guarded += usize::from(known.take(slot, way, now, until));
                known.served.set(slot, true);
            }
        }
        gained
    }

    /// Returns whether the slot of `name` is coming to this node in one step.
    #[inline]
    pub fn is_arriving(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|known| !known.arriving.is_empty() && known.arriving.contains_key(&slot_of(name)))
    }

    /// Returns whether an answer that opens a slot may still come.
    pub fn await_answers(&self, now: BootTime) -> bool {
        self.0.iter().flat_map(|known| known.unsettled.values()).any(|unsettled| unsettled.awaits_answer(now))
    }

    /// Returns whether the source of a slot has not answered in time.
    pub fn has_silent_source(&self, now: BootTime) -> bool {
        self.0.iter().flat_map(|known| known.unsettled.values()).any(|unsettled| !unsettled.awaits_answer(now))
    }

    /// Returns the nodes that have to be asked at `now` which grants they have forgotten, because slots come from them.
    /// For each, also whether this node has imported slots from there key by key, until now or until a moment ago. Notes
    /// that they are asked.
    pub fn ask_sources(&mut self, now: BootTime) -> Vec<(ServerId, bool)> {
        let Some(known) = &mut self.0 else { return Vec::new() };
        let given_up = std::mem::take(&mut known.given_up).into_iter().map(|from| (from, now, true));
        let imported = known.imported.values().filter_map(|(from, since)| Some(((*from)?, *since, true)));
        let awaited = known.unsettled.values().filter(|unsettled| unsettled.awaits_answer(now));
        let awaited = awaited.map(|unsettled| (unsettled.way.from, unsettled.since, false));
        let mut wanted: BTreeMap<_, (BootTime, bool)> = BTreeMap::new();
        for (from, since, imports) in given_up.chain(imported).chain(awaited) {
            let last = wanted.entry(from).or_default();
            *last = (since.max(last.0), imports || last.1);
        }
        known.sources.keep(|node| wanted.contains_key(node));
        wanted.retain(|node, (since, _)| known.sources.ask(*node, *since, now));
        wanted.into_iter().map(|(node, (_, imports))| (node, imports)).collect()
    }

    /// Takes the answer of the node `from`. Returns the number of slots that are guarded because of it, and of those that
    /// are now open.
    pub fn on_source_answer(&mut self, from: ServerId, answer: Answer, now: BootTime) -> (usize, usize) {
        let Some(known) = &mut self.0 else { return (0, 0) };
        let Some(Answer { asked, until, said }) = known.sources.on_answer(&from, answer) else { return (0, 0) };
        let settles = |slot: &u16, Unsettled { way, since, .. }: &Unsettled| {
            way.from == from
                && since <= asked
                && way.by.is_none_or(|by| said.ended.contains(&by))
                && !said.unsettled.contains(*slot)
        };
        let until = *until;
        let guard = |slot: u16, at: &Unsettled| {
            let forgotten = (now <= until && said.forgotten.contains(slot)).then_some(until);
            let until = forgotten.max(said.kept.contains(slot).then_some(at.until))?;
            Some((until, at.way.by.is_some() && said.doubted.contains(slot)))
        };
        let awaited = known.unsettled.iter().filter(|(_, unsettled)| unsettled.awaits_answer(now));
        let settled = awaited.filter(|(slot, at)| settles(slot, at)).map(|(slot, at)| (*slot, guard(*slot, at)));
        let settled: Vec<_> = settled.collect();
        for (slot, guard) in &settled {
            known.unsettled.remove(slot);
            if let Some((until, doubts)) = *guard {
                known.guard(*slot, until, doubts);
            }
        }
        let guarded = settled.iter().filter(|(_, guard)| guard.is_some()).count();
        (guarded, settled.len() - guarded)
    }

    /// Notes that at `now` the node serves the slots `owned`, and that `moves` are under way. Slots that it gained
    /// without their locks are guarded until `until`. So are those whose source does not answer, and those that it
    /// exported until the move was given up: the node to which they went may have granted locks.
    pub fn update(&mut self, owned: &SlotSet, moves: Moves, now: BootTime, until: BootTime) -> Gained {
        let mut gained = Gained::default();
        let Some(known) = &mut self.0 else { return gained };
        known.guards.retain(|_, guard| now <= guard.until);
        known.unsettled.retain(|_, unsettled| now <= unsettled.until);
        known.note_lost(owned, now);
        let covered = std::mem::take(&mut known.covered);
        if known.served == *owned && known.has(&moves) {
            return gained;
        }
        let Moves { imported, exported } = moves;
        for (slot, to) in std::mem::take(&mut known.exported) {
            if owned.contains(slot) && exported.get(&slot) != Some(&to) {
                gained.unknown += 1;
                if !covered {
                    known.guard(slot, until, false);
                    gained.guarded += 1;
                }
                known.issued_in_vain.extend(known.issued.remove(&to));
                known.left_out.insert(to, now);
            }
        }
        known.issued.retain(|to, _| exported.values().any(|of| of == to));
        known.exported = exported;
        for slot in 0..CLUSTER_SLOTS {
            let (is_owned, was_served) = (owned.contains(slot), known.served.contains(slot));
            if is_owned && !was_served {
                gained.unknown += 1;
                let from = known.imported.get(&slot).and_then(|(from, _)| *from);
                let way = known.arriving.remove(&slot).or(from.map(|from| Way { from, by: None }));
                if !covered {
                    gained.guarded += usize::from(known.take(slot, way, now, until));
                }
            } else if imported.contains_key(&slot) && !known.imported.contains_key(&slot) {
                gained.unknown += 1;
            }
        }
        for (slot, (from, _)) in &known.imported {
            if !owned.contains(*slot) && imported.get(slot) != Some(from) {
                known.given_up.extend(*from);
            }
        }
        known.served.clone_from(owned);
        let since =
            |slot, from| known.imported.get(&slot).filter(|(of, _)| *of == from).map_or(now, |(_, since)| *since);
        known.imported = imported.into_iter().map(|(slot, from)| (slot, (from, since(slot, from)))).collect();
        gained
    }

    /// Returns whether the node is part of a cluster.
    #[inline]
    pub fn is_in_cluster(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether the node has already read that it alone grants locks in the slot of `name`, so that it knows
    /// what it may grant there.
    pub fn is_known(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|known| known.is_known(slot_of(name)))
    }

    /// Returns whether the node has to read its slots before it promises anything about the lock `name`. That is so if
    /// it has not read that lock's slot yet, exports that slot, or does not know why locks were deleted there.
    // Inlined because it is one comparison outside a cluster.
    #[inline(always)]
    pub fn must_read_slots(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|known| known.must_read_slots(slot_of(name)))
    }

    /// Notes that a command deleted a live lock with the key `name`. Its lease would have ended at `end`.
    pub fn drop_lock(&mut self, name: &[u8], end: BootTime) {
        if let Some(known) = &mut self.0 {
            let last = known.dropped.entry(slot_of(name)).or_default();
            *last = end.max(*last);
        }
    }

    /// Returns whether live locks in the slot of `name` were deleted for a reason that is not yet known.
    pub fn has_dropped(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|known| !known.dropped.is_empty() && known.dropped.contains_key(&slot_of(name)))
    }

    /// Returns whether live locks were deleted since the slots were last read.
    pub fn has_deleted(&self) -> bool {
        self.0.as_ref().is_some_and(|known| !known.dropped.is_empty() || !known.deleted.is_empty())
    }

    /// Notes why live locks were deleted since the last call: their whole slots were emptied (`is_flush`), or single
    /// keys were deleted. Returns the number of slots that are guarded because of it.
    pub fn confirm_flush(&mut self, is_flush: bool) -> usize {
        let Some(known) = &mut self.0 else { return 0 };
        let dropped = std::mem::take(&mut known.dropped);
        let guarded = if is_flush { dropped.len() } else { 0 };
        for (slot, end) in dropped {
            if is_flush {
                known.guard(slot, end, false);
            } else {
                let last = known.deleted.entry(slot).or_default();
                *last = end.max(*last);
            }
        }
        guarded
    }

    /// Refuses while the slot of `name` is guarded.
    #[inline(always)]
    pub fn ensure_open(&self, name: &[u8], now: BootTime) -> Result<(), Refusal> {
        match &self.0 {
            Some(known) => known.ensure_open(name, now),
            None => Ok(()),
        }
    }

    /// Refuses to vouch for grants of the lock `name`, or to extend them, while another owner may hold that lock: another
    /// node may grant it ([`Slots::may_be_elsewhere`]), or its slot came in one step from a node that may have forgotten
    /// a later grant.
    #[inline(always)]
    pub fn ensure_vouched(&self, name: &[u8], now: BootTime) -> Result<(), Refusal> {
        self.0.as_ref().map_or(Ok(()), |known| known.ensure_vouched(slot_of(name), now))
    }

    /// Returns whether another node may grant the lock `name`: this one neither serves its slot, nor imports it from a
    /// node that has just answered that it exports the slot here.
    #[inline(always)]
    pub fn may_be_elsewhere(&self, name: &[u8], now: BootTime) -> bool {
        self.0.as_ref().is_some_and(|known| known.source(slot_of(name), now).is_err())
    }

    /// Returns whether the slot of `name` moves away key by key, so that another node grants its locks that are free
    /// here.
    #[inline(always)]
    pub fn exports(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|known| !known.exported.is_empty() && known.exported.contains_key(&slot_of(name)))
    }

    /// Returns the last answer of the node from which the slot of `name` is imported; `None` if it is not imported.
    pub(crate) fn source_answer(&self, name: &[u8], now: BootTime) -> Option<&Answer> {
        self.0.as_ref()?.source(slot_of(name), now).ok().flatten()
    }

    /// Ends the guards of all slots, because an operator says that nobody holds a lock there.
    pub fn lift(&mut self) {
        if let Some(known) = &mut self.0 {
            known.guards.clear();
            known.unsettled.clear();
        }
    }

    /// Returns the number of slots that are guarded at `now`, or wait for their source's answer.
    pub fn guarded(&self, now: BootTime) -> usize {
        self.guards().filter(|(_, until)| now <= *until).map(|(slot, _)| slot).collect::<BTreeSet<_>>().len()
    }

    /// Returns the latest end among the guards of slots that are armed at `now`.
    pub fn guarded_until(&self, now: BootTime) -> Option<BootTime> {
        self.guards().map(|(_, until)| until).filter(|until| now <= *until).max()
    }

    /// Iterates over the guards of slots, including those that have ended.
    fn guards(&self) -> impl Iterator<Item = (u16, BootTime)> {
        self.0.iter().flat_map(|known| {
            let unsettled = known.unsettled.iter().map(|(slot, unsettled)| (*slot, unsettled.until));
            known.guards.iter().map(|(slot, guard)| (*slot, guard.until)).chain(unsettled)
        })
    }
}

#[cfg(test)]
mod tests;
