//! The data type `redisgate`: how the server saves and loads gates.

use std::ffi::CStr;

use palisade_core::engine::Key;
use palisade_core::quorum::floors::Kind;
use palisade_core::record::Here;
use palisade_core::{Gate, gate_record};

use crate::ffi::{Context, DataType, Digest, KeyName};
use crate::lock_type::{arrival, warn_now_and_then};
use crate::{clock, command_names, events, state};

/// The data type of gates, for the server's callbacks.
pub struct GateType;

impl DataType for GateType {
    type Value = Gate;

    const NAME: &'static CStr = c"redisgate";
    const AOF_COMMAND: &'static CStr = command_names::EFFECT;

    fn save(gate: &Gate, out: &mut Vec<u8>) {
        gate_record::encode(gate, clock::boot_now(), clock::boot_id(), out);
    }

    fn load(ctx: Context<'_>, _: KeyName<'_>, bytes: &[u8]) -> Option<Box<Gate>> {
        let here = Here { arrival: arrival(ctx), now: clock::boot_now(), boot: clock::boot_id() };
        match gate_record::decode(bytes, here) {
            Ok(gate) => {
                events::value_was_read();
                Some(Box::new(gate))
            }
            Err(why) => {
                warn_now_and_then("gate", &why.to_string());
                None
            }
        }
    }

    fn digest(gate: &Gate, digest: &mut Digest) {
        for (kind, token) in gate.seen().iter() {
            let number = match kind {
                Kind::Exclusive => 0,
                Kind::Shared => 1 << 16,
                Kind::Permit(number) => number.into(),
            };
            [number, token].into_iter().for_each(|number| digest.add_number(number));
        }
    }

    fn unlink(_: Context<'_>, db: u32, name: &[u8], gate: &mut Gate) {
        state::with(|node| node.gates().unlist(Key { db, name }, gate));
    }

    fn on_unlinked(_: Context<'_>, _: u32, _: &[u8]) {}

    fn memory(gate: &Gate, name_bytes: usize) -> usize {
        size_of::<Gate>() + gate.seen().heap_bytes() + gate.entry_bytes(name_bytes)
    }
}
