//! Locks that are dropped while they are held: by FLUSHALL and similar commands, and by the server's evictions.
//!
//! The holders do not know it, so nobody else may be granted these locks before their leases have ended. After a flush
//! the node grants nothing at all; after an eviction it does not grant that key.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use palisade_core::engine::Key;
use palisade_core::limits::LOGGED_TOGETHER_MAX;
use palisade_core::{BootTime, Detached, Evictee, Lock, Node};

use super::incarnation;
use crate::ffi::{self, Context, KeyName, LockKey};
use crate::{clock, state};

/// True if the server may evict keys.
static EVICTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The lock that last left its key, if the server may evict keys: the next event may say that it was evicted.
    static UNLINKED: RefCell<Option<(u32, Box<[u8]>, Evictee)>> = const { RefCell::new(None) };
}

/// Guards the node until `last`, when the last lease of locks that were dropped for good would have ended. Does nothing
/// if that moment has passed.
pub fn on_dropped(last: BootTime) {
    let now = clock::now();
    if state::with(|node| node.on_dropped(last, now.boot)) {
        incarnation::save_at_once(now);
    }
}

/// Handles the dropped locks `detached`. A reload may begin here, which brings them back.
pub fn on_perhaps_dropped(detached: Detached) {
    let now = clock::now();
    match state::with(|node| node.on_perhaps_dropped(detached, now.boot)) {
        Ok(()) => incarnation::save_at_once(now),
        Err(not_live) => free(vec![not_live]),
    }
}

/// Returns whether all of these locks were granted before an operator last lifted a guard. If so, a command in the AOF
/// that drops them needs no guard when it is replayed. (If a command dropped a lock later, the state file has an armed
/// guard.)
pub fn were_lifted(ctx: Context<'_>, locks: &Detached) -> bool {
    let lifted = state::with(|node| node.ledger().lifted());
    lifted != BootTime::default()
        && locks.names().all(|(db, name)| {
            ctx.select(db);
            KeyName::with(name, |name| {
                LockKey::read(ctx, name).is_ok_and(|key| {
                    key.lock().is_none_or(|lock| lock.grants().all(|(_, grant)| grant.granted() <= lifted))
                })
            })
        })
}

/// Writes to the node's log that a flush is about to drop these locks: at most [`LOGGED_TOGETHER_MAX`] of them.
pub fn log_flushed(ctx: Context<'_>, locks: &Detached) {
    for (db, name) in locks.names().take(LOGGED_TOGETHER_MAX) {
        ctx.select(db);
        KeyName::with(name, |key_name| {
            if let Ok(key) = LockKey::read(ctx, key_name)
                && let Some(lock) = key.lock()
            {
                state::with(|node| node.record_flushed(Key { db, name }, lock, clock::boot_now()));
            }
        });
    }
}

/// Ends the guard after data was loaded, if every lock is back that was dropped right before. Then the flush was part
/// of a reload.
pub fn end_guard_if_reloaded(ctx: Context<'_>) {
    let Some(flush) = state::with(Node::take_flush) else { return };
    // It is unknown which holders of a joint lock were dropped, so such a lock never counts as back.
    let is_same = |lock: &Lock, end| matches!(lock, Lock::Exclusive(_)) && lock.end() >= end;
    let is_back = |db, name: &[u8], end| {
        ctx.select(db);
        KeyName::with(name, |name| {
            LockKey::read(ctx, name).is_ok_and(|key| key.lock().is_some_and(|lock| is_same(lock, end)))
        })
    };
    if flush.locks().all(|(db, name, end)| is_back(db, name, end)) {
        state::with(|node| node.on_reloaded(&flush));
        incarnation::save(clock::now());
    }
    free(flush.into_dropped());
}

/// Notes that the dropped locks are gone for good, because no reload brings them back any more.
pub fn confirm_flush() {
    if let Some(flush) = state::with(Node::take_flush) {
        free(flush.into_dropped());
    }
}

/// Frees the deadlines of dropped locks in a thread: for a million of them that takes a while.
pub fn free(dropped: Vec<Detached>) {
    let entries = dropped.iter().map(Detached::len).sum();
    ffi::free(dropped, entries);
}

/// Sets whether the server may evict keys, which its configuration says.
pub fn watch_evictions(evicts: bool) {
    EVICTS.store(evicts, Relaxed);
}

/// Remembers `lock`, which is about to leave `key`: the next event shows whether it was evicted.
pub fn remember_unlinked(Key { db, name }: Key<'_>, lock: &Lock) {
    if EVICTS.load(Relaxed) {
        UNLINKED.replace(Some((db, name.into(), Evictee::of(lock))));
    }
}

/// Handles that the server evicted `key`. If its lock was the one that last left its key ([`remember_unlinked`]), the
/// holder does not know of the eviction, and no file will show it to a later start. So nothing proves any longer that
/// this incarnation remembers every grant.
pub fn on_evicted(key: Key<'_>) {
    let now = clock::now();
    let unlinked = UNLINKED.take().filter(|(db, name, _)| Key { db: *db, name } == key);
    let Some((_, _, lock)) = unlinked else { return };
    if state::with(|node| node.evict(key, lock, now)) {
        incarnation::not_all_in_aof();
    }
}
