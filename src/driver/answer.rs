//! Does what a command asks for, and answers its client.

use palisade_core::engine::Request;
use palisade_core::{Now, Refusal};

use super::blocked_clients::{self, Asker};
use super::perform::{Performed, perform};
use super::timer;
use crate::ffi::{Context, LockKey, Reply};

/// Does `request` for `key`, and answers the client that sent it.
pub fn answer(
    ctx: Context<'_>,
    key: &mut LockKey<'_>,
    request: &Request<'_>,
    asker: impl Into<Asker>,
    now: Now,
) -> Result<Reply, Refusal> {
    let asker = asker.into();
    let Performed { answer, is_stored, touches_queue } = perform(ctx, key, request, asker, now);
    if touches_queue {
        blocked_clients::deliver();
    }
    if let Ok(answer) = answer {
        blocked_clients::keep_alive_at_once(ctx, key.name(), request, answer, asker);
    }
    if is_stored || touches_queue || asker.keepalive.is_some() {
        timer::arm(ctx);
    }
    answer.map(|answer| blocked_clients::reply_at_once(answer, asker))
}
