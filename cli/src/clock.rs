//! The boot clock, which cannot be set and by which validity is measured; and the wall clock, which is only displayed.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the time since boot, which includes the time while the machine sleeps.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux has this clock");
    Duration::from(now)
}

/// Returns the milliseconds since 1970, only for display.
pub fn wall_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Duration::from);
    now.as_millis() as u64
}
