//! Palisade's server module: native locks for Redis and Valkey.
//!
//! The rules of locks are in `palisade-core`, and so is the engine that decides what happens when a command arrives or
//! something comes due; this crate translates between them and the server. A command of `commands` reads its arguments and makes
//! them a request; `driver` performs what the engine decides: it alone writes to the server. `audience` knows whether anybody
//! listens to changes, `cluster` where a key is served; `lock_type` is the data type;
//! `events` what the server tells about its keys; `state` the node's memory; `start`, `life`, `keeper` and `state_file` what the
//! node keeps over its lives, on the disk; `data_stamp`, `aof_folder` and `file_id` tie that to the data; `losses` locks that are
//! dropped while they are held; `config` what an operator sets;
//! `ffi` the seam to the server's C API, the only place with `unsafe`.

#![deny(unsafe_code)]

mod aof_folder;
mod audience;
mod clock;
mod cluster;
mod commands;
mod config;
mod data_stamp;
mod driver;
mod events;
#[allow(unsafe_code)]
mod ffi;
mod file_id;
mod info_section;
mod integer;
mod keeper;
mod life;
mod lock_type;
mod losses;
mod start;
mod state;
mod state_file;

use std::ffi::CStr;

use ffi::{CallReply, Context, warn};

/// Commands of the server without which locks would go wrong in silence, and what each is for; the last two only in a
/// cluster.
const NEEDED: [(&CStr, &str); 3] = [
    (c"DEL", "replicas and the AOF are told with it that a lock is free"),
    (c"UNLINK", "a hand-over asks with it whether this node serves the key"),
    (c"CLUSTER", "waiters are redirected by what it tells"),
];

/// Makes the module's type, commands, parameters and events known to the server.
fn register(ctx: Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    look_for_commands(ctx)?;
    ffi::register_data_type::<lock_type::LockType>(ctx)?;
    commands::register(ctx)?;
    config::register(ctx, arguments)?;
    ffi::register_info::<info_section::Section>(ctx)
}

/// Parameters are set, data is not loaded yet: from here on the module works. Subscribing comes last of all: servers
/// before 7.2 go on calling a module whose loading failed after it.
fn begin(ctx: Context<'_>) -> Result<(), String> {
    start::begin(ctx)?;
    ffi::subscribe::<events::NodeEvents>(ctx)
}

/// Looks whether `rename-command` hides what the module needs. Of CONFIG it is only warned: without it the node is guarded
/// at every start, which is safe.
fn look_for_commands(ctx: Context<'_>) -> Result<(), String> {
    let count = if ctx.is_cluster() { NEEDED.len() } else { 1 };
    if let Some((command, what_for)) = NEEDED[..count].iter().find(|(command, _)| CallReply::is_hidden(ctx, command)) {
        return Err(format!(
            "rename-command hides {}, and {what_for}: take it out, and forbid the command with ACL rules",
            command.to_string_lossy()
        ));
    }
    if CallReply::is_hidden(ctx, c"CONFIG") {
        warn(
            "rename-command hides CONFIG, through which the module reads the server's settings: it proves nothing at a \
             start and is guarded each time. Take it out, and forbid the command with ACL rules",
        );
    }
    Ok(())
}
