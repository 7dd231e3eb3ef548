//! Loads the module into the server.
//!
//! The macro `redis_module!` is not used, for two reasons. It calls functions that servers older than the supported
//! ones lack, and so would crash such a server instead of logging a clear message. And its handlers do not catch
//! panics.

use std::ffi::c_int;

use super::api::{api, raw};
use super::context::{self, Context};
use super::log::warn;
use super::server_info::server_version;
use super::string::string_bytes;
use super::{boundary, command, config};

/// The module's name: the prefix of its parameters and of its fields in INFO.
const NAME: &std::ffi::CStr = c"lock";

/// The option by which a module says that it can handle slots that move in one step with their keys (Valkey 9). Without
/// it the server moves no slot in this way.
const OPTION_HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// The oldest supported server, as the API writes versions: 0x00MMmmpp.
const OLDEST_SERVER: c_int = 0x0007_0000;

/// The module's version as MODULE LIST shows it: major × 10000 + minor × 100 + patch. A candidate (1.2.3-rc.1) has that
/// of its release.
const VERSION: c_int = {
    let minor = part(env!("CARGO_PKG_VERSION_MINOR"));
    let patch = part(env!("CARGO_PKG_VERSION_PATCH"));
    assert!(minor < 100 && patch < 100, "the version in MODULE LIST has two digits for each of minor and patch");
    part(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000 + minor * 100 + patch
};

/// Returns the number that is one part of a version.
const fn part(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("a part of the version is no number"),
    }
}

/// The steps by which the module begins, when the server loads it.
pub trait Module {
    /// Registers the module's types, commands, parameters and events with the server.
    fn register(ctx: Context<'_>, arguments: &[&[u8]]) -> Result<(), String>;

    /// Begins the module's work. Its parameters are set now; the server's data is not loaded yet.
    fn begin(ctx: Context<'_>) -> Result<(), String>;
}

/// The server's context, as the entry of the library receives it.
pub type EntryContext = *mut raw::RedisModuleCtx;

/// The module's arguments, as the entry of the library receives them.
pub type EntryArguments = *mut *mut raw::RedisModuleString;

/// Makes a [`Module`] the one that the server loads from this library.
macro_rules! entry_point {
    ($module:ty) => {
        /// The entry of the library, which the server calls.
        ///
        /// # Safety
        /// Only the server calls this, with its context and `argc` arguments that last for the call.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unsafe_code)]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            ctx: $crate::ffi::EntryContext,
            argv: $crate::ffi::EntryArguments,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            // SAFETY: the caller's promise.
            unsafe { $crate::ffi::on_load::<$module>(ctx, argv, argc) }
        }
    };
}
pub(crate) use entry_point;

/// Loads the module `M`; the entry of the library calls this.
///
/// # Safety
/// As for the entry.
pub unsafe fn on_load<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the context is the server's; this fills in the API's pointers, so it comes before anything else, the
    // allocator included.
    let initialised =
        unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION, raw::REDISMODULE_APIVER_1 as c_int) };
    if initialised != raw::REDISMODULE_OK as c_int {
        // The servers fail for this reason alone, and most of them do not say so.
        warn(
            "the lock module was not loaded: it is loaded already. Name it once, in redis.conf or on the command line; \
             CONFIG REWRITE, which Sentinels also send, writes it into redis.conf",
        );
        return raw::REDISMODULE_ERR as c_int;
    }
    boundary::install_hook();
    let loaded = boundary::run("loading the module", || {
        // SAFETY: the server's context and arguments last for the call.
        let (ctx, arguments) = unsafe {
            let arguments = (0..argc as usize).map(|n| string_bytes(*argv.add(n))).collect::<Vec<_>>();
            (Context::new(ctx), arguments)
        };
        load::<M>(ctx, &arguments)
    });
    match loaded {
        Some(Ok(())) => raw::REDISMODULE_OK as c_int,
        Some(Err(why)) => {
            warn(&format!("the lock module was not loaded: {why}"));
            raw::REDISMODULE_ERR as c_int
        }
        None => raw::REDISMODULE_ERR as c_int,
    }
}

fn load<M: Module>(ctx: Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    if let Some(why) = too_old(server_version()) {
        return Err(why);
    }
    context::read_server_facts(ctx);
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    if ctx.is_valkey() {
        options |= OPTION_HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: the module is being loaded. We check for errors of loading, and signal changed keys ourselves.
    unsafe { api!(RedisModule_SetModuleOptions(ctx.raw(), options as c_int)) };
    command::add_acl_category(ctx);
    M::register(ctx, arguments)?;
    config::load(ctx)?;
    M::begin(ctx)
}

/// Returns why a server of this version is refused, or `None` if it is not.
fn too_old(version: c_int) -> Option<String> {
    let told = match version {
        0 => "an older version".to_owned(),
        version => format!("{}.{}", version >> 16, version >> 8 & 0xFF),
    };
    (version < OLDEST_SERVER)
        .then(|| format!("it needs Redis 7.0 or Valkey 8.0 at least, this server speaks {told}: upgrade the server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_below_the_floor_are_told_what_is_needed() {
        let cases = [
            (0, Some("speaks an older version: upgrade")),
            (0x0006_0010, Some("speaks 6.0: upgrade")),
            (0x0006_020E, Some("speaks 6.2: upgrade")),
            (0x0006_FFFF, Some("speaks 6.255: upgrade")),
            (0x0007_0000, None),
            (0x0007_0204, None),
            (0x0008_0203, None),
        ];
        for (version, expected) in cases {
            match (too_old(version), expected) {
                (None, None) => {}
                (Some(why), Some(expected)) => assert!(why.contains(expected), "{why}"),
                (why, _) => panic!("{version:x}: {why:?}"),
            }
        }
    }
}
