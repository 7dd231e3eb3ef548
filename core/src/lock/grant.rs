//! A grant of a lock to one owner, and what it remembers.

use crate::lock::entry::DeadlineEntry;
use crate::lock::text::Text;
use crate::lock::waited::Waited;
use crate::request::{Note, NoteSequence, Owner, Ttl};
use crate::values::time::BootTime;
use crate::values::token::Token;

/// The bytes that the sequence number of a note takes, if it is not the first note.
const SEQUENCE_BYTES: usize = size_of::<u64>();

/// The mark of a suspect grant, which was restored or loaded without proof: it can only be released, or end.
const SUSPECT: u8 = 1;

/// The mark of a grant whose note was replaced: in `text` the sequence number follows the note.
const RENOTED: u8 = 2;

/// The mark of a grant that another process of its owner continues.
const ADOPTED: u8 = 4;

/// The mark of a lease that was kept alive, and no longer is because the connection has ended.
const UNCONNECTED: u8 = 8;

/// The id of a grant of a lock, valid until another grant of that lock ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantId(pub(super) u32);

/// A grant: the holder, its token, its beginning and its deadline. It holds until its deadline has passed, and no
/// longer after that, whether or not it is still in memory.
#[derive(Clone, Debug)]
pub struct Grant {
    pub(super) token: Token,
    pub(super) deadline: BootTime,
    pub(crate) granted: BootTime,
    /// The length of the lease when its deadline was last set. No more than this is left of it.
    pub(super) ttl_ms: u32,
    /// The number of holds in 24 bits, at most [`HOLDS_MAX`](crate::limits::HOLDS_MAX). The marks have the remaining 8
    /// bits of the word.
    holds: [u8; 3],
    marks: u8,
    /// The owner, then the note, then the note's sequence number if it is not the first, which is rare.
    text: Text,
    /// The lock's entry in the node's deadlines, if this grant is exclusive. The entry of a joint lock is in its
    /// [`Holders`](crate::lock::holders::Holders).
    pub(super) entry: DeadlineEntry,
}

/// Leaves out of the comparison what is only for people: how long the owner waited, and whether its connection ended.
impl PartialEq for Grant {
    fn eq(&self, other: &Self) -> bool {
        let fields = |grant: &Self| {
            let Self { token, deadline, granted, ttl_ms, holds, marks, entry, .. } = *grant;
            (token, deadline, granted, ttl_ms, holds, marks & !UNCONNECTED, entry)
        };
        let is_owner = self.text.owner_len() == other.text.owner_len();
        fields(self) == fields(other) && is_owner && self.text.bytes() == other.text.bytes()
    }
}

impl Eq for Grant {}

impl Grant {
    /// Creates a grant to `owner` at `granted`, with one hold.
    #[inline(always)]
    pub(crate) fn new(owner: Owner<'_>, note: Note<'_>, token: Token, granted: BootTime, ttl: Ttl) -> Self {
        Self {
            token,
            deadline: granted.plus_ms(ttl.ms()),
            granted,
            ttl_ms: ttl.ms(),
            holds: [1, 0, 0],
            marks: 0,
            text: Text::new(owner.bytes(), [note.bytes(), &[]], Waited::default()),
            entry: DeadlineEntry::default(),
        }
    }

    /// Sets the number of holds, the beginning and the deadline, as a record has them.
    pub(crate) fn restored(mut self, holds: u32, granted: BootTime, deadline: BootTime) -> Self {
        (self.granted, self.deadline) = (granted, deadline);
        self.set_holds(holds);
        self
    }

    /// Sets the time that the owner waited for the grant.
    #[inline(always)]
    pub(crate) fn after(mut self, waited: Waited) -> Self {
        self.text.set_waited(waited);
        self
    }

    fn mark(&mut self, mark: u8, is_set: bool) {
        self.marks = if is_set { self.marks | mark } else { self.marks & !mark };
    }

    /// Returns whether the lease is over. At the deadline itself it still holds: readings are truncated to a
    /// microsecond, so a holder that counts from its own send never outlives the node's lease.
    pub fn is_expired(&self, now: BootTime) -> bool {
        now > self.deadline
    }

    /// Returns whether the grant is of `owner`.
    pub fn is_of(&self, owner: Owner<'_>) -> bool {
        self.owner() == owner.bytes()
    }

    /// Returns the bytes of the owner that holds the lock.
    pub fn owner(&self) -> &[u8] {
        &self.text.bytes()[..self.text.owner_len()]
    }

    /// Returns the note's bytes; empty if there is none.
    pub fn note(&self) -> &[u8] {
        &self.text.bytes()[self.text.owner_len()..self.note_end()]
    }

    /// Returns the note's sequence number.
    pub fn note_sequence(&self) -> NoteSequence {
        let number = self.text.bytes()[self.note_end()..].try_into().ok().map(u64::from_le_bytes);
        number.and_then(|number| NoteSequence::new(Some(number)).ok()).unwrap_or_default()
    }

    fn note_end(&self) -> usize {
        self.text.bytes().len() - if self.marks & RENOTED != 0 { SEQUENCE_BYTES } else { 0 }
    }

    /// Replaces the note and its sequence number.
    pub(crate) fn set_note(&mut self, note: Note<'_>, sequence: NoteSequence) {
        let number = sequence.get().to_le_bytes();
        let is_renoted = sequence > NoteSequence::FIRST;
        self.mark(RENOTED, is_renoted);
        let number: &[u8] = if is_renoted { &number } else { &[] };
        self.text = Text::new(self.owner(), [note.bytes(), number], self.text.waited());
    }

    /// Returns the fencing token of the grant.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the number of holds: 1, and one more for each re-entry.
    #[inline]
    pub fn holds(&self) -> u32 {
        let [low, middle, high] = self.holds;
        u32::from_le_bytes([low, middle, high, 0])
    }

    pub(crate) fn set_holds(&mut self, holds: u32) {
        [self.holds[0], self.holds[1], self.holds[2], _] = holds.to_le_bytes();
    }

    /// Returns the time at which the lock was granted. Extensions do not change it.
    pub fn granted(&self) -> BootTime {
        self.granted
    }

    /// Returns the time at which the lease ends.
    pub fn deadline(&self) -> BootTime {
        self.deadline
    }

    /// Returns the length of the lease when its deadline was last set, in milliseconds.
    pub fn ttl_ms(&self) -> u32 {
        self.ttl_ms
    }

    /// Returns a lower bound of the time at which the lease began, or was last extended.
    pub(super) fn renewed(&self) -> BootTime {
        self.deadline.minus_ms(self.ttl_ms)
    }

    /// Returns whether the grant is suspect: it was restored (RESTORE), or loaded without proof. It keeps others out
    /// until its deadline, and can only be released.
    pub fn is_from_outside(&self) -> bool {
        self.marks & SUSPECT != 0
    }

    pub(crate) fn mark_suspect(&mut self) {
        self.mark(SUSPECT, true);
    }

    /// Returns whether another process of the owner continues the grant. Then a release by the attempt that acquired
    /// it, which never received the answer, leaves the grant in place.
    #[inline]
    pub fn is_adopted(&self) -> bool {
        self.marks & ADOPTED != 0
    }

    pub(crate) fn mark_adopted(&mut self) {
        self.mark(ADOPTED, true);
    }

    /// Returns whether the node kept the lease alive until the holder's connection ended, and nobody has extended it
    /// since.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.marks & UNCONNECTED != 0
    }

    pub(crate) fn mark_unconnected(&mut self) {
        self.mark(UNCONNECTED, true);
    }

    /// Returns how long the owner waited for the grant, as far as this node knows: in this incarnation, without the
    /// client's waits elsewhere.
    #[inline]
    pub(crate) fn waited(&self) -> Waited {
        self.text.waited()
    }

    /// Returns a lower bound of the milliseconds left of the lease.
    pub fn left_ms(&self, now: BootTime) -> u64 {
        self.deadline.ms_since(now)
    }

    /// Returns the milliseconds since the grant.
    pub fn held_ms(&self, now: BootTime) -> u64 {
        now.ms_since(self.granted)
    }

    /// Returns the milliseconds since the lease began, or was last extended.
    pub fn extended_ms(&self, now: BootTime) -> u64 {
        now.ms_since(self.renewed())
    }

    /// Returns the heap memory that owner and note take beside the grant itself, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.text.heap_bytes()
    }

    /// Sets the deadline to max(deadline, now + ttl): a lease never becomes shorter. Returns whether it became longer.
    pub(super) fn prolong(&mut self, now: BootTime, ttl: Ttl) -> bool {
        let asked = now.plus_ms(ttl.ms());
        let longer = asked > self.deadline;
        if longer {
            self.deadline = asked;
            self.ttl_ms = ttl.ms();
            self.mark(UNCONNECTED, false);
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
        for (len, heap_bytes) in [(1, 0), (20, 0), (21, 21), (256, 256)] {
            let name = "o".repeat(len);
            let grant = Grant::new(owner(&name), Note::default(), token(1), BootTime::default(), ttl(1));
            assert_eq!((grant.owner(), grant.note()), (name.as_bytes(), &b""[..]));
            assert_eq!(grant.heap_bytes(), heap_bytes, "short ones need no memory of their own");
        }
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
        assert_eq!(grant.heap_bytes(), b"me".len() + SEQUENCE_BYTES);
    }
}
