//! The longest lease that may still be owed: `lock.max-ttl`, or a larger one of an earlier life.

use crate::{BootTime, guard_ms};

/// How long leases of this node can be, counting those of earlier lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    ms: u32,
    /// Until then the larger value of an earlier life counts.
    until: BootTime,
    present_ms: u32,
}

impl Owed {
    /// The node grants up to `present_ms`; leases of up to `earlier_ms` may still run at `now`.
    pub fn new(earlier_ms: u32, present_ms: u32, skew_ms: u32, now: BootTime) -> Self {
        let ms = earlier_ms.max(present_ms);
        Self { ms, until: now.plus_ms(guard_ms(ms, skew_ms)), present_ms }
    }

    /// A lease of `ms` was seen (loaded, or heard of from a master): it may still be owed.
    pub fn raise(&mut self, ms: u32, skew_ms: u32, now: BootTime) {
        *self = Self::new(self.ms(now).max(ms), self.present_ms, skew_ms, now);
    }

    /// The longest lease that may be owed at `now`, in milliseconds.
    pub fn ms(&self, now: BootTime) -> u32 {
        if now <= self.until { self.ms } else { self.present_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_larger_value_counts_for_a_whole_guard() {
        let ms = |ms: u64| BootTime::from_us(ms * 1_000);
        let mut owed = Owed::new(1_000, 100, 0, ms(0));
        assert_eq!((owed.ms(ms(0)), owed.ms(ms(1_010)), owed.ms(ms(1_011))), (1_000, 1_000, 100));
        owed.raise(500, 0, ms(2_000));
        assert_eq!((owed.ms(ms(2_505)), owed.ms(ms(2_506))), (500, 100));
        assert_eq!(Owed::new(50, 100, 0, ms(0)).ms(ms(0)), 100);
    }
}
