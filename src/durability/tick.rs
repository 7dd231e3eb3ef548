//! What is done for durability ten times a second, whether commands come or not.

use super::{dropped_locks, incarnation, promotion, readiness};
use crate::ffi::Context;
use crate::{clock, state};

/// Ten times a second.
pub fn tick(ctx: Context<'_>) {
    // What was refused for want of a write, or waits for the end of a start, goes on even if no command comes.
    readiness::look_at_disk(ctx);
    let now = clock::now();
    dropped_locks::confirm_flush();
    let (is_stamped, is_write_due) = state::with(|node| {
        node.sweep(now.boot);
        (node.ledger().is_stamped() || !node.ledger().is_judged(), node.is_write_due(now))
    });
    if !is_stamped {
        incarnation::put_stamp();
    }
    if is_write_due {
        incarnation::save(now);
    }
    incarnation::log_failures();
    promotion::tell_replicas(ctx, now);
}
