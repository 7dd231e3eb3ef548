//! Decides whether the node may promise anything: the start must be judged, and the disk must have what a later
//! incarnation has to know.

use palisade_core::{BootTime, Refusal};

use super::{incarnation, start};
use crate::ffi::Context;
use crate::state;

/// Refuses while the start is not judged, or the disk lacks something that a later incarnation must know.
pub fn ready(ctx: Context<'_>, now: BootTime) -> Result<(), Refusal> {
    let ready = || state::with(|node| node.ready(now));
    ready().or_else(|_| {
        look_at_disk(ctx);
        ready()
    })
}

/// Reports to the node what is on the disk by now, and judges the start if it has not been judged.
pub fn look_at_disk(ctx: Context<'_>) {
    if !state::with(|node| node.ledger().is_judged()) {
        start::decide(ctx);
    }
    incarnation::look_at_file();
}
