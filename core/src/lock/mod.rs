//! What a key holds while it is locked.

pub mod deadlines;
pub mod entry;
pub mod modes;

use smallvec::SmallVec;

use crate::lock::entry::DeadlineEntry;
use crate::request::{Note, Owner, Ttl};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// So many bytes of owner and note stand in the lock itself: the 20 that clients make owners of, and some.
const TEXT_INLINE_BYTES: usize = 24;

/// One lock: who holds it, since when, until when, and with which token. It is held until its deadline has passed;
/// after that it is free, whether or not it is still in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub(crate) token: Token,
    pub(crate) deadline: BootTime,
    pub(crate) granted: BootTime,
    /// Length of the lease when its deadline was last set: what may be left of it never exceeds this.
    pub(crate) ttl_ms: u32,
    pub(crate) holds: u32,
    pub(crate) suspect: bool,
    owner_len: u16,
    /// Owner, then note: at most one allocation for both.
    text: SmallVec<[u8; TEXT_INLINE_BYTES]>,
    /// This lock's entry in the node's deadlines.
    pub(crate) entry: DeadlineEntry,
}

impl Lock {
    /// A lock granted to `owner` at `granted`, with one hold.
    pub(crate) fn new(owner: Owner<'_>, note: Note<'_>, token: Token, granted: BootTime, ttl: Ttl) -> Self {
        let mut text = SmallVec::from_slice(owner.bytes());
        text.reserve_exact(note.bytes().len());
        text.extend_from_slice(note.bytes());
        Self {
            token,
            deadline: granted.plus_ms(ttl.ms()),
            granted,
            ttl_ms: ttl.ms(),
            holds: 1,
            suspect: false,
            owner_len: owner.bytes().len() as u16,
            text,
            entry: DeadlineEntry::default(),
        }
    }

    /// Whether the lease is over. At the deadline itself it still holds: readings are truncated to a microsecond,
    /// so a holder that counts from its own send never outlives what the node grants.
    pub fn is_expired(&self, now: BootTime) -> bool {
        now > self.deadline
    }

    /// Whether `owner` is the one who was granted this lock.
    pub fn is_of(&self, owner: Owner<'_>) -> bool {
        self.owner() == owner.bytes()
    }

    /// The owner's bytes.
    pub fn owner(&self) -> &[u8] {
        &self.text[..usize::from(self.owner_len)]
    }

    /// The note's bytes; empty if there is none.
    pub fn note(&self) -> &[u8] {
        &self.text[usize::from(self.owner_len)..]
    }

    /// The fencing token of this grant.
    pub fn token(&self) -> Token {
        self.token
    }

    /// How often it is held: 1, and one more for each re-entry.
    pub fn holds(&self) -> u32 {
        self.holds
    }

    /// When it was granted.
    pub fn granted(&self) -> BootTime {
        self.granted
    }

    /// When the lease ends.
    pub fn deadline(&self) -> BootTime {
        self.deadline
    }

    /// Length of the lease when its deadline was last set, in milliseconds.
    pub fn ttl_ms(&self) -> u32 {
        self.ttl_ms
    }

    /// It came from outside: it keeps others out until its deadline and can be released, nothing else.
    pub fn mark_suspect(&mut self) {
        self.suspect = true;
    }

    /// Milliseconds of the lease that are surely left.
    pub fn left_ms(&self, now: BootTime) -> u64 {
        self.deadline.ms_since(now)
    }

    /// Milliseconds since the grant.
    pub fn held_ms(&self, now: BootTime) -> u64 {
        now.ms_since(self.granted)
    }

    /// Heap memory of a lock beside the value itself, in bytes.
    pub fn heap_bytes(&self) -> usize {
        if self.text.spilled() { self.text.capacity() } else { 0 }
    }

    /// This lock's entry in the node's deadlines.
    pub fn entry(&self) -> DeadlineEntry {
        self.entry
    }

    /// `next` takes this lock's place under the same key, and so its entry in the deadlines.
    pub fn replace(&mut self, next: Lock) {
        let entry = self.entry;
        *self = next;
        self.entry = entry;
    }

    /// Deadline = max(deadline, now + ttl): a lease never gets shorter. Whether it got longer.
    pub(crate) fn prolong(&mut self, now: BootTime, ttl: Ttl) -> bool {
        let asked = now.plus_ms(ttl.ms());
        let longer = asked > self.deadline;
        if longer {
            self.deadline = asked;
            self.ttl_ms = ttl.ms();
        }
        longer
    }
}

/// The lock a key holds at `now`, if it is held.
pub(crate) fn live(held: Option<&mut Lock>, now: BootTime) -> Option<&mut Lock> {
    held.filter(|lock| !lock.is_expired(now))
}

/// The lock that `owner` holds at `now`, if it does.
pub(crate) fn live_of<'a>(held: Option<&'a mut Lock>, owner: Owner<'_>, now: BootTime) -> Option<&'a mut Lock> {
    live(held, now).filter(|lock| lock.is_of(owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn held_through_the_deadline_and_free_a_microsecond_later() {
        let lock = mine(1);
        let deadline = BootTime::from_us(1_000_000);
        assert_eq!(lock.deadline(), deadline);
        assert!(!lock.is_expired(deadline));
        assert!(lock.is_expired(deadline.plus_us(1)));
    }

    #[test]
    fn owner_and_note_share_memory_and_stay_apart() {
        let note = Note::new(b"\0note\xFF").unwrap();
        let lock = Lock::new(owner("o"), note, token(1), BootTime::default(), ttl(1));
        assert_eq!((lock.owner(), lock.note()), (&b"o"[..], &b"\0note\xFF"[..]));
        assert_eq!(lock.heap_bytes(), 0, "short ones need no memory of their own");
        let note = Note::new(&[b'n'; 1_000]).unwrap();
        let lock = Lock::new(owner("o"), note, token(1), BootTime::default(), ttl(1));
        assert_eq!((lock.note(), lock.heap_bytes()), (note.bytes(), 1_001));
        // Of the sizes that allocators give, 80 is one; a field more costs every lock 16 bytes.
        assert_eq!(size_of::<Lock>(), 80);
    }
}
