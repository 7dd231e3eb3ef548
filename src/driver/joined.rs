//! The connections of quorum clients that said which version of the set of nodes they use (LOCK.MEMBERS JOIN).

use std::cell::RefCell;
use std::collections::HashMap;

use palisade_core::ClientId;

use crate::ffi::Context;

thread_local! {
    static JOINED: RefCell<HashMap<u64, u64>> = RefCell::default();
}

/// Notes that this connection uses `version` of the set from now on.
pub fn join(ctx: Context<'_>, ClientId(client): ClientId, version: u64) {
    JOINED.with_borrow_mut(|joined| {
        // Closed connections are removed only when the table is full, because that checks every connection.
        if joined.len() == joined.capacity() {
            joined.retain(|&client, _| ctx.is_open(ClientId(client)));
        }
        joined.insert(client, version);
    });
}

/// Closes the connections that use an older version of the set than `version`. Commands from them that the server has
/// not read yet do not run. Returns the number of closed connections.
pub fn hang_up_before(ctx: Context<'_>, version: u64) -> usize {
    let older: Vec<_> = JOINED.with_borrow_mut(|joined| {
        let older = joined.extract_if(|_, joined| *joined < version);
        older.map(|(client, _)| ClientId(client)).collect()
    });
    older.iter().for_each(|&client| ctx.hang_up(client));
    older.len()
}
