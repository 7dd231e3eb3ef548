//! The hash slots of a cluster: the slot of a key, and sets of slots.

use std::ops::RangeInclusive;

use crc::{CRC_16_XMODEM, Crc, Table};

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
    /// The number of numbers that a set takes.
    pub const WORDS: usize = WORDS;

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

    /// Returns the set whose slots have these bits, 64 in a number. `None` if there are not [`WORDS`](Self::WORDS)
    /// numbers.
    pub fn from_bits(bits: &[u64]) -> Option<Self> {
        Some(Self(Box::new(bits.try_into().ok()?)))
    }

    /// Returns the bits of the slots, 64 in a number.
    pub fn bits(&self) -> &[u64] {
        &self.0[..]
    }

    /// Returns whether `slot` is in the set.
    pub fn contains(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot / 64)).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    /// Iterates over the slots of the set.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let words = (0..CLUSTER_SLOTS / 64).zip(&self.0[..]).filter(|(_, word)| **word != 0);
        words.flat_map(|(n, word)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| n * 64 + bit))
    }

    /// Adds `slot` (true) or removes it.
    pub(crate) fn set(&mut self, slot: u16, is_in: bool) {
        let (word, bit) = (&mut self.0[usize::from(slot / 64)], 1 << (slot % 64));
        *word = if is_in { *word | bit } else { *word & !bit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(slots: RangeInclusive<u16>) -> SlotSet {
        let mut set = SlotSet::default();
        set.insert(slots);
        set
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
}
