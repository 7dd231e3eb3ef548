//! What the node does when the server tells of its databases and keys. Memory only: nothing is written here.

use crate::ffi::{Arrival, Context, Events, KeyName, LockKey};
use crate::{expiry, state};

/// The node's answers to the server's events.
pub struct NodeEvents;

impl Events for NodeEvents {
    fn cron(ctx: Context<'_>) {
        expiry::look_after(ctx);
    }

    fn flush(db: Option<u32>) {
        let detached = state::with(|node| node.deadlines.detach(db));
        // A million entries take a while to free: the server need not wait for it. Where no thread can be had the
        // closure, and with it the entries, is dropped right here.
        let _ = std::thread::Builder::new().name("lock-flush".to_owned()).spawn(move || drop(detached));
    }

    fn swap(one: u32, other: u32) {
        state::with(|node| node.deadlines.swap(one, other));
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
    }
}
