//! The sender of a request that has to wait, and the server's memory for it.

use palisade_core::{Asker, ClientId, Refusal, UserId};

use crate::ffi::{Context, User};

/// Returns the sender of this command, with its listener if there is one. Refuses if the server has no memory.
pub fn who_asks(ctx: Context<'_>, listener: Option<ClientId>) -> Result<Asker, Refusal> {
    ensure_memory(ctx)?;
    Ok(Asker { user: UserId::of(User::of_client(ctx).name()), listener })
}

/// Refuses above `maxmemory`.
pub fn ensure_memory(ctx: Context<'_>) -> Result<(), Refusal> {
    if ctx.is_out_of_memory() { Err(Refusal::OutOfMemory) } else { Ok(()) }
}
