//! Writes to the server's log.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use super::api::api;

/// Writes a warning to the server's log. For what an operator has to know.
pub fn warn(text: &str) {
    log(c"warning", text);
}

/// Writes a notice to the server's log. For what is worth a line in production.
pub fn notice(text: &str) {
    log(c"notice", text);
}

fn log(level: &CStr, text: &str) {
    let text = c_text(text);
    // SAFETY: a log line may come without a context; the format takes one C string, which follows.
    unsafe { api!(RedisModule_Log(null_mut(), level.as_ptr(), c"<lock> %s".as_ptr(), text.as_ptr())) };
}

/// Returns `text` as a C string. A NUL byte, which C would take for the end, becomes a question mark.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}
