//! The functions of the server's C API: pointers that the server fills in when it loads the module.
//!
//! Functions newer than the oldest supported server (Redis 7.0) may be absent and are checked at each use.

pub(super) use redis_module::raw;

/// Calls a function of the API that every supported server has.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::ffi::api::raw::$function.expect(concat!(stringify!($function), " is part of every supported server"));
        function($($argument),*)
    }};
}
pub(super) use api;
