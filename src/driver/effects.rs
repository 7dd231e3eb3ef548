//! Applies a rule's decision to the key, the node's memory, the replicas and the AOF.
//!
//! What is replicated are effects, never requests. A replica or a reloaded AOF receives what a lock holds now
//! (LOCK.EFFECT), that its last holder gave it back (LOCK.RELEASE) or that it is gone (DEL). So it has the same locks
//! without a clock and without rules.

use std::cell::RefCell;

use palisade_core::engine::{Event, Key};
use palisade_core::{Grant, GrantId, Lock, Now, record};

use super::propagation;
use crate::ffi::{Context, KeyName, LockKey, free_value};
use crate::{clock, command_names, state};

/// Stores `lock` in the key, and replicates it.
#[inline(always)]
pub fn store(ctx: Context<'_>, key: &mut LockKey<'_>, lock: Option<Box<Lock>>, now: Now) {
    let Some(lock) = lock else { return };
    let id = lock.first_id();
    key.put(lock);
    replicate_change(ctx, key, id, now);
}

/// Sends replicas and the AOF what changed in the lock in the key: the whole lock if it is new, or the grant `id`,
/// which joined or changed.
pub fn replicate_change(ctx: Context<'_>, key: &mut LockKey<'_>, id: GrantId, now: Now) {
    finish_store(key);
    if count_if_unpropagated(ctx) {
        return;
    }
    if let Some(lock) = key.lock() {
        replicate(ctx, key.name(), |record| {
            record::encode_change(lock, id, now.boot, clock::boot_id(), record);
        });
    }
}

/// Sends replicas and the AOF that the grant `ended` left the lock in the key, which others still hold.
pub fn replicate_end(ctx: Context<'_>, key: &mut LockKey<'_>, ended: Option<Box<Grant>>, now: Now) {
    let Some(ended) = ended else { return };
    finish_store(key);
    if !count_if_unpropagated(ctx) {
        replicate(ctx, key.name(), |record| record::encode_end(&ended, now.boot, clock::boot_id(), record));
    }
}

pub(super) fn replicate(ctx: Context<'_>, name: KeyName<'_>, write: impl FnOnce(&mut Vec<u8>)) {
    thread_local! {
        /// The buffer in which a record is written. It is used again for every change, which saves an allocation.
        static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    RECORD.with_borrow_mut(|record| {
        record.clear();
        write(record);
        ctx.replicate_record(command_names::EFFECT, name, record);
    });
}

/// Counts one change for the server's `save` points, if there is no AOF and no replica to send it to. Returns whether
/// it was counted.
pub(super) fn count_if_unpropagated(ctx: Context<'_>) -> bool {
    propagation::has_no_receiver() && ctx.count_change()
}

/// Removes an expiry of the key, whose lock is new or changed, and tells clients that WATCH or track the key. Every
/// node does this, wherever the lock was granted.
pub fn finish_store(key: &mut LockKey<'_>) {
    key.clear_expiry();
    key.signal_modified();
}

/// Deletes the key, if it is there: its lock ends, and `event` is the key event. Returns whether the key has watchers,
/// or a queue that has to be checked soon.
pub fn delete(ctx: Context<'_>, key: &mut LockKey<'_>, event: Option<Event>) -> bool {
    let at = Key { db: ctx.db(), name: key.name().bytes() };
    let Some(lock) = key.lock_mut() else { return false };
    let has_more = state::with(|node| {
        node.cancel_expiry(at, lock);
        node.on_lock_gone(at)
    });
    if let Some(lock) = key.delete().and_then(|lock| state::with(|node| node.reuse(lock))) {
        free_value(lock);
    }
    key.signal_modified();
    // If the command is the RELEASE that names this key and owner, sending the command itself on is enough.
    let is_replicated = event == Some(Event::Released) && ctx.replicate_command();
    if !is_replicated && !count_if_unpropagated(ctx) {
        ctx.replicate_del(key.name());
    }
    has_more
}
