//! Ceilings of single stripes of tokens, above that of the node.
//!
//! A token that is far ahead of the node's clock (a quorum client raised it to that of a node whose clock is wrong, or a
//! hostile client to whatever it liked) must not take all other keys along: if the node's own ceiling were raised for it,
//! every key would start above it in the next incarnation. So its stripe gets a ceiling of its own, which is kept on the disk beside
//! the node's.

use std::collections::BTreeMap;

use crate::values::limits::{STRIPE_CEILING_UNUSED_MS, TOKEN_STRIPES};
use crate::values::time::BootTime;

/// Up to where tokens of one stripe may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeCeiling {
    /// Which stripe.
    pub stripe: u32,
    /// No token of it is above.
    pub ceiling: u64,
}

/// Ceilings as a text: `17:1826770601882918 18:…`; empty if there are none.
pub fn stripes_to_text(ceilings: &[StripeCeiling]) -> String {
    let words: Vec<_> =
        ceilings.iter().map(|StripeCeiling { stripe, ceiling }| format!("{stripe}:{ceiling}")).collect();
    words.join(" ")
}

/// The ceilings that such a text tells of.
pub fn stripes_from_text(text: &str) -> Option<Vec<StripeCeiling>> {
    let stripe = |word: &str| {
        let (stripe, ceiling) = word.split_once(':')?;
        let (stripe, ceiling) = (stripe.parse().ok()?, ceiling.parse().ok()?);
        ((stripe as usize) < TOKEN_STRIPES).then_some(StripeCeiling { stripe, ceiling })
    };
    if text.is_empty() { Some(vec![]) } else { text.split(' ').map(stripe).collect() }
}

/// What a stripe was given.
#[derive(Clone, Copy, Debug)]
struct Above {
    /// What is to be on the disk.
    wanted: u64,
    /// What is.
    durable: u64,
    /// The change with which `wanted` came.
    change: u64,
    /// When.
    since: BootTime,
}

/// The stripes with ceilings of their own.
#[derive(Clone, Debug)]
pub(crate) struct StripeCeilings {
    above: BTreeMap<u32, Above>,
    max: usize,
    changes: u64,
}

impl StripeCeilings {
    /// None yet, and at most `max`.
    pub(crate) fn new(max: usize) -> Self {
        Self { above: BTreeMap::new(), max, changes: 0 }
    }

    /// The ceiling of `stripe` that is on the disk; 0: it has none of its own.
    pub(crate) fn of(&self, stripe: u32) -> u64 {
        self.above.get(&stripe).map_or(0, |above| above.durable)
    }

    /// `stripe` needs this ceiling; whether there is room for it.
    pub(crate) fn want(&mut self, stripe: u32, ceiling: u64, now: BootTime) -> bool {
        if let Some(above) = self.above.get_mut(&stripe) {
            if ceiling > above.wanted {
                self.changes += 1;
                *above = Above { wanted: ceiling, change: self.changes, since: now, ..*above };
            }
            return true;
        }
        if self.is_full() {
            return false;
        }
        self.changes += 1;
        self.above.insert(stripe, Above { wanted: ceiling, durable: 0, change: self.changes, since: now });
        true
    }

    /// No other stripe can have one.
    pub(crate) fn is_full(&self) -> bool {
        self.above.len() >= self.max
    }

    /// An earlier incarnation left these on the disk.
    pub(crate) fn restore(&mut self, ceilings: &[StripeCeiling]) {
        for &StripeCeiling { stripe, ceiling } in ceilings {
            let above = Above { wanted: ceiling, durable: ceiling, change: 0, since: BootTime::default() };
            self.above.insert(stripe, above);
        }
    }

    /// What is to be on the disk, in the order of stripes, and the number of the last change in it.
    pub(crate) fn wanted(&self) -> (Vec<StripeCeiling>, u64) {
        let ceilings = self.above.iter().map(|(&stripe, above)| StripeCeiling { stripe, ceiling: above.wanted });
        (ceilings.collect(), self.changes)
    }

    /// The number of the last change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// What there was with this change is on the disk.
    pub(crate) fn saved(&mut self, change: u64) {
        for above in self.above.values_mut().filter(|above| above.change <= change) {
            above.durable = above.wanted;
        }
    }

    /// The largest of them that is no larger than `reach`.
    pub(crate) fn largest_up_to(&self, reach: u64) -> u64 {
        self.above.values().map(|above| above.wanted).filter(|&wanted| wanted <= reach).max().unwrap_or(0)
    }

    /// Drops those that are needed no longer: the node's own ceiling has passed them, or what asked for them was refused and
    /// did not come again. `last` tells the highest token of a stripe.
    pub(crate) fn sweep(&mut self, node_ceiling: u64, last: impl Fn(u32) -> u64, now: BootTime) {
        self.above.retain(|&stripe, above| {
            let unused = last(stripe) <= node_ceiling && now.ms_since(above.since) >= STRIPE_CEILING_UNUSED_MS;
            above.wanted > node_ceiling && !unused
        });
    }
}
