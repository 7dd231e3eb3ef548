//! What the server tells about itself: its cron, role, loading and end, emptied and swapped databases, and keys that
//! appear under a name by another way than a command of ours, or are evicted.
//!
//! Callbacks of key events change memory only: what they wrote would stand in the AOF before its own cause.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use super::api::{api, raw};
use super::boundary;
use super::context::{self, Context};
use super::slots::{self, SlotEvents};
use super::string::KeyName;

/// What the module does about it.
pub trait Events: SlotEvents {
    /// About ten times a second (`hz`), whatever the wall clock does.
    fn cron(ctx: Context<'_>);

    /// A database, or all (`None`), is about to be emptied.
    fn flush(ctx: Context<'_>, db: Option<u32>);

    /// Two databases changed places.
    fn swap(ctx: Context<'_>, one: u32, other: u32);

    /// The server starts to read its data.
    fn loading(from: Source);

    /// The server has read its data, or failed to (not `complete`).
    fn loaded_all(ctx: Context<'_>, complete: bool);

    /// A replica has come and is in step.
    fn replica_came();

    /// The server forked: a child writes its data as it is now, to a file or to replicas.
    fn forked();

    /// The server is a master from now on, or a replica.
    fn role(ctx: Context<'_>, is_master: bool);

    /// CONFIG SET named these parameters.
    fn configured(ctx: Context<'_>, names: &[&CStr]);

    /// The server ends, its data is saved if it is to be.
    fn shutdown(ctx: Context<'_>);

    /// The key of the selected database that was unlinked last made room.
    fn evicted(ctx: Context<'_>, name: KeyName<'_>);

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

/// Where the server reads its data from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An RDB file.
    Snapshot,
    /// Its master.
    Master,
    /// The AOF.
    Aof,
}

/// Has the server call `E`.
pub fn subscribe<E: Events>(ctx: Context<'_>) -> Result<(), String> {
    context::begin(ctx);
    let events: [(u64, raw::RedisModuleEventCallback); 9] = [
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(on_role::<E>)),
        (raw::REDISMODULE_EVENT_CRON_LOOP, Some(on_cron::<E>)),
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(on_flush::<E>)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(on_swap::<E>)),
        (raw::REDISMODULE_EVENT_LOADING, Some(on_loading::<E>)),
        (raw::REDISMODULE_EVENT_CONFIG, Some(on_config::<E>)),
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, Some(on_replica::<E>)),
        (raw::REDISMODULE_EVENT_FORK_CHILD, Some(on_fork::<E>)),
        (raw::REDISMODULE_EVENT_SHUTDOWN, Some(on_shutdown::<E>)),
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
    if ctx.is_cluster() {
        slots::subscribe::<E>(ctx)?;
    }
    let kinds = raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_LOADED | raw::REDISMODULE_NOTIFY_EVICTED;
    // SAFETY: the module is being loaded.
    let status = unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx.raw(), kinds, Some(on_key::<E>))) };
    if status != raw::REDISMODULE_OK as c_int {
        return Err("the server did not take a subscription to key events".to_owned());
    }
    Ok(())
}

extern "C" fn on_role<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    boundary::run("a change of role", || {
        let is_master = subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER;
        context::set_master(is_master);
        // SAFETY: the server's context lasts for the call.
        E::role(unsafe { Context::new(ctx) }, is_master);
    });
}

extern "C" fn on_loading<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    boundary::run("a loading event", || match subevent {
        raw::REDISMODULE_SUBEVENT_LOADING_AOF_START => E::loading(Source::Aof),
        raw::REDISMODULE_SUBEVENT_LOADING_RDB_START => E::loading(Source::Snapshot),
        raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => E::loading(Source::Master),
        // SAFETY: the server's context lasts for the call.
        ended => E::loaded_all(unsafe { Context::new(ctx) }, ended == raw::REDISMODULE_SUBEVENT_LOADING_ENDED),
    });
}

extern "C" fn on_replica<E: Events>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    boundary::run("a replica's coming", || {
        if subevent == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE {
            E::replica_came();
        }
    });
}

extern "C" fn on_fork<E: Events>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    boundary::run("a fork", || {
        if subevent == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN {
            E::forked();
        }
    });
}

extern "C" fn on_config<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    boundary::run("a change of configuration", || {
        // SAFETY: the event carries this struct, with as many names as it says, for the length of the call, as does the
        // server's context.
        unsafe {
            let change = &*data.cast::<raw::RedisModuleConfigChange>();
            let names: Vec<&CStr> =
                (0..change.num_changes as usize).map(|n| CStr::from_ptr(*change.config_names.add(n))).collect();
            E::configured(Context::new(ctx), &names);
        }
    });
}

extern "C" fn on_shutdown<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server's context lasts for the call.
    boundary::run("shutting down", || E::shutdown(unsafe { Context::new(ctx) }));
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
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    boundary::run("a flush event", || {
        if subevent == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
            // SAFETY: a flush event carries this struct for the length of the call.
            let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
            // SAFETY: the server's context lasts for the call. -1 stands for all databases.
            E::flush(unsafe { Context::new(ctx) }, u32::try_from(info.dbnum).ok());
        }
    });
}

extern "C" fn on_swap<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    boundary::run("a swap event", || {
        // SAFETY: a swap event carries this struct for the length of the call.
        let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
        if let (Ok(one), Ok(other)) = (u32::try_from(info.dbnum_first), u32::try_from(info.dbnum_second)) {
            // SAFETY: the server's context lasts for the call.
            E::swap(unsafe { Context::new(ctx) }, one, other);
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
        b"evicted" => E::evicted(ctx, name),
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
