//! Clients that wait for their answer.
//!
//! A client is blocked by its command, and answered later by the code that learns the answer. The server may end the
//! wait too: the client disconnects, is killed or is unblocked by an operator, or the server's role changes. Then the
//! module returns the client's handle. It must not write a key at that moment, since the write would be propagated
//! together with the command that ended the wait.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use palisade_core::{Refusal, WaiterId};

use super::api::{api, raw};
use super::boundary;
use super::context::Context;
use super::reply::{Reply, send};
use super::string::KeyName;
use super::user::User;

/// The module's handlers for waits that the server ends.
pub trait BlockedClients {
    /// Returns the answer for this client, whose wait an operator ended (CLIENT UNBLOCK … TIMEOUT).
    fn unblocked(client: WaiterId) -> Result<Reply, Refusal>;

    /// Handles a client that is gone, or was answered by the server.
    fn gone(client: WaiterId);
}

/// A client that waits for its answer. It must be answered, or its handle returned to the server.
#[derive(Debug)]
#[must_use = "a blocked client waits until it is answered or given back"]
pub struct Blocked {
    handle: NonNull<raw::RedisModuleBlockedClient>,
    /// The user and the command, because the user's ACL rules may change while the client waits.
    user: User,
    command: &'static str,
}

/// A client's answer, which the server carries to the callback that can send it.
type Answer = Result<Reply, Refusal>;

impl Blocked {
    /// Blocks the client of this `command`. The caller has checked that it may be blocked.
    pub fn new<C: BlockedClients>(ctx: Context<'_>, command: &'static str) -> Self {
        // SAFETY: the context is that of a client's command; the callbacks fit; no timeout of the server's is set,
        // whose clock is the wall clock. The handle lives until it is given back.
        unsafe {
            let raw =
                api!(RedisModule_BlockClient(ctx.raw(), Some(on_reply), Some(on_unblocked::<C>), Some(free_answer), 0));
            let handle = NonNull::new(raw).expect("the server makes a handle for every client that may be blocked");
            api!(RedisModule_SetDisconnectCallback(raw, Some(on_gone::<C>)));
            Self { handle, user: User::of_client(ctx), command }
        }
    }

    /// Returns whether the client's user may still run its command on `key`.
    pub fn is_permitted(&self, key: KeyName<'_>) -> bool {
        self.user.may_run(self.command, key)
    }

    /// Returns this client's id while it is blocked; another client may have the id later.
    pub fn id(&self) -> WaiterId {
        id_of(self.handle.as_ptr())
    }

    /// Answers the client, in this pass of the event loop or the next.
    pub fn answer(self, answer: Answer) {
        let answer = Box::into_raw(Box::new(answer));
        // SAFETY: the handle was not given back yet; the server hands the answer to `on_reply`, then to `free_answer`.
        unsafe { api!(RedisModule_UnblockClient(self.handle.as_ptr(), answer.cast())) };
    }

    /// Returns the handle to the server without an answer, because the server has dealt with the client.
    pub fn give_back(self) {
        // SAFETY: the handle was not given back yet.
        unsafe { api!(RedisModule_AbortBlock(self.handle.as_ptr())) };
    }
}

fn id_of(raw: *mut raw::RedisModuleBlockedClient) -> WaiterId {
    WaiterId(raw.addr() as u64)
}

extern "C" fn on_reply(ctx: *mut raw::RedisModuleCtx, _argv: *mut *mut raw::RedisModuleString, _argc: c_int) -> c_int {
    boundary::run("answering a client", || {
        // SAFETY: the server's context lasts for the call; the data is the answer that `answer` left with it.
        unsafe {
            if let Some(answer) = answer_of(ctx) {
                send(Context::new(ctx), answer);
            }
        }
    });
    raw::REDISMODULE_OK as c_int
}

extern "C" fn on_unblocked<C: BlockedClients>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    boundary::run("CLIENT UNBLOCK", || {
        // SAFETY: the server's context lasts for the call, and so does its handle of the client; an answer on its way
        // (some servers call this all the same) is the one to send.
        unsafe {
            match answer_of(ctx) {
                Some(answer) => send(Context::new(ctx), answer),
                None => {
                    let handle = api!(RedisModule_GetBlockedClientHandle(ctx));
                    send(Context::new(ctx), &C::unblocked(id_of(handle)));
                }
            }
        }
    });
    raw::REDISMODULE_OK as c_int
}

extern "C" fn on_gone<C: BlockedClients>(_ctx: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    boundary::run("a client's leaving", || C::gone(id_of(client)));
}

extern "C" fn free_answer(_ctx: *mut raw::RedisModuleCtx, answer: *mut c_void) {
    boundary::run("freeing an answer", || {
        if !answer.is_null() {
            // SAFETY: `answer` left it with the server, which frees it once.
            drop(unsafe { Box::from_raw(answer.cast::<Answer>()) });
        }
    });
}

/// Returns the answer for a client, if there is one.
///
/// # Safety
/// `ctx` is that of a callback of a blocked client, which the answer outlives.
unsafe fn answer_of<'a>(ctx: *mut raw::RedisModuleCtx) -> Option<&'a Answer> {
    // SAFETY: the caller's promise; only `answer` leaves data with the server.
    unsafe {
        let data = api!(RedisModule_GetBlockedClientPrivateData(ctx));
        if data.is_null() { None } else { Some(&*data.cast::<Answer>()) }
    }
}
