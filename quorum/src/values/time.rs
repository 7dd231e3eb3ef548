//! Points in time and lengths of time, as the rules receive them. No rule reads a clock.

use crate::values::limits::TOKEN_HINT_MAX;

/// The number of microseconds in a millisecond.
const US_PER_MS: u64 = 1_000;

/// The number of microseconds in a second.
const US_PER_SECOND: u64 = 1_000_000;

/// A point on the boot clock (Linux: `CLOCK_BOOTTIME`), in microseconds since the machine booted. It runs at a
/// steady rate, also while the machine sleeps, and nobody can set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(u64);

impl BootTime {
    /// A point later than any event, for something that never ends.
    pub const MAX: BootTime = BootTime(u64::MAX);

    /// Creates a point `us` microseconds after boot.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// Returns the microseconds since boot.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Returns this point plus `ms` milliseconds.
    pub const fn plus_ms(self, ms: u32) -> Self {
        self.plus_us(ms as u64 * US_PER_MS)
    }

    /// Returns this point plus `us` microseconds.
    pub const fn plus_us(self, us: u64) -> Self {
        Self(self.0.saturating_add(us))
    }

    /// Returns the first whole second from this point on.
    pub const fn whole_second(self) -> Self {
        Self(self.0.div_ceil(US_PER_SECOND).saturating_mul(US_PER_SECOND))
    }

    /// Returns the point `ms` milliseconds earlier, or the moment of boot if that is later.
    pub const fn minus_ms(self, ms: u32) -> Self {
        Self(self.0.saturating_sub(ms as u64 * US_PER_MS))
    }

    /// Returns the microseconds from `earlier` to this point; 0 if `earlier` is not earlier.
    pub const fn us_since(self, earlier: BootTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the whole milliseconds from `earlier` to this point; 0 if `earlier` is not earlier.
    pub const fn ms_since(self, earlier: BootTime) -> u64 {
        self.us_since(earlier) / US_PER_MS
    }

    /// Returns the milliseconds from `earlier` to this point, rounded up, for a wait that must not be too short.
    pub const fn ms_since_rounded_up(self, earlier: BootTime) -> u64 {
        self.us_since(earlier).div_ceil(US_PER_MS)
    }
}

/// The identity of one boot of one machine: times on the boot clock can be compared only within one boot. If the system
/// does not provide it, it is random, so that no two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

/// Returns the latest time that another machine's clock may show when this one's shows `wall_us`. Clocks differ by up
/// to `skew_ms`.
pub const fn ahead_us(wall_us: u64, skew_ms: u32) -> u64 {
    wall_us + skew_ms as u64 * US_PER_MS
}

/// The readings of a machine's two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The boot clock, by which all decisions about leases are made.
    pub boot: BootTime,
    /// The wall clock in microseconds since 1970, at most [`TOKEN_HINT_MAX`]. It is only used to choose tokens.
    pub wall_us: u64,
}

impl Now {
    /// Creates the moment at which the clocks showed `boot` and `wall_us`.
    pub fn new(boot: BootTime, wall_us: u64) -> Self {
        Self { boot, wall_us: wall_us.min(TOKEN_HINT_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_saturate_and_round_the_safe_way() {
        let later = BootTime::from_us(2_999);
        let earlier = BootTime::from_us(1_000);
        assert_eq!(later.ms_since(earlier), 1);
        assert_eq!(later.ms_since_rounded_up(earlier), 2);
        assert_eq!(earlier.ms_since(later), 0);
        assert_eq!(earlier.ms_since_rounded_up(later), 0);
        assert_eq!([0, 1, 1_000_000].map(|us| BootTime::from_us(us).whole_second().as_us()), [0, 1_000_000, 1_000_000]);
        assert_eq!(BootTime::from_us(u64::MAX).plus_ms(1), BootTime::from_us(u64::MAX));
    }

    #[test]
    fn a_mad_wall_clock_is_only_a_hint() {
        assert_eq!(Now::new(BootTime::default(), u64::MAX).wall_us, TOKEN_HINT_MAX);
    }
}
