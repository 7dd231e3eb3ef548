//! The data type: how the server saves, loads, measures and frees locks.
//!
//! `free` may run on another thread (lazy freeing), so it touches only the lock's own memory. `unlink` runs on the main
//! thread before a key is removed for any reason except a flush: there the node forgets the lock.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use palisade_core::Lock;

use super::api::{api, raw};
use super::context::{self, Context};
use super::log::warn;
use super::string::{KeyName, string_bytes};
use super::{boundary, freeing, key, value};

/// The name that TYPE returns: nine characters, as the server demands.
const NAME: &CStr = c"redislock";

/// The version of the encoding. The record has a version of its own, so this one stays.
const ENCODING_VERSION: c_int = 1;

/// The version of the struct of callbacks: that of Redis 7.0, since servers refuse one newer than their own.
const METHODS_VERSION: u64 = 4;

/// The server's callbacks about locks.
pub trait DataType {
    /// The internal command that re-creates a lock when the AOF is rewritten: `command key bytes`.
    const AOF_COMMAND: &'static CStr;

    /// Appends the lock's record to `out`.
    fn save(lock: &Lock, out: &mut Vec<u8>);

    /// Returns the lock of a record that arrives for the key `name`, if it is a possible one. The server may still drop
    /// it: once it is stored, an event of the key follows.
    fn load(ctx: Context<'_>, name: KeyName<'_>, bytes: &[u8]) -> Option<Box<Lock>>;

    /// Handles a lock whose key `name` leaves `db`, or its name there, when the module does not delete it. The context
    /// is only good for flags of the server.
    fn unlink(ctx: Context<'_>, db: u32, name: &[u8], lock: &mut Lock);

    /// Handles the consequences of a removed lock for others. The context is only good for timers.
    fn unlinked(ctx: Context<'_>, db: u32, name: &[u8]);

    /// Returns the memory of a lock under a name of this length, beside the key itself, in bytes.
    fn memory(lock: &Lock, name_bytes: usize) -> usize;
}

/// Registers the data type.
pub fn register<D: DataType>(ctx: Context<'_>) -> Result<(), String> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: METHODS_VERSION,
        rdb_load: Some(rdb_load::<D>),
        rdb_save: Some(rdb_save::<D>),
        aof_rewrite: Some(aof_rewrite::<D>),
        mem_usage: None,
        digest: Some(digest),
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        // Without a copy callback COPY refuses: one grant must not become two.
        copy: None,
        // Locks live for seconds: they are gone before a defragmentation pays.
        defrag: None,
        mem_usage2: Some(mem_usage::<D>),
        free_effort2: None,
        unlink2: Some(unlink::<D>),
        copy2: None,
        aux_save2: None,
    };
    // SAFETY: the module is being loaded; the server copies the methods.
    let handle = unsafe { api!(RedisModule_CreateDataType(ctx.raw(), NAME.as_ptr(), ENCODING_VERSION, &mut methods)) };
    if handle.is_null() {
        return Err("the server did not take the data type redislock: does another module have it?".to_owned());
    }
    value::set_handle(handle);
    Ok(())
}

extern "C" fn rdb_load<D: DataType>(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    boundary::run("loading a lock", || {
        if encoding != ENCODING_VERSION {
            warn(&format!(
                "a lock in encoding {encoding} was refused, this module reads {ENCODING_VERSION}: load a module that \
                 knows it"
            ));
            return null_mut();
        }
        // SAFETY: the server's `io` lasts for the call; the buffer is ours to free; key and context are the server's.
        unsafe {
            let mut len = 0;
            let buffer = api!(RedisModule_LoadStringBuffer(io, &mut len));
            if buffer.is_null() || api!(RedisModule_IsIOError(io)) != 0 {
                warn("a lock was refused: its record could not be read");
                return null_mut();
            }
            let bytes = std::slice::from_raw_parts(buffer.cast::<u8>(), len);
            let name = KeyName::new(api!(RedisModule_GetKeyNameFromIO(io)).cast_mut());
            // Flags of the server as a whole need no context, and this one has no client.
            let loaded = D::load(Context::new(null_mut()), name, bytes);
            api!(RedisModule_Free(buffer.cast()));
            loaded.map_or(null_mut(), |lock| value::give(lock).as_ptr().cast())
        }
    })
    .unwrap_or(null_mut())
}

extern "C" fn rdb_save<D: DataType>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    boundary::run("saving a lock", || {
        // SAFETY: the value is a lock of ours that the server holds for the call.
        let record = record::<D>(unsafe { &*value.cast::<Lock>() });
        // SAFETY: the server's `io` lasts for the call; it copies the bytes.
        unsafe { api!(RedisModule_SaveStringBuffer(io, record.as_ptr().cast(), record.len())) };
    });
}

extern "C" fn aof_rewrite<D: DataType>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    boundary::run("rewriting the AOF", || {
        // SAFETY: as in `rdb_save`.
        let record = record::<D>(unsafe { &*value.cast::<Lock>() });
        // SAFETY: the format announces a module string and a buffer with its length, which follow.
        unsafe {
            api!(RedisModule_EmitAOF(io, D::AOF_COMMAND.as_ptr(), c"sb".as_ptr(), key, record.as_ptr(), record.len()))
        };
    });
}

fn record<D: DataType>(lock: &Lock) -> Vec<u8> {
    let mut record = Vec::new();
    D::save(lock, &mut record);
    record
}

/// Computes what DEBUG DIGEST compares between a master and its replica: everything except times, which differ between
/// machines.
extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    boundary::run("digesting a lock", || {
        // SAFETY: the value is a lock of ours, the digest the server's; both last for the call.
        unsafe {
            for (mode, grant) in (*value.cast::<Lock>()).grants() {
                for part in [grant.owner(), grant.note()] {
                    api!(RedisModule_DigestAddStringBuffer(digest, part.as_ptr().cast(), part.len()));
                }
                for part in [grant.token().get(), u64::from(grant.holds()), u64::from(mode.number())] {
                    api!(RedisModule_DigestAddLongLong(digest, part as i64));
                }
                if grant.is_adopted() {
                    api!(RedisModule_DigestAddLongLong(digest, 1));
                }
            }
            api!(RedisModule_DigestEndSequence(digest));
        }
    });
}

/// Frees a lock; may run on any thread.
extern "C" fn free(value: *mut c_void) {
    boundary::run("freeing a lock", || {
        if let Some(lock) = NonNull::new(value.cast::<Lock>()).filter(|&lock| !key::leaves_freeing(lock)) {
            // SAFETY: every value of this type was handed over, and the server frees it once.
            freeing::free_lock(unsafe { value::take_back(lock) });
        }
    });
}

extern "C" fn unlink<D: DataType>(ctx: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    // The caller that deletes it knows.
    if key::is_deleting() {
        return;
    }
    boundary::run("unlinking a lock", || {
        // SAFETY: the value is a lock of ours, allocated by us and so mutable; the server holds no reference into it
        // and `LockKey` gave up its own before it deletes.
        let lock = unsafe { &mut *value.cast_mut().cast::<Lock>() };
        // SAFETY: the server's context, and the name in it, last for the call.
        let (db, name) = unsafe {
            let name = api!(RedisModule_GetKeyNameFromOptCtx(ctx));
            (api!(RedisModule_GetDbIdFromOptCtx(ctx)), if name.is_null() { &[] } else { string_bytes(name) })
        };
        let db = u32::try_from(db).unwrap_or(0);
        // SAFETY: flags of the server as a whole need no context.
        let server = unsafe { Context::new(null_mut()) };
        D::unlink(server, db, name, lock);
        context::detached(|ctx| D::unlinked(ctx, db, name));
    });
}

extern "C" fn mem_usage<D: DataType>(
    ctx: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
    _sample_size: usize,
) -> usize {
    boundary::run("measuring a lock", || {
        // SAFETY: the value is a lock of ours and the name the server's; both last for the call.
        unsafe {
            let name = api!(RedisModule_GetKeyNameFromOptCtx(ctx));
            D::memory(&*value.cast::<Lock>(), if name.is_null() { 0 } else { string_bytes(name).len() })
        }
    })
    .unwrap_or(0)
}
