//! Ending locks whose lease has ended.
//!
//! A lock is free the moment its lease ends, whether or not it is still in memory; this passes it on, or cleans up.

use palisade_core::{BootTime, Now};

use crate::ffi::{Context, KeyName, LockKey};
use crate::hand_over::{self, Cause};
use crate::{clock, effects, state};

/// Deals with the entry that has been due longest; `false` if none is due.
pub fn expire_one(ctx: Context<'_>, now: BootTime) -> bool {
    let Some(due) = state::with(|node| node.deadlines.pop_due(now)) else { return false };
    ctx.select(due.db);
    KeyName::with(&due.name, |name| {
        // Not a lock any more: somebody overwrote the key, and its entry should have gone with it.
        let Ok(mut key) = LockKey::write(ctx, name) else { return };
        match key.lock() {
            Some(lock) if due.is_of(lock) => {
                state::with(|node| node.counters.expiries += 1);
                let now = Now { boot: now, ..clock::now() };
                hand_over::end(ctx, &mut key, effects::EXPIRED, Cause::Itself, now);
            }
            // The entry of an earlier lock under this name, or of none: it should have gone with its lock.
            _ => {}
        }
    });
    true
}
