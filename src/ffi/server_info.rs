//! Reads the server's configuration and its INFO.

use std::ffi::{CStr, c_int};

use super::api::{api, raw};
use super::call::CallReply;
use super::context::Context;

/// Returns the server's version as `0x00MMmmpp`: major, minor, patch. Servers before 6.0.9 do not say it: 0.
pub fn server_version() -> c_int {
    // SAFETY: reads a pointer that the server filled in, or did not.
    unsafe { raw::RedisModule_GetServerVersion }.map_or(0, |version| {
        // SAFETY: takes nothing.
        unsafe { version() }
    })
}

impl Context<'_> {
    /// Returns the value of the server's configuration parameter `name`, if it has one and reveals it.
    pub fn parameter(self, name: &CStr) -> Option<String> {
        CallReply::of_words(self, c"CONFIG", c"GET", name)?.value().element(1)?.text()
    }

    /// Returns whether the server's configuration parameter `name` is `value`.
    pub fn parameter_is(self, name: &CStr, value: &str) -> bool {
        self.parameter(name).is_some_and(|is| is == value)
    }

    /// Returns whether the server is a Valkey.
    pub fn is_valkey(self) -> bool {
        // SAFETY: the context is live; the data is freed right after it was asked.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(self.raw(), c"server".as_ptr()));
            let version = api!(RedisModule_ServerInfoGetFieldC(info, c"valkey_version".as_ptr()));
            let found = !version.is_null();
            api!(RedisModule_FreeServerInfo(self.raw(), info));
            found
        }
    }

    /// Returns the number in the field `field` of the server's INFO, if it is there.
    pub fn info_number(self, section: &CStr, field: &CStr) -> Option<u64> {
        let mut failed = 0;
        // SAFETY: the context is live; the data is freed right after it was read.
        let number = unsafe {
            let info = api!(RedisModule_GetServerInfo(self.raw(), section.as_ptr()));
            let number = api!(RedisModule_ServerInfoGetFieldUnsigned(info, field.as_ptr(), &mut failed));
            api!(RedisModule_FreeServerInfo(self.raw(), info));
            number
        };
        (failed == raw::REDISMODULE_OK as c_int).then_some(number)
    }

    /// Returns the text in the field `field` of the server's INFO, if it is there.
    pub fn info_text(self, section: &CStr, field: &CStr) -> Option<String> {
        // SAFETY: the context is live; the data is freed right after the text in it was copied.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(self.raw(), section.as_ptr()));
            let text = api!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
            let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            api!(RedisModule_FreeServerInfo(self.raw(), info));
            text
        }
    }
}
