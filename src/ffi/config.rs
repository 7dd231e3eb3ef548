//! Configuration parameters of the module, as the server's own: CONFIG GET and SET, redis.conf, CONFIG REWRITE.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::api::{api, raw};
use super::boundary;
use super::context::Context;
use super::log::c_text;
use super::string::string_bytes;

/// A parameter that is a number.
pub struct NumericConfig {
    /// The name of the parameter, after `lock.`.
    pub name: &'static CStr,
    /// The value that the parameter has now.
    pub value: AtomicI64,
    /// The value that the parameter has unless the operator sets another.
    pub default: i64,
    /// The smallest value that the server accepts.
    pub min: i64,
    /// The largest value that the server accepts.
    pub max: i64,
    /// True if the parameter cannot be changed while the server runs.
    pub immutable: bool,
}

impl NumericConfig {
    /// Describes a parameter with its default, and its smallest and largest value.
    pub const fn new(name: &'static CStr, default: i64, (min, max): (i64, i64)) -> Self {
        Self { name, value: AtomicI64::new(default), default, min, max, immutable: false }
    }

    /// Returns this parameter as one that cannot be changed while the server runs.
    pub const fn immutable(self) -> Self {
        Self { immutable: true, ..self }
    }

    /// Returns the value that the parameter has now.
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// A parameter that is one of several words.
pub struct ChoiceConfig {
    /// The name of the parameter, after `lock.`.
    pub name: &'static CStr,
    /// The words that the parameter can have.
    pub words: &'static [&'static CStr],
    /// The index of the chosen word in `words`. The default is 0.
    pub value: AtomicI64,
}

impl ChoiceConfig {
    /// Returns the index of the chosen word.
    pub fn get(&self) -> usize {
        self.value.load(Ordering::Relaxed) as usize
    }
}

/// A parameter that is a text.
pub struct TextConfig {
    /// The name of the parameter, after `lock.`.
    pub name: &'static CStr,
    /// The value that the parameter has now.
    pub value: Mutex<String>,
    /// The function that checks an operator's value. It returns the text to store, or why the value is refused.
    pub read: fn(&[u8]) -> Result<String, &'static str>,
    /// True if the parameter cannot be changed while the server runs.
    pub immutable: bool,
}

impl TextConfig {
    /// Returns the value that the parameter has now.
    pub fn get(&self) -> String {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Registers `config` with the server. If an argument of the module sets the parameter, that value is the `default`.
pub fn register(ctx: Context<'_>, config: &'static NumericConfig, default: Option<i64>) -> Result<(), String> {
    // SAFETY: the module is being loaded; name and config are statics, the config is what the callbacks are given back.
    ensure_registered(config.name, unsafe {
        api!(RedisModule_RegisterNumericConfig(
            ctx.raw(),
            config.name.as_ptr(),
            default.unwrap_or(config.default),
            flags(config.immutable),
            config.min,
            config.max,
            Some(get),
            Some(set),
            None,
            std::ptr::from_ref(config).cast_mut().cast::<c_void>()
        ))
    })
}

/// Registers a parameter that is one of several words. The word with the index `default` is its default.
pub fn register_choice(ctx: Context<'_>, config: &'static ChoiceConfig, default: usize) -> Result<(), String> {
    let mut words: Vec<_> = config.words.iter().map(|word| word.as_ptr()).collect();
    let values: Vec<c_int> = (0..words.len() as c_int).collect();
    // SAFETY: as in `register`; the server copies words and values.
    ensure_registered(config.name, unsafe {
        api!(RedisModule_RegisterEnumConfig(
            ctx.raw(),
            config.name.as_ptr(),
            default as c_int,
            raw::REDISMODULE_CONFIG_DEFAULT,
            words.as_mut_ptr(),
            values.as_ptr(),
            words.len() as c_int,
            Some(get_choice),
            Some(set_choice),
            None,
            std::ptr::from_ref(config).cast_mut().cast::<c_void>()
        ))
    })
}

/// Registers a parameter that is a text, with `default` as its default.
pub fn register_text(ctx: Context<'_>, config: &'static TextConfig, default: &str) -> Result<(), String> {
    let default = c_text(default);
    // SAFETY: as in `register`; the server copies the default.
    ensure_registered(config.name, unsafe {
        api!(RedisModule_RegisterStringConfig(
            ctx.raw(),
            config.name.as_ptr(),
            default.as_ptr(),
            flags(config.immutable),
            Some(get_text),
            Some(set_text),
            None,
            std::ptr::from_ref(config).cast_mut().cast::<c_void>()
        ))
    })
}

fn flags(is_immutable: bool) -> u32 {
    if is_immutable { raw::REDISMODULE_CONFIG_IMMUTABLE } else { raw::REDISMODULE_CONFIG_DEFAULT }
}

fn ensure_registered(name: &CStr, status: c_int) -> Result<(), String> {
    if status == raw::REDISMODULE_OK as c_int {
        Ok(())
    } else {
        Err(format!("the server did not take the configuration parameter lock.{}", name.to_string_lossy()))
    }
}

/// Makes the server set each parameter: to its value in redis.conf, or to its default.
pub(super) fn load(ctx: Context<'_>) -> Result<(), String> {
    // SAFETY: the module is being loaded and has registered its parameters.
    if unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) } == raw::REDISMODULE_OK as c_int {
        Ok(())
    } else {
        Err("a lock.* parameter in redis.conf is unknown or out of bounds, see the line above".to_owned())
    }
}

extern "C" fn get_text(_name: *const c_char, config: *mut c_void) -> *mut raw::RedisModuleString {
    thread_local! {
        /// The string that was last returned to CONFIG GET. The server reads it but does not free it, so it lives until
        /// the next one replaces it.
        static ANSWER: Cell<*mut raw::RedisModuleString> = const { Cell::new(null_mut()) };
    }
    boundary::run("reading a parameter", || {
        // SAFETY: `register_text` handed over a static.
        let text = unsafe { &*config.cast::<TextConfig>() }.get();
        // SAFETY: the server copies the bytes; the last answer was ours alone.
        unsafe {
            let answer = api!(RedisModule_CreateString(null_mut(), text.as_ptr().cast(), text.len()));
            let last = ANSWER.replace(answer);
            if !last.is_null() {
                api!(RedisModule_FreeString(null_mut(), last));
            }
            answer
        }
    })
    .unwrap_or(null_mut())
}

extern "C" fn set_text(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    config: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let set = boundary::run("setting a parameter", || {
        // SAFETY: `register_text` handed over a static; the value lasts for the call.
        let (config, value) = unsafe { (&*config.cast::<TextConfig>(), string_bytes(value)) };
        let text = (config.read)(value)?;
        *config.value.lock().unwrap_or_else(PoisonError::into_inner) = text;
        Ok(())
    });
    match set {
        Some(Ok(())) => return raw::REDISMODULE_OK as c_int,
        // SAFETY: the server copies the bytes, and frees the string that it is handed.
        Some(Err(why)) if !error.is_null() => unsafe {
            let why: &str = why;
            *error = api!(RedisModule_CreateString(null_mut(), why.as_ptr().cast(), why.len()));
        },
        _ => {}
    }
    raw::REDISMODULE_ERR as c_int
}

// The callbacks below cannot panic: they read or write an atomic.

extern "C" fn get_choice(_name: *const c_char, config: *mut c_void) -> c_int {
    // SAFETY: `register_choice` handed over a static.
    unsafe { &*config.cast::<ChoiceConfig>() }.get() as c_int
}

extern "C" fn set_choice(
    _name: *const c_char,
    value: c_int,
    config: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as above. The server takes no other value than those registered.
    unsafe { &*config.cast::<ChoiceConfig>() }.value.store(value.into(), Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}

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
