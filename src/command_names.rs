//! The names of commands that servers send each other, as C strings, which the server's API takes without a conversion.

use std::ffi::CStr;

/// The command by which a master sends its replicas, and the AOF, the content of a lock or a gate.
pub const EFFECT: &CStr = c"LOCK.EFFECT";

/// The command by which a master sends its replicas the ceilings of tokens, and the longest lease that may run.
pub const CEILING: &CStr = c"LOCK.CEILING";

/// The word that comes before the ceilings of stripes in [`CEILING`].
pub const STRIPES: &CStr = c"STRIPES";

/// Returns the name of a command as text.
pub const fn text(name: &'static CStr) -> &'static str {
    match name.to_str() {
        Ok(text) => text,
        Err(_) => panic!("names are ASCII"),
    }
}
