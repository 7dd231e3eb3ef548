//! Publishes events of grants (`lock.events`) to the subscribers of [`CHANNEL`].
//!
//! Publishing changes no data: no message goes to the AOF or to replicas, and no rule depends on its delivery. If the
//! server removes a lock in the middle of a command of its own, the events are published in the next pass of the event
//! loop.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use palisade_core::missed_to_json;

use crate::ffi::Context;
use crate::{clock, config, state};

/// The channel on which the events are published.
const CHANNEL: &str = "lock.events";

/// True if events will be published in the next pass of the event loop.
static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// Publishes all events that are not yet published.
#[inline]
pub fn publish(ctx: Context<'_>) {
    if config::events() {
        publish_all(ctx);
    }
}

#[cold]
fn publish_all(ctx: Context<'_>) {
    let has_events = state::with(|node| node.history().has_events());
    if !has_events {
        return;
    }
    let now = clock::now();
    let wall_ms = |ago_us| now.wall_us.saturating_sub(ago_us) / 1_000;
    let id = state::with(|node| node.ledger().incarnation().node);
    // `state::with` ends before the server is called, because the server may call the module back.
    while let Some(event) = state::with(|node| node.history_mut().take_event()) {
        ctx.publish(CHANNEL, &event.to_json(wall_ms(now.boot.us_since(event.at)), id));
    }
    let missed = state::with(|node| node.history_mut().take_missed_events());
    if missed > 0 {
        ctx.publish(CHANNEL, &missed_to_json(missed, wall_ms(0), id));
    }
}

/// Publishes the unpublished events in the next pass of the event loop, because the server is in the middle of a
/// command now.
pub fn publish_soon(ctx: Context<'_>) {
    if config::events() && !IS_UNDER_WAY.swap(true, Relaxed) {
        ctx.in_next_pass(|ctx| {
            IS_UNDER_WAY.store(false, Relaxed);
            publish(ctx);
        });
    }
}
