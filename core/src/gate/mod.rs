//! Gates: keys in which a resource remembers the tokens that it let pass.

pub mod forgetting;

use palisade_quorum::floors::{Floors, Kind};

use crate::refusal::{GateRefusal, Refusal};
use crate::values::limits::GATE_KEEP_MAX_MS;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A gate's end is set later than KEEP asks for: by KEEP divided by this. So the end, which has to be replicated, moves
/// only a few times in the length of a KEEP, and not with every token that passes.
const SPARE_PART: u64 = 8;

/// The latest end that a gate may have, in microseconds from now.
pub(crate) const KEEP_MAX_US: u64 = (GATE_KEEP_MAX_MS + GATE_KEEP_MAX_MS / SPARE_PART) * 1_000;

/// A gate: the content of a key of the type `redisgate`.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    seen: Floors,
    /// The time after which the gate is forgotten: [`BootTime::MAX`] for a gate that stays, zero for one that no token
    /// has passed yet.
    end: BootTime,
    /// The time of the gate's entry in [`forgetting::Forgetting`]; zero if it has none.
    listed: BootTime,
}

/// Gates are equal if they decide equally: their entries for forgetting are not compared.
impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        (&self.seen, self.end) == (&other.seen, other.end)
    }
}

impl Gate {
    /// Creates a gate that remembers `seen`, which is not empty, until `end`.
    pub(crate) fn new(seen: Floors, end: BootTime) -> Self {
        Self { seen, end, listed: BootTime::default() }
    }

    /// Returns what the gate remembers of the tokens that have passed.
    pub fn seen(&self) -> &Floors {
        &self.seen
    }

    /// Returns the time after which the gate is forgotten, or `None` if it stays.
    pub fn end(&self) -> Option<BootTime> {
        Some(self.end).filter(|end| *end != BootTime::MAX)
    }

    /// Returns whether the gate's end has passed at `now`, so that the gate counts as deleted.
    pub fn is_over(&self, now: BootTime) -> bool {
        now > self.end
    }

    /// Returns whether a grant of this kind with `token` would pass and take memory: the gate remembers each permit
    /// number.
    pub fn grows_with(&self, kind: Kind, token: Token) -> bool {
        matches!(kind, Kind::Permit(_)) && self.seen.largest(kind) == 0 && token.get() >= self.seen.floor_of(kind)
    }

    /// Lets a grant of this kind with `token` pass, unless a later grant that excludes it has passed. The gate then
    /// lasts for `keep_ms` from `now` at least; without `keep_ms`, until it is deleted. Its end never comes nearer.
    /// Returns whether the gate has changed.
    pub fn pass(&mut self, kind: Kind, token: Token, keep_ms: Option<u64>, now: BootTime) -> Result<bool, Refusal> {
        if self.is_over(now) {
            (self.seen, self.end) = (Floors::default(), BootTime::default());
        }
        let is_raised = self.seen.pass(kind, token.get());
        let is_raised = is_raised.map_err(|largest| Refusal::Gate(GateRefusal::Fenced { largest }))?;
        let before = self.end;
        let (least, end) = match keep_ms {
            None => (BootTime::MAX, BootTime::MAX),
            Some(ms) => (now.plus_us(ms * 1_000), now.plus_us((ms + ms / SPARE_PART) * 1_000)),
        };
        if self.end < least {
            self.end = end;
        }
        Ok(is_raised || self.end != before)
    }

    /// Returns about how much memory the gate's entry in [`forgetting::Forgetting`] takes, in bytes, if the key's name
    /// has `name_bytes` bytes.
    pub fn entry_bytes(&self, name_bytes: usize) -> usize {
        const ENTRY_BYTES: usize = 40;
        if self.listed == BootTime::default() { 0 } else { ENTRY_BYTES + name_bytes }
    }

    /// Takes over the tokens and the end of `other`, another record of this gate, where they are larger.
    pub(crate) fn join(&mut self, other: &Gate) {
        other.seen.iter().for_each(|(kind, token)| _ = self.seen.add(kind, token));
        self.end = self.end.max(other.end);
    }

    /// Replaces this gate in memory by `next`, a later state of the same key. This gate's entry in
    /// [`forgetting::Forgetting`] becomes that of `next`. Returns the old gate.
    pub fn replace(&mut self, next: Gate) -> Gate {
        let listed = self.listed;
        std::mem::replace(self, Gate { listed, ..next })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{ms, token};

    fn pass(gate: &mut Gate, number: u64, keep_ms: Option<u64>, at_ms: u64) -> Result<bool, Refusal> {
        gate.pass(Kind::Exclusive, token(number), keep_ms, ms(at_ms))
    }

    fn fenced(largest: u64) -> Result<bool, Refusal> {
        Err(Refusal::Gate(GateRefusal::Fenced { largest }))
    }

    #[test]
    fn an_older_token_is_refused_until_the_gate_is_forgotten() {
        let mut gate = Gate::default();
        assert_eq!(pass(&mut gate, 7, Some(1_000), 10), Ok(true));
        assert_eq!(pass(&mut gate, 7, Some(1_000), 10), Ok(false), "there is nothing to replicate");
        assert_eq!(pass(&mut gate, 6, Some(9_000), 11), fenced(7));
        assert_eq!(gate.end(), Some(ms(1_135)), "a refusal changes nothing");
        assert_eq!(pass(&mut gate, 7, Some(1_000), 135), Ok(false), "the end is far enough away");
        assert_eq!(pass(&mut gate, 7, Some(1_000), 136), Ok(true));
        assert_eq!(gate.end(), Some(ms(1_261)));
        assert_eq!(pass(&mut gate, 6, None, 1_261), fenced(7), "it lasts through its end");
        assert_eq!(pass(&mut gate, 6, Some(1), 1_262), Ok(true));
        assert_eq!(pass(&mut gate, 6, None, 1_262), Ok(true));
        assert_eq!((pass(&mut gate, 6, Some(1), 1_262), gate.end()), (Ok(false), None), "it stays");
    }

    #[test]
    fn a_gate_is_small() {
        assert!(size_of::<Gate>() <= 48, "{}", size_of::<Gate>());
    }

    proptest! {
        /// After any passings with any KEEPs, the gate refuses an exclusive token smaller than the largest until the
        /// latest KEEP ends, and still at that moment.
        #[test]
        fn the_end_never_comes_nearer(
            calls in prop::collection::vec((1..9_u64, prop::option::of(1..50_u64), 0..40_u64), 1..40),
        ) {
            let (mut gate, mut now, mut largest, mut least_end) = (Gate::default(), 1, 0, 0);
            for (number, keep_ms, later_ms) in calls {
                now += later_ms;
                let passed = pass(&mut gate, number, keep_ms, now);
                let end = gate.end().map_or(u64::MAX, |end| end.as_us() / 1_000);
                if now <= least_end && number < largest {
                    prop_assert_eq!(passed, fenced(largest));
                    continue;
                }
                if passed.is_ok() {
                    let is_known = now <= least_end;
                    least_end = if is_known { least_end } else { 0 }.max(keep_ms.map_or(u64::MAX, |ms| now + ms));
                    largest = if is_known { largest.max(number) } else { number };
                    prop_assert!(end >= least_end);
                    prop_assert!(keep_ms.is_none_or(|_| end == u64::MAX || end <= now + 50 + 50 / SPARE_PART));
                }
            }
        }
    }
}
