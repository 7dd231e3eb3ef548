//! The key that a command is about.

use palisade_core::Refusal;

use crate::ffi::{Call, LockKey, NotALock};

/// The key of `call`, open to change its lock.
#[inline(always)]
pub fn open<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::write(call.ctx, call.key()).map_err(|NotALock| Refusal::WrongType)
}

/// The key of `call`, open to look at its lock.
#[inline(always)]
pub fn look<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::read(call.ctx, call.key()).map_err(|NotALock| Refusal::WrongType)
}
