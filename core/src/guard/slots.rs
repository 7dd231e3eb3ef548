//! The hash slots of a cluster: which of them this node has served without interruption, and in which it has to refuse
//! locks for a while.
//!
//! An imported slot brings its locks along. A slot may also be given to the node without them: its master died, or an
//! operator assigned it. Then leases may still run that are unknown here, and the locks of that slot alone are guarded
//! until all have ended. The locks of a slot are also guarded if a flush of that slot drops them together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crc::{CRC_16_XMODEM, Crc, Table};

use crate::refusal::Refusal;
use crate::values::time::BootTime;

/// The number of hash slots of a cluster.
pub const CLUSTER_SLOTS: u16 = 16_384;

const WORDS: usize = CLUSTER_SLOTS as usize / 64;

static CRC16: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_XMODEM);

/// Returns the slot of the key `name`. The hash is over the part between its first `{` and the next `}`, if that is not
/// empty.
pub fn slot_of(name: &[u8]) -> u16 {
    let place = |bytes: &[u8], wanted| bytes.iter().position(|&byte| byte == wanted);
    let tag = place(name, b'{').and_then(|open| {
        let rest = &name[open + 1..];
        place(rest, b'}').filter(|&len| len > 0).map(|len| &rest[..len])
    });
    CRC16.checksum(tag.unwrap_or(name)) % CLUSTER_SLOTS
}

/// A set of slots, with a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSet(Box<[u64; WORDS]>);

impl Default for SlotSet {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl SlotSet {
    /// Adds the slots of this range; numbers above the last slot are ignored.
    pub fn insert(&mut self, slots: RangeInclusive<u16>) {
        let (first, last) = (usize::from(*slots.start()), usize::from((*slots.end()).min(CLUSTER_SLOTS - 1)));
        if first > last {
            return;
        }
        // Works on 64 slots at a time, because nodes have ranges of thousands.
        for n in first / 64..=last / 64 {
            let from = if n == first / 64 { first % 64 } else { 0 };
            let to = if n == last / 64 { last % 64 } else { 63 };
            self.0[n] |= u64::MAX << from & u64::MAX >> (63 - to);
        }
    }

    /// Returns whether `slot` is in the set.
    pub fn contains(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot / 64)).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    fn set(&mut self, slot: u16, is_in: bool) {
        let (word, bit) = (&mut self.0[usize::from(slot / 64)], 1 << (slot % 64));
        *word = if is_in { *word | bit } else { *word & !bit };
    }
}

/// The result of reading which slots the node serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gained {
    /// The number of slots whose earlier tokens this node does not know: it now serves them, or begins to import them.
    pub unknown: usize,
    /// The number of slots that the node now serves but that came without their locks, so that they are guarded.
    pub guarded: usize,
}

/// The slots that a node of a cluster serves, and their guards. Empty outside a cluster.
#[derive(Clone, Debug, Default)]
pub struct Slots(Option<Box<InCluster>>);

#[derive(Clone, Debug, Default)]
struct InCluster {
    served: SlotSet,
    /// The slots that the node was importing key by key when it last read them.
    imported: SlotSet,
    /// The slots that are coming to this node in one step, with their locks.
    arriving: SlotSet,
    /// True if the guard of the whole node covers the slots that it gains next.
    covered: bool,
    /// The end of the guard of each guarded slot. Until then owners unknown to the node may hold its locks.
    guards: BTreeMap<u16, BootTime>,
    /// The slots in which live locks were deleted for a reason that is not yet known. Each with the end of the last
    /// lease among these locks.
    dropped: BTreeMap<u16, BootTime>,
}

impl InCluster {
    #[inline(never)]
    fn ensure_open(&self, name: &[u8], now: BootTime) -> Result<(), Refusal> {
        match self.guards.get(&slot_of(name)) {
            Some(until) if now <= *until => {
                Err(Refusal::SlotGuarded { left_ms: until.ms_since_rounded_up(now).max(1) })
            }
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn needs_look(&self, slot: u16) -> bool {
        !self.served.contains(slot) || self.dropped.contains_key(&slot)
    }
}

impl Slots {
    /// Notes that the node is part of a cluster. The slots that it serves already need no guard of their own: its start
    /// proves that it knows their locks, or it is guarded as a whole.
    pub fn begin(&mut self) {
        self.0 = Some(Box::default());
        self.cover();
    }

    /// Returns whether `owned` are exactly the slots that the node served when it last read them.
    pub(crate) fn serves_just(&self, owned: &SlotSet) -> bool {
        self.0.as_ref().is_some_and(|cluster| cluster.served == *owned)
    }

    /// Notes that the whole node is about to be guarded, so the slots that it gains next need no guard of their own.
    pub fn cover(&mut self) {
        if let Some(slots) = &mut self.0 {
            slots.covered = true;
        }
    }

    /// Notes that these slots are coming to this node in one step with their locks (true), or no longer are (false).
    pub fn arriving(&mut self, slots: RangeInclusive<u16>, are_on_their_way: bool) {
        if let Some(known) = &mut self.0 {
            for slot in slots.filter(|&slot| slot < CLUSTER_SLOTS) {
                known.arriving.set(slot, are_on_their_way);
            }
        }
    }

    /// Notes that these slots have come to this node in one step with their locks. It serves them from now on, without
    /// a guard.
    pub fn came(&mut self, slots: RangeInclusive<u16>) {
        if let Some(known) = &mut self.0 {
            for slot in slots.filter(|&slot| slot < CLUSTER_SLOTS) {
                known.arriving.set(slot, false);
                known.served.set(slot, true);
            }
        }
    }

    /// Notes that at `now` the node serves the slots `owned`, and is importing `imported`. Slots that it gained without
    /// their locks are guarded until `until`.
    pub fn seen(&mut self, owned: &SlotSet, imported: SlotSet, now: BootTime, until: BootTime) -> Gained {
        let mut gained = Gained::default();
        let Some(known) = &mut self.0 else { return gained };
        known.guards.retain(|_, until| now <= *until);
        let covered = std::mem::take(&mut known.covered);
        if known.served == *owned && known.imported == imported {
            return gained;
        }
        for slot in 0..CLUSTER_SLOTS {
            let (is_owned, was_served) = (owned.contains(slot), known.served.contains(slot));
            if is_owned && !was_served {
                gained.unknown += 1;
                let brought_its_locks = known.imported.contains(slot) || known.arriving.contains(slot);
                if !brought_its_locks && !covered {
                    gained.guarded += 1;
                    let end = known.guards.entry(slot).or_default();
                    *end = until.max(*end);
                }
                known.arriving.set(slot, false);
            } else if imported.contains(slot) && !known.imported.contains(slot) {
                gained.unknown += 1;
            }
        }
        known.served.clone_from(owned);
        known.imported = imported;
        gained
    }

    /// Returns whether the node is part of a cluster.
    #[inline]
    pub fn is_in_cluster(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether the node has already read that it serves the slot of `name`, so that it knows what it may grant
    /// there.
    pub fn is_known(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|known| known.served.contains(slot_of(name)))
    }

    /// Returns whether the node has to read its slots before it promises anything about the lock `name`. That is so if
    /// it has not read that lock's slot yet, or does not know why locks were deleted there.
    // Inlined because it is one comparison outside a cluster.
    #[inline(always)]
    pub fn needs_look(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|known| known.needs_look(slot_of(name)))
    }

    /// Notes that a command deleted a live lock with the key `name`. Its lease would have ended at `end`.
    pub fn drop_lock(&mut self, name: &[u8], end: BootTime) {
        if let Some(known) = &mut self.0 {
            let last = known.dropped.entry(slot_of(name)).or_default();
            *last = end.max(*last);
        }
    }

    /// Returns whether live locks were deleted for a reason that is not yet known: in the slot of `name`, or in any
    /// (`None`).
    pub fn has_dropped(&self, name: Option<&[u8]>) -> bool {
        self.0.as_ref().is_some_and(|known| match name {
            _ if known.dropped.is_empty() => false,
            Some(name) => known.dropped.contains_key(&slot_of(name)),
            None => true,
        })
    }

    /// Notes why live locks were deleted since the last call: their whole slots were emptied (`is_flush`), or single
    /// keys were deleted. Returns the number of slots that are guarded because of it.
    pub fn confirm_flush(&mut self, is_flush: bool) -> usize {
        let Some(known) = &mut self.0 else { return 0 };
        let dropped = std::mem::take(&mut known.dropped);
        if !is_flush {
            return 0;
        }
        let count = dropped.len();
        for (slot, end) in dropped {
            let until = known.guards.entry(slot).or_default();
            *until = end.max(*until);
        }
        count
    }

    /// Refuses while the slot of `name` is guarded.
    #[inline(always)]
    pub fn ensure_open(&self, name: &[u8], now: BootTime) -> Result<(), Refusal> {
        match &self.0 {
            Some(known) if !known.guards.is_empty() => known.ensure_open(name, now),
            _ => Ok(()),
        }
    }

    /// Ends the guards of all slots, because an operator says that nobody holds a lock there.
    pub fn lift(&mut self) {
        if let Some(known) = &mut self.0 {
            known.guards.clear();
        }
    }

    /// Returns the number of slots that are guarded at `now`.
    pub fn guarded(&self, now: BootTime) -> usize {
        self.0.as_ref().map_or(0, |known| known.guards.values().filter(|until| now <= **until).count())
    }

    /// Returns the latest end among the guards of slots that are armed at `now`.
    pub fn guarded_until(&self, now: BootTime) -> Option<BootTime> {
        self.0.as_ref()?.guards.values().copied().filter(|until| now <= *until).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootTime = BootTime::from_us(1_000_000);
    const END: BootTime = BootTime::from_us(63_600_000);

    fn set(slots: RangeInclusive<u16>) -> SlotSet {
        let mut set = SlotSet::default();
        set.insert(slots);
        set
    }

    fn none() -> SlotSet {
        SlotSet::default()
    }

    /// Returns the slots of a cluster's node that has read them, and serves none.
    fn empty() -> Slots {
        let mut slots = Slots::default();
        slots.begin();
        assert_eq!(slots.seen(&none(), none(), NOW, END), Gained::default());
        slots
    }

    #[test]
    fn keys_are_in_the_slots_that_the_servers_say() {
        for (name, slot) in [
            (&b""[..], 0),
            (b"123456789", 12_739),
            (b"k", 7_629),
            (b"{k}.lock", 7_629),
            (b"foo{k}{bar}", 7_629),
            (b"{}k", slot_of(b"{}k")),
            (b"foo", 12_182),
        ] {
            assert_eq!(slot_of(name), slot, "{name:?}");
        }
        assert_ne!(slot_of(b"{}k"), slot_of(b""), "an empty tag is none");
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }

    #[test]
    fn a_set_has_the_slots_that_were_put_in_and_no_others() {
        let edges = [0, 1, 62, 63, 64, 65, 127, 128, 129, 16_319, 16_320, 16_382, 16_383, 16_384, u16::MAX];
        for first in edges {
            for last in edges {
                let both = set(first..=last);
                for slot in (0..CLUSTER_SLOTS).filter(|slot| slot % 61 == 0 || edges.contains(slot)) {
                    assert_eq!(both.contains(slot), (first..=last).contains(&slot), "{slot} in {first} to {last}");
                }
            }
        }
    }

    #[test]
    fn outside_a_cluster_nothing_is_refused() {
        let mut slots = Slots::default();
        slots.drop_lock(b"k", END);
        assert!(slots.is_known(b"k") && !slots.has_dropped(None));
        assert_eq!(slots.seen(&set(0..=9), none(), NOW, END), Gained::default());
        assert_eq!((slots.ensure_open(b"k", NOW), slots.guarded(NOW)), (Ok(()), 0));
    }

    #[test]
    fn slots_of_the_start_and_of_a_promotion_are_covered() {
        let mut slots = Slots::default();
        slots.begin();
        assert_eq!(slots.seen(&set(0..=9_999), none(), NOW, END), Gained { unknown: 10_000, guarded: 0 });
        assert!(slots.is_known(b"k"));
        slots.seen(&none(), none(), NOW, END);
        assert!(!slots.is_known(b"k"), "what is lost is not known any more");
        slots.cover();
        assert_eq!(slots.seen(&set(0..=9_999), none(), NOW, END).guarded, 0);
    }

    #[test]
    fn a_slot_without_its_locks_is_guarded_alone() {
        let mut slots = empty();
        assert_eq!(slots.seen(&set(7_629..=7_630), none(), NOW, END), Gained { unknown: 2, guarded: 2 });
        assert_eq!(slots.ensure_open(b"k", NOW), Err(Refusal::SlotGuarded { left_ms: 62_600 }));
        assert_eq!(slots.ensure_open(b"foo", NOW), Ok(()));
        assert_eq!((slots.guarded(NOW), slots.guarded_until(NOW)), (2, Some(END)));
        // The slot was lost and comes again. Its guard counts again: it was not forgotten meanwhile.
        slots.seen(&none(), none(), NOW, END);
        assert_eq!(slots.guarded(NOW), 2);
        slots.seen(&set(7_629..=7_629), none(), NOW, END.plus_ms(5));
        assert_eq!(slots.guarded_until(NOW), Some(END.plus_ms(5)));
        let after = END.plus_ms(6);
        assert_eq!((slots.ensure_open(b"k", after), slots.guarded(after)), (Ok(()), 0));
        slots.lift();
        assert_eq!(slots.ensure_open(b"k", NOW), Ok(()));
    }

    #[test]
    fn a_slot_that_was_imported_is_not_guarded() {
        let mut slots = empty();
        assert_eq!(slots.seen(&none(), set(5..=6), NOW, END), Gained { unknown: 2, guarded: 0 });
        assert_eq!(slots.seen(&none(), set(5..=6), NOW, END), Gained::default(), "known by now");
        assert_eq!(slots.seen(&set(5..=5), set(6..=6), NOW, END), Gained { unknown: 1, guarded: 0 });
        // The import of slot 6 is given up before that slot is assigned to the node.
        slots.seen(&set(5..=5), none(), NOW, END);
        assert_eq!(slots.seen(&set(5..=6), none(), NOW, END), Gained { unknown: 1, guarded: 1 });
    }

    #[test]
    fn a_slot_that_came_in_one_step_is_not_guarded() {
        let mut slots = empty();
        slots.arriving(5..=6, true);
        slots.seen(&none(), none(), NOW, END);
        slots.arriving(6..=6, false);
        assert_eq!(slots.seen(&set(5..=6), none(), NOW, END), Gained { unknown: 2, guarded: 1 });
        slots.seen(&none(), none(), NOW, END);
        slots.lift();
        assert_eq!(slots.seen(&set(5..=5), none(), NOW, END).guarded, 1, "that was another time");
    }

    #[test]
    fn locks_that_were_dropped_guard_their_slot_if_it_was_emptied() {
        let mut slots = empty();
        slots.drop_lock(b"k", END);
        slots.drop_lock(b"{k}2", NOW);
        assert!(slots.has_dropped(Some(b"k")) && slots.has_dropped(None) && !slots.has_dropped(Some(b"foo")));
        assert_eq!(slots.confirm_flush(false), 0);
        assert_eq!((slots.ensure_open(b"k", NOW), slots.has_dropped(None)), (Ok(()), false));
        slots.drop_lock(b"k", END);
        assert_eq!(slots.confirm_flush(true), 1);
        assert_eq!(slots.ensure_open(b"k", NOW), Err(Refusal::SlotGuarded { left_ms: 62_600 }));
    }
}
