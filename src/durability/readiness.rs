//! Decides whether the node may promise anything. Its start must be judged, and the disk must have what a later
//! incarnation has to know.

use palisade_core::{BootTime, Refusal};

use super::{incarnation, start};
use crate::ffi::Context;
use crate::state;

/// Refuses while the start is not judged, or while the disk lacks something that a later incarnation must know.
pub fn ready(ctx: Context<'_>, now: BootTime) -> Result<(), Refusal> {
    let ready = || state::with(|node| node.ready(now));
    ready().or_else(|_| {
        check_disk(ctx);
        ready()
    })
}

/// Tells the node which of its states are on the disk by now, and judges the start if that has not been done.
pub fn check_disk(ctx: Context<'_>) {
    if !state::with(|node| node.ledger().is_judged()) {
        start::decide(ctx);
    }
    incarnation::read_written_states();
}
