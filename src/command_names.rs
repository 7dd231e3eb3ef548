//! Names of commands that servers send each other: as C has them, since each effect is sent.

use std::ffi::CStr;

/// Tells replicas and the AOF what a lock holds.
pub const EFFECT: &CStr = c"LOCK.EFFECT";

/// Tells replicas a master's ceilings and what it owes.
pub const CEILING: &CStr = c"LOCK.CEILING";

/// What comes before the ceilings of stripes in [`CEILING`].
pub const STRIPES: &CStr = c"STRIPES";

/// Returns a constant name as a text.
pub const fn text(name: &'static CStr) -> &'static str {
    match name.to_str() {
        Ok(text) => text,
        Err(_) => panic!("names are ASCII"),
    }
}
