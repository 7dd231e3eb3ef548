//! Pauses that differ from caller to caller: not all ask at the same moment.

/// Returns `value` less up to so many thousandths of it, drawn by `random`.
pub(crate) fn less_up_to(value: u64, permille: u64, random: u64) -> u64 {
    value - value * (random % (permille + 1)) / 1_000
}
