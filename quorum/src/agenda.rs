//! When what happens in the worlds of tests and of the fuzzer. All of it comes from one source of chance: the same source tells the same story.

use std::collections::BTreeMap;

/// Events to come, in the order of their times, then in that in which they were planned.
pub struct Agenda<E, C = SplitMix> {
    /// True time, in microseconds.
    pub now: u64,
    chance: C,
    numbers: u64,
    events: BTreeMap<(u64, u64), E>,
}

/// A clock that runs a little fast or slow, from where it likes.
#[derive(Clone, Copy)]
pub struct Clock {
    ahead: u64,
    per_million: u64,
}

impl Clock {
    /// Returns what it shows at this true time.
    pub fn at(self, time: u64) -> u64 {
        self.ahead + time / 1_000_000 * self.per_million + time % 1_000_000 * self.per_million / 1_000_000
    }
}

/// Numbers by SplitMix64, from a seed.
pub struct SplitMix(pub u64);

impl Iterator for SplitMix {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Some(mix(self.0))
    }
}

/// Returns a number in which each bit depends on all bits of `state`: how SplitMix64 ends.
pub fn mix(state: u64) -> u64 {
    let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl<E> Agenda<E> {
    /// Begins at time zero, with chances from a seed.
    pub fn new(seed: u64) -> Self {
        Self::drawn_from(SplitMix(seed), 0)
    }
}

impl<E, C: Iterator<Item = u64>> Agenda<E, C> {
    /// Begins at `now`, with chances from this endless source.
    pub fn drawn_from(chance: C, now: u64) -> Self {
        Self { now, chance, numbers: 0, events: BTreeMap::new() }
    }

    /// Plans `event` for `time`.
    pub fn at(&mut self, time: u64, event: E) {
        let number = self.number();
        self.events.insert((time, number), event);
    }

    /// Plans `event` for as many microseconds from now.
    pub fn after(&mut self, us: u64, event: E) {
        self.at(self.now + us, event);
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

    /// Draws any number.
    pub fn draw(&mut self) -> u64 {
        self.chance.next().unwrap_or_default()
    }

    /// Draws a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// Returns true one in as many times, on the average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A clock whose rate differs from that of another one by less than `apart` in a million.
    pub fn clock(&mut self, apart: u64) -> Clock {
        let per_million = 1_000_000 - apart / 2 + self.below(apart);
        Clock { ahead: 1_000_000 + self.below(1_000_000_000), per_million }
    }

    /// The time that a message takes: some get lost, some come up to `late_us` late.
    pub fn takes(&mut self, late_us: u64) -> Option<u64> {
        match self.below(100) {
            0..3 => None,
            3..8 => Some(self.below(late_us)),
            _ => Some(100 + self.below(5_000)),
        }
    }
}
