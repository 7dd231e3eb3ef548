//! How what a rule decided reaches the key, the node's memory, the replicas and the AOF.
//!
//! Effects are replicated, never requests: a replica or a reloaded AOF is told what a lock holds now (LOCK.EFFECT), that its last holder
//! gave it back (LOCK.RELEASE) or that it is gone (DEL), so it needs no clock and no rule to hold the same.

use std::cell::RefCell;

use palisade_core::engine::{Event, Key};
use palisade_core::{Grant, GrantId, Lock, Now, record};

use super::propagation;
use crate::ffi::{Context, KeyName, LockKey};
use crate::{clock, command_names, state};

/// Tells those who listen to key events (`notify-keyspace-events` with `d`).
pub fn tell(ctx: Context<'_>, event: Event, name: KeyName<'_>) {
    let word = match event {
        Event::Acquired => c"lock.acquire",
        Event::HandedOver => c"lock.handoff",
        Event::Released => c"lock.release",
        Event::Extended => c"lock.extend",
        Event::Expired => c"lock.expire",
        Event::Broken => c"lock.break",
        Event::Converted => c"lock.convert",
        Event::Noted => c"lock.note",
    };
    ctx.notify(word, name);
}

/// The key holds `lock` from now on, by `event`.
#[inline(always)]
pub fn store(ctx: Context<'_>, key: &mut LockKey<'_>, lock: Option<Box<Lock>>, event: Event, now: Now) {
    let Some(lock) = lock else { return };
    let id = lock.first_id();
    key.put(lock);
    changed(ctx, key, id, now);
    tell(ctx, event, key.name());
}

/// The lock in the key is new, or its grant `id` joined or changed: replicas and the AOF are told.
pub fn changed(ctx: Context<'_>, key: &mut LockKey<'_>, id: GrantId, now: Now) {
    stored(key);
    if only_counted(ctx) {
        return;
    }
    if let Some(lock) = key.lock() {
        replicate(ctx, key.name(), |record| {
            record::encode_change(lock, id, now.boot, clock::boot_id(), record);
        });
    }
}

/// The grant `ended` left the lock in the key, which others hold: replicas and the AOF are told.
pub fn left(ctx: Context<'_>, key: &mut LockKey<'_>, ended: Option<Box<Grant>>, now: Now) {
    let Some(ended) = ended else { return };
    stored(key);
    if !only_counted(ctx) {
        replicate(ctx, key.name(), |record| record::encode_end(&ended, now.boot, clock::boot_id(), record));
    }
}

fn replicate(ctx: Context<'_>, name: KeyName<'_>, write: impl FnOnce(&mut Vec<u8>)) {
    thread_local! {
        /// Kept from change to change: an allocation less.
        static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    RECORD.with_borrow_mut(|record| {
        record.clear();
        write(record);
        ctx.replicate_record(command_names::EFFECT, name, record);
    });
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

/// The lock ends by `event`, if there is one: the key is deleted. Whether its queue is to be looked at soon, or somebody watches it.
pub fn freed(ctx: Context<'_>, key: &mut LockKey<'_>, event: Option<Event>) -> bool {
    let at = Key { db: ctx.db(), name: key.name().bytes() };
    let Some(lock) = key.lock_mut() else { return false };
    let has_more = state::with(|node| {
        node.unlinked(at, lock);
        node.left(at)
    });
    key.delete();
    key.signal_modified();
    // The RELEASE that is being run names key and owner: that is all there is to tell.
    let is_told = event == Some(Event::Released) && ctx.replicate_command();
    if !is_told && !only_counted(ctx) {
        ctx.replicate_del(key.name());
    }
    has_more
}
