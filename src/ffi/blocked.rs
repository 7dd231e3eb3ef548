//! Blocked clients, which wait for their answer.
//!
//! A command blocks its client, and other code answers it later. The server may end the wait too: the client
//! disconnects, is killed or is unblocked by an operator, or the server's role changes. Then the module returns the
//! client's handle. It must not write a key at that moment, since the write would be propagated together with the
//! command that ended the wait.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use palisade_core::{Refusal, WaiterId};

use super::api::{api, raw};
use super::boundary;
use super::context::Context;
use super::reply::{Reply, send};
use super::string::KeyName;
use super::user::User;

/// The handlers for one kind of blocked clients, for the cases in which the server itself ends their wait.
pub trait BlockedClients {
    /// Returns the answer for this client, whose wait an operator ended (CLIENT UNBLOCK … TIMEOUT).
    fn answer_unblocked(client: WaiterId) -> Result<Reply, Refusal>;

    /// Handles a client that is gone, or was answered by the server.
    fn on_gone(client: WaiterId);
}

/// A blocked client. It must be answered, or its handle given back to the server.
#[derive(Debug)]
#[must_use = "a blocked client waits until it is answered or given back"]
pub struct Blocked {
    handle: NonNull<raw::RedisModuleBlockedClient>,
    /// The client's user, and its command. The user's ACL rules may change while the client waits, so they are checked
    /// again.
    user: Option<User>,
    command: &'static str,
}

/// The answer to a client. The server hands it to the callback that sends it.
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

    /// Returns whether the client's user may still run its command on `key` in this database, by the present ACL rules.
    pub fn is_permitted(&self, db: u32, key: KeyName<'_>) -> bool {
        self.user.as_ref().is_some_and(|user| user.may_run(self.command, db, key))
    }

    /// Returns this client's id. It is unique while the client is blocked; another client may have it later.
    pub fn id(&self) -> WaiterId {
        id_of(self.handle.as_ptr())
    }

    /// Answers the client, in this pass of the server's event loop or the next.
    pub fn answer(self, answer: Answer) {
        let answer = Box::into_raw(Box::new(answer));
        // SAFETY: the handle was not given back yet; the server hands the answer to `on_reply`, then to `free_answer`.
        unsafe { api!(RedisModule_UnblockClient(self.handle.as_ptr(), answer.cast())) };
    }

    /// Gives the handle back to the server without an answer, because the server has answered or lost the client.
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
                    send(Context::new(ctx), &C::answer_unblocked(id_of(handle)));
                }
            }
        }
    });
    raw::REDISMODULE_OK as c_int
}

extern "C" fn on_gone<C: BlockedClients>(_ctx: *mut raw::RedisModuleCtx, client: *mut raw::RedisModuleBlockedClient) {
    boundary::run("a client's leaving", || C::on_gone(id_of(client)));
}

extern "C" fn free_answer(_ctx: *mut raw::RedisModuleCtx, answer: *mut c_void) {
    boundary::run("freeing an answer", || {
        if !answer.is_null() {
            // SAFETY: `answer` left it with the server, which frees it once.
            drop(unsafe { Box::from_raw(answer.cast::<Answer>()) });
        }
    });
}

/// Returns the answer with which a client was unblocked, if there is one.
///
/// # Safety
/// `ctx` is that of a callback about a blocked client, and the answer outlives that callback.
unsafe fn answer_of<'a>(ctx: *mut raw::RedisModuleCtx) -> Option<&'a Answer> {
    // SAFETY: the caller's promise; only `answer` leaves data with the server.
    unsafe {
        let data = api!(RedisModule_GetBlockedClientPrivateData(ctx));
        if data.is_null() { None } else { Some(&*data.cast::<Answer>()) }
    }
}
