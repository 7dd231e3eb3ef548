//! The data types: how the server saves, loads, measures and frees values of the module.
//!
//! `free` may run on another thread (lazy freeing), so it touches only the value's own memory. `unlink` runs on the
//! main thread before a key is removed for any reason except a flush. In it the node forgets the value.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use super::api::{api, raw};
use super::context::{self, Context};
use super::log::warn;
use super::string::{KeyName, string_bytes};
use super::value::Value;
use super::{boundary, freeing, key, value};

/// The version of the encoding that the server stores. It never changes, because each record contains a version of its
/// own.
const ENCODING_VERSION: c_int = 1;

/// The version of the struct of callbacks. It is that of Redis 7.0, because servers refuse a version newer than their
/// own.
const METHODS_VERSION: u64 = 4;

/// A data type of the module: what the server's callbacks need about its values.
pub trait DataType {
    /// The Rust type of the values.
    type Value: Value;

    /// The name that the command TYPE shows: nine characters, as servers demand.
    const NAME: &'static CStr;

    /// The internal command that writes a value into the AOF when the AOF is rewritten: `command key bytes`.
    const AOF_COMMAND: &'static CStr;

    /// Appends the value's record to `out`.
    fn save(value: &Self::Value, out: &mut Vec<u8>);

    /// Decodes the record of a value for the key `name`; `None` if it is not a possible one. The server may still drop
    /// the value. If it stores it, an event about the key follows.
    fn load(ctx: Context<'_>, name: KeyName<'_>, bytes: &[u8]) -> Option<Box<Self::Value>>;

    /// Adds to `digest` what must be equal on a master and its replica (DEBUG DIGEST). That is all but the times, which
    /// differ between machines.
    fn digest(value: &Self::Value, digest: &mut Digest);

    /// Called before `value` leaves its key `name` in `db`, unless the module itself deletes the key. `ctx` may be used
    /// only to read the server's flags.
    fn unlink(ctx: Context<'_>, db: u32, name: &[u8], value: &mut Self::Value);

    /// Called after a value has left its key, for what follows, such as a check of its queue. `ctx` may be used only to
    /// set timers.
    fn on_unlinked(ctx: Context<'_>, db: u32, name: &[u8]);

    /// Returns the memory that a value takes, without the key itself, in bytes, if the key's name has `name_bytes`
    /// bytes.
    fn memory(value: &Self::Value, name_bytes: usize) -> usize;
}

/// Registers the data type `D` with the server.
pub fn register<D: DataType>(ctx: Context<'_>) -> Result<(), String> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: METHODS_VERSION,
        rdb_load: Some(rdb_load::<D>),
        rdb_save: Some(rdb_save::<D>),
        aof_rewrite: Some(aof_rewrite::<D>),
        mem_usage: None,
        digest: Some(digest::<D>),
        free: Some(free::<D::Value>),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        // Without a copy callback the server refuses COPY. One grant must not become two, and a copied gate would not
        // learn of later tokens.
        copy: None,
        // There is no defragmentation, because most locks live for seconds and are gone before it pays.
        defrag: None,
        mem_usage2: Some(mem_usage::<D>),
        free_effort2: None,
        unlink2: Some(unlink::<D>),
        copy2: None,
        aux_save2: None,
    };
    // SAFETY: the module is being loaded; the server copies the methods.
    let handle =
        unsafe { api!(RedisModule_CreateDataType(ctx.raw(), D::NAME.as_ptr(), ENCODING_VERSION, &mut methods)) };
    if handle.is_null() {
        let name = D::NAME.to_string_lossy();
        return Err(format!("the server did not take the data type {name}: does another module have it?"));
    }
    value::set_handle::<D::Value>(handle);
    Ok(())
}

extern "C" fn rdb_load<D: DataType>(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    boundary::run("loading a value", || {
        if encoding != ENCODING_VERSION {
            warn(&format!(
                "a {} in encoding {encoding} was refused, this module reads {ENCODING_VERSION}: load a module that knows it",
                D::NAME.to_string_lossy()
            ));
            return null_mut();
        }
        // SAFETY: the server's `io` lasts for the call; the buffer is ours to free; key and context are the server's.
        unsafe {
            let mut len = 0;
            let buffer = api!(RedisModule_LoadStringBuffer(io, &mut len));
            if buffer.is_null() || api!(RedisModule_IsIOError(io)) != 0 {
                warn(&format!("a {} was refused: its record could not be read", D::NAME.to_string_lossy()));
                return null_mut();
            }
            let bytes = std::slice::from_raw_parts(buffer.cast::<u8>(), len);
            let name = KeyName::new(api!(RedisModule_GetKeyNameFromIO(io)).cast_mut());
            // The server's flags need no context. There is no client here.
            let loaded = D::load(Context::new(null_mut()), name, bytes);
            api!(RedisModule_Free(buffer.cast()));
            loaded.map_or(null_mut(), |loaded| value::give(loaded).as_ptr().cast())
        }
    })
    .unwrap_or(null_mut())
}

extern "C" fn rdb_save<D: DataType>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    boundary::run("saving a value", || {
        // SAFETY: the value is one of ours, of this type, that the server holds for the call.
        let record = record::<D>(unsafe { &*value.cast::<D::Value>() });
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
        let record = record::<D>(unsafe { &*value.cast::<D::Value>() });
        // SAFETY: the format announces a module string and a buffer with its length, which follow.
        unsafe {
            api!(RedisModule_EmitAOF(io, D::AOF_COMMAND.as_ptr(), c"sb".as_ptr(), key, record.as_ptr(), record.len()))
        };
    });
}

fn record<D: DataType>(value: &D::Value) -> Vec<u8> {
    let mut record = Vec::new();
    D::save(value, &mut record);
    record
}

/// The digest that DEBUG DIGEST calculates of the server's data.
pub struct Digest(*mut raw::RedisModuleDigest);

impl Digest {
    /// Adds bytes to the digest.
    pub fn add(&mut self, bytes: &[u8]) {
        // SAFETY: the server's digest lasts for the call in which this value exists.
        unsafe { api!(RedisModule_DigestAddStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len())) };
    }

    /// Adds a number to the digest.
    pub fn add_number(&mut self, number: u64) {
        // SAFETY: the server's digest lasts for the call in which this value exists.
        unsafe { api!(RedisModule_DigestAddLongLong(self.0, number as i64)) };
    }
}

extern "C" fn digest<D: DataType>(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    boundary::run("digesting a value", || {
        // SAFETY: the value is one of ours, of this type, the digest the server's; both last for the call.
        unsafe {
            D::digest(&*value.cast::<D::Value>(), &mut Digest(digest));
            api!(RedisModule_DigestEndSequence(digest));
        }
    });
}

/// Frees a value for the server; may run on any thread.
extern "C" fn free<V: Value>(value: *mut c_void) {
    boundary::run("freeing a value", || {
        if let Some(value) = NonNull::new(value.cast::<V>()).filter(|&value| !key::leaves_freeing(value)) {
            // SAFETY: every value of this type was handed over, and the server frees it once.
            freeing::free_value(unsafe { value::take_back(value) });
        }
    });
}

extern "C" fn unlink<D: DataType>(ctx: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    // If the module itself deletes the key, the code that does so updates the node.
    if key::is_deleting() {
        return;
    }
    boundary::run("unlinking a value", || {
        // SAFETY: the value is one of ours, of this type, allocated by us and so mutable; the server holds no reference
        // into it and `ValueKey` gave up its own before it deletes.
        let value = unsafe { &mut *value.cast_mut().cast::<D::Value>() };
        // SAFETY: the server's context, and the name in it, last for the call.
        let (db, name) = unsafe {
            let name = api!(RedisModule_GetKeyNameFromOptCtx(ctx));
            (api!(RedisModule_GetDbIdFromOptCtx(ctx)), if name.is_null() { &[] } else { string_bytes(name) })
        };
        let db = u32::try_from(db).unwrap_or(0);
        // SAFETY: flags of the server as a whole need no context.
        let server = unsafe { Context::new(null_mut()) };
        D::unlink(server, db, name, value);
        context::detached(|ctx| D::on_unlinked(ctx, db, name));
    });
}

extern "C" fn mem_usage<D: DataType>(
    ctx: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
    _sample_size: usize,
) -> usize {
    boundary::run("measuring a value", || {
        // SAFETY: the value is one of ours, of this type, and the name the server's; both last for the call.
        unsafe {
            let name = api!(RedisModule_GetKeyNameFromOptCtx(ctx));
            D::memory(&*value.cast::<D::Value>(), if name.is_null() { 0 } else { string_bytes(name).len() })
        }
    })
    .unwrap_or(0)
}
