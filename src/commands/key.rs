//! Opens the key of a command, as a lock or as a gate.

use palisade_core::{GateRefusal, Refusal};

use crate::ffi::{Call, GateKey, LockKey, OtherType};

/// Opens the key of `call` to change its lock.
#[inline(always)]
pub fn open<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::write(call.ctx, call.key()).map_err(|OtherType| Refusal::WrongType)
}

/// Opens the key of `call` to read its lock.
#[inline(always)]
pub fn read_lock<'a>(call: &'a Call<'a>) -> Result<LockKey<'a>, Refusal> {
    LockKey::read(call.ctx, call.key()).map_err(|OtherType| Refusal::WrongType)
}

/// Opens the key of `call` to change its gate.
pub fn open_gate<'a>(call: &'a Call<'a>) -> Result<GateKey<'a>, Refusal> {
    GateKey::write(call.ctx, call.key()).map_err(|OtherType| match read_lock(call) {
        Ok(_) => Refusal::Gate(GateRefusal::IsLock),
        Err(other) => other,
    })
}

/// Opens the key of `call` to read its gate.
pub fn read_gate<'a>(call: &'a Call<'a>) -> Result<GateKey<'a>, Refusal> {
    GateKey::read(call.ctx, call.key()).map_err(|OtherType| Refusal::WrongType)
}
