//! Watches the server's settings that decide whether the AOF is complete, and whether locks can be evicted.

use std::ffi::CStr;

use palisade_core::GuardPolicy;

use super::{dropped_locks, incarnation};
use crate::ffi::{Context, warn};
use crate::{config, state};

/// Handles that the parameters `names` of the server were set.
pub fn on_config_set(ctx: Context<'_>, names: &[&CStr]) {
    state::with(state::configure);
    let any_of = |of: &[&[u8]]| names.iter().any(|name| of.iter().any(|of| name.to_bytes().eq_ignore_ascii_case(of)));
    let aof = any_of(&[b"appendonly", b"appendfsync", b"no-appendfsync-on-rewrite"]);
    let elsewhere = any_of(&[b"dir", b"appendfilename", b"appenddirname"]);
    // To set a parameter to its present value changes nothing. Only a setting that makes the AOF incomplete matters
    // here.
    if elsewhere || (aof && !everything_goes_to_aof(ctx)) {
        incarnation::not_all_in_aof();
    }
    if any_of(&[b"maxmemory-policy", b"lock.restart-guard", b"appendonly", b"save"]) {
        inspect(ctx);
    }
}

/// Returns whether the AOF is on, and synced at every command, also while it is rewritten.
pub fn everything_goes_to_aof(ctx: Context<'_>) -> bool {
    ctx.parameter_is(c"appendonly", "yes")
        && ctx.parameter_is(c"appendfsync", "always")
        && ctx.parameter_is(c"no-appendfsync-on-rewrite", "no")
}

/// Finds out whether the server may evict locks, and warns in the log of settings that undermine the guard.
pub fn inspect(ctx: Context<'_>) {
    let evicts = !ctx.parameter_is(c"maxmemory-policy", "noeviction");
    dropped_locks::watch_evictions(evicts);
    if evicts {
        warn("maxmemory-policy lets the server evict keys, held locks too: set it to noeviction on a lock server");
    }
    let has_file = incarnation::with(|incarnation| incarnation.state_writer.is_some());
    if config::restart_guard() == GuardPolicy::Never
        && !has_file
        && ctx.parameter_is(c"appendonly", "no")
        && ctx.parameter_is(c"save", "")
    {
        warn(
            "without persistence, without a state file and with lock.restart-guard never this node forgets every grant \
             at a restart and grants them again at once",
        );
    }
}
