//! The values in requests. Each type keeps its value within its bounds.

use crate::refusal::Refusal;
use crate::values::limits::{
    BEHIND_MAX, FLOOR_MAX, GUARD_LIMIT_MS, HOLDS_MAX, KEEPALIVE_MAX_MS, KEEPALIVE_TTL_MIN_MS, LISTED_HOLDERS_MAX,
    LISTED_WAITERS_MAX, LISTENER_NAME_BYTES, LOG_LEN_LIMIT, MEMBERS_VERSION_MAX, NOTE_BYTES_MAX, NOTE_SEQUENCE_MAX,
    OWNER_BYTES_MAX, TICKET_MAX, WAIT_MAX_MS,
};
use crate::values::mode::Wanted;
use crate::values::token::Token;

/// The owner in whose name a request comes: 1 to 256 bytes of any value, unique to one acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a>(&'a [u8]);

impl<'a> Owner<'a> {
    /// Creates an owner from these bytes. Refuses an empty or too long one.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Refusal> {
        if bytes.is_empty() || bytes.len() > OWNER_BYTES_MAX { Err(Refusal::OwnerLength) } else { Ok(Self(bytes)) }
    }

    /// Returns the bytes of the owner.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// The name of a listener: [`LISTENER_NAME_BYTES`] bytes of any value. Clients draw it at random. So if a request
/// reaches another server than its listener, it is refused there: no such name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerName<'a>(&'a [u8]);

impl<'a> ListenerName<'a> {
    /// Creates a listener's name from these bytes. Refuses a wrong length.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Refusal> {
        if LISTENER_NAME_BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(Refusal::ListenerName) }
    }

    /// Returns the bytes of the name.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// A note for people: at most 1 KiB of any bytes. An empty note counts as no note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note<'a>(&'a [u8]);

impl<'a> Note<'a> {
    /// Creates a note from these bytes. Refuses a note that is too long.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Refusal> {
        if bytes.len() > NOTE_BYTES_MAX { Err(Refusal::NoteLength { argument: "text" }) } else { Ok(Self(bytes)) }
    }

    /// Returns the bytes of the note.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// The sequence number of a grant's note: 0 for the note that came with the grant, larger for each later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoteSequence(u64);

impl NoteSequence {
    /// The sequence number of the note that came with its grant.
    pub const FIRST: NoteSequence = NoteSequence(0);

    /// Creates a sequence number from 0 to [`NOTE_SEQUENCE_MAX`]. `None` stands for a word that is not a number.
    pub fn new(number: Option<u64>) -> Result<Self, Refusal> {
        number.filter(|&number| number <= NOTE_SEQUENCE_MAX).map(Self).ok_or(Refusal::NoteSequence)
    }

    /// Returns the sequence number as an integer.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the next sequence number. Refuses if this is the largest.
    pub fn next(self) -> Result<Self, Refusal> {
        Self::new(self.0.checked_add(1)).map_err(|_| Refusal::NotesExhausted)
    }
}

/// A lease's length in milliseconds, from 1 to the node's `lock.max-ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(u32);

impl Ttl {
    /// Creates a ttl of `ms` milliseconds, from 1 to `max_ms`. `None` stands for a word that is not a number.
    pub fn new(ms: Option<u64>, max_ms: u32) -> Result<Self, Refusal> {
        match ms.and_then(|ms| u32::try_from(ms).ok()) {
            Some(ms) if (1..=max_ms).contains(&ms) => Ok(Self(ms)),
            _ => Err(Refusal::Ttl { max_ms }),
        }
    }

    /// Returns the length in milliseconds.
    pub fn ms(self) -> u32 {
        self.0
    }

    /// Checks the time of a KEEPALIVE for a lease of this length, and returns it in milliseconds. It may be from the
    /// ttl to [`KEEPALIVE_MAX_MS`], and the ttl must be at least [`KEEPALIVE_TTL_MIN_MS`]. `None` stands for a word
    /// that is not a number.
    pub fn keep(self, ms: Option<u64>) -> Result<u32, Refusal> {
        let ms = ms.and_then(|ms| u32::try_from(ms).ok());
        let ms = ms.filter(|ms| (self.0..=KEEPALIVE_MAX_MS).contains(ms) && self.0 >= KEEPALIVE_TTL_MIN_MS);
        ms.ok_or(Refusal::KeepAlive)
    }
}

/// The number of holds that a request names, from 1 to [`HOLDS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(u32);

impl Level {
    /// Creates a number of holds. `None` stands for a word that is not a number.
    pub fn new(holds: Option<u64>) -> Result<Self, Refusal> {
        match holds.and_then(|holds| u32::try_from(holds).ok()) {
            Some(holds) if (1..=HOLDS_MAX).contains(&holds) => Ok(Self(holds)),
            _ => Err(Refusal::Level),
        }
    }

    /// Returns the number of holds.
    pub fn holds(self) -> u32 {
        self.0
    }
}

/// The time that a request may wait in the queue, in milliseconds, from 0 (not at all) to [`WAIT_MAX_MS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience(u32);

impl Patience {
    /// No time to wait: the answer comes at once.
    pub const NONE: Patience = Patience(0);

    /// Creates a time to wait of `ms` milliseconds. `None` stands for a word that is not a number.
    pub fn new(ms: Option<u64>) -> Result<Self, Refusal> {
        match ms.and_then(|ms| u32::try_from(ms).ok()) {
            Some(ms) if ms <= WAIT_MAX_MS => Ok(Self(ms)),
            _ => Err(Refusal::Patience),
        }
    }

    /// Returns the time in milliseconds; 0 if the request does not wait.
    pub fn ms(self) -> u32 {
        self.0
    }
}

/// The place in the queue that a request asks for: smaller tickets come first. A client sends the same ticket to every
/// node of a quorum, so that all serve in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// Creates a ticket from 0 to [`TICKET_MAX`]. `None` stands for a word that is not a number.
    pub fn new(number: Option<u64>) -> Result<Self, Refusal> {
        number.filter(|&number| number <= TICKET_MAX).map(Self).ok_or(Refusal::Ticket)
    }

    /// Returns the ticket as an integer.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The number of callers that wait behind a request in its client, which sends one request for all of them: from 0 to
/// [`BEHIND_MAX`]. It is shown to people; no rule reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind(u32);

impl Behind {
    /// Creates the value from the number in a request; `None` stands for a word that is not a number.
    pub fn new(number: Option<u64>) -> Result<Self, Refusal> {
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.filter(|&number| number <= BEHIND_MAX).map(Self).ok_or(Refusal::Behind)
    }

    /// Returns the number of callers.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Creates the mode for one of `limit` permits, and for a certain one if `number` is given. With a limit of 1 that is
/// an exclusive lock. Zero stands for a word that is not a number.
pub fn permit(limit: u64, number: Option<u64>) -> Result<Wanted, Refusal> {
    let limit = u16::try_from(limit).ok().filter(|&limit| limit > 0).ok_or(Refusal::Limit)?;
    let number = number.map(|number| u16::try_from(number).ok().filter(|number| (1..=limit).contains(number)));
    match (limit, number) {
        (_, Some(None)) => Err(Refusal::PermitNumber),
        (1, _) => Ok(Wanted::Exclusive),
        (limit, number) => Ok(Wanted::Permit { limit, number: number.flatten() }),
    }
}

/// The number of waiters to list, from 1 to [`LISTED_WAITERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedWaiters(pub usize);

impl ListedWaiters {
    /// Creates a number of waiters to list. `None` stands for a word that is not a number.
    pub fn new(count: Option<u64>) -> Result<Self, Refusal> {
        listed(count, LISTED_WAITERS_MAX).map(Self).ok_or(Refusal::ListedWaiters)
    }
}

/// The number of holders to list, from 1 to [`LISTED_HOLDERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedHolders(pub usize);

impl ListedHolders {
    /// Creates a number of holders to list. `None` stands for a word that is not a number.
    pub fn new(count: Option<u64>) -> Result<Self, Refusal> {
        listed(count, LISTED_HOLDERS_MAX).map(Self).ok_or(Refusal::ListedHolders)
    }
}

/// The number of log entries or keys to list, from 1 to [`LOG_LEN_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEntries(pub usize);

impl ListedEntries {
    /// Creates a number of entries to list. `None` stands for a word that is not a number.
    pub fn new(count: Option<u64>) -> Result<Self, Refusal> {
        listed(count, LOG_LEN_LIMIT as usize).map(Self).ok_or(Refusal::ListedEntries)
    }
}

fn listed(count: Option<u64>, max: usize) -> Option<usize> {
    count.and_then(|count| usize::try_from(count).ok()).filter(|count| (1..=max).contains(count))
}

/// A floor for tokens that an operator sets, from 1 to [`FLOOR_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenFloor(pub Token);

impl TokenFloor {
    /// Creates a floor. `None` stands for a word that is not a number.
    pub fn new(token: Option<u64>) -> Result<Self, Refusal> {
        let token = token.filter(|&token| token <= FLOOR_MAX).and_then(Token::new);
        token.map(Self).ok_or(Refusal::Floor { option: "RAISE" })
    }
}

/// The length of a guard that an operator arms, in milliseconds, from 1 to [`GUARD_LIMIT_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardMs(pub u32);

impl GuardMs {
    /// Creates a length of `ms` milliseconds. `None` stands for a word that is not a number.
    pub fn new(ms: Option<u64>) -> Result<Self, Refusal> {
        let ms = ms.and_then(|ms| u32::try_from(ms).ok());
        ms.filter(|ms| (1..=GUARD_LIMIT_MS).contains(ms)).map(Self).ok_or(Refusal::GuardLength)
    }
}

/// The number of a version of the set of nodes, from 0 to [`MEMBERS_VERSION_MAX`]; 0 stands for no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembersVersion(pub u64);

impl MembersVersion {
    /// Creates the number of a version. `None` stands for a word that is not a number.
    pub fn new(version: Option<u64>) -> Result<Self, Refusal> {
        let version = version.filter(|&version| version <= MEMBERS_VERSION_MAX);
        version.map(Self).ok_or(Refusal::MembersVersion { argument: "version" })
    }
}

/// The mode to which LOCK.CONVERT converts a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Shared: other readers may join.
    Shared,
    /// Exclusive: no other owner holds the lock.
    Exclusive,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_bounds() {
        assert_eq!(Owner::new(b""), Err(Refusal::OwnerLength));
        assert!(Owner::new(&[0; 256]).is_ok());
        assert_eq!(Owner::new(&[0xFF; 257]), Err(Refusal::OwnerLength));
        for (bytes, valid) in [(0, false), (15, false), (16, true), (64, true), (65, false)] {
            assert_eq!(ListenerName::new(&vec![7; bytes]).is_ok(), valid, "{bytes}");
        }
        assert!(Note::new(b"").is_ok() && Note::new(&[b'x'; 1024]).is_ok());
        assert_eq!(Note::new(&[b'x'; 1025]), Err(Refusal::NoteLength { argument: "text" }));
        for (ms, valid) in [(None, false), (Some(0), false), (Some(1), true), (Some(500), true), (Some(501), false)] {
            assert_eq!(Ttl::new(ms, 500).is_ok(), valid, "{ms:?}");
        }
        assert_eq!(Ttl::new(Some(u64::MAX), 500), Err(Refusal::Ttl { max_ms: 500 }));
        for (holds, valid) in [(None, false), (Some(0), false), (Some(1), true), (Some(1_000_001), false)] {
            assert_eq!(Level::new(holds).is_ok(), valid, "{holds:?}");
        }
        for (ms, valid) in [(None, false), (Some(0), true), (Some(86_400_000), true), (Some(86_400_001), false)] {
            assert_eq!(Patience::new(ms).is_ok(), valid, "{ms:?}");
        }
        for (number, valid) in [(None, false), (Some(0), true), (Some((1 << 53) - 1), true), (Some(1 << 53), false)] {
            assert_eq!(Ticket::new(number).is_ok(), valid, "{number:?}");
        }
        for (number, valid) in [(None, false), (Some(0), true), (Some((1 << 53) - 1), true), (Some(1 << 53), false)] {
            assert_eq!(NoteSequence::new(number).is_ok(), valid, "{number:?}");
        }
        for (number, valid) in [(None, false), (Some(0), true), (Some(1_000_000), true), (Some(1_000_001), false)] {
            assert_eq!(Behind::new(number).is_ok(), valid, "{number:?}");
        }
        let last = NoteSequence::new(Some(NOTE_SEQUENCE_MAX)).unwrap();
        for (version, valid) in [(None, false), (Some(0), true), (Some((1 << 53) - 1), true), (Some(1 << 53), false)] {
            assert_eq!(MembersVersion::new(version).is_ok(), valid, "{version:?}");
        }
        assert_eq!((NoteSequence::FIRST.next().unwrap().get(), last.next()), (1, Err(Refusal::NotesExhausted)));
        for (token, valid) in
            [(None, false), (Some(0), false), (Some(1), true), (Some(FLOOR_MAX), true), (Some(FLOOR_MAX + 1), false)]
        {
            assert_eq!(TokenFloor::new(token).is_ok(), valid, "{token:?}");
        }
        for (count, valid) in
            [(None, false), (Some(0), false), (Some(1), true), (Some(1_000), true), (Some(1_001), false)]
        {
            assert_eq!(ListedWaiters::new(count).is_ok(), valid, "{count:?}");
        }
    }

    #[test]
    fn what_can_be_wanted() {
        assert_eq!(permit(5, None), Ok(Wanted::Permit { limit: 5, number: None }));
        assert_eq!(permit(65_535, Some(65_535)), Ok(Wanted::Permit { limit: 65_535, number: Some(65_535) }));
        assert_eq!((permit(1, None), permit(1, Some(1))), (Ok(Wanted::Exclusive), Ok(Wanted::Exclusive)));
        for limit in [0, 65_536, u64::MAX] {
            assert_eq!(permit(limit, Some(1)), Err(Refusal::Limit), "{limit}");
        }
        for (limit, number) in [(5, 0), (5, 6), (1, 2), (5, u64::MAX)] {
            assert_eq!(permit(limit, Some(number)), Err(Refusal::PermitNumber), "{number} of {limit}");
        }
    }
}
