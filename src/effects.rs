//! How what a rule decided reaches the key, the node's memory, the replicas and the AOF.
//!
//! Effects are replicated, never requests: a replica or a reloaded AOF is told what a lock holds now (LOCK.EFFECT) or
//! that it is gone (DEL), so it needs no clock and no rule to hold the same.

use std::cell::RefCell;
use std::ffi::CStr;

use palisade_core::{Lock, Now, record};

use crate::ffi::{Context, LockKey};
use crate::{alarm, audience, clock, life, state};

/// The command that tells replicas and the AOF what a lock holds.
pub const EFFECT: &CStr = c"LOCK.EFFECT";

/// Key events (`notify-keyspace-events` with `d`): a lock was granted to one who asked.
pub const ACQUIRED: &CStr = c"lock.acquire";
/// It was granted to one who waited.
pub const HANDED_OVER: &CStr = c"lock.handoff";
/// Its owner gave the last hold back.
pub const RELEASED: &CStr = c"lock.release";
/// Its owner asked for more time.
pub const EXTENDED: &CStr = c"lock.extend";
/// Its lease ended.
pub const EXPIRED: &CStr = c"lock.expire";
/// An operator took it away.
pub const BROKEN: &CStr = c"lock.break";

/// The key now holds `lock`, by `event`.
pub fn granted(ctx: Context<'_>, key: &mut LockKey<'_>, lock: Lock, event: &'static CStr, now: Now) {
    key.put(lock);
    changed(ctx, key, now);
    ctx.notify(event, key.name());
}

/// The lock that the key holds was changed in place.
pub fn changed(ctx: Context<'_>, key: &mut LockKey<'_>, now: Now) {
    stored(ctx, key);
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
            ctx.replicate_record(EFFECT, key.name(), record);
        });
    }
}

/// Where nobody hears of a change, it is counted instead: whether that is done.
fn only_counted(ctx: Context<'_>) -> bool {
    audience::is_empty() && ctx.count_change()
}

/// The lock that the key holds is new or changed here: what every node does about it, whoever decided it.
pub fn stored(ctx: Context<'_>, key: &mut LockKey<'_>) {
    key.clear_expiry();
    key.signal_modified();
    watched(ctx, key);
}

/// The lock that the key holds came from elsewhere: no token up to its own is issued again, and its lease may be longer
/// than this node grants.
pub fn learnt(key: &LockKey<'_>) {
    if let Some(lock) = key.lock() {
        life::seen(lock);
        state::with(|node| node.tokens.learn(key.name().bytes(), lock.token()));
    }
}

/// The lock that the key holds will be deleted when its lease ends.
pub fn watched(ctx: Context<'_>, key: &mut LockKey<'_>) {
    let (db, name) = (ctx.db(), key.name());
    if let Some(lock) = key.lock_mut() {
        state::with(|node| node.deadlines.watch(db, name.bytes(), lock));
    }
    alarm::arm(ctx);
}

/// The lock ends, if there is one: the key is deleted. (Its entry in the deadlines goes when the server unlinks it.)
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
