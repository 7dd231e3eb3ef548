//! Configuration parameters of the module, as the server's own: CONFIG GET and SET, redis.conf, CONFIG REWRITE.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicI64, Ordering};

use super::context::Context;
use super::{api, raw};

/// A number that an operator sets.
pub struct NumericConfig {
    /// Its name after `lock.`.
    pub name: &'static CStr,
    /// Where it is kept.
    pub value: AtomicI64,
    /// What it is if nobody sets it.
    pub default: i64,
    /// Its smallest value.
    pub min: i64,
    /// Its largest value.
    pub max: i64,
    /// Whether it is fixed once the server runs.
    pub immutable: bool,
}

impl NumericConfig {
    /// Its value now.
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Makes `config` known, with `default` in place of its own if the module was given one as an argument.
pub fn register(ctx: Context<'_>, config: &'static NumericConfig, default: Option<i64>) -> Result<(), String> {
    let flags = if config.immutable { raw::REDISMODULE_CONFIG_IMMUTABLE } else { raw::REDISMODULE_CONFIG_DEFAULT };
    // SAFETY: the module is being loaded; name and config are statics, the config is what the callbacks are given back.
    let status = unsafe {
        api!(RedisModule_RegisterNumericConfig(
            ctx.raw(),
            config.name.as_ptr(),
            default.unwrap_or(config.default),
            flags,
            config.min,
            config.max,
            Some(get),
            Some(set),
            None,
            std::ptr::from_ref(config).cast_mut().cast::<c_void>()
        ))
    };
    if status == raw::REDISMODULE_OK as c_int {
        Ok(())
    } else {
        Err(format!("the server did not take the configuration parameter lock.{}", config.name.to_string_lossy()))
    }
}

/// Has the server set every parameter, from redis.conf or to its default.
pub(super) fn load(ctx: Context<'_>) -> Result<(), String> {
    // SAFETY: the module is being loaded and has registered its parameters.
    if unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) } == raw::REDISMODULE_OK as c_int {
        Ok(())
    } else {
        Err("a lock.* parameter in redis.conf is unknown or out of bounds, see the line above".to_owned())
    }
}

// Neither callback can panic: they read or write an atomic.

extern "C" fn get(_name: *const c_char, config: *mut c_void) -> c_longlong {
    // SAFETY: `register` handed over a static.
    unsafe { &*config.cast::<NumericConfig>() }.get()
}

extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    config: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as above. The server has checked the bounds.
    unsafe { &*config.cast::<NumericConfig>() }.value.store(value, Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}
