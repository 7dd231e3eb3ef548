//! The boot clock, on which validity is counted and which cannot be set; and the wall clock, on which nothing is
//! decided.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the time since boot, which also passes while the machine sleeps.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux has this clock");
    Duration::from(now)
}

/// Returns milliseconds since 1970, only to show people when something was.
pub fn wall_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Duration::from);
    now.as_millis() as u64
}
