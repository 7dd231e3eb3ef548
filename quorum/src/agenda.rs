//! What happens when in the worlds of this folder's tests, all of it drawn from a seed: the same seed tells the same story.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Events to come, in the order of their times, then in that in which they were planned.
pub struct Agenda<E> {
    /// True time, in microseconds.
    pub now: u64,
    random: u64,
    numbers: u64,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, E>,
}

/// A clock that runs a little fast or slow, from where it likes.
#[derive(Clone, Copy)]
pub struct Clock {
    ahead: u64,
    per_million: u64,
}

impl Clock {
    /// What it shows at this true time.
    pub fn at(self, time: u64) -> u64 {
        self.ahead + time / 1_000_000 * self.per_million + time % 1_000_000 * self.per_million / 1_000_000
    }
}

impl<E> Agenda<E> {
    pub fn new(seed: u64) -> Self {
        Self { now: 0, random: seed, numbers: 0, order: BinaryHeap::new(), events: BTreeMap::new() }
    }

    /// `event` happens at `time`.
    pub fn at(&mut self, time: u64, event: E) {
        let number = self.number();
        self.order.push(Reverse((time, number)));
        self.events.insert(number, event);
    }

    /// The next event, and it is its time, if that is before `end`.
    pub fn next(&mut self, end: u64) -> Option<E> {
        let Reverse((time, number)) = self.order.pop().filter(|Reverse((time, _))| *time < end)?;
        self.now = time;
        self.events.remove(&number)
    }

    /// A number that nothing else has.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// SplitMix64.
    pub fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A clock whose rate differs from that of another one by less than `apart` in a million.
    pub fn clock(&mut self, apart: u64) -> Clock {
        let per_million = 1_000_000 - apart / 2 + self.below(apart);
        Clock { ahead: 1_000_000 + self.below(1_000_000_000), per_million }
    }

    /// What a message takes: some get lost, some come up to `late_us` late.
    pub fn takes(&mut self, late_us: u64) -> Option<u64> {
        match self.below(100) {
            0..3 => None,
            3..8 => Some(self.below(late_us)),
            _ => Some(100 + self.below(5_000)),
        }
    }
}
