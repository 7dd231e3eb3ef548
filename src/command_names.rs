//! Names of commands that more files than their own have to say.

use std::ffi::CStr;

/// Takes a lock, and can wait for it.
pub const ACQUIRE: &CStr = c"LOCK.ACQUIRE";

/// Waits for a lock.
pub const WAIT: &CStr = c"LOCK.WAIT";

/// Takes a lock from its holders.
pub const BREAK: &CStr = c"LOCK.BREAK";

/// Hears what became of requests that wait.
pub const HEAR: &CStr = c"LOCK.HEAR";

/// Tells when a lock is not what the client knows.
pub const WATCH: &CStr = c"LOCK.WATCH";

/// Tells replicas and the AOF what a lock holds.
pub const EFFECT: &CStr = c"LOCK.EFFECT";

/// Tells replicas a master's ceilings and what it owes.
pub const CEILING: &CStr = c"LOCK.CEILING";

/// What comes before the ceilings of stripes in [`CEILING`].
pub const STRIPES: &CStr = c"STRIPES";
