//! What happens when in a world of callers. Every chance comes from the input, and once that is used up from a generator that it seeds: the
//! same bytes always tell the same story, and every story has an end.

use std::collections::BTreeMap;

/// Events to come, in the order of their times, then in that in which they were planned.
pub struct Agenda<'a, E> {
    /// True time, in microseconds.
    pub now: u64,
    input: &'a [u8],
    random: u64,
    numbers: u64,
    events: BTreeMap<(u64, u64), E>,
}

impl<'a, E> Agenda<'a, E> {
    pub fn new(input: &'a [u8]) -> Self {
        let seed = input
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Self { now: 1_000_000_000, input, random: seed, numbers: 0, events: BTreeMap::new() }
    }

    /// `event` happens so much later.
    pub fn after(&mut self, us: u64, event: E) {
        let number = self.number();
        self.events.insert((self.now + us, number), event);
    }

    /// Returns the next event, at its time, if that is before `end`.
    pub fn next(&mut self, end: u64) -> Option<E> {
        let ((at, _), event) = self.events.pop_first().filter(|((at, _), _)| *at < end)?;
        self.now = at;
        Some(event)
    }

    /// A number that nothing else has.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A byte of the input, mixed; without input SplitMix64.
    pub fn draw(&mut self) -> u64 {
        let state = match self.input.split_first() {
            Some((byte, rest)) => {
                self.input = rest;
                u64::from(*byte)
            }
            None => {
                self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
                self.random
            }
        };
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
