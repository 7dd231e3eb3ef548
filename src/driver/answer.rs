//! Performs the request of a command, and answers its client.

use palisade_core::engine::Request;
use palisade_core::{Now, Refusal};

use super::blocked_clients::{self, Asker};
use super::perform::{Performed, perform};
use super::timer;
use crate::ffi::{Context, LockKey, Reply};

/// Performs `request` for `key`, and answers the client that sent it.
pub fn answer(
    ctx: Context<'_>,
    key: &mut LockKey<'_>,
    request: &Request<'_>,
    asker: &Asker,
    now: Now,
) -> Result<Reply, Refusal> {
    perform(ctx, key, request, asker, now, |key, Performed { is_stored, touches_queue }, answer| {
        if touches_queue {
            blocked_clients::deliver();
        }
        if asker.keepalive.is_some() {
            blocked_clients::keep_alive_at_once(ctx, key, request, answer, asker);
        }
        if touches_queue || asker.keepalive.is_some() {
            timer::arm(ctx);
        } else if is_stored && let Some(lock) = key.lock() {
            timer::arm_for(ctx, lock.next_end());
        }
        match answer {
            Ok(answer) => Ok(blocked_clients::reply_at_once(answer, asker)),
            Err(refusal) => Err(*refusal),
        }
    })
}
