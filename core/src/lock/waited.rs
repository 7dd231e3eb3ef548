//! The time for which a grant was waited for, in two bytes: more would make every lock larger.

/// The number of bits for the digits: times below 2^11 ms are exact. The other bits are an exponent.
const DIGITS: u32 = 11;

/// A time waited, in milliseconds: exact below 2 048 ms, otherwise rounded down by less than 0.1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited(u16);

impl Waited {
    /// Creates a time of `ms` milliseconds. A longer one than 49 days, which no request may wait, counts as 49 days.
    pub(crate) fn of_ms(ms: u64) -> Self {
        let ms = u32::try_from(ms).unwrap_or(u32::MAX);
        let shift = (u32::BITS - ms.leading_zeros()).saturating_sub(DIGITS);
        Self((shift << DIGITS | ms >> shift) as u16)
    }

    /// Returns the time waited, in milliseconds.
    #[inline]
    pub(crate) fn ms(self) -> u64 {
        let digits = self.0 & ((1 << DIGITS) - 1);
        u64::from(digits) << (self.0 >> DIGITS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Waited;
    use crate::values::limits::WAIT_MAX_MS;

    #[test]
    fn short_waits_are_exact_and_none_is_lost() {
        for (ms, kept) in [(0, 0), (1, 1), (2_047, 2_047), (2_048, 2_048), (2_049, 2_048), (86_400_000, 86_376_448)] {
            assert_eq!(Waited::of_ms(ms).ms(), kept);
        }
        assert!(Waited::of_ms(u64::MAX).ms() > WAIT_MAX_MS.into());
    }

    proptest! {
        #[test]
        fn a_wait_is_rounded_down_by_less_than_a_thousandth(ms in 0..=u64::from(WAIT_MAX_MS)) {
            let kept = Waited::of_ms(ms).ms();
            prop_assert!(kept <= ms && (ms - kept) * 1_000 < ms.max(1), "{ms} {kept}");
        }
    }
}
