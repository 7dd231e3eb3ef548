//! Does what a command asks for, and answers its client.

use palisade_core::engine::Request;
use palisade_core::{Now, Refusal};

use super::blocked_clients::{self, Form};
use super::perform::{Performed, perform};
use super::timer;
use crate::ffi::{Context, LockKey, Reply};

/// Does `request` for `key`, and answers the client that sent it in this form.
pub fn answer(
    ctx: Context<'_>,
    key: &mut LockKey<'_>,
    request: &Request<'_>,
    form: Form,
    now: Now,
) -> Result<Reply, Refusal> {
    let Performed { answer, is_stored, touches_queue } = perform(ctx, key, request, form, now);
    if touches_queue {
        blocked_clients::deliver();
    }
    if is_stored || touches_queue {
        timer::arm(ctx);
    }
    answer.map(|answer| blocked_clients::reply_at_once(answer, form))
}
