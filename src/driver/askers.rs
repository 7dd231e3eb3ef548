//! Finds out who sends a request that has to wait, and whether the server has memory for it.

use palisade_core::{Asker, ClientId, Refusal, UserId};

use crate::ffi::{Context, User};

/// Returns the user of this command's client, together with its listener if it has one. Refuses if the server has no
/// memory for a waiting request.
pub fn asker(ctx: Context<'_>, listener: Option<ClientId>) -> Result<Asker, Refusal> {
    ensure_memory(ctx)?;
    let user = User::of_client(ctx).map_or_else(UserId::default, |user| UserId::of(user.name()));
    Ok(Asker { user, listener })
}

/// Refuses if the server uses more memory than `maxmemory` allows.
pub fn ensure_memory(ctx: Context<'_>) -> Result<(), Refusal> {
    if ctx.is_out_of_memory() { Err(Refusal::OutOfMemory) } else { Ok(()) }
}
