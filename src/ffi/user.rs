//! Users of the server, and what the present ACL rules allow them.

use std::ptr::null_mut;

use super::api::{api, raw};
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
        (!name.is_null()).then_some(Self(name))
    }

    /// Returns the name of the user.
    pub fn name(&self) -> &[u8] {
        // SAFETY: the string is ours, and lives as long as this.
        unsafe { string_bytes(self.0) }
    }

    /// Returns whether the present rules allow this user to run `command` on `key`. Arguments after the key do not
    /// matter to the rules. If the user was deleted, this returns false. (If the user was only disabled, it goes on as
    /// before, as with the server itself.)
    pub fn may_run(&self, command: &str, key: KeyName<'_>) -> bool {
        KeyName::with(command.as_bytes(), |command| {
            let mut argv = [command.raw(), key.raw()];
            // SAFETY: the strings live for the calls; the server's record of the user is used right here and given
            // back.
            unsafe {
                let user = api!(RedisModule_GetModuleUserFromUserName(self.0));
                if user.is_null() {
                    return false;
                }
                let status = api!(RedisModule_ACLCheckCommandPermissions(user, argv.as_mut_ptr(), argv.len() as i32));
                api!(RedisModule_FreeModuleUser(user));
                status == raw::REDISMODULE_OK as i32
            }
        })
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the name is ours, and freed only here; it was made without keeping it for the context.
        unsafe { api!(RedisModule_FreeString(null_mut(), self.0)) };
    }
}
