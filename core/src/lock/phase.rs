//! Lower bounds for the tokens of a joint lock's grants (readers, or holders of permits).
//!
//! An exclusive grant's token is larger than every earlier token of the key. A shared grant's is larger than those of
//! all earlier exclusive grants and permits. A permit's is larger than every earlier token of its number, and than
//! those of all earlier exclusive and shared grants. Tokens of readers need no order among themselves, nor do permits
//! of different numbers. A client's proposal that lies between their tokens is accepted as it is, so a quorum pays no
//! second round for it.

use std::collections::BTreeMap;

use crate::values::mode::Mode;
use crate::values::token::Token;

/// The tokens that a key had before, as far as the node knows them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// The highest token that the key, or another key of its stripe (group of keys), ever had.
    pub last: u64,
    /// The number of SWAPDBs that this node has seen. If that changed since a lock was stored, the lock may have come
    /// from another key.
    pub swaps: u32,
}

/// A phase: the time in which a lock is held without interruption, from when it was free until it is free again. Keeps
/// the highest tokens that matter to later grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Phase {
    /// The lower bound for all grants in the phase. It is the highest token that the key had before the phase began, or
    /// the highest of an exclusive grant in it. If the phase begins with a reader, the tokens of earlier readers do not
    /// count.
    floor: u64,
    /// The highest token of each permit number that had a grant in the phase. A client may name any number, so the
    /// numbers below it take no memory.
    numbers: BTreeMap<u16, u64>,
}

impl Phase {
    /// Begins a phase for a lock that was free. `last` is the highest token that its key ever had, or that a reader
    /// must exceed. If it is unknown when the lock was last free, a phase begins now: its lower bounds can only be
    /// higher than necessary.
    pub fn new(last: u64) -> Self {
        Self { floor: last, numbers: BTreeMap::new() }
    }

    /// Returns the token that a new grant of `mode` must exceed. `last` is the highest token that the key ever had.
    pub fn floor_of(&self, mode: Mode, last: u64) -> u64 {
        match mode {
            Mode::Exclusive => last,
            Mode::Shared => self.floor,
            Mode::Permit(permit) => self.floor.max(self.numbers.get(&permit.number()).copied().unwrap_or(0)),
        }
    }

    /// Notes that a grant of `mode` now has `token`: it was granted, or its token was raised. An exclusive grant's
    /// token counts for later readers once it is shared.
    pub fn on_grant(&mut self, mode: Mode, token: Token) {
        let highest = match mode {
            Mode::Exclusive => &mut self.floor,
            Mode::Shared => return,
            Mode::Permit(permit) => self.numbers.entry(permit.number()).or_default(),
        };
        *highest = token.get().max(*highest);
    }

    /// Returns about how much heap memory the phase takes, in bytes.
    pub fn heap_bytes(&self) -> usize {
        // The nodes of a tree are half full or more.
        self.numbers.len() * size_of::<(u16, u64)>() * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{permit, token};

    #[test]
    fn each_mode_is_above_what_it_must_be_ordered_after() {
        let permit = |number| permit(number, 5);
        let mut phase = Phase::new(10);
        let floors =
            |phase: &Phase| [Mode::Exclusive, Mode::Shared, permit(1), permit(2)].map(|mode| phase.floor_of(mode, 30));
        assert_eq!(floors(&phase), [30, 10, 10, 10]);
        phase.on_grant(Mode::Shared, token(20));
        assert_eq!(floors(&phase), [30, 10, 10, 10], "readers need no order");
        phase.on_grant(permit(2), token(25));
        phase.on_grant(permit(2), token(22));
        assert_eq!(floors(&phase), [30, 10, 10, 25]);
        phase.on_grant(Mode::Exclusive, token(28));
        assert_eq!(
            floors(&phase),
            [30, 28, 28, 28],
            "whoever reads beside a writer that became a reader comes after it"
        );
        phase.on_grant(crate::fixture::permit(u16::MAX, u16::MAX), token(29));
        assert!((1..200).contains(&phase.heap_bytes()), "a high number takes no memory for the lower ones");
    }
}
