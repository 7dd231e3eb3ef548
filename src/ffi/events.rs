//! What the server tells about itself: its cron, emptied and swapped databases, renamed, moved and restored keys.
//!
//! Callbacks of key events change memory only: what they wrote would stand in the AOF before its own cause.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use super::context::{self, Context};
use super::key::KeyName;
use super::{api, boundary, raw};

/// What the module does about it.
pub trait Events {
    /// About ten times a second (`hz`), whatever the wall clock does.
    fn cron(ctx: Context<'_>);

    /// A database, or all (`None`), is about to be emptied.
    fn flush(db: Option<u32>);

    /// Two databases changed places.
    fn swap(one: u32, other: u32);

    /// The key `name` of the selected database was loaded from an RDB file or stream.
    fn loaded(ctx: Context<'_>, name: KeyName<'_>);

    /// The key `name` of the selected database is there by RENAME, MOVE or RESTORE.
    fn arrived(ctx: Context<'_>, name: KeyName<'_>, by: Arrival);
}

/// How a key got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It had another name, or was in another database.
    Moved,
    /// From a payload.
    Restored,
}

/// Has the server call `E`.
pub fn subscribe<E: Events>(ctx: Context<'_>) -> Result<(), String> {
    context::set_master(ctx.has(raw::REDISMODULE_CTX_FLAGS_MASTER));
    let events: [(u64, raw::RedisModuleEventCallback); 4] = [
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(on_role)),
        (raw::REDISMODULE_EVENT_CRON_LOOP, Some(on_cron::<E>)),
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(on_flush::<E>)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(on_swap::<E>)),
    ];
    for (id, callback) in events {
        // SAFETY: the module is being loaded; version 1 of each event's data is what the callbacks read.
        let status = unsafe {
            api!(RedisModule_SubscribeToServerEvent(ctx.raw(), raw::RedisModuleEvent { id, dataver: 1 }, callback))
        };
        if status != raw::REDISMODULE_OK as c_int {
            return Err(format!("the server did not take a subscription to its event {id}"));
        }
    }
    let kinds = raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_LOADED;
    // SAFETY: the module is being loaded.
    let status = unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx.raw(), kinds, Some(on_key::<E>))) };
    if status != raw::REDISMODULE_OK as c_int {
        return Err("the server did not take a subscription to key events".to_owned());
    }
    Ok(())
}

extern "C" fn on_role(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    boundary::run("a change of role", || {
        context::set_master(subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER)
    });
}

extern "C" fn on_cron<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server's context lasts for the call.
    boundary::run("the cron event", || E::cron(unsafe { Context::new(ctx) }));
}

extern "C" fn on_flush<E: Events>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    boundary::run("a flush event", || {
        if subevent == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
            // SAFETY: a flush event carries this struct for the length of the call.
            let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
            // -1 stands for all databases.
            E::flush(u32::try_from(info.dbnum).ok());
        }
    });
}

extern "C" fn on_swap<E: Events>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    boundary::run("a swap event", || {
        // SAFETY: a swap event carries this struct for the length of the call.
        let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
        if let (Ok(one), Ok(other)) = (u32::try_from(info.dbnum_first), u32::try_from(info.dbnum_second)) {
            E::swap(one, other);
        }
    });
}

thread_local! {
    /// The database that a key is being moved out of: MOVE tells of it right before the one it moves to.
    static MOVED_FROM: Cell<Option<u32>> = const { Cell::new(None) };
}

extern "C" fn on_key<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the event's name is a C string of the server; its bytes may be anything.
    let event = unsafe { CStr::from_ptr(event) };
    // SAFETY: context and name last for the call.
    let (ctx, name) = unsafe { (Context::new(ctx), KeyName::new(key)) };
    boundary::run("a key event", || match event.to_bytes() {
        // This name lies on the server's stack: opening the key would keep it, which the server does not survive.
        b"loaded" => KeyName::with(name.bytes(), |name| E::loaded(ctx, name)),
        b"restore" => E::arrived(ctx, name, Arrival::Restored),
        b"rename_to" => E::arrived(ctx, name, Arrival::Moved),
        b"move_from" => MOVED_FROM.set(Some(ctx.db())),
        b"move_to" => {
            E::arrived(ctx, name, Arrival::Moved);
            // Some Valkeys call back with the client that moves the key and leave it in the other database
            // (valkey-io/valkey#4024): its next commands, and a replica's, would run there.
            if let Some(db) = MOVED_FROM.take() {
                ctx.select(db);
            }
        }
        _ => {}
    });
    raw::REDISMODULE_OK as c_int
}
