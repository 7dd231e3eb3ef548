//! Palisade's server module: native locks for Redis and Valkey.
//!
//! `palisade-core` has the rules of locks, and the engine that decides what happens when a command arrives or work is
//! due. This crate translates between the engine and the server.
//!
//! Each of these folders and files imports only those below it (`tests/imports.rs`):
//!
//! - `commands` parses clients' words into requests; the server also calls `events`, `lock_type`, `gate_type` and
//!   `info_section`.
//! - `driver` performs the engine's decisions: only it writes to the server.
//! - `durability` keeps the node's memory on the disk across its incarnations.
//! - `state` is the node's memory, `config` the operator's settings, `clock` the time.
//! - `ffi` wraps the server's C API: the only place with `unsafe`.

#![deny(unsafe_code)]

mod clock;
mod command_names;
mod commands;
mod config;
mod driver;
mod durability;
mod events;
#[allow(unsafe_code)]
mod ffi;
mod gate_type;
mod info_section;
mod lock_type;
mod state;

use std::ffi::CStr;

use driver::cluster;
use durability::start;
use ffi::{CallReply, Context, Module, warn};

/// Commands of the server that the module needs, each with the reason. If one were hidden, locks would fail without a
/// message. Only the first is needed outside a cluster.
const NEEDED: [(&CStr, &str); 4] = [
    (c"DEL", "replicas and the AOF are told with it that a lock is free"),
    (c"UNLINK", "a hand-over asks with it whether this node serves the key"),
    (c"EXISTS", "LOCK.GATE asks with it whether this node serves all keys of a command"),
    (c"CLUSTER", "waiters are redirected by what it tells"),
];

/// The module, with the steps by which the server loads it.
struct Palisade;

impl Module for Palisade {
    fn register(ctx: Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
        ensure_commands(ctx)?;
        ffi::register_data_type::<lock_type::LockType>(ctx)?;
        ffi::register_data_type::<gate_type::GateType>(ctx)?;
        commands::register(ctx)?;
        config::register(ctx, arguments)?;
        ffi::register_info::<info_section::Section>(ctx)
    }

    /// Begins the node. Subscribes to events last of all, because servers before 7.2 call a module whose loading failed
    /// after it had subscribed.
    fn begin(ctx: Context<'_>) -> Result<(), String> {
        driver::timer::begin();
        start::begin(ctx)?;
        cluster::begin(ctx);
        ffi::subscribe::<events::NodeEvents>(ctx)
    }
}

ffi::entry_point!(Palisade);

/// Finds out whether `rename-command` hides a command that the module needs; then the load fails. If CONFIG is hidden,
/// this only warns, because the node is then guarded at every start, which is safe.
fn ensure_commands(ctx: Context<'_>) -> Result<(), String> {
    let count = if ctx.is_cluster() { NEEDED.len() } else { 1 };
    if let Some((command, what_for)) = NEEDED[..count].iter().find(|(command, _)| CallReply::is_hidden(ctx, command)) {
        return Err(format!(
            "rename-command hides {}, and {what_for}: take it out, and forbid the command with ACL rules",
            command.to_string_lossy()
        ));
    }
    if CallReply::is_hidden(ctx, c"CONFIG") {
        warn(
            "rename-command hides CONFIG, through which the module reads the server's settings: after a crash it cannot \
             prove that it remembers every grant, and is guarded. Take it out, and forbid the command with ACL rules",
        );
    }
    Ok(())
}
