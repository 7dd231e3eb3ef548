//! Users of the server, and what the present ACL rules allow them.

use std::ffi::c_int;
use std::io::{Error, ErrorKind};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use super::api::{api, raw};
use super::call::CallReply;
use super::context::Context;
use super::string::{KeyName, string_bytes};

/// The user of a client, by name: the user's rules may change while the client waits, and the user may be deleted.
#[derive(Debug)]
pub struct User(*mut raw::RedisModuleString);

impl User {
    /// Returns the user of this command's client. `None` if another module sent the command without a user. Only for
    /// commands that came over a connection or that may block: without a user, Redis 7.0 would crash.
    pub fn of_client(ctx: Context<'_>) -> Option<Self> {
        // SAFETY: the context is that of a command; the name, a copy, is ours to free, since nothing is freed with this
        // context by itself.
        let name = unsafe { api!(RedisModule_GetCurrentUserName(ctx.raw())) };
        (!name.is_null()).then(|| Self(name))
    }

    /// Returns the name of the user.
    pub fn name(&self) -> &[u8] {
        // SAFETY: the string is ours, and lives as long as this.
        unsafe { string_bytes(self.0) }
    }

    /// Returns the user for whom this command runs, also in a script. `None` if another module sent the command without
    /// a user; then no rule applies to it.
    pub fn of_caller(ctx: Context<'_>) -> Option<Self> {
        // The commands of a connection may block, except in a transaction.
        if !ctx.has(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING) {
            return Self::of_client(ctx);
        }
        // Servers crash if they are asked for a user where there is none. A call as the user finds that out, before it
        // is refused because DEL needs a key.
        // SAFETY: the context is live; the format announces nothing.
        let reply = unsafe { api!(RedisModule_Call(ctx.raw(), c"DEL".as_ptr(), c"C".as_ptr())) };
        let error = Error::last_os_error();
        drop(CallReply::owned(reply));
        if error.kind() == ErrorKind::Unsupported { None } else { Self::of_client(ctx) }
    }

    /// Returns the present rules of this user; `None` if the user was deleted. (If the user was only disabled, it goes on
    /// as before, as with the server itself.)
    pub fn rules(&self) -> Option<Rules> {
        // SAFETY: the string is ours; the server's record of the user is given back when the rules are dropped.
        NonNull::new(unsafe { api!(RedisModule_GetModuleUserFromUserName(self.0)) }).map(Rules)
    }

    /// Returns whether the present rules allow this user to run `command` on `key` in this database, as
    /// [`Rules::permit`] does.
    pub fn may_run(&self, command: &str, db: u32, key: KeyName<'_>) -> bool {
        self.rules().is_some_and(|rules| KeyName::with(command.as_bytes(), |command| rules.permit(command, db, key)))
    }
}

/// The ACL rules of a user. Not to be kept, because the rules may change and the user may be deleted.
pub struct Rules(NonNull<raw::RedisModuleUser>);

impl Rules {
    /// Returns whether the user may run the command of the name `command` on `key` in this database. Arguments after the
    /// key do not matter to the rules.
    pub fn permit(&self, command: KeyName<'_>, db: u32, key: KeyName<'_>) -> bool {
        let mut argv = [command.raw(), key.raw()];
        let (user, argv, argc) = (self.0.as_ptr(), argv.as_mut_ptr(), argv.len() as c_int);
        // SAFETY: the record of the user is ours, and the strings live for the call; the server writes the reason.
        let status = unsafe {
            match check_in_database() {
                Some(check) => check(user, argv, argc, db as c_int, &mut 0),
                None => api!(RedisModule_ACLCheckCommandPermissions(user, argv, argc)),
            }
        };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Returns whether the user may read `key` with some command.
    pub fn permit_reading(&self, key: KeyName<'_>) -> bool {
        let flags = raw::REDISMODULE_CMD_KEY_ACCESS as c_int;
        // SAFETY: the record of the user is ours, and the string lives for the call.
        let status = unsafe { api!(RedisModule_ACLCheckKeyPermissions(self.0.as_ptr(), key.raw(), flags)) };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Adds to ACL LOG that the user had no permission for `key`.
    pub fn log_denied(&self, ctx: Context<'_>, key: KeyName<'_>) {
        let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_KEY;
        // SAFETY: the context is live, the record of the user is ours, and the server copies the name of the key.
        unsafe { api!(RedisModule_ACLAddLogEntry(ctx.raw(), self.0.as_ptr(), key.raw(), reason)) };
    }
}

/// A function that checks the permission for a command in a database, and writes the reason if it is denied.
type CheckInDatabase = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

/// Returns the function that checks rules about databases too, if the server has such rules (Valkey from 9.1). The older
/// function, which does not know the database, then refuses every user that has such rules.
fn check_in_database() -> Option<CheckInDatabase> {
    static FOUND: OnceLock<Option<CheckInDatabase>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut found: Option<CheckInDatabase> = None;
        // SAFETY: the server writes the function of this name, or leaves `None`.
        unsafe { api!(RedisModule_GetApi(c"RedisModule_ACLCheckPermissions".as_ptr(), (&raw mut found).cast())) };
        found
    })
}

impl Drop for Rules {
    fn drop(&mut self) {
        // SAFETY: the record is ours, and freed only here; the user itself stays.
        unsafe { api!(RedisModule_FreeModuleUser(self.0.as_ptr())) };
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the name is ours, and freed only here; it was made without keeping it for the context.
        unsafe { api!(RedisModule_FreeString(null_mut(), self.0)) };
    }
}
