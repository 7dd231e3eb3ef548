//! The work on durability that is done ten times a second, whether commands arrive or not.

use super::{dropped_locks, incarnation, promotion, readiness};
use crate::ffi::Context;
use crate::{clock, state};

/// Does the work on durability once.
pub fn tick(ctx: Context<'_>) {
    // Requests may wait for a write or for the end of the start, and have to be served even if no command arrives.
    readiness::check_disk(ctx);
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
    promotion::send_to_replicas(ctx, now);
}
