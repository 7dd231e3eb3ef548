//! Events of grants, for subscribers (`lock.events`). They are kept in order until the driver publishes them, at the
//! end of the step or in the next pass of the server's event loop.

use std::collections::VecDeque;

use crate::history::ending::Ending;
use crate::history::shortened::shortened;
use crate::lock::grant::Grant;
use crate::values::key::Key;
use crate::values::limits::{EVENTS_MAX, LOG_KEY_BYTES_MAX, LOG_NOTE_BYTES_MAX};
use crate::values::mode::Mode;
use crate::values::time::BootTime;
use crate::values::token::Token;

/// A change of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The lock was granted to a request at once.
    Granted,
    /// The lock was granted to a request that had waited in the queue.
    HandedOver,
    /// The grant has a larger token.
    Raised,
    /// The grant has another mode.
    Converted,
    /// The grant ended, for this reason.
    Ended(Ending),
}

impl Happened {
    /// Returns the word by which `lock.events` names this change.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::HandedOver => "handed_over",
            Self::Raised => "raised",
            Self::Converted => "converted",
            Self::Ended(ending) => ending.word(),
        }
    }
}

/// An event of one grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantEvent {
    /// The change of the grant.
    pub happened: Happened,
    /// The time of the change, on the boot clock.
    pub at: BootTime,
    /// The database of the key.
    pub db: u32,
    /// The key. If it is longer than [`LOG_KEY_BYTES_MAX`], its beginning and the number of omitted bytes.
    pub name: Box<[u8]>,
    /// The owner that holds the lock by this grant, or held it.
    pub owner: Box<[u8]>,
    /// The token after the change.
    pub token: Token,
    /// The mode after the change.
    pub mode: Mode,
    /// The note, shortened as in the log: to [`LOG_NOTE_BYTES_MAX`] bytes.
    pub note: Box<[u8]>,
    /// The length of the grant's lease, in milliseconds.
    pub ttl_ms: u32,
    /// The time that the owner waited for the grant, in milliseconds.
    pub waited_ms: u64,
    /// The time for which the grant has been held, in milliseconds.
    pub held_ms: u64,
    /// The number of requests that wait for the lock.
    pub waiters: usize,
}

/// The events that the driver has not published yet.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    is_on: bool,
    events: VecDeque<GrantEvent>,
    missed: u64,
}

impl Outbox {
    /// Sets whether `lock.events` has subscribers. Without subscribers the unpublished events are dropped.
    pub(super) fn configure(&mut self, is_on: bool) {
        if !is_on {
            *self = Self::default();
        }
        self.is_on = is_on;
    }

    /// Returns whether `lock.events` has subscribers: without any, nothing is added.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds the event `happened`: it happened to `grant` of the lock of `key` at `at`, while `waiters` requests wait
    /// for that lock.
    pub(super) fn push(
        &mut self,
        Key { db, name }: Key<'_>,
        (mode, grant): (Mode, &Grant),
        happened: Happened,
        waiters: usize,
        at: BootTime,
    ) {
        if !self.is_on {
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.missed += 1;
            return;
        }
        self.events.push_back(GrantEvent {
            happened,
            at,
            db,
            name: shortened(name, LOG_KEY_BYTES_MAX),
            owner: grant.owner().into(),
            token: grant.token(),
            mode,
            note: shortened(grant.note(), LOG_NOTE_BYTES_MAX),
            ttl_ms: grant.ttl_ms(),
            waited_ms: grant.waited().ms(),
            held_ms: at.ms_since(grant.granted()),
            waiters,
        });
    }

    /// Returns whether there are unpublished events.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes and returns the oldest unpublished event.
    pub(super) fn pop(&mut self) -> Option<GrantEvent> {
        self.events.pop_front()
    }

    /// Returns how many events were dropped since the last call because there were too many unpublished ones. The
    /// dropped events are later than all that are kept.
    pub(super) fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Corrects events that say "deleted": among the newest `count`, those that satisfy `which` get the ending
    /// `ending`.
    pub(super) fn deleted_by(&mut self, ending: Ending, count: usize, which: impl Fn(&GrantEvent) -> bool) {
        let newest = self.events.iter_mut().rev().take(count);
        let deleted = Happened::Ended(Ending::Deleted);
        newest
            .filter(|event| event.happened == deleted && which(event))
            .for_each(|event| event.happened = Happened::Ended(ending));
    }

    /// Removes the newest events that say that a flush ended a lock: the flush began a reload, and the locks are back.
    pub(super) fn unflush(&mut self) {
        while self.events.back().is_some_and(|event| event.happened == Happened::Ended(Ending::Flushed)) {
            self.events.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::request::Note;

    #[test]
    fn too_many_at_once_are_counted_and_texts_are_cut_as_in_the_log() {
        let note = [b'n'; LOG_NOTE_BYTES_MAX + 1];
        let grant = Grant::new(owner("me"), Note::new(&note).unwrap(), token(7), ms(10), ttl(60_000));
        let name = [b'k'; LOG_KEY_BYTES_MAX + 2];
        let mut outbox = Outbox::default();
        let push = |outbox: &mut Outbox| {
            let key = Key { db: 3, name: &name };
            outbox.push(key, (Mode::Exclusive, &grant), Happened::Granted, 0, ms(15));
        };
        push(&mut outbox);
        assert!(!outbox.has_events(), "off");
        outbox.configure(true);
        (0..EVENTS_MAX + 5).for_each(|_| push(&mut outbox));
        let first = outbox.pop().unwrap();
        assert!(first.name.ends_with(b"k... (2 more bytes)") && first.note.ends_with(b"n... (1 more bytes)"));
        assert_eq!((first.db, first.token, first.ttl_ms, first.held_ms), (3, token(7), 60_000, 5));
        assert_eq!(std::iter::from_fn(|| outbox.pop()).count(), EVENTS_MAX - 1);
        assert_eq!((outbox.take_missed(), outbox.take_missed()), (5, 0));
        push(&mut outbox);
        outbox.configure(false);
        assert!(!outbox.has_events());
    }
}
