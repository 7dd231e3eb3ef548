//! The deadlines of one database's locks, in a timing wheel with overflow lists (Varghese and Lauck, "Hashed and
//! hierarchical timing wheels", 1987). Every operation takes the same time, however many locks there are.
//!
//! Time is counted in ticks of 1.024 ms. Entries of the next two minutes or so are in a ring of lists, one for each
//! tick. Later entries are in a list for each second, and move to the ring a minute or more before they are due. An
//! entry comes due when its tick is over: never early, and at most a tick late.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::lock::ring::{MOMENTS, NONE, Ring};
use crate::lock::slab::Slab;
use crate::values::time::BootTime;

/// The microseconds of a tick, as a power of two: 1.024 ms.
const TICK_BITS: u32 = 10;

/// The ticks of an overflow list, as a power of two: 1.05 s.
const FAR_BITS: u32 = 10;

/// The length of a stretch in ticks, as a power of two: 67 s. Before a stretch begins, the entries of all its overflow
/// lists have moved to the ring. The ring has room for two stretches, the present one and the next.
const STRETCH_BITS: u32 = (MOMENTS / 2).ilog2();

/// The largest delay with which an entry comes due, in microseconds.
pub(super) const LATE_US: u64 = (1 << TICK_BITS) - 1;

/// The number of entries that move from the overflow lists to the ring in one step, which takes some ten microseconds.
const NEARED_A_STEP: usize = 256;

/// The longest name inside an entry, in bytes; longer names are stored separately.
const NAME_INLINE_BYTES: usize = 15;

/// The value of `name_bytes` for a name that is stored separately.
const LONG: u8 = u8::MAX;

/// Special values of [`Entry::before`], for an entry that has no neighbour before it. The entry is the first in the
/// list of its tick, of overdue entries, or of an overflow list. Or it is in no list, because it came due.
const FIRST: u32 = u32::MAX;
const FIRST_OVERDUE: u32 = u32::MAX - 1;
const FIRST_FAR: u32 = u32::MAX - 2;
const CAME_DUE: u32 = u32::MAX - 3;

/// The name of a key, copied out of an entry.
pub(super) type Name = SmallVec<[u8; 24]>;

#[derive(Clone, Debug, Default)]
struct Entry {
    due: BootTime,
    /// The indexes of the entries before and after this one in its list; [`NONE`] follows the last.
    before: u32,
    after: u32,
    /// The length of the name in bytes, or [`LONG`]: then `name` has the index of the long name.
    name_bytes: u8,
    name: [u8; NAME_INLINE_BYTES],
}

/// Returns the memory that the entry of a lock takes, in bytes, if the key's name has `name_bytes` bytes.
pub(super) const fn entry_bytes(name_bytes: usize) -> usize {
    let long_bytes = if name_bytes > NAME_INLINE_BYTES { size_of::<Box<[u8]>>() + name_bytes } else { 0 };
    size_of::<Entry>() + long_bytes
}

/// Returns the tick that contains a moment.
const fn tick_of(moment: BootTime) -> u64 {
    moment.as_us() >> TICK_BITS
}

/// Returns the last moment before `tick` begins.
const fn end_before(tick: u64) -> BootTime {
    BootTime::from_us((tick << TICK_BITS).saturating_sub(1))
}

/// The entries of one database: one for each lock there.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    /// The number of this set of entries. Every other set with locks has another number, and so has every set that was
    /// taken out before a flush.
    pub number: u32,
    entries: Slab<Entry>,
    long_names: Slab<Box<[u8]>>,
    /// The list of entries that were due before the first tick of the ring, or came due and have more ends.
    overdue: u32,
    /// The last entry of that list. An entry that becomes overdue once more, because it has further ends, comes last.
    last_overdue: u32,
    /// True if an entry of the ring comes before the next overdue one.
    is_rings_turn: bool,
    /// The tick in which due entries were last looked for.
    looked: u64,
    /// The first tick of the ring.
    from: u64,
    near: Ring,
    /// The first tick in the ring with entries; `u64::MAX` if there is none.
    first_near: u64,
    /// The overflow lists: for each second, the index of the first entry.
    far: BTreeMap<u64, u32>,
    /// The key in `far` of the first overflow list; `u64::MAX` if there is none.
    first_far: u64,
    /// For each lock with several holders, the end of its last lease and the index of its entry, sorted by time.
    ends: BTreeSet<(BootTime, u32)>,
    /// For each index in `ends`, the end of its lock's last lease.
    end_of: BTreeMap<u32, BootTime>,
}

impl Entries {
    pub fn new(number: u32) -> Self {
        Self {
            number,
            entries: Slab::default(),
            long_names: Slab::default(),
            overdue: NONE,
            last_overdue: NONE,
            is_rings_turn: false,
            looked: 0,
            from: 0,
            near: Ring::default(),
            first_near: u64::MAX,
            far: BTreeMap::new(),
            first_far: u64::MAX,
            ends: BTreeSet::new(),
            end_of: BTreeMap::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry for the lock `name` that comes due at `due`, and returns its place (its index among all entries).
    /// The present time is `since` or later.
    #[inline]
    pub fn insert(&mut self, name: &[u8], due: BootTime, since: BootTime) -> u32 {
        self.is_now(since);
        let mut entry = Entry { due, ..Entry::default() };
        if let Some(inline) = entry.name.get_mut(..name.len()) {
            inline.copy_from_slice(name);
            entry.name_bytes = name.len() as u8;
        } else {
            let place = self.long_names.insert(name.into());
            entry.name[..size_of::<u32>()].copy_from_slice(&place.to_le_bytes());
            entry.name_bytes = LONG;
        }
        let place = self.entries.insert(entry);
        self.link(place, due);
        place
    }

    /// Returns the moment when an entry comes due, unless it already has.
    #[inline]
    pub fn due(&self, place: u32) -> Option<BootTime> {
        self.entries.get(place).filter(|entry| entry.before != CAME_DUE).map(|entry| entry.due)
    }

    /// Returns whether the entry with the index `place` comes due at the time `due`, and its lock has only one holder,
    /// so that it ends then.
    #[inline]
    pub fn is_at(&self, place: u32, due: BootTime) -> bool {
        self.due(place) == Some(due) && (self.ends.is_empty() || !self.end_of.contains_key(&place))
    }

    /// Moves an entry to another time. The present time is `since` or later.
    #[inline]
    pub fn set_due(&mut self, place: u32, due: BootTime, since: BootTime) {
        self.is_now(since);
        self.unlink(place);
        if let Some(entry) = self.entries.get_mut(place) {
            let has_more_ends = entry.before == CAME_DUE && tick_of(due) < self.looked;
            entry.due = due;
            if has_more_ends { self.link_overdue(place) } else { self.link(place, due) }
        }
    }

    /// Removes an entry, if there is one.
    #[inline]
    pub fn remove(&mut self, place: u32) {
        self.forget_end(place);
        self.unlink(place);
        if let Some(entry) = self.entries.remove(place)
            && entry.name_bytes == LONG
        {
            self.long_names.remove(long_place(&entry));
        }
    }

    /// Removes an entry that came due, and was not moved to another time.
    pub fn remove_due(&mut self, place: u32) {
        if self.entries.get(place).is_some_and(|entry| entry.before == CAME_DUE) {
            self.remove(place);
        }
    }

    /// Notes that the lock of this entry has several holders, the last of whose leases ends at `end`.
    pub fn set_end(&mut self, place: u32, end: BootTime) {
        if self.end_of.get(&place) != Some(&end) {
            self.forget_end(place);
            self.end_of.insert(place, end);
            self.ends.insert((end, place));
        }
    }

    /// Notes that the lock of this entry has only one holder, so that it ends when the entry comes due.
    #[inline]
    pub fn forget_end(&mut self, place: u32) {
        if !self.ends.is_empty()
            && let Some(end) = self.end_of.remove(&place)
        {
            self.ends.remove(&(end, place));
        }
    }

    /// Returns the time after which [`Entries::pop_due`] has work; `None` if it will have none.
    #[inline]
    pub fn next(&self) -> Option<BootTime> {
        if self.overdue != NONE {
            return Some(end_before(self.from));
        }
        let near = (self.first_near != u64::MAX).then(|| end_before(self.first_near + 1));
        // A stretch has to move to the ring when the one before it begins.
        let far = self.first_far_stretch().map(|far| end_before(far.saturating_sub(1) << STRETCH_BITS));
        near.into_iter().chain(far).min()
    }

    /// Removes the entry that has been due longest, or one of the same tick, from its list. If entries are overdue, every
    /// other one is taken from the ring, so that many ends of one lock do not keep others waiting. The entry keeps its
    /// place until it is removed, or moved to another time. `None` if none is due. Also `None` if many must first move from
    /// the overflow lists to the ring: then [`Entries::next`] is still in the past.
    pub fn pop_due(&mut self, now: BootTime) -> Option<(u32, Name)> {
        self.looked = tick_of(now);
        self.is_now(now);
        self.bring_near();
        if self.from > tick_of(now) {
            return None;
        }
        let near = (self.first_near < tick_of(now)).then(|| self.near.get(self.first_near));
        self.is_rings_turn = !self.is_rings_turn;
        let place = match (self.overdue, near) {
            (NONE, near) => near?,
            (_, Some(near)) if self.is_rings_turn => near,
            (overdue, _) => overdue,
        };
        self.unlink(place);
        let entry = self.entries.get_mut(place)?;
        entry.before = CAME_DUE;
        let name = Name::from_slice(name_of(entry, &self.long_names));
        Some((place, name))
    }

    /// Returns the time at which the last lock of this database ends; `None` if it has no lock.
    pub fn last(&self) -> Option<BootTime> {
        let of_list = |first| self.list(first).map(|place| self.entry(place).due).max();
        let near = self.near.last_from(self.from).map(|tick| self.near.get(tick)).and_then(of_list);
        let far = self.far.last_key_value().and_then(|(_, first)| of_list(*first));
        let joint = self.ends.last().map(|(end, _)| *end);
        // If neither the ring nor an overflow list has entries, only those are left that are overdue, or came due.
        let rest = || self.entries.iter().map(|(_, entry)| entry.due).max();
        let alone = near.max(far).or_else(rest);
        alone.max(joint)
    }

    /// Iterates over the name of every lock, with the time at which it ends.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], BootTime)> {
        self.entries.iter().map(|(place, entry)| {
            (name_of(entry, &self.long_names), self.end_of.get(&place).copied().unwrap_or(entry.due))
        })
    }

    /// Notes that the present time is `now` or later, so that the ring needs no room for past ticks.
    #[inline]
    fn is_now(&mut self, now: BootTime) {
        self.from = tick_of(now).min(self.first_near).max(self.from);
    }

    /// Returns the first stretch of time ([`STRETCH_BITS`]) that has entries in overflow lists.
    fn first_far_stretch(&self) -> Option<u64> {
        (self.first_far != u64::MAX).then_some(self.first_far >> (STRETCH_BITS - FAR_BITS))
    }

    /// Moves up to [`NEARED_A_STEP`] entries from the overflow lists to the ring, if they are due in the present
    /// stretch of 67 s or in the next ([`STRETCH_BITS`]).
    fn bring_near(&mut self) {
        for _ in 0..NEARED_A_STEP {
            if self.first_far_stretch().is_none_or(|far| far > (self.from >> STRETCH_BITS) + 1) {
                return;
            }
            let Some(first) = self.far.first_entry().map(|list| *list.get()) else { return };
            self.unlink(first);
            self.link_near(first, tick_of(self.entry(first).due));
        }
    }

    /// Adds an entry, which is in no list, to the list of its time.
    #[inline]
    fn link(&mut self, place: u32, due: BootTime) {
        let tick = tick_of(due);
        let stretch = tick >> STRETCH_BITS;
        // Entries of later stretches belong to overflow lists: in the ring they would come due too early.
        if stretch > (self.from >> STRETCH_BITS) + 1 {
            let list = tick >> FAR_BITS;
            let first = self.far.insert(list, place).unwrap_or(NONE);
            self.first_far = self.first_far.min(list);
            self.link_first(place, FIRST_FAR, first);
        } else {
            self.link_near(place, tick);
        }
    }

    #[inline]
    fn link_near(&mut self, place: u32, tick: u64) {
        if tick < self.from {
            self.link_overdue(place);
        } else {
            let first = self.near.set(tick, place);
            self.first_near = self.first_near.min(tick);
            self.link_first(place, FIRST, first);
        }
    }

    #[inline(never)]
    fn link_overdue(&mut self, place: u32) {
        let last = std::mem::replace(&mut self.last_overdue, place);
        let before = match self.entries.get_mut(last) {
            Some(entry) => {
                entry.after = place;
                last
            }
            None => {
                self.overdue = place;
                FIRST_OVERDUE
            }
        };
        if let Some(entry) = self.entries.get_mut(place) {
            (entry.before, entry.after) = (before, NONE);
        }
    }

    /// Makes the entry with the index `place` the first of a list, in front of `after`. `before` is the mark of that
    /// list's first entry.
    #[inline]
    fn link_first(&mut self, place: u32, before: u32, after: u32) {
        if let Some(entry) = self.entries.get_mut(place) {
            (entry.before, entry.after) = (before, after);
        }
        if let Some(entry) = self.entries.get_mut(after) {
            entry.before = place;
        }
    }

    /// Removes an entry from its list.
    #[inline]
    fn unlink(&mut self, place: u32) {
        let Some(&Entry { due, before, after, .. }) = self.entries.get(place) else { return };
        if place == self.last_overdue {
            self.last_overdue = if before == FIRST_OVERDUE { NONE } else { before };
        }
        match before {
            CAME_DUE => return,
            FIRST => self.set_first_near(tick_of(due), after),
            FIRST_OVERDUE => self.overdue = after,
            FIRST_FAR => self.set_first_far(tick_of(due) >> FAR_BITS, after),
            before => {
                if let Some(entry) = self.entries.get_mut(before) {
                    entry.after = after;
                }
            }
        }
        if let Some(entry) = self.entries.get_mut(after) {
            entry.before = before;
        }
    }

    /// Sets the first entry of a tick in the ring; [`NONE`] if the tick has no entry.
    #[inline]
    fn set_first_near(&mut self, tick: u64, first: u32) {
        if first != NONE {
            self.near.set(tick, first);
            return;
        }
        self.near.clear(tick);
        if tick == self.first_near {
            self.first_near = self.near.first_from(tick).unwrap_or(u64::MAX);
        }
    }

    fn set_first_far(&mut self, list: u64, first: u32) {
        if first != NONE {
            self.far.insert(list, first);
            return;
        }
        self.far.remove(&list);
        self.first_far = self.far.first_key_value().map_or(u64::MAX, |(list, _)| *list);
    }

    fn entry(&self, place: u32) -> &Entry {
        self.entries.get(place).expect("an entry of a list")
    }

    /// Iterates over the indexes of the entries of a list, from the index `first` on.
    fn list(&self, first: u32) -> impl Iterator<Item = u32> {
        let is_there = |place: &u32| *place != NONE;
        std::iter::successors(Some(first).filter(is_there), move |&place| {
            Some(self.entry(place).after).filter(is_there)
        })
    }
}

/// Returns the index in `long_names` of an entry's name that is too long for the entry.
fn long_place(entry: &Entry) -> u32 {
    let [a, b, c, d, ..] = entry.name;
    u32::from_le_bytes([a, b, c, d])
}

fn name_of<'a>(entry: &'a Entry, long_names: &'a Slab<Box<[u8]>>) -> &'a [u8] {
    match entry.name_bytes {
        LONG => long_names.get(long_place(entry)).map_or(&[], |name| &**name),
        bytes => &entry.name[..usize::from(bytes)],
    }
}
