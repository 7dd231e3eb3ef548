//! What a command answers.

use std::ffi::c_long;

use super::api;
use super::context::{Context, c_text};

/// The answer of a command.
#[derive(Debug)]
pub enum Reply {
    /// Null: the honest "no" of a command, not an error.
    Null,
    /// An integer.
    Integer(u64),
    /// OK.
    Ok,
    /// A map; for clients that speak RESP2 a flat array of names and values.
    Map(Vec<(&'static str, Value)>),
    /// Lines for people.
    Lines(Vec<String>),
}

/// A value of a map.
#[derive(Debug)]
pub enum Value {
    /// An integer.
    Integer(u64),
    /// Any bytes.
    Bytes(Vec<u8>),
}

impl Reply {
    pub(super) fn send(&self, ctx: Context<'_>) {
        match self {
            // SAFETY: the context is live and has a client to answer.
            Reply::Null => unsafe {
                api!(RedisModule_ReplyWithNull(ctx.raw()));
            },
            Reply::Integer(value) => send_integer(ctx, *value),
            // SAFETY: as above; the text is a constant.
            Reply::Ok => unsafe {
                api!(RedisModule_ReplyWithSimpleString(ctx.raw(), c"OK".as_ptr()));
            },
            Reply::Map(fields) => {
                // SAFETY: as above; as many pairs follow as are announced.
                unsafe { api!(RedisModule_ReplyWithMap(ctx.raw(), fields.len() as c_long)) };
                for (name, value) in fields {
                    send_bytes(ctx, name.as_bytes());
                    match value {
                        Value::Integer(value) => send_integer(ctx, *value),
                        Value::Bytes(bytes) => send_bytes(ctx, bytes),
                    }
                }
            }
            Reply::Lines(lines) => {
                // SAFETY: as above; as many elements follow as are announced.
                unsafe { api!(RedisModule_ReplyWithArray(ctx.raw(), lines.len() as c_long)) };
                for line in lines {
                    send_bytes(ctx, line.as_bytes());
                }
            }
        }
    }
}

/// Answers with an error: the first word of `text` is its code.
pub(super) fn send_error(ctx: Context<'_>, text: &str) {
    let text = c_text(text);
    // SAFETY: the context is live and has a client to answer; the server copies the text.
    unsafe { api!(RedisModule_ReplyWithError(ctx.raw(), text.as_ptr())) };
}

fn send_integer(ctx: Context<'_>, value: u64) {
    // SAFETY: the context is live and has a client to answer.
    unsafe { api!(RedisModule_ReplyWithLongLong(ctx.raw(), i64::try_from(value).unwrap_or(i64::MAX))) };
}

fn send_bytes(ctx: Context<'_>, bytes: &[u8]) {
    // SAFETY: the context is live and has a client to answer; the server copies the bytes.
    unsafe { api!(RedisModule_ReplyWithStringBuffer(ctx.raw(), bytes.as_ptr().cast(), bytes.len())) };
}
