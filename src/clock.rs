//! Reads the clocks for the rules. No other file reads a clock.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lazy_static::lazy_static;
use palisade_core::BootId;
use palisade_core::{BootTime, Now, WallClock};
use rustix::time::{ClockId, clock_gettime};

use crate::ffi::{notice, warn};

/// On Linux, the file with the id of the machine's present boot.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The file with the difference between this process's boot clock and the machine's, which a time namespace sets.
const CLOCK_OFFSETS_FILE: &str = "/proc/self/timens_offsets";

lazy_static! {
    /// The id of the boot from which this process's boot clock counts.
    static ref BOOT_ID: BootId = BootId(machine_boot_id().unwrap_or_else(rand::random));
}

/// The lead of the accepted wall clock over the boot clock, in microseconds. 0 while the module is being loaded.
static WALL_AHEAD_US: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The accepted wall clock, and a jump that is not accepted yet. Only the main thread uses it.
    static WALL: Cell<WallClock> = const { Cell::new(WallClock::UNKNOWN) };
}

/// Initialises the clock when the node starts. `ceiling` is an upper bound of the tokens of its last incarnation, if
/// that is known.
pub fn begin(ceiling: Option<u64>) {
    set_wall_clock(WallClock::new(boot_now(), wall_us(), ceiling));
}

fn set_wall_clock(wall: WallClock) {
    WALL.set(wall);
    WALL_AHEAD_US.store(wall.ahead_us(), Relaxed);
}

/// Returns the present time of both clocks. The wall clock, which is only a hint for tokens, is calculated: the boot
/// clock plus the difference found at the last call of [`read_wall_clock`]. So a command reads one clock. A step of
/// the wall clock takes effect within a tenth of a second.
pub fn now() -> Now {
    let boot = boot_now();
    match WALL_AHEAD_US.load(Relaxed) {
        0 => Now::new(boot, wall_us()),
        ahead_us => Now::new(boot, boot.as_us().saturating_add(ahead_us)),
    }
}

/// Returns the processor time that this thread has used, in microseconds.
pub fn thread_cpu_us() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}

/// Reads the wall clock for later calls of [`now`], unless it has jumped far ahead.
pub fn read_wall_clock() {
    let mut wall = WALL.get();
    let before = wall.jump_us().is_some();
    wall.update(boot_now(), wall_us());
    match wall.jump_us() {
        Some(ahead_us) if !before => warn(&format!(
            "the wall clock has jumped ahead by {} days. Tokens do not follow it for ten minutes: set it right before",
            ahead_us / 86_400_000_000
        )),
        None if before => notice("tokens follow the wall clock again"),
        _ => {}
    }
    set_wall_clock(wall);
}

/// Returns what the wall clock shows now, in microseconds since 1970; 0 before 1970.
pub fn wall_us() -> u64 {
    read_us(ClockId::Realtime)
}

/// Returns what the boot clock shows now.
pub fn boot_now() -> BootTime {
    BootTime::from_us(read_us(ClockId::Boottime))
}

/// Returns what `clock` shows now, in microseconds.
fn read_us(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Returns the id of the boot from which [`boot_now`] counts.
pub fn boot_id() -> BootId {
    *BOOT_ID
}

/// Returns the machine's boot id, if this process sees the machine's own boot clock. If not, the times of other
/// processes cannot be compared with this clock, so a random id is right: leases from before a restart then start again
/// in full.
fn machine_boot_id() -> Option<[u8; 16]> {
    let shifted = std::fs::read_to_string(CLOCK_OFFSETS_FILE).is_ok_and(|offsets| {
        offsets
            .lines()
            .any(|line| line.starts_with("boottime") && line.split_whitespace().skip(1).any(|offset| offset != "0"))
    });
    let id = std::fs::read_to_string(BOOT_ID_FILE).ok().filter(|_| !shifted)?;
    parse_boot_id(&id)
}

/// Parses a UUID: 32 hexadecimal digits, dashes ignored.
fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_are_read_as_the_system_writes_them() {
        let id = parse_boot_id("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!((id[0], id[1], id[15]), (0x00, 0x11, 0xFF));
        for wrong in ["", "00112233", "zz112233-4455-6677-8899-aabbccddeeff"] {
            assert_eq!(parse_boot_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_boot_clock_runs_and_its_id_stays() {
        let before = boot_now();
        assert!(boot_now() >= before && before.as_us() > 0);
        assert_eq!(boot_id(), boot_id());
    }
}
