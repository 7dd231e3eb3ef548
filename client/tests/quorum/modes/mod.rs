//! Readers, writers that become readers, and permits, on real servers.

mod blocking;
mod downgrading;
mod permits;
mod reading;

use palisade_client::{ErrorKind, Guard};

use crate::fixture::Nodes;
use crate::harness::{Reply, Server, int, null, text};

/// Returns the grants of `k` on a server.
fn grants(server: &Server) -> Vec<Reply> {
    match server.client().say("LOCK.INFO k HOLDERS 100") {
        info if info == null() => vec![],
        info => info.field("grants").as_list(),
    }
}

/// Returns the modes of the grants of `k` on each node.
fn modes(nodes: &Nodes) -> Vec<Vec<String>> {
    let mode = |grant: &Reply| grant.field("mode").as_text();
    nodes.0.iter().map(|server| grants(server).iter().map(mode).collect()).collect()
}

/// Returns whether a server has `k` for this guard.
fn has(server: &Server, guard: &Guard) -> bool {
    grants(server).iter().any(|grant| grant.field("owner").as_bytes() == guard.owner())
}

/// Returns the number of nodes on which this many requests wait for a lock.
fn waited_on(nodes: &Nodes, waiters: u64) -> usize {
    nodes.0.iter().filter(|server| server.info("waiters") == waiters).count()
}

/// Makes a server lose `k`, and grant it to another owner in this mode.
fn gives_away(server: &Server, mode: &str) {
    let mut client = server.client();
    assert_eq!(client.say("DEL k"), int(1));
    assert_ne!(client.say(&format!("LOCK.ACQUIRE k somebody 60000 {mode}")), null());
}

/// Makes a server refuse CONVERT, or accept it again.
fn refuses_to_convert(server: &Server, refuses: bool) {
    let sign = if refuses { '-' } else { '+' };
    assert_eq!(server.client().say(&format!("ACL SETUSER default {sign}lock.convert")), text("OK"));
}

/// Extends the lock. After a round with too few nodes it begins another: the client may not have received all grants
/// when the first began.
async fn extend(guard: &Guard) {
    while let Err(error) = guard.extend().await {
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    }
}
