//! The data type `redislock`: how the server saves and loads locks.

use std::cell::Cell;
use std::ffi::CStr;

use palisade_core::engine::Key;
use palisade_core::record::{self, Arrival, Here};
use palisade_core::{BootTime, Deadlines, Lock};

use crate::driver::{cluster, grant_events, timer};
use crate::durability::dropped_locks;
use crate::ffi::{Context, DataType, Digest, KeyName, warn};
use crate::{clock, command_names, config, events, state};

/// The least time between two warnings about records that were refused, in milliseconds.
const WARNING_PAUSE_MS: u64 = 1_000;

/// The data type of locks, for the server's callbacks.
pub struct LockType;

impl DataType for LockType {
    type Value = Lock;

    const NAME: &'static CStr = c"redislock";
    const AOF_COMMAND: &'static CStr = command_names::EFFECT;

    fn save(lock: &Lock, out: &mut Vec<u8>) {
        record::encode(lock, clock::boot_now(), clock::boot_id(), out);
    }

    fn load(ctx: Context<'_>, name: KeyName<'_>, bytes: &[u8]) -> Option<Box<Lock>> {
        match read(arrival(ctx), name.bytes(), bytes) {
            Ok(lock) => {
                events::value_was_read();
                Some(Box::new(lock))
            }
            Err(why) => {
                warn_now_and_then("lock", &why);
                None
            }
        }
    }

    fn digest(lock: &Lock, digest: &mut Digest) {
        for (mode, grant) in lock.grants() {
            [grant.owner(), grant.note()].into_iter().for_each(|part| digest.add(part));
            let numbers = [grant.token().get(), grant.holds().into(), mode.number().into()];
            numbers.into_iter().for_each(|number| digest.add_number(number));
            if grant.is_adopted() {
                digest.add_number(1);
            }
        }
    }

    fn unlink(ctx: Context<'_>, db: u32, name: &[u8], lock: &mut Lock) {
        cluster::on_dropped(name, lock.end());
        // Only a master reports that the lock ended. A replica leaves that to its master, and what is replayed from the
        // AOF happened earlier.
        if ctx.is_master() && !ctx.is_loading() {
            state::with(|node| node.record_deleted(Key { db, name }, lock, clock::boot_now()));
            grant_events::publish_soon(ctx);
        }
        dropped_locks::remember_unlinked(Key { db, name }, lock);
        state::with(|node| node.cancel_expiry(Key { db, name }, lock));
    }

    fn on_unlinked(ctx: Context<'_>, db: u32, name: &[u8]) {
        cluster::on_deleted(ctx, name);
        // The node looks at the queue in the next pass of the event loop, when the command that removed the lock is
        // done.
        if state::with(|node| node.on_lock_gone(Key { db, name })) {
            timer::arm(ctx);
        }
    }

    fn memory(lock: &Lock, name_bytes: usize) -> usize {
        // This counts the lock, its owners and notes, and its entry in the table of deadlines.
        size_of::<Lock>() + lock.heap_bytes() + Deadlines::entry_bytes(name_bytes)
    }
}

/// Returns how the record that the server is loading reached this node.
pub fn arrival(ctx: Context<'_>) -> Arrival {
    if ctx.is_loading() || ctx.is_obedient() { Arrival::Storage } else { Arrival::Payload }
}

/// Decodes the record of the lock `name`. If a client sent the record, its lock must be one that this node could have
/// granted.
fn read(arrival: Arrival, name: &[u8], bytes: &[u8]) -> Result<Lock, String> {
    let now = clock::now();
    let here = Here { arrival, now: now.boot, boot: clock::boot_id() };
    let lock = record::decode(bytes, here).map_err(|damaged| damaged.to_string())?;
    if arrival == Arrival::Payload {
        if lock.grants().any(|(_, grant)| grant.ttl_ms() > config::max_ttl_ms()) {
            return Err("its ttl is longer than lock.max-ttl allows".to_owned());
        }
        let is_plausible = |token| state::with(|node| node.is_plausible(name, token, now));
        if !lock.grants().all(|(_, grant)| is_plausible(grant.token())) {
            return Err("its token is further ahead than lock.max-clock-skew allows".to_owned());
        }
    }
    Ok(lock)
}

/// Writes to the log why a record was refused, because the server only tells the client that the format is bad. Does so
/// at most once a second.
pub fn warn_now_and_then(what: &str, why: &str) {
    thread_local! {
        static LAST: Cell<Option<BootTime>> = const { Cell::new(None) };
    }
    let now = clock::boot_now();
    if LAST.get().is_none_or(|last| now.ms_since(last) >= WARNING_PAUSE_MS) {
        LAST.set(Some(now));
        warn(&format!("a {what} was refused: {why}"));
    }
}
