//! The wall clock as a hint for tokens, which does not accept every jump at once.
//!
//! Tokens never fall. A wall clock may show a far future for a moment: a wrong date that somebody corrects, a virtual
//! machine that wakes up, a broken clock chip. If the node followed it, its tokens would be there for good, far above
//! those of all other nodes. So passing time and small steps are accepted at once, but a jump ahead only after the
//! clock has stayed there for a while.

use crate::values::limits::{CLOCK_JUMP_US, CLOCK_SETTLES_MS, NODE_DOWN_US};
use crate::values::time::BootTime;

/// The wall clock as the node accepts it: without a jump that may be a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The lead of the accepted wall clock over the boot clock, in microseconds.
    ahead_us: u64,
    /// For a jump that is not accepted yet: how far the wall clock is ahead of the boot clock, and when that was first
    /// seen.
    jumped: Option<(u64, BootTime)>,
}

impl WallClock {
    /// The clock as it is before it is first read.
    pub const UNKNOWN: Self = Self { ahead_us: 0, jumped: None };

    /// Creates the clock at the start of a node, when it shows `wall_us`. If the last incarnation's `ceiling` is known,
    /// its tokens were not larger. No node is down for years, so a clock that is years ahead of the ceiling has jumped.
    pub fn new(boot: BootTime, wall_us: u64, ceiling: Option<u64>) -> Self {
        let wall_ahead = wall_us.saturating_sub(boot.as_us());
        match ceiling {
            Some(ceiling) if wall_us > ceiling.saturating_add(NODE_DOWN_US) => {
                Self { ahead_us: ceiling.saturating_sub(boot.as_us()), jumped: Some((wall_ahead, boot)) }
            }
            _ => Self { ahead_us: wall_ahead, jumped: None },
        }
    }

    /// Handles a reading: the wall clock shows `wall_us` when the boot clock shows `boot`.
    pub fn update(&mut self, boot: BootTime, wall_us: u64) {
        let wall_ahead = wall_us.saturating_sub(boot.as_us());
        if wall_ahead <= self.ahead_us.saturating_add(CLOCK_JUMP_US) {
            *self = Self { ahead_us: wall_ahead, jumped: None };
            return;
        }
        match self.jumped {
            Some((to, since)) if wall_ahead.abs_diff(to) <= CLOCK_JUMP_US => {
                if boot.ms_since(since) >= CLOCK_SETTLES_MS {
                    *self = Self { ahead_us: wall_ahead, jumped: None };
                }
            }
            _ => self.jumped = Some((wall_ahead, boot)),
        }
    }

    /// Returns how far the accepted wall clock is ahead of the boot clock, in microseconds.
    pub fn ahead_us(&self) -> u64 {
        self.ahead_us
    }

    /// Returns how far a jump that is not accepted yet is ahead of the accepted time, in microseconds.
    pub fn jump_us(&self) -> Option<u64> {
        self.jumped.map(|(to, _)| to.saturating_sub(self.ahead_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: u64 = 86_400_000_000;
    const START_US: u64 = 20_000 * DAY_US;

    fn boot(ms: u64) -> BootTime {
        BootTime::from_us(ms * 1_000)
    }

    fn shown(clock: &WallClock, ms: u64) -> u64 {
        boot(ms).as_us() + clock.ahead_us() - START_US - ms * 1_000
    }

    fn started() -> WallClock {
        WallClock::new(boot(0), START_US, Some(START_US))
    }

    #[test]
    fn steps_are_followed_at_once_and_time_goes_on() {
        let mut clock = started();
        assert_eq!(shown(&clock, 5), 0);
        clock.update(boot(5), START_US + 5_000 + DAY_US);
        assert_eq!(shown(&clock, 6), DAY_US);
        clock.update(boot(7), START_US + 7_000);
        assert_eq!((shown(&clock, 7), clock.jump_us()), (0, None), "back, too");
        clock.update(boot(8), 5);
        assert_eq!(clock.ahead_us(), 0, "as far as it goes");
    }

    #[test]
    fn a_moment_in_a_far_future_is_not_followed_and_one_that_lasts_is() {
        let mut clock = started();
        let far = 10_000 * DAY_US;
        for ms in (0..CLOCK_SETTLES_MS).step_by(100) {
            clock.update(boot(ms), START_US + far + ms * 1_000);
            assert_eq!((shown(&clock, ms), clock.jump_us()), (0, Some(far)));
        }
        let mut corrected = clock;
        corrected.update(boot(CLOCK_SETTLES_MS), START_US + CLOCK_SETTLES_MS * 1_000);
        assert_eq!((shown(&corrected, CLOCK_SETTLES_MS), corrected.jump_us()), (0, None));
        // The clock jumps to yet another time, so the wait begins again.
        let mut elsewhere = clock;
        elsewhere.update(boot(CLOCK_SETTLES_MS), START_US + 2 * far);
        assert_eq!(elsewhere.jump_us(), Some(2 * far - CLOCK_SETTLES_MS * 1_000));
        clock.update(boot(CLOCK_SETTLES_MS), START_US + far + CLOCK_SETTLES_MS * 1_000);
        assert_eq!((shown(&clock, CLOCK_SETTLES_MS), clock.jump_us()), (far, None));
    }

    #[test]
    fn at_a_start_the_last_life_tells_what_is_a_jump() {
        let far = START_US + 20_000 * DAY_US;
        assert_eq!(WallClock::new(boot(0), far, None).ahead_us(), far, "a new node knows nothing better");
        let clock = WallClock::new(boot(0), far, Some(START_US));
        assert_eq!((shown(&clock, 0), clock.jump_us()), (0, Some(20_000 * DAY_US)));
        let clock = WallClock::new(boot(0), START_US + 100 * DAY_US, Some(START_US));
        assert_eq!((shown(&clock, 0), clock.jump_us()), (100 * DAY_US, None), "it was down for a while");
    }
}
