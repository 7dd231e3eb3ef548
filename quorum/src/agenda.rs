//! An event queue in virtual time for simulated worlds and the fuzzer. All randomness comes from one source, so a seed
//! repeats a run.

use std::collections::BTreeMap;

/// The events to come and their times, for a simulated world with its own time and randomness.
///
/// Events are ordered by time, then by the order in which they were scheduled.
pub struct Agenda<E, C = SplitMix> {
    /// The simulation's time, in microseconds. Simulated machines have clocks of their own ([`Clock`]).
    pub now: u64,
    chance: C,
    numbers: u64,
    events: BTreeMap<(u64, u64), E>,
}

/// The clock of a simulated machine: it drifts slightly, and starts at an arbitrary value.
#[derive(Clone, Copy)]
pub struct Clock {
    ahead: u64,
    per_million: u64,
}

impl Clock {
    /// Returns what the clock shows when the simulation's time is `time`.
    pub fn at(self, time: u64) -> u64 {
        self.ahead + time / 1_000_000 * self.per_million + time % 1_000_000 * self.per_million / 1_000_000
    }
}

/// A SplitMix64 generator of random numbers; the field is its seed.
pub struct SplitMix(pub u64);

impl Iterator for SplitMix {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Some(mix(self.0))
    }
}

/// Returns a number in which each bit depends on all bits of `state`: the finaliser of SplitMix64.
pub fn mix(state: u64) -> u64 {
    let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl<E> Agenda<E> {
    /// Creates an agenda at time zero, with randomness from a seed.
    pub fn new(seed: u64) -> Self {
        Self::drawn_from(SplitMix(seed), 0)
    }
}

impl<E, C: Iterator<Item = u64>> Agenda<E, C> {
    /// Creates an agenda at the time `now`. Its randomness comes from `chance`, which must never end.
    pub fn drawn_from(chance: C, now: u64) -> Self {
        Self { now, chance, numbers: 0, events: BTreeMap::new() }
    }

    /// Schedules `event` for the time `time`.
    pub fn at(&mut self, time: u64, event: E) {
        let number = self.number();
        self.events.insert((time, number), event);
    }

    /// Schedules `event` in `us` microseconds.
    pub fn after(&mut self, us: u64, event: E) {
        self.at(self.now + us, event);
    }

    /// Returns the next event before `end`, and moves the time to it. `None` if there is no event before `end`; the
    /// next event is then dropped.
    pub fn next(&mut self, end: u64) -> Option<E> {
        let ((at, _), event) = self.events.pop_first().filter(|((at, _), _)| *at < end)?;
        self.now = at;
        Some(event)
    }

    /// Returns a number that was never returned before.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Draws a random number of 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.chance.next().unwrap_or_default()
    }

    /// Draws a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// Returns true once in `times` draws on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Creates a clock. The rates of any two clocks that this creates differ by less than `apart` in a million.
    pub fn clock(&mut self, apart: u64) -> Clock {
        let per_million = 1_000_000 - apart / 2 + self.below(apart);
        Clock { ahead: 1_000_000 + self.below(1_000_000_000), per_million }
    }

    /// Draws the travel time of a message in microseconds. `None` if the message is lost; some messages are up to
    /// `late_us` late.
    pub fn draw_delay(&mut self, late_us: u64) -> Option<u64> {
        match self.below(100) {
            0..3 => None,
            3..8 => Some(self.below(late_us)),
            _ => Some(100 + self.below(5_000)),
        }
    }
}
