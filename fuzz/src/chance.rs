//! Random choices, from an input and, after its end, from a generator that the input seeds. The same bytes always give
//! the same run, and every run ends.

use palisade_core::quorum::agenda::{SplitMix, mix};

/// The random choices that one input makes.
pub struct Chance<'a> {
    input: std::slice::Iter<'a, u8>,
    rest: SplitMix,
}

impl<'a> Chance<'a> {
    pub fn of(input: &'a [u8]) -> Self {
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self { input: input.iter(), rest: SplitMix(input.iter().fold(0xcbf2_9ce4_8422_2325, hash)) }
    }
}

impl Iterator for Chance<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.input.next().map(|byte| mix((*byte).into())).or_else(|| self.rest.next())
    }
}
