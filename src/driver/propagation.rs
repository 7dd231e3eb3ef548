//! Tracks whether changes have to be propagated to an AOF or to replicas.
//!
//! Propagating a change through the server costs as much as making it, even if nobody receives it, as on a node of a
//! quorum without replicas and AOF. So [`find_receivers`] asks ten times a second whether there is an AOF, a replica,
//! or a backlog from which a replica could continue. If not, no changes are propagated until a receiver may have come.
//! A receiver can come in four ways: it begins with a copy of the data that a forked child writes, the AOF is switched
//! on, data is loaded, or the role changes. The server reports each of these before the first change that the receiver
//! needs. From then on everything is propagated until [`find_receivers`] has asked again.
//!
//! A future server may let receivers begin in another way. At worst they lack locks: a replica that is promoted is
//! guarded, and an AOF switched on while the server runs never proves an incarnation.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::ffi::Context;

/// True if changes have no receiver. Only the main thread uses it. It is no thread-local, because that would cost more,
/// and every command reads it.
static HAS_NO_RECEIVER: AtomicBool = AtomicBool::new(false);

/// Returns whether changes have no receiver: no AOF and no replica.
pub fn has_no_receiver() -> bool {
    HAS_NO_RECEIVER.load(Relaxed)
}

/// Notes that an AOF or a replica may have come, so that changes are propagated again.
pub fn on_possible_receiver() {
    HAS_NO_RECEIVER.store(false, Relaxed);
}

/// Asks the server whether changes have receivers. In a cluster they always count as having one, because slots can move
/// at any time.
pub fn find_receivers(ctx: Context<'_>) {
    let none = |field| ctx.info_number(c"replication", field) == Some(0);
    let has_no_receiver = has_no_receiver()
        || !ctx.is_cluster()
            && ctx.is_master()
            && !ctx.is_loading()
            && !ctx.has_aof()
            && none(c"connected_slaves")
            && none(c"repl_backlog_active");
    HAS_NO_RECEIVER.store(has_no_receiver, Relaxed);
}
