//! The boot clock: validity is counted on it, and it cannot be set. And the wall clock, which nothing is decided on.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since boot, also while the machine sleeps.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux has this clock");
    Duration::from(now)
}

/// Milliseconds since 1970: only to tell people when something was.
pub fn wall_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Duration::from);
    now.as_millis() as u64
}
