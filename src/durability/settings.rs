//! Watches the server's settings that decide whether the AOF is complete, and whether locks can be evicted.

use std::ffi::CStr;

use palisade_core::GuardPolicy;

use super::{dropped_locks, incarnation};
use crate::ffi::{Context, server_version, warn};
use crate::{config, state};

/// The version of Redis from which I/O threads handle whole clients.
const REDIS_8: i32 = 0x0008_0000;

/// Handles that the parameters `names` of the server were set.
pub fn on_config_set(ctx: Context<'_>, names: &[&CStr]) {
    state::with(state::configure);
    let any_of = |of: &[&[u8]]| names.iter().any(|name| of.iter().any(|of| name.to_bytes().eq_ignore_ascii_case(of)));
    let aof = any_of(&[b"appendonly", b"appendfsync", b"no-appendfsync-on-rewrite", b"io-threads"]);
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

/// Returns whether every command is in the AOF on the disk before its answer leaves, also while the AOF is rewritten.
pub fn everything_goes_to_aof(ctx: Context<'_>) -> bool {
    ctx.parameter_is(c"appendonly", "yes")
        && ctx.parameter_is(c"appendfsync", "always")
        && ctx.parameter_is(c"no-appendfsync-on-rewrite", "no")
        && !threads_answer_early(ctx)
}

/// Returns whether I/O threads may send an answer before the command is in the AOF. Those of Redis 8 do.
fn threads_answer_early(ctx: Context<'_>) -> bool {
    !ctx.is_valkey() && server_version() >= REDIS_8 && !ctx.parameter_is(c"io-threads", "1")
}

/// Finds out whether the server may evict locks, and warns in the log of settings that undermine the guard.
pub fn inspect(ctx: Context<'_>) {
    let evicts = !ctx.parameter_is(c"maxmemory-policy", "noeviction");
    dropped_locks::watch_evictions(evicts);
    if evicts {
        warn("maxmemory-policy lets the server evict keys, held locks too: set it to noeviction on a lock server");
    }
    let has_file = incarnation::with(|incarnation| incarnation.state_writer.is_some());
    if ctx.parameter_is(c"appendfsync", "always") && threads_answer_early(ctx) {
        warn(
            "with io-threads above 1, Redis 8 sends answers before they are in the AOF: after each crash this node is guarded. Set \
             io-threads to 1 on a lock server",
        );
    }
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
