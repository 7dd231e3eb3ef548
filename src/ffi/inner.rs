//! A command among the arguments of another one, as after LOCK.GATE's COMMAND: finds its keys, checks whether rules
//! permit it, and runs it.

use std::ffi::{CString, c_int};
use std::io::{Error, ErrorKind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::api::{api, raw};
use super::call::CallReply;
use super::context::Context;
use super::reply::Reply;
use super::string::string_bytes;

/// The server's flags for what a command does with a key: read, insert, update, delete.
const USES: c_int = (raw::REDISMODULE_CMD_KEY_ACCESS
    | raw::REDISMODULE_CMD_KEY_INSERT
    | raw::REDISMODULE_CMD_KEY_UPDATE
    | raw::REDISMODULE_CMD_KEY_DELETE) as c_int;

/// A command with its arguments, which are the last arguments of the command that is being run.
#[derive(Clone, Copy)]
pub struct Inner<'a> {
    ctx: Context<'a>,
    /// The command's name and its arguments.
    argv: &'a [*mut raw::RedisModuleString],
    /// The index of the command's name among the arguments of the command that is being run.
    place: usize,
}

/// The reason why a command has no keys that could be checked.
#[derive(Debug)]
pub enum NoKeys {
    /// The server does not have the command.
    UnknownCommand,
    /// The number of arguments is wrong for the command.
    WrongWords,
    /// With these arguments the command has no key.
    None,
}

/// The indexes of a command's keys among its words, with the server's flags for each key.
pub struct InnerKeys {
    places: *mut c_int,
    flags: *mut c_int,
    count: usize,
}

impl InnerKeys {
    fn places(&self) -> &[c_int] {
        // SAFETY: the server returned as many places as it said; they are ours until this is dropped.
        unsafe { std::slice::from_raw_parts(self.places, self.count) }
    }

    fn flags(&self) -> &[c_int] {
        // SAFETY: the server returned as many flags as places; they are ours until this is dropped.
        unsafe { std::slice::from_raw_parts(self.flags, self.count) }
    }

    /// Iterates over the names of the keys. `inner` is the command of which these are the keys.
    pub fn names<'a>(&self, inner: &Inner<'a>) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: the server keeps the arguments for the length of the call.
        self.places()
            .iter()
            .filter_map(|&place| inner.argv.get(place as usize))
            .map(|&name| unsafe { string_bytes(name) })
    }
}

impl Drop for InnerKeys {
    fn drop(&mut self) {
        // SAFETY: the server allocated both for us, and they are freed only here.
        unsafe {
            api!(RedisModule_Free(self.places.cast()));
            api!(RedisModule_Free(self.flags.cast()));
        }
    }
}

impl<'a> Inner<'a> {
    /// Creates the command that begins at the index `place` of `argv`, the words of the command that is being run.
    pub(super) fn new(ctx: Context<'a>, argv: &'a [*mut raw::RedisModuleString], place: usize) -> Self {
        Self { ctx, argv: argv.get(place..).unwrap_or_default(), place }
    }

    /// Returns the command's name, as it was sent.
    pub fn name(&self) -> &'a [u8] {
        // SAFETY: the server keeps the arguments for the length of the call.
        self.argv.first().map_or(&[], |&name| unsafe { string_bytes(name) })
    }

    /// Returns the command's keys; there is at least one.
    pub fn keys(&self) -> Result<InnerKeys, NoKeys> {
        let (mut count, mut flags) = (0, null_mut());
        if self.argv.is_empty() {
            return Err(NoKeys::UnknownCommand);
        }
        // SAFETY: the words last for the call, and the server only reads them; count and flags are ours.
        let places = unsafe {
            api!(RedisModule_GetCommandKeysWithFlags(
                self.ctx.raw(),
                self.argv.as_ptr().cast_mut(),
                self.argv.len() as c_int,
                &mut count,
                &mut flags
            ))
        };
        if !places.is_null() {
            return Ok(InnerKeys { places, flags, count: count as usize });
        }
        match Error::last_os_error().kind() {
            ErrorKind::NotFound => Err(NoKeys::UnknownCommand),
            ErrorKind::InvalidInput => Err(NoKeys::WrongWords),
            _ => Err(NoKeys::None),
        }
    }

    /// Names this command's keys to the server, which has asked for the keys of the outer command (LOCK.GATE).
    pub fn report_keys(&self) {
        let Ok(keys) = self.keys() else { return };
        for (place, &flags) in keys.places().iter().zip(keys.flags()) {
            let flags = if flags & USES != 0 { flags } else { self.uses() };
            // SAFETY: the context is the one in which the server asks.
            unsafe { api!(RedisModule_KeyAtPosWithFlags(self.ctx.raw(), self.place as c_int + place, flags)) };
        }
    }

    /// Returns what the command does with its keys, as the server's flags, the same for all of its keys. Needed if the
    /// server does not tell the flags of each key (Redis 7.0, for most commands).
    fn uses(&self) -> c_int {
        use raw::*;
        static READERS: CommandRules = CommandRules::new();
        static WRITERS: CommandRules = CommandRules::new();
        let is_permitted_by = |rules: &CommandRules, keys: &[u8]| {
            (rules.is_set() || rules.set_for(&[keys, b"allchannels", b"+@all"], &[])) && rules.permit(self)
        };
        let flags = if is_permitted_by(&READERS, b"%R~*") {
            REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS
        } else if is_permitted_by(&WRITERS, b"%W~*") {
            REDISMODULE_CMD_KEY_OW | REDISMODULE_CMD_KEY_UPDATE
        } else {
            REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE
        };
        flags as c_int
    }

    /// Runs the command, and answers the client with its reply. Its effects go to replicas and the AOF. The server
    /// refuses it in the cases in which it refuses a script's command: no memory, a replica, too few replicas.
    pub fn run(self) -> Reply {
        // A name with a NUL byte is no command's, so the empty name stands for it.
        let name = CString::new(self.name()).unwrap_or_default();
        let arguments = self.argv.get(1..).unwrap_or_default();
        // SAFETY: the context is live; the format announces a vector of module strings with its length, which follow
        // and last for the call.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.ctx.raw(),
                name.as_ptr(),
                c"!0MESv".as_ptr(),
                arguments.as_ptr(),
                arguments.len()
            ))
        };
        match CallReply::owned(reply) {
            Some(reply) if !reply.is_missing() => reply.pass_on(self.ctx),
            // Valkey 9.1 loses the error of GETSET and GETDEL for a key of another type, and the command did nothing.
            Some(_) => Reply::Error(
                "ERR the server gave no reply to the command after COMMAND: send that command alone to see its error"
                    .to_owned(),
            ),
            None => Reply::Error("ERR the server did not run the command after COMMAND".to_owned()),
        }
    }
}

/// Rules about which commands are permitted. The server keeps them as the ACL of a user that the module creates; the
/// pointer is null until the rules are set.
pub struct CommandRules(AtomicPtr<raw::RedisModuleUser>);

impl CommandRules {
    /// Creates rules that permit no command.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Sets the rules: words that begin with + or -, as in a user's ACL. Returns false, and changes nothing, if a word
    /// is invalid.
    pub fn set(&self, rules: &[u8]) -> bool {
        let words: Vec<_> = rules.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let is_about_commands = words.iter().all(|word| matches!(word[0], b'+' | b'-'));
        is_about_commands && self.set_for(&[b"allkeys", b"allchannels", b"-@all"], &words)
    }

    fn is_set(&self) -> bool {
        !self.0.load(Relaxed).is_null()
    }

    fn set_for(&self, basis: &[&[u8]], words: &[&[u8]]) -> bool {
        // SAFETY: the name is a constant; the user is ours.
        let user = unsafe { api!(RedisModule_CreateModuleUser(c"lock.gate-commands".as_ptr())) };
        let apply = |word: &[u8]| {
            // SAFETY: the user is ours; the server reads the C string during the call.
            CString::new(word).is_ok_and(|word| unsafe {
                api!(RedisModule_SetModuleUserACL(user, word.as_ptr())) == raw::REDISMODULE_OK as c_int
            })
        };
        let is_valid = basis.iter().chain(words).all(|word| apply(word));
        let old = if is_valid { self.0.swap(user, Relaxed) } else { user };
        if !old.is_null() {
            // SAFETY: nobody else has this user.
            unsafe { api!(RedisModule_FreeModuleUser(old)) };
        }
        is_valid
    }

    /// Returns whether the rules permit the command `inner`.
    pub fn permit(&self, inner: &Inner<'_>) -> bool {
        let user = self.0.load(Relaxed);
        // SAFETY: the user is ours; the words last for the call, and the server only reads them.
        !user.is_null()
            && unsafe {
                api!(RedisModule_ACLCheckCommandPermissions(
                    user,
                    inner.argv.as_ptr().cast_mut(),
                    inner.argv.len() as c_int
                ))
            } == raw::REDISMODULE_OK as c_int
    }
}
