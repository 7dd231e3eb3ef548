//! One owner's grant of a lock.

use smallvec::SmallVec;

use crate::lock::entry::DeadlineEntry;
use crate::request::{Note, NoteSequence, Owner, Ttl};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// So many bytes of owner and note stand in the grant itself: the 20 that clients make owners of, and some.
const TEXT_INLINE_BYTES: usize = 24;

/// Bytes of a note's number, where it has one of its own.
const SEQUENCE_BYTES: usize = size_of::<u64>();

/// Names a grant of a lock, until another one of that lock ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantId(pub(super) u32);

/// Who holds a lock, since when, until when, and with which token. It holds until its deadline has passed; after that it holds
/// no longer, whether or not it is still in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub(super) token: Token,
    pub(super) deadline: BootTime,
    pub(crate) granted: BootTime,
    /// Length of the lease when its deadline was last set: what may be left of it never exceeds this.
    pub(super) ttl_ms: u32,
    pub(super) holds: u32,
    pub(crate) suspect: bool,
    /// The note was replaced: its number stands behind it.
    is_renoted: bool,
    owner_len: u16,
    /// Owner, then note, then the note's number if it is not the first: at most one allocation for all, and few have the last.
    text: SmallVec<[u8; TEXT_INLINE_BYTES]>,
    /// Where it is the only grant of its lock: the lock's entry in the node's deadlines.
    pub(super) entry: DeadlineEntry,
}

impl Grant {
    /// A grant to `owner` at `granted`, with one hold.
    #[inline(always)]
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
            is_renoted: false,
            owner_len: owner.bytes().len() as u16,
            text,
            entry: DeadlineEntry::default(),
        }
    }

    /// The same as it was written down: with these holds, since and until then.
    pub(crate) fn restored(mut self, holds: u32, suspect: bool, granted: BootTime, deadline: BootTime) -> Self {
        (self.holds, self.suspect, self.granted, self.deadline) = (holds, suspect, granted, deadline);
        self
    }

    /// Whether the lease is over. At the deadline itself it still holds: readings are truncated to a microsecond,
    /// so a holder that counts from its own send never outlives what the node grants.
    pub fn is_expired(&self, now: BootTime) -> bool {
        now > self.deadline
    }

    /// Whether `owner` is the one to whom it was granted.
    pub fn is_of(&self, owner: Owner<'_>) -> bool {
        self.owner() == owner.bytes()
    }

    /// The owner's bytes.
    pub fn owner(&self) -> &[u8] {
        &self.text[..usize::from(self.owner_len)]
    }

    /// The note's bytes; empty if there is none.
    pub fn note(&self) -> &[u8] {
        &self.text[usize::from(self.owner_len)..self.note_end()]
    }

    /// Which of the grant's notes that is.
    pub fn note_sequence(&self) -> NoteSequence {
        let number = self.text[self.note_end()..].try_into().ok().map(u64::from_le_bytes);
        number.and_then(|number| NoteSequence::new(Some(number)).ok()).unwrap_or_default()
    }

    fn note_end(&self) -> usize {
        self.text.len() - if self.is_renoted { SEQUENCE_BYTES } else { 0 }
    }

    /// Its note is this one from now on.
    pub(crate) fn set_note(&mut self, note: Note<'_>, sequence: NoteSequence) {
        let note = note.bytes();
        let mut text = SmallVec::from_slice(self.owner());
        self.is_renoted = sequence > NoteSequence::FIRST;
        text.reserve_exact(note.len() + if self.is_renoted { SEQUENCE_BYTES } else { 0 });
        text.extend_from_slice(note);
        if self.is_renoted {
            text.extend_from_slice(&sequence.get().to_le_bytes());
        }
        self.text = text;
    }

    /// Its fencing token.
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
    pub fn is_from_outside(&self) -> bool {
        self.suspect
    }

    /// Milliseconds of the lease that are surely left.
    pub fn left_ms(&self, now: BootTime) -> u64 {
        self.deadline.ms_since(now)
    }

    /// Milliseconds since the grant.
    pub fn held_ms(&self, now: BootTime) -> u64 {
        now.ms_since(self.granted)
    }

    /// Heap memory of owner and note beside the grant itself, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        if self.text.spilled() { self.text.capacity() } else { 0 }
    }

    /// Deadline = max(deadline, now + ttl): a lease never gets shorter. Whether it got longer.
    pub(super) fn prolong(&mut self, now: BootTime, ttl: Ttl) -> bool {
        let asked = now.plus_ms(ttl.ms());
        let longer = asked > self.deadline;
        if longer {
            self.deadline = asked;
            self.ttl_ms = ttl.ms();
        }
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    #[test]
    fn held_through_the_deadline_and_free_a_microsecond_later() {
        let grant = Grant::new(owner("me"), Note::default(), token(7), BootTime::default(), ttl(1_000));
        let deadline = BootTime::from_us(1_000_000);
        assert_eq!(grant.deadline(), deadline);
        assert!(!grant.is_expired(deadline));
        assert!(grant.is_expired(deadline.plus_us(1)));
    }

    #[test]
    fn owner_and_note_share_memory_and_stay_apart() {
        let note = Note::new(b"\0note\xFF").unwrap();
        let grant = Grant::new(owner("o"), note, token(1), BootTime::default(), ttl(1));
        assert_eq!((grant.owner(), grant.note()), (&b"o"[..], &b"\0note\xFF"[..]));
        assert_eq!(grant.heap_bytes(), 0, "short ones need no memory of their own");
        let note = Note::new(&[b'n'; 1_000]).unwrap();
        let grant = Grant::new(owner("o"), note, token(1), BootTime::default(), ttl(1));
        assert_eq!((grant.note(), grant.heap_bytes()), (note.bytes(), 1_001));
    }

    #[test]
    fn a_note_can_be_replaced_and_has_a_number_then() {
        let mut grant = Grant::new(owner("me"), Note::new(b"one").unwrap(), token(1), BootTime::default(), ttl(1));
        assert_eq!((grant.note(), grant.note_sequence().get()), (&b"one"[..], 0));
        for (note, number) in [(&b"another"[..], 1), (&[b'n'; 1_000], 1 << 40), (b"", 1 << 41)] {
            grant.set_note(Note::new(note).unwrap(), NoteSequence::new(Some(number)).unwrap());
            assert_eq!((grant.owner(), grant.note(), grant.note_sequence().get()), (&b"me"[..], note, number));
        }
        assert_eq!(grant.heap_bytes(), 0);
    }
}
