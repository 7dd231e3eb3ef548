//! Messages between the modules of a cluster's servers, over the cluster's bus.

use std::ffi::{CString, c_char, c_uchar};

use palisade_core::ServerId;

use super::api::{api, raw};
use super::boundary;
use super::context::{Context, detached};

/// The handlers for messages of other servers.
pub trait BusEvents {
    /// Called when the server `from` asks which locks this one has forgotten.
    fn on_question(ctx: Context<'_>, from: &ServerId, payload: &[u8]);

    /// Called when the server `from` answers such a question.
    fn on_answer(ctx: Context<'_>, from: &ServerId, payload: &[u8]);
}

/// The kinds of messages, by number. Servers tell modules apart only if their names have nine letters. Others receive
/// each other's messages, so these numbers are unusual ones.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// A question which locks a server has forgotten.
    Asks = 0xD1,
    /// The answer to such a question.
    Answers = 0xD2,
}

/// Subscribes the handlers `E` to the messages of other servers.
pub(super) fn subscribe<E: BusEvents>(ctx: Context<'_>) {
    for message in [Message::Asks, Message::Answers] {
        // SAFETY: the module is being loaded.
        unsafe { api!(RedisModule_RegisterClusterMessageReceiver(ctx.raw(), message as u8, Some(on_message::<E>))) };
    }
}

/// Sends a message to the server `to`. It is lost if there is no connection to that server.
pub fn send(to: &ServerId, message: Message, payload: &[u8]) {
    // A server's name has no NUL byte.
    let Ok(to) = CString::new(to.as_slice()) else { return };
    detached(|ctx| {
        // SAFETY: the context is live; the server reads the C string, and the bytes of the message up to its length,
        // during the call.
        unsafe {
            api!(RedisModule_SendClusterMessage(
                ctx.raw(),
                to.as_ptr(),
                message as u8,
                payload.as_ptr().cast::<c_char>(),
                payload.len() as u32
            ));
        }
    });
}

extern "C" fn on_message<E: BusEvents>(
    ctx: *mut raw::RedisModuleCtx,
    from: *const c_char,
    kind: u8,
    payload: *const c_uchar,
    len: u32,
) {
    boundary::run("a message of another server", || {
        if payload.is_null() {
            return;
        }
        // SAFETY: the server's context lasts for the call, and so do the forty bytes of the sender's name and the
        // message of that length. The context may be that of another module that uses the same numbers, so handlers only
        // read by it.
        let (ctx, from, payload) = unsafe {
            (Context::new(ctx), &*from.cast::<ServerId>(), std::slice::from_raw_parts(payload, len as usize))
        };
        if kind == Message::Asks as u8 {
            E::on_question(ctx, from, payload);
        } else {
            E::on_answer(ctx, from, payload);
        }
    });
}
