//! The module's section of INFO.

use std::ffi::{CStr, c_int};

use super::api::{api, raw};
use super::boundary;
use super::context::Context;
use super::log::c_text;

/// The content of the module's sections of INFO.
pub trait InfoSection {
    /// The name of the second section. The server puts `lock_` before it.
    const LISTED: &'static CStr;

    /// Returns the names and values of the first section. The server puts `lock_` before each name.
    fn fields() -> Vec<(&'static CStr, Field)>;

    /// Returns the names and values of the second section of INFO. If there are none, INFO does not show the section.
    fn listed() -> Vec<(String, String)>;
}

/// The value of a field in INFO.
pub enum Field {
    /// A value that is a whole number.
    Number(u64),
    /// A value that is a word.
    Word(String),
}

/// Registers the section `S` with the server.
pub fn register<S: InfoSection>(ctx: Context<'_>) -> Result<(), String> {
    // SAFETY: the module is being loaded.
    if unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw(), Some(on_info::<S>))) } == raw::REDISMODULE_OK as c_int {
        Ok(())
    } else {
        Err("the server did not take the section of INFO".to_owned())
    }
}

extern "C" fn on_info<S: InfoSection>(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // This is a crash report. It must not read state that the crash may have left half written.
    if for_crash_report != 0 {
        return;
    }
    boundary::run("INFO", || {
        // SAFETY: the server's `info` lasts for the call; names and values last for it too. Without a name the section
        // has the module's.
        unsafe {
            if api!(RedisModule_InfoAddSection(info, c"".as_ptr())) == raw::REDISMODULE_OK as c_int {
                for (name, value) in S::fields() {
                    match value {
                        Field::Number(value) => {
                            api!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value));
                        }
                        Field::Word(word) => {
                            let word = c_text(&word);
                            api!(RedisModule_InfoAddFieldCString(info, name.as_ptr(), word.as_ptr()));
                        }
                    }
                }
            }
            let listed = S::listed();
            if !listed.is_empty()
                && api!(RedisModule_InfoAddSection(info, S::LISTED.as_ptr())) == raw::REDISMODULE_OK as c_int
            {
                for (name, value) in listed {
                    let (name, value) = (c_text(&name), c_text(&value));
                    api!(RedisModule_InfoAddFieldCString(info, name.as_ptr(), value.as_ptr()));
                }
            }
        }
    });
}
