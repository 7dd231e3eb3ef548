//! The boot clock: validity is counted on it, and it cannot be set.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since boot, also while the machine sleeps.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux has this clock");
    Duration::from(now)
}
