//! The log of ended grants and failed waits that took long: a ring in memory, for people who later ask who had the
//! lock.

use std::collections::VecDeque;

use crate::history::ending::Ending;
use crate::history::shortened::shortened;
use crate::lock::grant::Grant;
use crate::values::key::Key;
use crate::values::limits::{LOG_KEY_BYTES_MAX, LOG_LEN_DEFAULT, LOG_NOTE_BYTES_MAX, LOG_SLOWER_THAN_DEFAULT_MS};
use crate::values::mode::{Mode, Wanted};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The subject of an entry of the log: a grant that ended, or a wait that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A grant with this token, in this mode.
    Grant(Token, Mode),
    /// A request that waited for this mode.
    Wait(Wanted),
}

/// A request that waited and failed, for its entry in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedWait<'a> {
    pub owner: &'a [u8],
    pub note: &'a [u8],
    pub wanted: Wanted,
    /// The time at which the request began to wait. The wait ended at `until` at the latest.
    pub since: BootTime,
    pub until: BootTime,
}

/// An entry of the log: a grant that ended, or a wait that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's number, counted without gaps from the start of the node.
    pub id: u64,
    /// The time at which the grant or the wait ended.
    pub at: BootTime,
    /// The database of the key.
    pub db: u32,
    /// The key. If it is longer than [`LOG_KEY_BYTES_MAX`], its beginning and the number of omitted bytes.
    pub name: Box<[u8]>,
    /// The owner that held the lock, or waited for it.
    pub owner: Box<[u8]>,
    /// The grant or the wait that this entry is about.
    pub about: About,
    /// The note. If it is longer than [`LOG_NOTE_BYTES_MAX`], its beginning and the number of omitted bytes.
    pub note: Box<[u8]>,
    /// The time that the owner waited for the lock, in milliseconds.
    pub waited_ms: u64,
    /// The time for which the lock was held, in milliseconds.
    pub held_ms: u64,
    /// The reason why the grant or the wait ended.
    pub ending: Ending,
    /// The number of other requests that waited for the lock when the grant or the wait ended.
    pub waiters: usize,
}

/// The newest entries of LOCK.LOG, up to a maximum number.
#[derive(Clone, Debug)]
pub struct Log {
    entries: VecDeque<Entry>,
    next_id: u64,
    max_len: usize,
    /// The least time held or waited with which an entry is kept, in milliseconds. The largest number keeps none.
    slower_than_ms: u64,
}

impl Default for Log {
    fn default() -> Self {
        let mut log = Self { entries: VecDeque::new(), next_id: 0, max_len: 0, slower_than_ms: 0 };
        log.configure(LOG_LEN_DEFAULT, Some(LOG_SLOWER_THAN_DEFAULT_MS));
        log
    }
}

impl Log {
    /// Sets the largest number of entries, and the least time held or waited with which an entry is kept, in
    /// milliseconds; `None` keeps none.
    pub(super) fn configure(&mut self, max_len: u32, slower_than_ms: Option<u32>) {
        self.max_len = max_len as usize;
        self.slower_than_ms = slower_than_ms.filter(|_| max_len > 0).map_or(u64::MAX, u64::from);
        self.entries.truncate(self.max_len);
        self.entries.shrink_to(self.max_len);
    }

    /// Returns the least time held or waited with which an entry is kept, in milliseconds. It is the largest number if
    /// none is kept.
    pub(super) fn slower_than_ms(&self) -> u64 {
        self.slower_than_ms
    }

    /// Returns whether any entries are kept.
    pub(super) fn is_on(&self) -> bool {
        self.slower_than_ms < u64::MAX
    }

    /// Iterates over the entries, the newest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Iterates over the entries of the key `name` in any database, the newest first.
    pub fn of<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a Entry> {
        let name = shortened(name, LOG_KEY_BYTES_MAX);
        self.entries.iter().filter(move |entry| entry.name == name)
    }

    /// Returns the number of entries that the log has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the log has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all entries, for LOCK.LOG RESET.
    pub(super) fn reset(&mut self) {
        self.entries = VecDeque::new();
    }

    /// Logs that a grant of the lock of `key` ended at `at`.
    pub(super) fn push_grant(
        &mut self,
        key: Key<'_>,
        (mode, grant): (Mode, &Grant),
        ending: Ending,
        waiters: usize,
        at: BootTime,
    ) {
        let times = (grant.waited().ms(), at.ms_since(grant.granted()));
        let about = About::Grant(grant.token(), mode);
        self.push(key, about, (grant.owner(), grant.note()), times, (ending, waiters, at));
    }

    /// Logs that a request for the lock of `key` waited until `at` and failed.
    pub(super) fn push_wait(
        &mut self,
        key: Key<'_>,
        wait: FailedWait<'_>,
        ending: Ending,
        waiters: usize,
        at: BootTime,
    ) {
        let times = (at.ms_since(wait.since), 0);
        self.push(key, About::Wait(wait.wanted), (wait.owner, wait.note), times, (ending, waiters, at));
    }

    fn push(
        &mut self,
        Key { db, name }: Key<'_>,
        about: About,
        (owner, note): (&[u8], &[u8]),
        (waited_ms, held_ms): (u64, u64),
        (ending, waiters, at): (Ending, usize, BootTime),
    ) {
        // People ask about locks that an operator broke, so these are kept however briefly they were held.
        let is_kept = waited_ms.max(held_ms) >= self.slower_than_ms || ending == Ending::Broken;
        if !is_kept || !self.is_on() {
            return;
        }
        self.entries.truncate(self.max_len.saturating_sub(1));
        let (name, note) = (shortened(name, LOG_KEY_BYTES_MAX), shortened(note, LOG_NOTE_BYTES_MAX));
        let (id, owner) = (self.next_id, owner.into());
        self.entries.push_front(Entry { id, at, db, name, owner, about, note, waited_ms, held_ms, ending, waiters });
        self.next_id += 1;
    }

    /// Corrects entries that say "deleted": among the newest `count`, those that satisfy `which` get the ending
    /// `ending`.
    pub(super) fn deleted_by(&mut self, ending: Ending, count: usize, which: impl Fn(&Entry) -> bool) {
        let newest = self.entries.iter_mut().take(count);
        newest.filter(|entry| entry.ending == Ending::Deleted && which(entry)).for_each(|entry| entry.ending = ending);
    }

    /// Removes the newest entries that say that a flush ended a lock: the flush began a reload, and the locks are back.
    pub(super) fn unflush(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.ending == Ending::Flushed) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::request::Note;

    fn ended(log: &mut Log, name: &[u8], note: &[u8], held_ms: u64) {
        let grant = Grant::new(owner("me"), Note::new(note).unwrap(), token(7), ms(10), ttl(60_000));
        log.push_grant(key_of(name), (Mode::Exclusive, &grant), Ending::Released, 0, ms(10 + held_ms));
    }

    #[test]
    fn a_ring_of_what_took_long() {
        let mut log = Log::default();
        log.configure(3, Some(5));
        (0..10).for_each(|held_ms| ended(&mut log, b"k", b"", held_ms));
        let kept: Vec<_> = log.entries().map(|entry| (entry.id, entry.held_ms)).collect();
        assert_eq!(kept, [(4, 9), (3, 8), (2, 7)], "the newest, and ids count those that are gone too");
        log.configure(1, Some(0));
        assert_eq!(log.len(), 1);
        ended(&mut log, b"other", b"", 0);
        assert_eq!((log.len(), log.of(b"k").count(), log.of(b"other").count()), (1, 0, 1));
        for (max_len, slower_than_ms) in [(0, Some(0)), (5, None)] {
            log.configure(max_len, slower_than_ms);
            log.reset();
            ended(&mut log, b"k", b"", 60_000);
            assert!(log.is_empty(), "off");
        }
    }

    #[test]
    fn what_was_broken_is_kept_however_young() {
        let mut log = Log::default();
        let grant = Grant::new(owner("me"), Note::default(), token(7), ms(10), ttl(60_000));
        let ends = |log: &mut Log, ending| log.push_grant(KEY, (Mode::Exclusive, &grant), ending, 0, ms(11));
        for ending in [Ending::Released, Ending::Broken, Ending::Deleted] {
            ends(&mut log, ending);
        }
        assert_eq!(log.entries().map(|entry| entry.ending).collect::<Vec<_>>(), [Ending::Broken]);
        log.configure(5, None);
        log.reset();
        ends(&mut log, Ending::Broken);
        assert!(log.is_empty(), "off");
    }

    #[test]
    fn long_texts_are_cut_where_it_shows() {
        let mut log = Log::default();
        let (name, note) = ([b'k'; LOG_KEY_BYTES_MAX + 1], [b'n'; LOG_NOTE_BYTES_MAX + 40]);
        ended(&mut log, &name, &note, 60_000);
        let entry = log.of(&name).next().unwrap();
        assert!(entry.name.ends_with(b"k... (1 more bytes)") && entry.note.ends_with(b"n... (40 more bytes)"));
        assert_eq!(&*shortened(&name[1..], LOG_KEY_BYTES_MAX), &name[1..], "what fits stays");
        assert_eq!(log.of(&name[1..]).count(), 0);
    }
}
