//! The names of commands that servers send each other, as C strings, so that no call has to convert them.

use std::ffi::CStr;

/// The command that sends replicas and the AOF the content of a lock.
pub const EFFECT: &CStr = c"LOCK.EFFECT";

/// The command that sends replicas their master's ceilings and its longest lease.
pub const CEILING: &CStr = c"LOCK.CEILING";

/// The word before the ceilings of stripes in [`CEILING`].
pub const STRIPES: &CStr = c"STRIPES";

/// Returns a constant name as text.
pub const fn text(name: &'static CStr) -> &'static str {
    match name.to_str() {
        Ok(text) => text,
        Err(_) => panic!("names are ASCII"),
    }
}
