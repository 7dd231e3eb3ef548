//! Commands of the server that the module calls, and their replies.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use super::api::{api, raw};
use super::context::Context;
use super::reply::Reply;
use super::string::KeyName;

/// The reply to a command that the module called, freed when dropped. Its elements are borrowed from it.
pub struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    /// Takes over a reply that the server returned, to free it later; `None` if it is null.
    pub(super) fn owned(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(Self)
    }

    /// Answers the client of `ctx` with this reply.
    pub(super) fn pass_on(self, ctx: Context<'_>) -> Reply {
        // SAFETY: the context is live and has a client to answer; the reply is ours.
        unsafe { api!(RedisModule_ReplyWithCallReply(ctx.raw(), self.0.as_ptr())) };
        Reply::PassedOn
    }

    /// Returns whether the server has no reply: the client would wait for ever, or take the next reply for this one.
    pub(super) fn is_missing(&self) -> bool {
        let mut bytes = 0;
        // SAFETY: the reply is ours; the server sets the length.
        unsafe { api!(RedisModule_CallReplyProto(self.0.as_ptr(), &mut bytes)) };
        bytes == 0
    }

    /// Calls the server's command `command` with the argument `word`.
    pub fn of_word(ctx: Context<'_>, command: &CStr, word: &CStr) -> Option<Self> {
        // SAFETY: the context is live; the format announces a C string, which follows.
        let reply = unsafe { api!(RedisModule_Call(ctx.raw(), command.as_ptr(), c"c".as_ptr(), word.as_ptr())) };
        NonNull::new(reply).map(Self)
    }

    /// Calls the server's command `command` with the arguments `word` and `other`.
    pub fn of_words(ctx: Context<'_>, command: &CStr, word: &CStr, other: &CStr) -> Option<Self> {
        // SAFETY: the context is live; the format announces two C strings, which follow.
        let reply = unsafe {
            api!(RedisModule_Call(ctx.raw(), command.as_ptr(), c"cc".as_ptr(), word.as_ptr(), other.as_ptr()))
        };
        NonNull::new(reply).map(Self)
    }

    /// Calls the server's command `command` with a key as its argument. Returns `None` also if the server may not run
    /// it, as in a cluster where another node serves the key.
    pub fn of_key(ctx: Context<'_>, command: &CStr, key: KeyName<'_>) -> Option<Self> {
        // SAFETY: the context is live; the format announces a module string, which follows.
        let reply = unsafe { api!(RedisModule_Call(ctx.raw(), command.as_ptr(), c"s".as_ptr(), key.raw())) };
        NonNull::new(reply).map(Self)
    }

    /// Calls the server's command `command` with these keys as its arguments. Returns `None` also if the server may not
    /// run it, as in a cluster where another node serves one of the keys.
    pub(super) fn of_keys(ctx: Context<'_>, command: &CStr, keys: &[*mut raw::RedisModuleString]) -> Option<Self> {
        // SAFETY: the context is live; the format announces a vector of module strings with its length, which follow.
        let reply =
            unsafe { api!(RedisModule_Call(ctx.raw(), command.as_ptr(), c"v".as_ptr(), keys.as_ptr(), keys.len())) };
        NonNull::new(reply).map(Self)
    }

    /// Calls the server's command `command` with a word and these strings as its arguments.
    pub(super) fn of_word_and_strings(
        ctx: Context<'_>,
        command: &CStr,
        word: &CStr,
        strings: &[*mut raw::RedisModuleString],
    ) -> Option<Self> {
        let (name, word) = (command.as_ptr(), word.as_ptr());
        // SAFETY: the context is live; the format announces a C string, and a vector of module strings with its length,
        // which follow.
        let reply =
            unsafe { api!(RedisModule_Call(ctx.raw(), name, c"cv".as_ptr(), word, strings.as_ptr(), strings.len())) };
        NonNull::new(reply).map(Self)
    }

    /// Calls the server's command `command` with a word and a key as its arguments.
    pub fn of_word_and_key(ctx: Context<'_>, command: &CStr, word: &CStr, key: KeyName<'_>) -> Option<Self> {
        // SAFETY: the context is live; the format announces a C string and a module string, which follow.
        let reply =
            unsafe { api!(RedisModule_Call(ctx.raw(), command.as_ptr(), c"cs".as_ptr(), word.as_ptr(), key.raw())) };
        NonNull::new(reply).map(Self)
    }

    /// Returns whether `rename-command` hid `command`, so that the server has no command of this name. Only for
    /// commands that need an argument: this calls them without one, which does nothing.
    pub fn is_hidden(ctx: Context<'_>, command: &CStr) -> bool {
        // SAFETY: the context is live; the format announces nothing.
        let reply = unsafe { api!(RedisModule_Call(ctx.raw(), command.as_ptr(), c"".as_ptr())) };
        let error = std::io::Error::last_os_error();
        match NonNull::new(reply).map(Self) {
            Some(_) => false,
            // EINVAL, for example, says that the command exists, and that the number of arguments is wrong.
            None => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// Returns the value of the reply, for reading.
    pub fn value(&self) -> ReplyValue<'_> {
        ReplyValue { raw: self.0.as_ptr(), reply: std::marker::PhantomData }
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: the reply is ours, and freed only here.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) };
    }
}

/// A reply, or an element of one.
#[derive(Clone, Copy)]
pub struct ReplyValue<'a> {
    raw: *mut raw::RedisModuleCallReply,
    reply: std::marker::PhantomData<&'a CallReply>,
}

impl<'a> ReplyValue<'a> {
    /// Iterates over the elements of an array.
    pub fn elements(self) -> impl Iterator<Item = ReplyValue<'a>> {
        let count = if self.is(raw::REDISMODULE_REPLY_ARRAY) {
            // SAFETY: the reply lives for 'a.
            unsafe { api!(RedisModule_CallReplyLength(self.raw)) }
        } else {
            0
        };
        (0..count).filter_map(move |n| self.element(n))
    }

    /// Returns the element with the index `n` of an array; `None` if there is none.
    pub fn element(self, n: usize) -> Option<ReplyValue<'a>> {
        if !self.is(raw::REDISMODULE_REPLY_ARRAY) {
            return None;
        }
        // SAFETY: the reply lives for 'a; an element that does not exist is null.
        let raw = unsafe { api!(RedisModule_CallReplyArrayElement(self.raw, n)) };
        (!raw.is_null()).then_some(ReplyValue { raw, reply: self.reply })
    }

    /// Returns the reply if it is an integer.
    pub fn integer(self) -> Option<i64> {
        // SAFETY: the reply lives for 'a.
        self.is(raw::REDISMODULE_REPLY_INTEGER).then(|| unsafe { api!(RedisModule_CallReplyInteger(self.raw)) })
    }

    /// Returns the reply if it is text.
    pub fn text(self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the bytes of the reply if it is a string.
    pub fn bytes(self) -> Option<&'a [u8]> {
        if !self.is(raw::REDISMODULE_REPLY_STRING) {
            return None;
        }
        let mut len = 0;
        // SAFETY: the reply, and with it the bytes, lives for 'a.
        unsafe {
            let text = api!(RedisModule_CallReplyStringPtr(self.raw, &mut len));
            (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast(), len))
        }
    }

    fn is(self, kind: isize) -> bool {
        // SAFETY: the reply lives for 'a.
        unsafe { api!(RedisModule_CallReplyType(self.raw)) == kind as c_int }
    }
}
