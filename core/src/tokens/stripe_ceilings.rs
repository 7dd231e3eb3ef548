//! Ceilings of single stripes of tokens, above that of the node.
//!
//! A token may be far ahead of the node's clock: a quorum client raised it to that of a node whose clock is wrong, or a
//! hostile client to any value. If the node's own ceiling were raised for such a token, every other key would start
//! above it in the next incarnation. So the stripe of its key gets a ceiling of its own, which is kept on the disk
//! beside the node's.

use std::collections::BTreeMap;

use crate::values::limits::{STRIPE_CEILING_UNUSED_MS, TOKEN_STRIPES};
use crate::values::time::BootTime;

/// The ceiling of one stripe (group of keys), if it is above the node's ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeCeiling {
    /// The number of the stripe.
    pub stripe: u32,
    /// The highest token that may have been issued in this stripe.
    pub ceiling: u64,
}

/// Formats stripes and their ceilings as text: `17:1826770601882918 18:…`; empty if there are none.
pub fn stripes_to_text(ceilings: &[StripeCeiling]) -> String {
    let words: Vec<_> =
        ceilings.iter().map(|StripeCeiling { stripe, ceiling }| format!("{stripe}:{ceiling}")).collect();
    words.join(" ")
}

/// Parses the text of [`stripes_to_text`].
pub fn stripes_from_text(text: &str) -> Option<Vec<StripeCeiling>> {
    let stripe = |word: &str| {
        let (stripe, ceiling) = word.split_once(':')?;
        let (stripe, ceiling) = (stripe.parse().ok()?, ceiling.parse().ok()?);
        ((stripe as usize) < TOKEN_STRIPES).then_some(StripeCeiling { stripe, ceiling })
    };
    if text.is_empty() { Some(vec![]) } else { text.split(' ').map(stripe).collect() }
}

/// The ceiling of one stripe (group of keys), above the node's ceiling.
#[derive(Clone, Copy, Debug, Default)]
struct Above {
    /// The ceiling that this stripe needs: it should be on the disk.
    wanted: u64,
    /// The ceiling that is on the disk.
    durable: u64,
    /// The number of the change that set `wanted`: when it is on the disk, `wanted` becomes `durable`.
    change: u64,
    /// The time at which `wanted` was set.
    since: BootTime,
}

/// The stripes (groups of keys) that have a ceiling of their own, above the node's.
#[derive(Clone, Debug)]
pub(crate) struct StripeCeilings {
    above: BTreeMap<u32, Above>,
    max: usize,
    changes: u64,
}

impl StripeCeilings {
    /// Creates an empty set, with room for the ceilings of `max` stripes.
    pub(crate) fn new(max: usize) -> Self {
        Self { above: BTreeMap::new(), max, changes: 0 }
    }

    /// Returns the ceiling of `stripe` that is on the disk; 0 if it has none of its own.
    pub(crate) fn of(&self, stripe: u32) -> u64 {
        self.above.get(&stripe).map_or(0, |above| above.durable)
    }

    /// Requests `ceiling` for `stripe`; it counts once it is on the disk. Returns false if there is no room for another
    /// stripe.
    pub(crate) fn want(&mut self, stripe: u32, ceiling: u64, now: BootTime) -> bool {
        let has_room = !self.is_full() || self.above.contains_key(&stripe);
        if has_room {
            self.raise(stripe, ceiling, now);
        }
        has_room
    }

    /// Requests `ceiling` for `stripe`, whether there is room or not: another node may have issued tokens up to there.
    pub(crate) fn take(&mut self, stripe: u32, ceiling: u64) {
        self.raise(stripe, ceiling, BootTime::default());
    }

    fn raise(&mut self, stripe: u32, ceiling: u64, now: BootTime) {
        let above = self.above.entry(stripe).or_default();
        if ceiling > above.wanted {
            self.changes += 1;
            *above = Above { wanted: ceiling, change: self.changes, since: now, ..*above };
        }
    }

    /// Returns whether no further stripe of clients can have a ceiling of its own.
    pub(crate) fn is_full(&self) -> bool {
        self.above.len() >= self.max
    }

    /// Restores the ceilings that an earlier incarnation left on the disk.
    pub(crate) fn restore(&mut self, ceilings: &[StripeCeiling]) {
        for &StripeCeiling { stripe, ceiling } in ceilings {
            let above = Above { wanted: ceiling, durable: ceiling, change: 0, since: BootTime::default() };
            self.above.insert(stripe, above);
        }
    }

    /// Returns the ceilings to write to the disk, in the order of stripes, and the number of their last change.
    pub(crate) fn wanted(&self) -> (Vec<StripeCeiling>, u64) {
        let ceilings = self.above.iter().map(|(&stripe, above)| StripeCeiling { stripe, ceiling: above.wanted });
        (ceilings.collect(), self.changes)
    }

    /// Returns the number of the last change in these ceilings.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes that the ceilings are on the disk as they were after the change with the number `change`.
    pub(crate) fn saved(&mut self, change: u64) {
        for above in self.above.values_mut().filter(|above| above.change <= change) {
            above.durable = above.wanted;
        }
    }

    /// Returns the largest of these ceilings that is not above `reach`.
    pub(crate) fn largest_up_to(&self, reach: u64) -> u64 {
        self.above.values().map(|above| above.wanted).filter(|&wanted| wanted <= reach).max().unwrap_or(0)
    }

    /// Removes ceilings that are no longer needed: those that the node's own ceiling has passed, and those of a refused
    /// request that was not repeated in time. `last` returns the highest token of a stripe.
    pub(crate) fn sweep(&mut self, node_ceiling: u64, last: impl Fn(u32) -> u64, now: BootTime) {
        self.above.retain(|&stripe, above| {
            let unused = last(stripe) <= node_ceiling && now.ms_since(above.since) >= STRIPE_CEILING_UNUSED_MS;
            above.wanted > node_ceiling && !unused
        });
    }
}
