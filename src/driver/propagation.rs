//! Whether changes have to be propagated: to an AOF, or to replicas.
//!
//! Telling the server of a change costs as much as making it, also where it passes it on to nobody: a node of a quorum
//! without replicas and AOF. So [`look`] asks, ten times a second, whether there is an AOF, a replica, or a backlog from
//! which one could go on. If not, nobody hears of changes until somebody comes; and who comes begins with a copy of the
//! data that a forked child writes, or with the AOF switched on, a load or a change of role. The server tells of each of
//! these before it wants to hear of the next change, and from then on everything is told until [`look`] has asked again.
//!
//! Should a future server let in listeners another way, they lack locks at worst: a replica that is promoted is guarded, and
//! an AOF switched on while the server runs never proves an incarnation.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::ffi::Context;

/// Only the main thread looks at it: what commands ask each time is cheaper so than of a thread's own.
static NOBODY_LISTENS: AtomicBool = AtomicBool::new(false);

/// There is no AOF and no replica: nobody hears of changes.
pub fn nobody_listens() -> bool {
    NOBODY_LISTENS.load(Relaxed)
}

/// An AOF or a replica may have come.
pub fn may_have_begun() {
    NOBODY_LISTENS.store(false, Relaxed);
}

/// Asks the server whether anybody listens. In a cluster somebody may at any time: slots move.
pub fn look(ctx: Context<'_>) {
    let none = |field| ctx.info_number(c"replication", field) == Some(0);
    let nobody_listens = nobody_listens()
        || !ctx.is_cluster()
            && ctx.is_master()
            && !ctx.is_loading()
            && !ctx.has_aof()
            && none(c"connected_slaves")
            && none(c"repl_backlog_active");
    NOBODY_LISTENS.store(nobody_listens, Relaxed);
}
