//! The data type `redislock`: between the server's files and the rules' records.

use std::ffi::CStr;
use std::mem::size_of;

use palisade_core::record::{self, Arrival};
use palisade_core::{Lock, Slot};

use crate::commands::effect;
use crate::ffi::{Context, DataType, KeyName};
use crate::{clock, config, state};

/// Locks as the server sees them.
pub struct LockType;

impl DataType for LockType {
    const AOF_COMMAND: &'static CStr = effect::NAME;

    fn save(lock: &Lock, out: &mut Vec<u8>) {
        record::encode(lock, clock::boot_now(), clock::boot_id(), out);
    }

    fn load(ctx: Context<'_>, db: u32, name: KeyName<'_>, bytes: &[u8]) -> Result<Box<Lock>, String> {
        let now = clock::now();
        // Own files and a master's word are taken as they are. What is left is a client's RESTORE.
        let arrival = if ctx.is_loading() || !ctx.is_master() { Arrival::Storage } else { Arrival::Payload };
        let lock = record::decode(bytes, arrival, now.boot, clock::boot_id()).map_err(|damaged| damaged.to_string())?;
        let mut lock = Box::new(lock);
        state::with(|node| {
            let skew_ms = config::max_clock_skew_ms();
            if arrival == Arrival::Payload && !node.tokens.plausible(name.bytes(), lock.token(), now.wall_us, skew_ms) {
                return Err("its token is further ahead than lock.max-clock-skew allows".to_owned());
            }
            node.tokens.learn(name.bytes(), lock.token());
            node.deadlines.watch(db, name.bytes(), &mut lock);
            Ok(lock)
        })
    }

    fn unlink(db: u32, lock: &mut Lock) {
        state::with(|node| node.deadlines.forget(db, lock));
    }

    fn memory(lock: &Lock, name_bytes: usize) -> usize {
        // The lock, its owner and note, and its entry in the deadlines.
        size_of::<Lock>() + lock.heap_bytes() + size_of::<(Slot, Box<[u8]>)>() + name_bytes
    }
}
