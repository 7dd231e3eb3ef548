//! How what a rule decided reaches the key, the node's memory, the replicas and the AOF.
//!
//! Effects are replicated, never requests: a replica or a reloaded AOF is told what a lock holds now (LOCK.EFFECT) or
//! that it is gone (DEL), so it needs no clock and no rule to hold the same.

use std::cell::RefCell;

use palisade_core::engine::Event;
use palisade_core::{Lock, Now, record};

use super::propagation;
use crate::ffi::{Context, KeyName, LockKey};
use crate::{clock, command_names};

/// Tells those who listen to key events (`notify-keyspace-events` with `d`).
pub fn tell(ctx: Context<'_>, event: Event, name: KeyName<'_>) {
    let word = match event {
        Event::Acquired => c"lock.acquire",
        Event::HandedOver => c"lock.handoff",
        Event::Released => c"lock.release",
        Event::Extended => c"lock.extend",
        Event::Expired => c"lock.expire",
        Event::Broken => c"lock.break",
    };
    ctx.notify(word, name);
}

/// The key holds `lock` from now on, by `event`.
pub fn store(ctx: Context<'_>, key: &mut LockKey<'_>, lock: Option<Lock>, event: Event, now: Now) {
    let Some(lock) = lock else { return };
    key.put(lock);
    changed(ctx, key, now);
    tell(ctx, event, key.name());
}

/// The key holds another lock now, or the same one changed: replicas and the AOF are told.
pub fn changed(ctx: Context<'_>, key: &mut LockKey<'_>, now: Now) {
    stored(key);
    if only_counted(ctx) {
        return;
    }
    thread_local! {
        /// Kept from change to change: an allocation less.
        static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    if let Some(lock) = key.lock() {
        RECORD.with_borrow_mut(|record| {
            record.clear();
            record::encode(lock, now.boot, clock::boot_id(), record);
            ctx.replicate_record(command_names::EFFECT, key.name(), record);
        });
    }
}

/// Where nobody hears of a change, it is counted instead: whether that is done.
fn only_counted(ctx: Context<'_>) -> bool {
    propagation::nobody_listens() && ctx.count_change()
}

/// The lock that the key holds is new or changed here: what every node does about it, whoever decided it.
pub fn stored(key: &mut LockKey<'_>) {
    key.clear_expiry();
    key.signal_modified();
}

/// The lock ends, if there is one: the key is deleted. (What the node knows of it goes when the server unlinks it.)
pub fn freed(ctx: Context<'_>, key: &mut LockKey<'_>) {
    if key.lock().is_none() {
        return;
    }
    key.delete();
    key.signal_modified();
    if !only_counted(ctx) {
        ctx.replicate_del(key.name());
    }
}
