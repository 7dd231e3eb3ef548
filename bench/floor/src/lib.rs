//! The least cost of a lock in a module: two commands that do only what any lock module must.
//!
//! `FLOOR.STORE key owner ttl` stores a value with the owner's bytes under a key, `FLOOR.DELETE key owner` deletes it.
//! Both check what the key holds, make the server count a change and notify the watchers of the key, and answer an
//! integer. They decide nothing: there is no time, no token, no check of the owner. Measured beside ACQUIRE and RELEASE
//! on the same server, they show how much of the cost is the server's, for any such pair of commands.
//!
//! `FLOOR.BLOCK key` blocks its client forever without keeping anything about it: the least cost of a client that waits
//! for a module.
//!
//! For benchmarks only: its values cannot be saved.

use std::ffi::{CStr, c_int, c_longlong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

/// Calls a function of the server's API.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let function = raw::$function.expect(stringify!($function));
        function($($argument),*)
    }};
}

/// The entry point that the server looks for.
///
/// # Safety
/// Only the server may call it.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    let create = |name: &CStr, command, flags: &CStr| {
        // SAFETY: the module is being loaded, the texts are constants.
        unsafe { api!(RedisModule_CreateCommand(ctx, name.as_ptr(), Some(command), flags.as_ptr(), 1, 1, 1)) }
    };
    let methods = &mut raw::RedisModuleTypeMethods { version: 2, free: Some(free), ..NO_METHODS };
    // SAFETY: the context is the server's and the module is being loaded; the first call initializes what the others
    // use.
    unsafe {
        if raw::Export_RedisModule_Init(ctx, c"floor".as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int) != OK {
            return ERR;
        }
        TYPE.store(api!(RedisModule_CreateDataType(ctx, c"lockfloor".as_ptr(), 0, methods)), Ordering::Relaxed);
    }
    if TYPE.load(Ordering::Relaxed).is_null()
        || create(c"FLOOR.STORE", store, c"write fast deny-oom") != OK
        || create(c"FLOOR.DELETE", delete, c"write fast") != OK
        || create(c"FLOOR.BLOCK", block, c"write fast blocking") != OK
    {
        return ERR;
    }
    OK
}

extern "C" fn store(ctx: *mut raw::RedisModuleCtx, argv: *mut *mut raw::RedisModuleString, argc: c_int) -> c_int {
    if argc != 4 {
        // SAFETY: the context is live.
        return unsafe { api!(RedisModule_WrongArity(ctx)) };
    }
    with_key(ctx, argv, |key, is_held| {
        if is_held {
            return 0;
        }
        // SAFETY: the server has passed three arguments after the name, and owns the value from here on.
        unsafe {
            let mut len = 0;
            let owner = api!(RedisModule_StringPtrLen(*argv.add(2), &mut len));
            let value = api!(RedisModule_Alloc(len)).cast::<u8>();
            value.copy_from_nonoverlapping(owner.cast(), len);
            api!(RedisModule_ModuleTypeSetValue(key, TYPE.load(Ordering::Relaxed), value.cast()));
        }
        // A number with as many digits as a token.
        1_800_000_000_000_000
    })
}

extern "C" fn delete(ctx: *mut raw::RedisModuleCtx, argv: *mut *mut raw::RedisModuleString, argc: c_int) -> c_int {
    if argc != 3 {
        // SAFETY: the context is live.
        return unsafe { api!(RedisModule_WrongArity(ctx)) };
    }
    with_key(ctx, argv, |key, is_held| {
        if is_held {
            // SAFETY: the key is open for writing.
            unsafe { api!(RedisModule_DeleteKey(key)) };
        }
        0
    })
}

extern "C" fn block(ctx: *mut raw::RedisModuleCtx, _argv: *mut *mut raw::RedisModuleString, _argc: c_int) -> c_int {
    // SAFETY: the context is that of a client's command. The module never unblocks the client; the server does so when
    // it ends the connection.
    unsafe { api!(RedisModule_BlockClient(ctx, None, None, None, 0)) };
    OK
}

/// Opens the key of a command, runs `body`, and answers with its result.
fn with_key(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    body: impl FnOnce(*mut raw::RedisModuleKey, bool) -> c_longlong,
) -> c_int {
    let mode = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;
    // SAFETY: context and arguments last for the call; the key is closed only here, which notifies its watchers.
    unsafe {
        let key = api!(RedisModule_OpenKey(ctx, *argv.add(1), mode));
        let is_held = match api!(RedisModule_KeyType(key)) as isize {
            raw::REDISMODULE_KEYTYPE_EMPTY => false,
            raw::REDISMODULE_KEYTYPE_MODULE => api!(RedisModule_ModuleTypeGetType(key)) == TYPE.load(Ordering::Relaxed),
            _ => true,
        };
        let answer = body(key, is_held);
        api!(RedisModule_CloseKey(key));
        api!(RedisModule_ReplicateVerbatim(ctx));
        api!(RedisModule_ReplyWithLongLong(ctx, answer))
    }
}

extern "C" fn free(value: *mut c_void) {
    // SAFETY: `store` allocated the value, and the server frees it once.
    unsafe { api!(RedisModule_Free(value)) };
}

const NO_METHODS: raw::RedisModuleTypeMethods = raw::RedisModuleTypeMethods {
    version: 0,
    rdb_load: None,
    rdb_save: None,
    aof_rewrite: None,
    mem_usage: None,
    digest: None,
    free: None,
    aux_load: None,
    aux_save: None,
    aux_save_triggers: 0,
    free_effort: None,
    unlink: None,
    copy: None,
    defrag: None,
    mem_usage2: None,
    free_effort2: None,
    unlink2: None,
    copy2: None,
    aux_save2: None,
};
