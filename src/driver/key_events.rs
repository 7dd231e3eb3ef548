//! Publishes the key events of a request.
//!
//! A module that reacts to a key event runs its commands inside the publication, also commands about the same lock. So a
//! request publishes its events when its last step is done and its key is closed: such a command then finds the lock
//! and the node as the request left them, and nothing that it changes is overwritten.

use std::ffi::CStr;

use palisade_core::engine::Event;

use crate::ffi::{Context, LockKey};

/// The events of one request, in their order. The first one is kept without an allocation, because most requests have
/// no other. The engine bounds their number: a request ends at most `ENDED_A_STEP_MAX` grants and serves at most
/// `ANSWERS_A_PASS_MAX` clients, each before and after its own decision.
#[derive(Default)]
pub struct KeyEvents {
    first: Option<Event>,
    others: Vec<Event>,
}

impl KeyEvents {
    /// Adds an event, if somebody receives key events.
    #[inline(always)]
    pub fn add(&mut self, ctx: Context<'_>, event: Event) {
        if ctx.has_receivers_of_key_events() {
            self.keep(event);
        }
    }

    #[cold]
    fn keep(&mut self, event: Event) {
        if self.first.is_none() {
            self.first = Some(event);
        } else {
            self.others.push(event);
        }
    }

    /// Publishes the events, if there are any, and closes the key before. The caller reads nothing from the key
    /// afterwards, and relies on nothing that it read before.
    #[inline(always)]
    pub fn publish(self, ctx: Context<'_>, key: &mut LockKey<'_>) {
        if self.first.is_some() {
            self.publish_all(ctx, key);
        }
    }

    #[cold]
    fn publish_all(self, ctx: Context<'_>, key: &mut LockKey<'_>) {
        key.close();
        for event in self.first.into_iter().chain(self.others) {
            ctx.publish_key_event(word(event), key.name());
        }
    }
}

/// Returns the name of an event.
fn word(event: Event) -> &'static CStr {
    match event {
        Event::Acquired => c"lock.acquire",
        Event::HandedOver => c"lock.handoff",
        Event::Released => c"lock.release",
        Event::Extended => c"lock.extend",
        Event::Expired => c"lock.expire",
        Event::Broken => c"lock.break",
        Event::Converted => c"lock.convert",
        Event::Noted => c"lock.note",
    }
}
