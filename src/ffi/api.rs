//! The functions of the server's C API: pointers that the server fills in when it loads the module.
//!
//! Functions that are newer than the oldest supported server (Redis 7.0) may be absent. Their callers check that.

pub(super) use redis_module::raw;

/// Calls a function of the C API that every supported server has.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::ffi::api::raw::$function.expect(concat!(stringify!($function), " is part of every supported server"));
        function($($argument),*)
    }};
}
pub(super) use api;
