//! The module's access to the server while the server calls it.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use palisade_core::ClientId;

use super::api::{api, raw};
use super::string::KeyName;

/// The client id that the server uses while it loads the AOF (`CLIENT_ID_AOF`).
const AOF_CLIENT_ID: u64 = u64::MAX;

/// True if the server is a master. It is kept up to date by the server's events, because asking the server takes as
/// long as finding a key.
static IS_MASTER: AtomicBool = AtomicBool::new(true);

/// Notes that the server is a master from now on, or a replica.
pub(super) fn set_master(is_master: bool) {
    IS_MASTER.store(is_master, Ordering::Relaxed);
}

/// True if the server is part of a cluster. Set when the module is loaded, because it never changes while a server
/// runs.
static IS_CLUSTER: AtomicBool = AtomicBool::new(false);

/// True if the server is a Valkey. Set when the module is loaded.
static IS_VALKEY: AtomicBool = AtomicBool::new(false);

/// A context that is valid at any time, for callbacks that the server calls without one.
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(null_mut());

/// Asks the server, when the module is being loaded, for the facts that nearly every command needs.
pub(super) fn read_server_facts(ctx: Context<'_>) {
    set_master(ctx.has(raw::REDISMODULE_CTX_FLAGS_MASTER));
    IS_CLUSTER.store(ctx.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER), Ordering::Relaxed);
    IS_VALKEY.store(ctx.is_valkey(), Ordering::Relaxed);
}

/// Creates the context that is valid at any time, when the module has been loaded.
pub(super) fn begin(ctx: Context<'_>) {
    // SAFETY: the context is live; the new one is never freed, and used on the main thread alone.
    DETACHED.store(unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw())) }, Ordering::Relaxed);
}

/// Calls `body` with the context that is valid at any time. It is good for setting timers, and for commands that only
/// read.
pub(super) fn detached(body: impl FnOnce(Context<'_>)) {
    let raw = DETACHED.load(Ordering::Relaxed);
    if !raw.is_null() {
        // SAFETY: `begin` made it; this is the main thread.
        body(unsafe { Context::new(raw) });
    }
}

/// The server, as the module can use it during one call from it.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    raw: *mut raw::RedisModuleCtx,
    /// True if the call runs a client's command. False for a timer or an event.
    has_command: bool,
    call: PhantomData<&'a ()>,
}

impl<'a> Context<'a> {
    /// Wraps a context of the server.
    ///
    /// # Safety
    /// `raw` is the context of a call from the server that lasts for `'a`.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, has_command: false, call: PhantomData }
    }

    /// Wraps the context of a command.
    ///
    /// # Safety
    /// As for `new`, and the call is that of a command.
    pub(super) unsafe fn of_command(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, has_command: true, call: PhantomData }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// Returns whether this call runs a client's command; false for a timer or an event.
    pub(super) fn has_command(self) -> bool {
        self.has_command
    }

    /// Returns the number of the database in which keys are opened.
    pub fn db(self) -> u32 {
        // SAFETY: the context is live for 'a.
        let db = unsafe { api!(RedisModule_GetSelectedDb(self.raw)) };
        u32::try_from(db).unwrap_or(0)
    }

    /// Sets the database in which keys are opened from now on.
    pub fn select(self, db: u32) {
        // SAFETY: the context is live for 'a; a number that is no database is refused by the server.
        unsafe { api!(RedisModule_SelectDb(self.raw, db as c_int)) };
    }

    /// Returns whether the server is a master, not a replica.
    pub fn is_master(self) -> bool {
        IS_MASTER.load(Ordering::Relaxed)
    }

    /// Returns whether the server is a replica that accepts writes only from its master.
    pub fn is_obedient(self) -> bool {
        !self.is_master() && self.has(raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// Returns whether the server is loading its data, from its own files or from its master.
    pub fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Returns whether the server uses more memory than `maxmemory` allows. False on a replica that ignores the limit.
    pub fn is_out_of_memory(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MAXMEMORY) && self.has(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    /// Returns whether the server is part of a cluster.
    pub fn is_cluster(self) -> bool {
        IS_CLUSTER.load(Ordering::Relaxed)
    }

    /// Returns whether the client of this command may be blocked: it is in no transaction or script, and blocking is
    /// not denied. Valkey 9.1 gives no handle for a client that is subscribed to a channel.
    pub fn may_block(self) -> bool {
        let denied = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !(self.has(denied) || IS_VALKEY.load(Ordering::Relaxed) && self.is_subscriber())
    }

    /// Returns whether the client of this command is subscribed to a channel.
    fn is_subscriber(self) -> bool {
        // SAFETY: the context is live for 'a; the server fills the structure of this version, for which zeros are
        // valid.
        unsafe {
            let mut info: raw::RedisModuleClientInfoV1 = std::mem::zeroed();
            info.version = 1;
            let client = api!(RedisModule_GetClientId(self.raw));
            let told = api!(RedisModule_GetClientInfoById((&raw mut info).cast(), client));
            told == raw::REDISMODULE_OK as c_int && info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB) != 0
        }
    }

    /// Returns the connection that sent this command, if there is one: the commands of a script or of another module have
    /// none. (Valkey names the connection of the script's caller, or the client that stands for the module.)
    pub fn connection(self) -> Option<ClientId> {
        // A connection's commands may block, except in a transaction.
        let is_of_module = self.has(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING) && !self.is_in_transaction();
        if self.is_in_script() || is_of_module {
            return None;
        }
        // SAFETY: the context is live for 'a.
        let client = ClientId(unsafe { api!(RedisModule_GetClientId(self.raw)) });
        self.is_open(client).then_some(client)
    }

    /// Returns whether the command is in a MULTI. The commands after it run whatever its outcome is.
    pub fn is_in_transaction(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MULTI)
    }

    /// Returns whether the command is in a script, which ends if the command returns an error.
    pub fn is_in_script(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// Returns whether this connection is open.
    pub fn is_open(self, ClientId(client): ClientId) -> bool {
        // SAFETY: without room for an answer the server only says whether there is such a client.
        unsafe { api!(RedisModule_GetClientInfoById(null_mut(), client)) == raw::REDISMODULE_OK as c_int }
    }

    /// Closes a connection, so that none of its further commands is run. If it is that of the present command, it
    /// closes after the answer.
    pub fn hang_up(self, ClientId(client): ClientId) {
        // SAFETY: the context is live for 'a; an id that is no client's is refused by the server.
        unsafe { api!(RedisModule_DeauthenticateAndCloseClient(self.raw, client)) };
    }

    /// Returns whether the command comes from the AOF. What it reports happened at an unknown time.
    pub fn is_from_aof(self) -> bool {
        // SAFETY: the context is live for 'a.
        unsafe { api!(RedisModule_GetClientId(self.raw)) == AOF_CLIENT_ID }
    }

    /// Returns whether the command comes from the node's master. What it reports happened a moment ago.
    pub fn is_from_master(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
    }

    /// Returns whether the command comes from the AOF or from a master. Such a command reports what has already
    /// happened, and is no request.
    #[inline]
    pub fn is_replayed(self) -> bool {
        // A master receives no commands from another node, except in a cluster while slots move to it. That is checked
        // first, because asking for a client's flags takes as long as finding a key.
        self.is_from_aof() || (!self.is_master() || self.is_cluster()) && self.is_from_master()
    }

    /// Returns whether nothing may be written now except by a client's write command, because writes are paused (CLIENT
    /// PAUSE, FAILOVER).
    pub fn must_not_write(self) -> bool {
        // SAFETY: takes nothing.
        unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }

    /// Returns whether the server's AOF is on.
    pub fn has_aof(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    /// Tells clients that WATCH or track `key` that it changed.
    pub fn signal_modified(self, key: KeyName<'_>) {
        // SAFETY: context and name are live.
        unsafe { api!(RedisModule_SignalModifiedKey(self.raw, key.raw())) };
    }

    /// Publishes `message` on `channel`, as PUBLISH does: in a cluster on all nodes.
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
