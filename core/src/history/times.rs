//! Distributions of durations, as HDR histograms (Gil Tene; log-linear buckets). The memory does not depend on the
//! number of durations.

use hdrhistogram::Histogram;

use crate::values::limits::KEEPALIVE_MAX_MS;

/// The longest duration that is told apart from longer ones, in microseconds: no KEEPALIVE is longer.
const LONGEST_US: u64 = KEEPALIVE_MAX_MS as u64 * 1_000;

/// The significant decimal digits: a reported duration is off by less than 1 %, which is finer than anybody needs.
const DIGITS: u8 = 2;

/// A distribution of durations. The histogram takes 36 KiB, so it is created with the first duration.
#[derive(Clone, Debug, Default)]
pub struct Times(Option<Histogram<u64>>);

impl Times {
    /// Records a duration of `us` microseconds.
    pub fn record(&mut self, us: u64) {
        let new = || Histogram::new_with_max(LONGEST_US, DIGITS).expect("bounds and digits that a histogram takes");
        self.0.get_or_insert_with(new).saturating_record(us.min(LONGEST_US));
    }

    /// Returns the duration, in microseconds, that the part `share` (0 to 1) of all durations did not exceed; 0 before
    /// the first duration.
    pub fn quantile_us(&self, share: f64) -> u64 {
        self.0.as_ref().map_or(0, |times| times.value_at_quantile(share))
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_within_a_percent() {
        let mut times = Times::default();
        assert_eq!((times.quantile_us(0.5), times.count()), (0, 0));
        (1..=1_000).for_each(|n| times.record(n * 1_000));
        let near = |share, us: u64| times.quantile_us(share).abs_diff(us) * 100 < us;
        assert!(near(0.5, 500_000) && near(0.99, 990_000) && near(1.0, 1_000_000));
        times.record(u64::MAX);
        assert_eq!(times.count(), 1_001);
    }

    /// A single duration is recorded. It is reported with an error of less than 1 %, and a longer one than the maximum
    /// is reported as the maximum.
    #[test]
    fn each_time_is_told_within_a_percent() {
        for us in (0..42).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + (1 << bits) / 3]) {
            let mut times = Times::default();
            times.record(us);
            let told = times.quantile_us(1.0);
            let exact = us.min(LONGEST_US);
            assert!(told.abs_diff(exact) * 100 <= exact, "{us} {told}");
        }
        let bytes = Histogram::<u64>::new_with_max(LONGEST_US, DIGITS).unwrap().distinct_values() * size_of::<u64>();
        assert_eq!(bytes, 36 << 10, "a histogram, as is said");
    }
}
