//! How long those waited who were served: a histogram, so that it costs the same however many there were.

use hdrhistogram::Histogram;

/// Longest wait that is told apart from longer ones, in microseconds: one day.
const LONGEST_US: u64 = 86_400_000_000;

/// Significant decimal digits: 1 % is finer than anybody looks.
const DIGITS: u8 = 2;

/// Waits since load; without a histogram until the first.
#[derive(Clone, Debug, Default)]
pub struct Waits(Option<Histogram<u64>>);

impl Waits {
    /// Somebody was served after `us` microseconds.
    pub fn record(&mut self, us: u64) {
        let new = || Histogram::new_with_max(LONGEST_US, DIGITS).expect("bounds and digits that a histogram takes");
        self.0.get_or_insert_with(new).saturating_record(us);
    }

    /// The wait that this share of those who were served did not exceed, in microseconds; 0 before the first.
    pub fn quantile_us(&self, share: f64) -> u64 {
        self.0.as_ref().map_or(0, |waits| waits.value_at_quantile(share))
    }

    /// How many were served.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_within_a_percent() {
        let mut waits = Waits::default();
        assert_eq!((waits.quantile_us(0.5), waits.count()), (0, 0));
        (1..=1_000).for_each(|n| waits.record(n * 1_000));
        let near = |share, us: u64| waits.quantile_us(share).abs_diff(us) * 100 <= us;
        assert!(near(0.5, 500_000) && near(0.99, 990_000) && near(1.0, 1_000_000));
        waits.record(u64::MAX);
        assert_eq!(waits.count(), 1_001);
    }
}
