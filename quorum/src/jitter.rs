//! Random parts of pauses, so that callers do not all act at the same moment.

/// Returns `value` reduced by a random part of up to `permille` thousandths.
pub(crate) fn less_up_to(value: u64, permille: u64, random: u64) -> u64 {
    value - value * (random % (permille + 1)) / 1_000
}
