//! The key of a command.

use palisade_core::Refusal;

use crate::ffi::{Call, LockKey, NotALock};

/// Opens the key of `call` to change its lock.
#[inline(always)]
pub fn open<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::write(call.ctx, call.key()).map_err(|NotALock| Refusal::WrongType)
}

/// Opens the key of `call` to read its lock.
#[inline(always)]
pub fn look<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::read(call.ctx, call.key()).map_err(|NotALock| Refusal::WrongType)
}
