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
use super::string::{KeyName, string_bytes};

/// The server's flags for a command that reads a key, and for the commands that change one.
const READS: c_int = raw::REDISMODULE_CMD_KEY_ACCESS as c_int;
const WRITES: c_int =
    (raw::REDISMODULE_CMD_KEY_INSERT | raw::REDISMODULE_CMD_KEY_UPDATE | raw::REDISMODULE_CMD_KEY_DELETE) as c_int;

/// The most keys that a command may have for the server to free all memory when it is asked for them. It asks for more
/// memory if there are more keys, and keeps that for ever.
const KEYS_WITHOUT_LEAK: usize = 256;

/// A command with its arguments, which are the last arguments of the command that is being run.
#[derive(Clone, Copy)]
pub struct Inner<'a> {
    ctx: Context<'a>,
    /// The command's name and its arguments.
    argv: &'a [*mut raw::RedisModuleString],
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

/// A word of a command, with the server's flags for the key that it names.
type FlaggedWord = (*mut raw::RedisModuleString, c_int);

/// A key of a command.
pub struct InnerKey<'a> {
    /// The name of the key.
    pub name: KeyName<'a>,
    /// True if the command may change the key, not only read it.
    pub may_change: bool,
}

impl<'a> Inner<'a> {
    /// Creates the command that begins at the index `place` of `argv`, the words of the command that is being run.
    pub(super) fn new(ctx: Context<'a>, argv: &'a [*mut raw::RedisModuleString], place: usize) -> Self {
        Self { ctx, argv: argv.get(place..).unwrap_or_default() }
    }

    /// Returns the command's name, as it was sent.
    pub fn name(&self) -> &'a [u8] {
        // SAFETY: the server keeps the arguments for the length of the call.
        self.argv.first().map_or(&[], |&name| unsafe { string_bytes(name) })
    }

    /// Returns the command's keys; there is at least one.
    pub fn keys(&self) -> Result<Vec<InnerKey<'a>>, NoKeys> {
        if self.argv.is_empty() {
            return Err(NoKeys::UnknownCommand);
        }
        let by_command = if self.argv.len() > KEYS_WITHOUT_LEAK { self.keys_by_command() } else { None };
        let keys = by_command.map_or_else(|| self.keys_by_function(), Ok)?;
        // The server does not always tell what the command does with a key (Redis 7.0, for most commands).
        let is_told = |flags| flags & (READS | WRITES) != 0;
        let only_reads = !keys.iter().all(|&(_, flags)| is_told(flags)) && self.only_reads();
        let key = |(name, flags)| {
            // SAFETY: the server keeps the words for the length of the call.
            let name = unsafe { KeyName::new(name) };
            InnerKey { name, may_change: if is_told(flags) { flags & WRITES != 0 } else { !only_reads } }
        };
        Ok(keys.into_iter().map(key).collect())
    }

    /// Returns whether the server would run a command with these keys and the key `other` now. While their slot moves to
    /// another node of a cluster, it refuses a command some of whose keys are there.
    pub fn are_here(&self, keys: &[InnerKey<'_>], other: KeyName<'_>) -> bool {
        let names: Vec<_> = keys.iter().map(|key| key.name.raw()).chain([other.raw()]).collect();
        CallReply::of_keys(self.ctx, c"EXISTS", &names).is_some()
    }

    /// Returns the words that are the command's keys, with the server's flags for each.
    fn keys_by_function(&self) -> Result<Vec<FlaggedWord>, NoKeys> {
        let (mut count, mut flags) = (0, null_mut());
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
        if places.is_null() {
            return Err(match Error::last_os_error().kind() {
                ErrorKind::NotFound => NoKeys::UnknownCommand,
                ErrorKind::InvalidInput => NoKeys::WrongWords,
                _ => NoKeys::None,
            });
        }
        let key = |n| {
            // SAFETY: the server returned as many places and flags as it said; they are ours until they are freed below.
            let (place, flags) = unsafe { (*places.add(n), *flags.add(n)) };
            Some((*self.argv.get(place as usize)?, flags))
        };
        let keys = (0..count as usize).filter_map(key).collect();
        // SAFETY: the server allocated both for us, and they are freed only here.
        unsafe {
            api!(RedisModule_Free(places.cast()));
            api!(RedisModule_Free(flags.cast()));
        }
        Ok(keys)
    }

    /// Returns the same by COMMAND GETKEYSANDFLAGS; `None` if it tells no key.
    fn keys_by_command(&self) -> Option<Vec<FlaggedWord>> {
        let told = CallReply::of_word_and_strings(self.ctx, c"COMMAND", c"GETKEYSANDFLAGS", self.argv)?;
        let mut next = 0;
        let keys = told.value().elements().map(|key| {
            let name = key.element(0)?.bytes()?;
            // SAFETY: the server keeps the words for the length of the call.
            let is_name = |&word: &*mut raw::RedisModuleString| unsafe { string_bytes(word) } == name;
            // Every word with these bytes will do. Keys mostly come in the order of the words.
            let later = self.argv[next..].iter().position(is_name).map(|n| next + n);
            let place = later.or_else(|| self.argv.iter().position(is_name))?;
            next = place + 1;
            let flags = key.element(1)?.elements().filter_map(|flag| match flag.bytes()? {
                b"access" => Some(READS),
                b"insert" | b"update" | b"delete" => Some(WRITES),
                _ => None,
            });
            Some((self.argv[place], flags.fold(0, |all, flag| all | flag)))
        });
        keys.collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty())
    }

    /// Returns whether the command only reads its keys.
    fn only_reads(&self) -> bool {
        static READERS: CommandRules = CommandRules::new();
        (READERS.is_set() || READERS.set_for(&[b"%R~*", b"allchannels", b"+@all"], &[])) && READERS.permit(self)
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
