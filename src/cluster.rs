//! Where a key is served, if not here.
//!
//! The server redirects commands, but not clients that are blocked: a hand-over asks first, or the lock would be granted
//! here and on the node that its slot moved to.

use crate::ffi::{CallReply, Context, KeyName};

/// What to tell the clients that wait for the lock of `key`, which is absent here; `None`: it is served here, and not on
/// its way to another node.
pub fn redirect(ctx: Context<'_>, key: KeyName<'_>) -> Option<String> {
    // The server refuses to run it where it would redirect a client, or accept no writes; on an absent key it does nothing.
    if CallReply::of_key(ctx, c"UNLINK", key).is_some() {
        return None;
    }
    let slot = CallReply::of_word_and_key(ctx, c"CLUSTER", c"KEYSLOT", key).and_then(|reply| reply.value().integer());
    let slot = slot.unwrap_or(-1);
    let slots = CallReply::of_word(ctx, c"CLUSTER", c"SLOTS");
    let myself = CallReply::of_word(ctx, c"CLUSTER", c"MYID").and_then(|reply| reply.value().text());
    let info = CallReply::of_word(ctx, c"CLUSTER", c"INFO").and_then(|reply| reply.value().text());
    let is_up = info.is_some_and(|info| info.contains("cluster_state:ok"));
    let owner = slots.as_ref().and_then(|slots| {
        slots.value().elements().find_map(|range| {
            let end = |n| range.element(n)?.integer();
            if !(end(0)?..=end(1)?).contains(&slot) {
                return None;
            }
            let master = range.element(2)?;
            // An endpoint that is not known is empty, as in the server's own answer.
            Some((
                master.element(0)?.text().unwrap_or_default(),
                master.element(1)?.integer()?,
                master.element(2)?.text()?,
            ))
        })
    });
    Some(match owner {
        Some((host, port, id)) if myself.as_ref() != Some(&id) => format!("MOVED {slot} {host}:{port}"),
        Some(_) if !is_up => "CLUSTERDOWN The cluster is down".to_owned(),
        Some(_) => "TRYAGAIN the slot of this lock is moving to another node: ask again".to_owned(),
        None => "CLUSTERDOWN Hash slot not served".to_owned(),
    })
}
