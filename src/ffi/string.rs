//! Strings that belong to the server, and the names of keys.

use std::ptr::null_mut;

use super::api::{api, raw};

/// The name of a key, in a string that belongs to the server.
#[derive(Clone, Copy)]
pub struct KeyName<'a> {
    raw: *mut raw::RedisModuleString,
    bytes: &'a [u8],
}

impl<'a> KeyName<'a> {
    /// Wraps a string of the server.
    ///
    /// # Safety
    /// `raw` is a string of the server that lives for `'a` and is not changed meanwhile.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        // SAFETY: the caller's promise.
        Self { raw, bytes: unsafe { string_bytes(raw) } }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleString {
        self.raw
    }

    /// Returns the bytes of the key's name.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Calls `body` with `bytes` as the name of a key, in a new string of the server.
    pub fn with<T>(bytes: &[u8], body: impl FnOnce(KeyName<'_>) -> T) -> T {
        struct Owned(*mut raw::RedisModuleString);
        impl Drop for Owned {
            fn drop(&mut self) {
                // SAFETY: created below, without a context, and freed only here.
                unsafe { api!(RedisModule_FreeString(null_mut(), self.0)) };
            }
        }
        // SAFETY: the server copies the bytes; without a context the string is ours to free.
        let owned = Owned(unsafe { api!(RedisModule_CreateString(null_mut(), bytes.as_ptr().cast(), bytes.len())) });
        // SAFETY: the string lives until `owned` is dropped, after `body`.
        body(unsafe { KeyName::new(owned.0) })
    }
}

/// Returns the bytes of a string that belongs to the server.
///
/// # Safety
/// `string` lives for `'a` and is not changed meanwhile.
pub(super) unsafe fn string_bytes<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the caller's promise; `len` is ours.
    unsafe {
        let bytes = api!(RedisModule_StringPtrLen(string, &mut len));
        if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes.cast(), len) }
    }
}
