//! Quantiles of a few figures, such as those of rounds or runs.

/// Returns the figure below which this share of them lies; `None` if there are no figures.
pub fn quantile(figures: &[f64], share: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len().saturating_sub(1) as f64 * share).round() as usize).copied()
}

/// Returns the median.
pub fn median(figures: &[f64]) -> Option<f64> {
    quantile(figures, 0.5)
}
