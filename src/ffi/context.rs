//! What the module can ask of the server while the server calls it.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use palisade_core::ClientId;

use super::api::{api, raw};
use super::string::KeyName;

/// Client id of the AOF loader (`CLIENT_ID_AOF`).
const AOF_CLIENT_ID: u64 = u64::MAX;

/// Kept from the events of the server: asking it for all its flags costs as much as a look-up of a key.
static IS_MASTER: AtomicBool = AtomicBool::new(true);

/// The server is a master from now on, or a replica.
pub(super) fn set_master(is_master: bool) {
    IS_MASTER.store(is_master, Ordering::Relaxed);
}

/// It never changes while a server runs.
static IS_CLUSTER: AtomicBool = AtomicBool::new(false);

/// A context that outlives calls, for callbacks that come without one.
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(null_mut());

/// The module is being loaded: keeps what is asked for all the time.
pub(super) fn look_at_server(ctx: Context<'_>) {
    set_master(ctx.has(raw::REDISMODULE_CTX_FLAGS_MASTER));
    IS_CLUSTER.store(ctx.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER), Ordering::Relaxed);
}

/// The module is loaded but for its subscriptions: makes what callbacks need.
pub(super) fn begin(ctx: Context<'_>) {
    // SAFETY: the context is live; the new one is never freed, and used on the main thread alone.
    DETACHED.store(unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw())) }, Ordering::Relaxed);
}

/// Calls `body` with a context of no call: to set timers, and for commands that only read.
pub(super) fn detached(body: impl FnOnce(Context<'_>)) {
    let raw = DETACHED.load(Ordering::Relaxed);
    if !raw.is_null() {
        // SAFETY: `begin` made it; this is the main thread.
        body(unsafe { Context::new(raw) });
    }
}

/// The server, for the length of one call from it.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    raw: *mut raw::RedisModuleCtx,
    /// A client's command is being run, not a timer or an event.
    has_command: bool,
    call: PhantomData<&'a ()>,
}

impl<'a> Context<'a> {
    /// # Safety
    /// `raw` is the context of a call from the server that lasts for `'a`.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, has_command: false, call: PhantomData }
    }

    /// # Safety
    /// As for `new`, and the call is that of a command.
    pub(super) unsafe fn of_command(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, has_command: true, call: PhantomData }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// Whether a client's command is being run, not a timer or an event.
    pub(super) fn has_command(self) -> bool {
        self.has_command
    }

    /// The database that keys are looked up in.
    pub fn db(self) -> u32 {
        // SAFETY: the context is live for 'a.
        let db = unsafe { api!(RedisModule_GetSelectedDb(self.raw)) };
        u32::try_from(db).unwrap_or(0)
    }

    /// From now on looks keys up in `db`.
    pub fn select(self, db: u32) {
        // SAFETY: the context is live for 'a; a number that is no database is refused by the server.
        unsafe { api!(RedisModule_SelectDb(self.raw, db as c_int)) };
    }

    /// The server is a master, not a replica.
    pub fn is_master(self) -> bool {
        IS_MASTER.load(Ordering::Relaxed)
    }

    /// The server is a replica that takes writes from its master alone.
    pub fn is_obedient(self) -> bool {
        !self.is_master() && self.has(raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// The server is reading its data, from its own files or from its master.
    pub fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// The server has reached its `maxmemory`, and does not ignore that as replicas do.
    pub fn is_out_of_memory(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MAXMEMORY) && self.has(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    /// The server is part of a cluster.
    pub fn is_cluster(self) -> bool {
        IS_CLUSTER.load(Ordering::Relaxed)
    }

    /// The client of this command may be blocked: it is in no transaction or script, and nobody forbade it.
    pub fn may_block(self) -> bool {
        !self.has(
            raw::REDISMODULE_CTX_FLAGS_MULTI
                | raw::REDISMODULE_CTX_FLAGS_LUA
                | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING,
        )
    }

    /// The connection that this command came over, if it came over one: a script's commands come over none. (Valkey names the
    /// connection of who called the script.)
    pub fn connection(self) -> Option<ClientId> {
        if self.has(raw::REDISMODULE_CTX_FLAGS_LUA) {
            return None;
        }
        // SAFETY: the context is live for 'a.
        let client = ClientId(unsafe { api!(RedisModule_GetClientId(self.raw)) });
        self.is_open(client).then_some(client)
    }

    /// The command is one of a MULTI: others behind it are run whatever comes of it.
    pub fn is_in_transaction(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MULTI)
    }

    /// This connection is open.
    pub fn is_open(self, ClientId(client): ClientId) -> bool {
        // SAFETY: without room for an answer the server only says whether there is such a client.
        unsafe { api!(RedisModule_GetClientInfoById(null_mut(), client)) == raw::REDISMODULE_OK as c_int }
    }

    /// Ends a connection: no command of it is run any more. That of the present command ends when it is answered.
    pub fn hang_up(self, ClientId(client): ClientId) {
        // SAFETY: the context is live for 'a; an id that is no client's is refused by the server.
        unsafe { api!(RedisModule_DeauthenticateAndCloseClient(self.raw, client)) };
    }

    /// The command comes from the AOF: its effects took place at an unknown time.
    pub fn is_from_aof(self) -> bool {
        // SAFETY: the context is live for 'a.
        unsafe { api!(RedisModule_GetClientId(self.raw)) == AOF_CLIENT_ID }
    }

    /// The command comes over a replication link: its effects took place on the master a moment ago.
    pub fn is_from_master(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
    }

    /// The command is no request: it comes from the AOF or over a replication link, and tells what came of one.
    #[inline]
    pub fn is_told(self) -> bool {
        // A master hears nothing over a link, unless slots of a cluster move here. Asking for all flags costs as much as a look-up of a key.
        self.is_from_aof() || (!self.is_master() || self.is_cluster()) && self.is_from_master()
    }

    /// Nothing may be written now but by a client's write command: writes are paused (CLIENT PAUSE, FAILOVER).
    pub fn must_not_write(self) -> bool {
        // SAFETY: takes nothing.
        unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }

    /// The AOF is on.
    pub fn has_aof(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    /// Tells those who WATCH or track `key` that it changed.
    pub fn signal_modified(self, key: KeyName<'_>) {
        // SAFETY: context and name are live.
        unsafe { api!(RedisModule_SignalModifiedKey(self.raw, key.raw())) };
    }

    /// Publishes `event` of `key` to those who subscribed to the key events of modules.
    pub fn notify(self, event: &'static CStr, key: KeyName<'_>) {
        // SAFETY: the context is live for 'a, and so are the constant and the name.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent(self.raw, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.raw()))
        };
    }

    /// Publishes `message` on `channel`, in a cluster on all nodes, as PUBLISH does.
    pub fn publish(self, channel: &str, message: &str) {
        KeyName::with(channel.as_bytes(), |channel| {
            KeyName::with(message.as_bytes(), |message| {
                // SAFETY: the context is live for 'a, the strings for the call; the server keeps its own references.
                unsafe { api!(RedisModule_PublishMessage(self.raw, channel.raw(), message.raw())) };
            });
        });
    }

    pub(super) fn has(self, flag: u32) -> bool {
        // SAFETY: the context is live for 'a.
        unsafe { api!(RedisModule_GetContextFlags(self.raw)) & flag as c_int != 0 }
    }
}
