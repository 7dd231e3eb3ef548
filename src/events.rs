//! What the node does when the server tells of its databases and keys. Memory only: nothing is written here.

use std::cell::Cell;

use crate::ffi::{Arrival, Context, Events, KeyName, LockKey};
use crate::{expiry, state};

/// So many entries of the bookkeeping are freed without a thread of their own.
const FREED_AT_ONCE: usize = 1_000;

/// The node's answers to the server's events.
pub struct NodeEvents;

impl Events for NodeEvents {
    fn cron(ctx: Context<'_>) {
        expiry::look_after(ctx);
    }

    fn flush(db: Option<u32>) {
        let detached = state::with(|node| node.deadlines.detach(db));
        if detached.len() > FREED_AT_ONCE {
            // A million entries take a while to free: the server need not wait for it. Where no thread can be had the
            // closure, and with it the entries, is dropped right here.
            let _ = std::thread::Builder::new().name("lock-flush".to_owned()).spawn(move || drop(detached));
        }
    }

    fn swap(one: u32, other: u32) {
        state::with(|node| node.deadlines.swap(one, other));
    }

    fn loaded(ctx: Context<'_>, name: KeyName<'_>) {
        // Of all keys that are loaded only locks need a look.
        if READ.take() {
            Self::arrived(ctx, name, Arrival::Moved);
        }
    }

    fn arrived(ctx: Context<'_>, name: KeyName<'_>, by: Arrival) {
        let db = ctx.db();
        let Ok(mut key) = LockKey::read(ctx, name) else { return };
        let Some(lock) = key.lock_mut() else { return };
        if by == Arrival::Restored {
            lock.mark_suspect();
        }
        state::with(|node| {
            node.tokens.learn(name.bytes(), lock.token());
            node.deadlines.watch(db, name.bytes(), lock);
        });
        expiry::arm(ctx);
    }
}

thread_local! {
    /// A lock was read since the last key was loaded.
    static READ: Cell<bool> = const { Cell::new(false) };
}

/// A lock was read from a record: if the server keeps it, an event of its key follows.
pub fn lock_was_read() {
    READ.set(true);
}
