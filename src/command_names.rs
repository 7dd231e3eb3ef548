//! The names of commands between servers, as C strings, since each effect is sent.

use std::ffi::CStr;

/// The command that tells replicas and the AOF what a lock holds.
pub const EFFECT: &CStr = c"LOCK.EFFECT";

/// The command that tells replicas a master's ceilings and its longest lease.
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
