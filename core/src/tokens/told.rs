//! The bounds of tokens that this node has told to the nodes to which its slots move.
//!
//! Such a node grants the locks that are free here, with larger tokens. It relies on the last answer for a short time. So
//! until that time is over, this node grants nothing with a token above its answer in the slots that move, and raises no
//! token above it.

use std::collections::VecDeque;

use crate::refusal::Refusal;
use crate::tokens::stripe_ceilings::StripeCeiling;
use crate::values::time::BootTime;

/// The time within which answers count as one, in milliseconds. It bounds the number of answers that are kept.
const TOGETHER_MS: u32 = 10;

/// The bounds of a node's tokens: no key's token is larger than `highest`, except in single stripes (groups of keys).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenBounds {
    /// The bound for all keys.
    pub highest: u64,
    /// The bounds of the stripes that have one of their own, which may be larger.
    pub stripes: Vec<StripeCeiling>,
}

impl TokenBounds {
    /// Returns the bound that this stripe has of its own.
    pub(super) fn apart(&self, stripe: u32) -> Option<StripeCeiling> {
        self.stripes.iter().find(|apart| apart.stripe == stripe).copied()
    }

    /// Returns the bound of this stripe.
    pub(super) fn of(&self, stripe: u32) -> u64 {
        self.apart(stripe).map_or(0, |apart| apart.ceiling).max(self.highest)
    }

    /// Returns the largest of all bounds.
    pub(crate) fn largest(&self) -> u64 {
        self.stripes.iter().map(|apart| apart.ceiling).fold(self.highest, u64::max)
    }
}

/// One answer.
#[derive(Clone, Debug)]
struct Answer {
    since: BootTime,
    until: BootTime,
    bounds: TokenBounds,
}

/// The answers on which other nodes may still rely, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(VecDeque<Answer>);

impl Told {
    /// Notes that this node tells another one these bounds at `now`. That node relies on them until `until`.
    pub(super) fn tell(&mut self, bounds: &TokenBounds, now: BootTime, until: BootTime) {
        self.0.retain(|answer| now <= answer.until);
        match self.0.back_mut().filter(|last| now <= last.since.plus_ms(TOGETHER_MS)) {
            // The earlier bounds are not above the later ones, unless the wall clock was set back.
            Some(last) => {
                last.until = until;
                last.bounds.highest = last.bounds.highest.min(bounds.highest);
            }
            None => self.0.push_back(Answer { since: now, until, bounds: bounds.clone() }),
        }
    }

    /// Refuses to issue `token` in `stripe` at `now` while it is above an answer.
    pub(super) fn ensure(&self, stripe: u32, token: u64, now: BootTime) -> Result<(), Refusal> {
        let counts = self.0.iter().filter(|answer| now <= answer.until && answer.bounds.of(stripe) < token);
        match counts.map(|answer| answer.until).max() {
            Some(until) => Err(Refusal::SlotGuarded { left_ms: until.ms_since_rounded_up(now).max(1) }),
            None => Ok(()),
        }
    }
}
