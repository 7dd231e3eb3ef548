//! The server's events that the module handles: cron, change of role, loading, forks, changed parameters, shutdown;
//! emptied and swapped databases; keys that are loaded, evicted or get a new name.
//!
//! Callbacks about keys change only memory, because what they wrote would be in the AOF before its own cause.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use super::api::{api, raw};
use super::boundary;
use super::bus::{self, BusEvents};
use super::context::{self, Context};
use super::notify;
use super::slots::{self, SlotEvents};
use super::string::KeyName;

/// The handlers for the server's events.
pub trait Events: SlotEvents + BusEvents {
    /// Called about ten times a second, whatever the wall clock does.
    fn on_cron(ctx: Context<'_>);

    /// Called when a database, or all of them (`None`), is about to be emptied.
    fn on_flush(ctx: Context<'_>, db: Option<u32>);

    /// Called when two databases have been swapped.
    fn on_swap(ctx: Context<'_>, one: u32, other: u32);

    /// Called when the server starts to read its data.
    fn on_loading(from: Source);

    /// Called when the server has read its data (`complete`), or failed to.
    fn on_all_loaded(ctx: Context<'_>, complete: bool);

    /// Called when a replica has connected and received all data.
    fn on_replica(ctx: Context<'_>);

    /// Called when the server has forked a child, which writes the present data to a file or to replicas.
    fn on_fork(ctx: Context<'_>);

    /// Called when the server has become a master or a replica.
    fn on_role(ctx: Context<'_>, is_master: bool);

    /// Called when CONFIG SET has set the parameters `names`.
    fn on_config_set(ctx: Context<'_>, names: &[&CStr]);

    /// Called when the server shuts down, after it has saved its data (if it does).
    fn on_shutdown(ctx: Context<'_>);

    /// Called when a key was evicted: it is the one that was unlinked last in the selected database.
    fn on_evicted(ctx: Context<'_>, name: KeyName<'_>);

    /// Called when the key `name` of the selected database was loaded from an RDB file or stream.
    fn on_loaded(ctx: Context<'_>, name: KeyName<'_>);

    /// Called when the key `name` of the selected database has appeared by RENAME, MOVE or RESTORE.
    fn on_arrived(ctx: Context<'_>, name: KeyName<'_>, by: Arrival);
}

/// The way in which a key got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By RENAME or MOVE: it had another name, or was in another database.
    Moved,
    /// By RESTORE, from a payload.
    Restored,
}

/// The source from which the server loads its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The server loads an RDB file.
    Snapshot,
    /// The server loads its master's data, in a full synchronisation.
    Master,
    /// The server loads its AOF.
    Aof,
}

/// The events of the server to which the module subscribes, each with its name for the log.
const EVENTS: [(u64, &str); 10] = [
    (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, "a change of role"),
    (raw::REDISMODULE_EVENT_CRON_LOOP, "the cron event"),
    (raw::REDISMODULE_EVENT_FLUSHDB, "a flush event"),
    (raw::REDISMODULE_EVENT_SWAPDB, "a swap event"),
    (raw::REDISMODULE_EVENT_LOADING, "a loading event"),
    (raw::REDISMODULE_EVENT_CONFIG, "a change of configuration"),
    (raw::REDISMODULE_EVENT_REPLICA_CHANGE, "a replica's coming"),
    (raw::REDISMODULE_EVENT_FORK_CHILD, "a fork"),
    (raw::REDISMODULE_EVENT_SHUTDOWN, "shutting down"),
    (raw::REDISMODULE_EVENT_MODULE_CHANGE, "a module's loading"),
];

/// Subscribes the handlers `E` to the server's events.
pub fn subscribe<E: Events>(ctx: Context<'_>) -> Result<(), String> {
    context::begin(ctx);
    notify::find_other_modules(ctx);
    for (id, _) in EVENTS {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the module is being loaded; version 1 of each event's data is what the callback reads.
        let status = unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, Some(on_event::<E>))) };
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
    if ctx.is_cluster() {
        // Last, because a subscription cannot be taken back if the module is not loaded.
        bus::subscribe::<E>(ctx);
    }
    Ok(())
}

extern "C" fn on_event<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    let what = EVENTS.iter().find(|(id, _)| *id == event.id).map_or("an event", |(_, what)| what);
    boundary::run(what, || {
        // SAFETY: the server's context lasts for the call.
        let ctx = unsafe { Context::new(ctx) };
        match event.id {
            raw::REDISMODULE_EVENT_CRON_LOOP => E::on_cron(ctx),
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
                let is_master = subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER;
                context::set_master(is_master);
                E::on_role(ctx, is_master);
            }
            raw::REDISMODULE_EVENT_LOADING => match subevent {
                raw::REDISMODULE_SUBEVENT_LOADING_AOF_START => E::on_loading(Source::Aof),
                raw::REDISMODULE_SUBEVENT_LOADING_RDB_START => E::on_loading(Source::Snapshot),
                raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => E::on_loading(Source::Master),
                ended => E::on_all_loaded(ctx, ended == raw::REDISMODULE_SUBEVENT_LOADING_ENDED),
            },
            raw::REDISMODULE_EVENT_REPLICA_CHANGE if subevent == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE => {
                E::on_replica(ctx);
            }
            raw::REDISMODULE_EVENT_FORK_CHILD if subevent == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN => {
                E::on_fork(ctx)
            }
            raw::REDISMODULE_EVENT_CONFIG => {
                // SAFETY: the event carries this struct, with as many names as it says, for the length of the call.
                let names: Vec<&CStr> = unsafe {
                    let change = &*data.cast::<raw::RedisModuleConfigChange>();
                    (0..change.num_changes as usize).map(|n| CStr::from_ptr(*change.config_names.add(n))).collect()
                };
                E::on_config_set(ctx, &names);
            }
            raw::REDISMODULE_EVENT_SHUTDOWN => E::on_shutdown(ctx),
            // The server does not report the load of a module to that module itself, so this is another one.
            raw::REDISMODULE_EVENT_MODULE_CHANGE => notify::on_other_module(),
            raw::REDISMODULE_EVENT_FLUSHDB if subevent == raw::REDISMODULE_SUBEVENT_FLUSHDB_START => {
                // SAFETY: the event carries this struct for the length of the call.
                let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
                // -1 stands for all databases.
                E::on_flush(ctx, u32::try_from(info.dbnum).ok());
            }
            raw::REDISMODULE_EVENT_SWAPDB => {
                // SAFETY: the event carries this struct for the length of the call.
                let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
                if let (Ok(one), Ok(other)) = (u32::try_from(info.dbnum_first), u32::try_from(info.dbnum_second)) {
                    E::on_swap(ctx, one, other);
                }
            }
            _ => {}
        }
    });
}

thread_local! {
    /// The database from which a key is being moved. MOVE reports it right before the database to which the key moves.
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
        // This name is on the server's stack. Opening the key would keep a reference to it, which crashes the server,
        // so a copy is used.
        b"loaded" => KeyName::with(name.bytes(), |name| E::on_loaded(ctx, name)),
        b"evicted" => E::on_evicted(ctx, name),
        b"restore" => E::on_arrived(ctx, name, Arrival::Restored),
        b"rename_to" => E::on_arrived(ctx, name, Arrival::Moved),
        b"move_from" => MOVED_FROM.set(Some(ctx.db())),
        b"move_to" => {
            E::on_arrived(ctx, name, Arrival::Moved);
            // Some Valkeys call back with the client that moves the key, and leave it in the other database
            // (valkey-io/valkey#4024). The client's next commands, and a replica's, would run there; so this selects
            // the right database again.
            if let Some(db) = MOVED_FROM.take() {
                ctx.select(db);
            }
        }
        _ => {}
    });
    raw::REDISMODULE_OK as c_int
}
