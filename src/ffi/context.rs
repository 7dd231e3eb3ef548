//! What the module can ask of the server while the server calls it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::call::CallReply;
use super::key::KeyName;
use super::{api, boundary, raw};

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

/// Calls `body` with a context of no call: good for timers alone.
pub(super) fn detached(body: impl FnOnce(Context<'_>)) {
    let raw = DETACHED.load(Ordering::Relaxed);
    if !raw.is_null() {
        // SAFETY: `begin` made it; this is the main thread.
        body(unsafe { Context::new(raw) });
    }
}

/// A running timer.
#[derive(Clone, Copy, Debug)]
pub struct TimerId(raw::RedisModuleTimerID);

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

    /// The command comes from the AOF: its effects took place at an unknown time.
    pub fn is_from_aof(self) -> bool {
        // SAFETY: the context is live for 'a.
        unsafe { api!(RedisModule_GetClientId(self.raw)) == AOF_CLIENT_ID }
    }

    /// The command comes over a replication link: its effects took place on the master a moment ago.
    pub fn is_from_master(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
    }

    /// Nothing may be written now but by a client's write command: writes are paused (CLIENT PAUSE, FAILOVER).
    pub fn must_not_write(self) -> bool {
        // SAFETY: takes nothing.
        unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }

    /// Counts one change of the data towards the next RDB file, where nobody hears of changes: what
    /// [`Self::replicate_record`] and [`Self::replicate_del`] do then, at a fraction of the cost. Not in a timer or an event
    /// (`false`).
    pub fn count_change(self) -> bool {
        if self.has_command {
            // SAFETY: the context is live for 'a and has a command, which is not sent as nobody listens.
            unsafe { api!(RedisModule_ReplicateVerbatim(self.raw)) };
        }
        self.has_command
    }

    /// The AOF is on.
    pub fn has_aof(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    /// Sends `command key payload` to the replicas and the AOF.
    pub fn replicate_record(self, command: &'static CStr, key: KeyName<'_>, payload: &[u8]) {
        // SAFETY: the context is live for 'a; the format announces a module string and a buffer with its length,
        // which follow and outlive the call.
        unsafe {
            api!(RedisModule_Replicate(
                self.raw,
                command.as_ptr(),
                c"sb".as_ptr(),
                key.raw(),
                payload.as_ptr(),
                payload.len()
            ))
        };
    }

    /// Sends `DEL key` to the replicas and the AOF.
    pub fn replicate_del(self, key: KeyName<'_>) {
        // SAFETY: the context is live for 'a; the format announces a module string, which follows.
        unsafe { api!(RedisModule_Replicate(self.raw, c"DEL".as_ptr(), c"s".as_ptr(), key.raw())) };
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

    /// Calls `callback` once, `ms` milliseconds from now by the *wall* clock: after a step of it, too early or late.
    pub fn start_timer(self, ms: i64, callback: fn(Context<'_>)) -> TimerId {
        // SAFETY: the context is live; the timer's data is the callback itself, which lives as long as the module.
        TimerId(unsafe { api!(RedisModule_CreateTimer(self.raw, ms, Some(on_timer), callback as *mut c_void)) })
    }

    /// Calls `callback` in the next pass of the event loop, after what clients have sent by then; the loop does not sleep
    /// before. (A timer of 0 ms does that too, but not from a timer: then the loop sleeps for a millisecond.)
    pub fn in_next_pass(self, callback: fn(Context<'_>)) {
        extern "C" fn on_wake(data: *mut c_void) {
            // What is written here would be sent to nobody: a timer does it, in this very pass.
            detached(|ctx| {
                // SAFETY: the context is live; the timer's data is the callback, as in `start_timer`.
                unsafe { api!(RedisModule_CreateTimer(ctx.raw, 0, Some(on_timer), data)) };
            });
        }
        // SAFETY: the callback's data is a function, which lives as long as the module.
        unsafe { api!(RedisModule_EventLoopAddOneShot(Some(on_wake), callback as *mut c_void)) };
    }

    /// Stops a timer; one that has already run is left alone.
    pub fn stop_timer(self, timer: TimerId) {
        // SAFETY: the context is live; the server looks the id up; the data is not asked for.
        unsafe { api!(RedisModule_StopTimer(self.raw, timer.0, null_mut())) };
    }

    /// What the server's configuration parameter `name` is.
    pub fn parameter(self, name: &CStr) -> Option<String> {
        CallReply::of_words(self, c"CONFIG", c"GET", name)?.value().element(1)?.text()
    }

    /// Whether the server's configuration parameter `name` is `value`.
    pub fn parameter_is(self, name: &CStr, value: &str) -> bool {
        self.parameter(name).is_some_and(|is| is == value)
    }

    /// The server is a Valkey.
    pub fn is_valkey(self) -> bool {
        // SAFETY: the context is live; the data is freed right after it was asked.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(self.raw, c"server".as_ptr()));
            let version = api!(RedisModule_ServerInfoGetFieldC(info, c"valkey_version".as_ptr()));
            let found = !version.is_null();
            api!(RedisModule_FreeServerInfo(self.raw, info));
            found
        }
    }

    /// A number of the server's INFO.
    pub fn info_number(self, section: &CStr, field: &CStr) -> Option<u64> {
        let mut failed = 0;
        // SAFETY: the context is live; the data is freed right after it was read.
        let number = unsafe {
            let info = api!(RedisModule_GetServerInfo(self.raw, section.as_ptr()));
            let number = api!(RedisModule_ServerInfoGetFieldUnsigned(info, field.as_ptr(), &mut failed));
            api!(RedisModule_FreeServerInfo(self.raw, info));
            number
        };
        (failed == raw::REDISMODULE_OK as c_int).then_some(number)
    }

    /// A text of the server's INFO.
    pub fn info_text(self, section: &CStr, field: &CStr) -> Option<String> {
        // SAFETY: the context is live; the data is freed right after the text in it was copied.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(self.raw, section.as_ptr()));
            let text = api!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
            let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            api!(RedisModule_FreeServerInfo(self.raw, info));
            text
        }
    }

    /// Sends `command one other option text` to the replicas, without the last two where the text is empty, and not to the AOF.
    pub fn replicate_to_replicas(
        self,
        command: &'static CStr,
        one: u64,
        other: u64,
        option: &'static CStr,
        text: &str,
    ) {
        let (one, other) = (one as std::ffi::c_longlong, other as std::ffi::c_longlong);
        // SAFETY: the context is live; the format announces two long longs, a C string and a buffer with its length, which follow
        // and outlive the call, and that the AOF is left out. Without a text the format has only the numbers.
        unsafe {
            let format = if text.is_empty() { c"llA" } else { c"llcbA" };
            api!(RedisModule_Replicate(
                self.raw,
                command.as_ptr(),
                format.as_ptr(),
                one,
                other,
                option.as_ptr(),
                text.as_ptr().cast::<c_char>(),
                text.len()
            ))
        };
    }

    pub(super) fn has(self, flag: u32) -> bool {
        // SAFETY: the context is live for 'a.
        unsafe { api!(RedisModule_GetContextFlags(self.raw)) & flag as c_int != 0 }
    }
}

extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    boundary::run(c"a timer", || {
        // SAFETY: `start_timer` is the only one that creates timers, and their data is such a function.
        let callback: fn(Context<'_>) = unsafe { std::mem::transmute(data) };
        // SAFETY: the server's context lasts for the call.
        callback(unsafe { Context::new(ctx) });
    });
}

/// Writes a warning to the server's log: somebody has to do something.
pub fn warn(text: &str) {
    log(c"warning", text);
}

/// Writes a notice to the server's log: worth a line in production.
pub fn notice(text: &str) {
    log(c"notice", text);
}

fn log(level: &CStr, text: &str) {
    let text = c_text(text);
    // SAFETY: a log line may come without a context; the format takes one C string, which follows.
    unsafe { api!(RedisModule_Log(null_mut(), level.as_ptr(), c"<lock> %s".as_ptr(), text.as_ptr())) };
}

/// `text` as a C string; a NUL byte in it, which C would take for its end, becomes a question mark.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}
