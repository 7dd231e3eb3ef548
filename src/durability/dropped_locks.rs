//! Locks that are dropped while they are held: by FLUSHALL and its like, and by the server's evictions.
//!
//! Their holders do not know, so nobody else may be granted them before their leases have ended: after a flush nothing
//! at all, after an eviction that key alone.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use palisade_core::engine::Key;
use palisade_core::limits::LOGGED_TOGETHER_MAX;
use palisade_core::{BootTime, Detached, Evictee, Lock, Node};

use super::incarnation;
use crate::ffi::{self, Context, KeyName, LockKey};
use crate::{clock, state};

/// The server may evict keys.
static EVICTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The lock that was unlinked last, if the server may evict keys.
    static UNLINKED: RefCell<Option<(u32, Box<[u8]>, Evictee)>> = const { RefCell::new(None) };
}

/// Locks are dropped for good; the last of them would have ended at `last`.
pub fn dropped(last: BootTime) {
    let now = clock::now();
    if state::with(|node| node.dropped(last, now.boot)) {
        incarnation::save_at_once(now);
    }
}

/// The locks `detached` are dropped; that may be the start of a reload, which brings them back.
pub fn dropped_perhaps(detached: Detached) {
    let now = clock::now();
    match state::with(|node| node.dropped_perhaps(detached, now.boot)) {
        Ok(()) => incarnation::save_at_once(now),
        Err(not_live) => free(vec![not_live]),
    }
}

/// Whether an operator lifted a guard after each of these locks was granted: then what drops them, replayed from the AOF, is
/// nothing to guard any more. (What dropped a lock later left an armed guard in the state file.)
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

/// A flush is about to take these locks: the log says so of those that it may be about.
pub fn log_flushed(ctx: Context<'_>, locks: &Detached) {
    for (db, name) in locks.names().take(LOGGED_TOGETHER_MAX) {
        ctx.select(db);
        KeyName::with(name, |key_name| {
            if let Ok(key) = LockKey::read(ctx, key_name)
                && let Some(lock) = key.lock()
            {
                state::with(|node| node.flushed(Key { db, name }, lock, clock::boot_now()));
            }
        });
    }
}

/// Data was loaded: if every lock that was dropped right before is back, it was a reload, and nothing to guard.
pub fn reloaded(ctx: Context<'_>) {
    let Some(flush) = state::with(Node::take_flush) else { return };
    // Of several holders it is not known who was dropped, so they never count as back.
    let is_same = |lock: &Lock, end| matches!(lock, Lock::Exclusive(_)) && lock.end() >= end;
    let is_back = |db, name: &[u8], end| {
        ctx.select(db);
        KeyName::with(name, |name| {
            LockKey::read(ctx, name).is_ok_and(|key| key.lock().is_some_and(|lock| is_same(lock, end)))
        })
    };
    if flush.locks().all(|(db, name, end)| is_back(db, name, end)) {
        state::with(|node| node.reloaded(&flush));
        incarnation::save(clock::now());
    }
    free(flush.into_dropped());
}

/// What was dropped is gone for good: no reload brings it back any more.
pub fn confirm_flush() {
    if let Some(flush) = state::with(Node::take_flush) {
        free(flush.into_dropped());
    }
}

/// Frees the bookkeeping of dropped locks: a million entries take a while.
pub fn free(dropped: Vec<Detached>) {
    let entries = dropped.iter().map(Detached::len).sum();
    ffi::free(dropped, entries);
}

/// Whether the server may evict keys, by its configuration.
pub fn watch_evictions(evicts: bool) {
    EVICTS.store(evicts, Relaxed);
}

/// `lock` is about to leave `key`; whether to make room the next event tells.
pub fn unlinked(Key { db, name }: Key<'_>, lock: &Lock) {
    if EVICTS.load(Relaxed) {
        UNLINKED.replace(Some((db, name.into(), Evictee::of(lock))));
    }
}

/// `key` was evicted. If it was the lock unlinked last its holder does not know. A restart would not
/// know either, so nothing proves this incarnation any more.
pub fn evicted(key: Key<'_>) {
    let now = clock::now();
    let unlinked = UNLINKED.take().filter(|(db, name, _)| Key { db: *db, name } == key);
    let Some((_, _, lock)) = unlinked else { return };
    if state::with(|node| node.evict(key, lock, now)) {
        incarnation::not_all_in_aof();
    }
}
