//! The answers of commands, and how they are sent.

use std::ffi::{CStr, c_long};

use palisade_core::Refusal;

use super::api::api;
use super::context::Context;
use super::log::c_text;

/// The answer of a command that did not fail.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Null: the answer "no", which is not an error.
    Null,
    /// An integer that is not negative.
    Integer(u64),
    /// A string of any bytes.
    Bytes(Vec<u8>),
    /// The simple string OK.
    Ok,
    /// A simple string, without line ends.
    Simple(&'static CStr),
    /// A list of replies.
    List(Vec<Reply>),
    /// A map. Clients that speak RESP2 receive a flat array of names and values.
    Map(Vec<(&'static str, Reply)>),
    /// An error in the server's own words; the first word is its code.
    Error(String),
    /// No answer now: the client is blocked, and is answered later.
    Later,
    /// No answer is left to send, because the reply of another command was passed on.
    PassedOn,
}

/// Sends `answer` to the client of `ctx`.
pub(super) fn send(ctx: Context<'_>, answer: &Result<Reply, Refusal>) {
    match answer {
        Ok(reply) => reply.send(ctx),
        Err(refusal) => send_error(ctx, &refusal.to_string()),
    }
}

impl Reply {
    fn send(&self, ctx: Context<'_>) {
        match self {
            // SAFETY: the context is live and has a client to answer.
            Reply::Null => unsafe {
                api!(RedisModule_ReplyWithNull(ctx.raw()));
            },
            Reply::Integer(value) => send_integer(ctx, *value),
            Reply::Bytes(bytes) => send_bytes(ctx, bytes),
            // SAFETY: the context is live and has a client to answer.
            Reply::Ok => unsafe {
                api!(RedisModule_ReplyWithSimpleString(ctx.raw(), c"OK".as_ptr()));
            },
            // SAFETY: the context is live and has a client to answer; the text is a constant.
            Reply::Simple(text) => unsafe {
                api!(RedisModule_ReplyWithSimpleString(ctx.raw(), text.as_ptr()));
            },
            Reply::List(elements) => {
                // SAFETY: the context is live and has a client to answer; as many elements follow as are announced.
                unsafe { api!(RedisModule_ReplyWithArray(ctx.raw(), elements.len() as c_long)) };
                elements.iter().for_each(|element| element.send(ctx));
            }
            Reply::Map(fields) => {
                // SAFETY: the context is live and has a client to answer; as many pairs follow as are announced.
                unsafe { api!(RedisModule_ReplyWithMap(ctx.raw(), fields.len() as c_long)) };
                for (name, value) in fields {
                    send_bytes(ctx, name.as_bytes());
                    value.send(ctx);
                }
            }
            Reply::Error(text) => send_error(ctx, text),
            Reply::Later | Reply::PassedOn => {}
        }
    }
}

/// Sends an error to the client of `ctx`. The first word of `text` is its code.
fn send_error(ctx: Context<'_>, text: &str) {
    let text = c_text(text);
    // SAFETY: the context is live and has a client to answer; the server copies the text.
    unsafe { api!(RedisModule_ReplyWithError(ctx.raw(), text.as_ptr())) };
}

/// Sends an integer to the client of `ctx`.
pub(super) fn send_integer(ctx: Context<'_>, value: u64) {
    // SAFETY: the context is live and has a client to answer.
    unsafe { api!(RedisModule_ReplyWithLongLong(ctx.raw(), i64::try_from(value).unwrap_or(i64::MAX))) };
}

fn send_bytes(ctx: Context<'_>, bytes: &[u8]) {
    // SAFETY: the context is live and has a client to answer; the server copies the bytes.
    unsafe { api!(RedisModule_ReplyWithStringBuffer(ctx.raw(), bytes.as_ptr().cast(), bytes.len())) };
}
