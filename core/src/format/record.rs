//! The record of a lock: in the RDB file, in the AOF, on the replication stream, in a DUMP payload.
//!
//! An exclusive lock is one record of version 1, with all integers little-endian. `format/joint.rs` has version 2, for
//! joint locks and for an exclusive lock whose note was replaced. `format/fresh.rs` has version 3, for a lock that has
//! just been granted.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | flags: bit 0 suspect, bit 2 adopted; the others 0 |
//! | 2..4 | length of the owner, 1 to 256 |
//! | 4..6 | length of the note, 0 to 1024 |
//! | 6..8 | 0 |
//! | 8..12 | full ttl in milliseconds |
//! | 12..16 | holds |
//! | 16..24 | token |
//! | 24..32 | time of the grant, microseconds on the boot clock |
//! | 32..40 | time of writing, likewise |
//! | 40..48 | deadline, likewise |
//! | 48..64 | id of the boot that this clock belongs to |
//! | 64.. | owner, note |
//!
//! Within that boot the deadline is exact, also for another process. Elsewhere boot-clock times mean nothing. Then a
//! record straight off a stream keeps the time that was left when it was written, and a record that lay on a disk for
//! an unknown time gets the full ttl. Either way the lease is never shorter than its holder was promised.

use super::fields::{ADOPTED, Fields, SUSPECT, Written, flags};
pub use super::fields::{Arrival, Here};
pub use super::joint::Change;
use super::{fresh, joint};
use crate::lock::Lock;
use crate::lock::grant::{Grant, GrantId};
use crate::refusal::Damaged;
use crate::request::{NoteSequence, Owner};
use crate::values::mode::Mode;
use crate::values::time::{BootId, BootTime};

/// The first byte of an exclusive lock's record.
pub const VERSION: u8 = 1;

const HEAD_BYTES: usize = 64;

/// Appends `lock` as it is at `now` to `out`.
pub fn encode(lock: &Lock, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    match lock {
        Lock::Exclusive(grant) if fresh::is_fresh(grant, now) => fresh::encode(grant, boot, out),
        Lock::Exclusive(grant) if grant.note_sequence() > NoteSequence::FIRST => {
            joint::encode_one(joint::WHOLE, Mode::Exclusive, grant, now, boot, out)
        }
        Lock::Exclusive(grant) => encode_exclusive(grant, now, boot, out),
        Lock::Joint(holders) => joint::encode(holders, now, boot, out),
    }
}

/// Appends a change of `lock` to `out`: the grant `id` joined or changed. If the lock has only this grant, the record
/// is the whole lock, which replaces the earlier state.
pub fn encode_change(lock: &Lock, id: GrantId, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    match lock.len() {
        1 => encode(lock, now, boot, out),
        _ => joint::encode_one(joint::CHANGED, lock.mode(id), lock.grant(id), now, boot, out),
    }
}

/// Appends to `out` that one grant of several, `ended`, has ended.
pub fn encode_end(ended: &Grant, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    joint::encode_one(joint::ENDED, Mode::Shared, ended, now, boot, out);
}

fn encode_exclusive(grant: &Grant, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    out.reserve(HEAD_BYTES + grant.owner().len() + grant.note().len());
    out.extend_from_slice(&[VERSION, flags(grant)]);
    out.extend_from_slice(&(grant.owner().len() as u16).to_le_bytes());
    out.extend_from_slice(&(grant.note().len() as u16).to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&grant.ttl_ms().to_le_bytes());
    out.extend_from_slice(&grant.holds().to_le_bytes());
    out.extend_from_slice(&grant.token().get().to_le_bytes());
    for time in [grant.granted(), now, grant.deadline()] {
        out.extend_from_slice(&time.as_us().to_le_bytes());
    }
    out.extend_from_slice(&boot.0);
    out.extend_from_slice(grant.owner());
    out.extend_from_slice(grant.note());
}

/// Decodes the whole lock from `bytes`, which are read in the circumstances `here`.
///
/// The result is always a possible lock: every field is within its bounds, at most the full ttl is left, and its grants
/// are compatible.
pub fn decode(bytes: &[u8], here: Here) -> Result<Lock, Damaged> {
    let mut fields = Fields(bytes);
    match fields.take::<1>()? {
        [VERSION] => decode_exclusive(fields, here).map(Lock::Exclusive),
        [joint::VERSION] => joint::decode(fields, here),
        [fresh::VERSION] => fresh::decode(fields, here).map(Lock::Exclusive),
        [version] => Err(Damaged::Version { found: version, known: fresh::VERSION }),
    }
}

/// The content of a record, for the node that reads it.
#[derive(Debug)]
pub enum Decoded {
    /// A whole lock, with all its grants.
    Whole(Lock),
    /// One grant of a joint lock that is new or different, or has ended.
    Change(Change),
}

/// Decodes a record from a master or from the AOF: a whole lock, or one change of a joint lock.
pub fn decode_told(bytes: &[u8], here: Here) -> Result<Decoded, Damaged> {
    if let [joint::VERSION, rest @ ..] = bytes
        && let Some(change) = joint::decode_change(Fields(rest), here)?
    {
        return Ok(Decoded::Change(change));
    }
    decode(bytes, here).map(Decoded::Whole)
}

/// The effect that a record had on the key's lock.
#[derive(Debug, PartialEq, Eq)]
pub enum Applied {
    /// The key has a new lock, which the caller has to store.
    Anew(Lock),
    /// The lock was changed in place: this grant is new or different.
    Grant(GrantId),
    /// The grant is gone. If it was there, the lock was changed in place.
    Gone,
}

/// Applies the record `told` to the key's present lock `held`, if there is one. An impossible change is refused, and
/// nothing changes.
pub fn apply(told: Decoded, held: Option<&mut Lock>) -> Result<Applied, Damaged> {
    const MODE: Damaged = Damaged::Field("mode");
    match (told, held) {
        (Decoded::Whole(lock), _) => Ok(Applied::Anew(lock)),
        // The record says that the grant is one of several, so the record of the other grants must have arrived before.
        (Decoded::Change(Change::Grant(..)), None | Some(Lock::Exclusive(_))) => Err(MODE),
        (Decoded::Change(Change::Grant(mode, grant)), Some(Lock::Joint(holders))) => {
            holders.put(mode, grant).map(Applied::Grant).ok_or(MODE)
        }
        // A master to which the slot is coming in one step ends leases itself, perhaps first.
        (Decoded::Change(Change::Ended(ended)), held) => {
            let found = held.and_then(|lock| Some((lock.find(Owner::new(ended.owner()).ok()?)?, lock)));
            match found.map(|(own, lock)| lock.take(own)) {
                None | Some(Some(_)) => Ok(Applied::Gone),
                Some(None) => Err(Damaged::Field("owner")),
            }
        }
    }
}

/// Checks whether a replicated LOCK.RELEASE, which says that the lock of `owner` is gone, fits the key's content
/// (`held`). The key must not hold another owner's grant.
pub fn ensure_of(owner: Owner<'_>, held: Option<&Lock>) -> Result<(), Damaged> {
    match held {
        Some(lock) if lock.len() > 1 || lock.find(owner).is_none() => Err(Damaged::Field("owner")),
        _ => Ok(()),
    }
}

fn decode_exclusive(mut fields: Fields<'_>, here: Here) -> Result<Grant, Damaged> {
    let [flags] = fields.take()?;
    let (owner_len, note_len) = (fields.u16()?, fields.u16()?);
    let reserved = fields.u16()?;
    let (ttl_ms, holds) = (fields.u32()?, fields.u32()?);
    let token = fields.u64()?;
    let (granted, at, deadline) = (fields.time()?, fields.time()?, fields.time()?);
    let is_same_boot = BootId(fields.take()?) == here.boot;
    if flags & !(SUSPECT | ADOPTED) != 0 || reserved != 0 {
        return Err(Damaged::Field("reserved part"));
    }
    let (owner, note) = (fields.bytes(owner_len)?, fields.bytes(note_len)?);
    if !fields.0.is_empty() {
        return Err(Damaged::Length);
    }
    Written { owner, note, sequence: 0, flags, ttl_ms, holds, token, granted, deadline, at, is_same_boot }.read(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use crate::format::fixture::*;
    use crate::lock::phase::Past;
    use crate::request::Note;
    use crate::values::limits::HOLDS_MAX;
    use proptest::prelude::*;

    fn told(bytes: &[u8]) -> Result<Decoded, Damaged> {
        decode_told(bytes, Here { arrival: Arrival::Stream, now: ms(11_000), boot: HERE })
    }

    /// Returns a lock of two readers, which lasts from 10 s after boot for 9 s.
    fn shared() -> Lock {
        let reader = |name| Grant::new(owner(name), Note::default(), token(7), ms(10_000), ttl(9_000));
        let mut shared = Lock::of(Mode::Shared, reader("me"), Past::default());
        if let Lock::Joint(holders) = &mut shared {
            holders.join(Mode::Shared, reader("you"));
        }
        shared
    }

    /// A grant ended here before the record of its end arrives.
    #[test]
    fn the_end_of_a_grant_that_is_gone_changes_nothing() {
        let mut held = shared();
        let mut record = Vec::new();
        encode_end(held.grant(held.find(owner("me")).unwrap()), ms(11_000), HERE, &mut record);
        assert_eq!(apply(told(&record).unwrap(), None), Ok(Applied::Gone));
        assert_eq!(apply(told(&record).unwrap(), Some(&mut held)), Ok(Applied::Gone));
        assert_eq!(apply(told(&record).unwrap(), Some(&mut held)), Ok(Applied::Gone));
        assert_eq!((held.len(), held.first().owner()), (1, owner("you").bytes()));
        let mut alone = exclusive(owner("me"), Note::default(), token(7), ms(10_000), ttl(9_000));
        assert!(apply(told(&record).unwrap(), Some(&mut alone)).is_err(), "the record says that others hold it, too");
    }

    /// Returns a lock and its record. It was granted at 10 s for 1 s, extended at 10.5 s to 12.5 s (ttl 2 s) and
    /// written at 11 s, when 1.5 s were left.
    fn sample() -> (Lock, Vec<u8>) {
        let note = Note::new(b"for \0 people").unwrap();
        let mut lock = exclusive(owner("me"), note, token(77), ms(10_000), ttl(1_000));
        lock.prolong(GrantId::default(), ms(10_500), ttl(2_000));
        lock.grant_mut(GrantId::default()).set_holds(3);
        let bytes = written(&lock, ms(11_000));
        (lock, bytes)
    }

    #[test]
    fn layout_is_as_documented() {
        let (_, bytes) = sample();
        assert_eq!(bytes.len(), 64 + 2 + 12);
        assert_eq!(&bytes[..8], &[1, 0, 2, 0, 12, 0, 0, 0]);
        assert_eq!(&bytes[8..16], &[0xD0, 7, 0, 0, 3, 0, 0, 0]);
        assert_eq!(&bytes[16..24], &77u64.to_le_bytes());
        assert_eq!(&bytes[24..32], &10_000_000u64.to_le_bytes());
        assert_eq!(&bytes[32..40], &11_000_000u64.to_le_bytes());
        assert_eq!(&bytes[40..48], &12_500_000u64.to_le_bytes());
        assert_eq!(&bytes[48..64], &[1; 16]);
        assert_eq!(&bytes[64..], b"mefor \0 people");
    }

    #[test]
    fn only_what_its_owner_holds_alone_is_told_to_be_gone() {
        let (lock, _) = sample();
        assert_eq!(ensure_of(owner("me"), None), Ok(()));
        assert_eq!(ensure_of(owner("me"), Some(&lock)), Ok(()));
        assert_eq!(ensure_of(owner("you"), Some(&lock)), Err(Damaged::Field("owner")));
        let mut shared = shared();
        assert_eq!(ensure_of(owner("me"), Some(&shared)), Err(Damaged::Field("owner")));
        shared.take(shared.find(owner("you")).unwrap());
        assert_eq!(ensure_of(owner("me"), Some(&shared)), Ok(()));
    }

    #[test]
    fn deadline_is_exact_within_one_boot() {
        let (lock, bytes) = sample();
        for arrival in ARRIVALS {
            for now in [11_000, 12_000, 12_500, 99_000] {
                let read = read(&bytes, arrival, now, HERE).unwrap();
                assert_eq!(read, lock);
                assert_eq!(read.is_expired(ms(now)), now > 12_500);
            }
        }
    }

    #[test]
    fn never_shorter_than_promised_in_another_boot() {
        let (lock, bytes) = sample();
        // (how the record arrived, ms left)
        for (arrival, left) in [(Arrival::Stream, 1_500), (Arrival::Storage, 2_000), (Arrival::Payload, 2_000)] {
            for now in [0, 500, 700_000] {
                let read = read(&bytes, arrival, now, ELSEWHERE).unwrap();
                assert_eq!(read.first().left_ms(ms(now)), left, "{arrival:?}");
                assert_eq!(read.first().held_ms(ms(now)), now.min(1_000), "granted a second before it was written");
                assert_eq!(
                    (read.first().owner(), read.first().note(), read.first().holds()),
                    (lock.first().owner(), lock.first().note(), 3)
                );
                assert_eq!(read.first().token(), token(77));
            }
        }
    }

    #[test]
    fn an_expired_lock_stays_expired_on_the_stream() {
        let bytes = written(&mine(1), ms(5_000));
        assert!(read(&bytes, Arrival::Storage, 5_000, HERE).unwrap().is_expired(ms(5_000)));
        assert_eq!(read(&bytes, Arrival::Stream, 5_000, ELSEWHERE).unwrap().first().left_ms(ms(5_000)), 0);
    }

    #[test]
    fn a_clock_set_back_with_its_machine_leaves_at_most_the_full_ttl() {
        let (_, bytes) = sample();
        assert_eq!(read(&bytes, Arrival::Storage, 3_000, HERE).unwrap().first().left_ms(ms(3_000)), 2_000);
        let lock = read(&bytes, Arrival::Storage, 3_000, HERE).unwrap();
        let again = written(&lock, ms(3_000));
        assert_eq!(read(&again, Arrival::Storage, 3_000, HERE), Ok(lock), "it can be written and read again");
        let refused = read(&bytes, Arrival::Payload, 3_000, HERE);
        assert_eq!(refused, Err(Damaged::Field("deadline")));
    }

    #[test]
    fn suspect_is_kept() {
        let bytes = written(&suspect(), ms(0));
        assert!(read(&bytes, Arrival::Storage, 0, HERE).unwrap().first().is_from_outside());
    }

    #[test]
    fn adoption_is_kept() {
        let (mut lock, before) = sample();
        lock.grant_mut(GrantId::default()).mark_adopted();
        let mut bytes = written(&lock, ms(11_000));
        assert_eq!((bytes[1], &bytes[2..]), (4, &before[2..]), "nothing else differs");
        for arrival in ARRIVALS {
            assert_eq!(read(&bytes, arrival, 11_000, HERE), Ok(lock.clone()));
            assert!(!read(&before, arrival, 11_000, HERE).unwrap().first().is_adopted());
        }
        lock.grant_mut(GrantId::default()).set_note(Note::new(b"later").unwrap(), NoteSequence::new(Some(1)).unwrap());
        bytes = written(&lock, ms(11_000));
        assert_eq!((bytes[0], bytes[32]), (2, 2 | 4));
        assert_eq!(read(&bytes, Arrival::Storage, 11_000, HERE), Ok(lock));
        // One of two readers is adopted, in the record of the whole lock and in the record of a change.
        let mut shared = shared();
        let me = shared.find(owner("me")).unwrap();
        shared.grant_mut(me).mark_adopted();
        let whole = read(&written(&shared, ms(11_000)), Arrival::Storage, 11_000, HERE).unwrap();
        assert_eq!(whole.grants().map(|(_, grant)| grant.is_adopted()).collect::<Vec<_>>(), [true, false]);
        bytes.clear();
        encode_change(&shared, me, ms(11_000), HERE, &mut bytes);
        match told(&bytes) {
            Ok(Decoded::Change(Change::Grant(Mode::Shared, grant))) => assert!(grant.is_adopted()),
            told => panic!("{told:?}"),
        }
    }

    #[test]
    fn a_replaced_note_is_kept_with_its_number() {
        let (mut lock, _) = sample();
        lock.grant_mut(GrantId::default())
            .set_note(Note::new(b"later").unwrap(), NoteSequence::new(Some(300)).unwrap());
        let bytes = written(&lock, ms(11_000));
        assert_eq!((bytes.len(), bytes[0], bytes[32], bytes[33]), (32 + 44 + 2 + 5 + 8, 2, 2, 3));
        assert_eq!(&bytes[76..], b"melater\x2C\x01\0\0\0\0\0\0");
        for arrival in ARRIVALS {
            assert_eq!(read(&bytes, arrival, 11_000, HERE), Ok(lock.clone()));
        }
        let damaged = |at, with: &[u8]| read(&edited(&bytes, at, with), Arrival::Payload, 11_000, HERE);
        let number = Err(Damaged::Field("sequence number of the note"));
        assert_eq!((damaged(83, &[0; 8]), damaged(83, &[0xFF; 8])), (number.clone(), number));
        // An exclusive grant is only right in a record of version 2 if version 1 cannot express it: alone, without a
        // number or limit, and never as a change.
        assert_eq!(damaged(32, &[0]), Err(Damaged::Field("mode")));
        assert_eq!(damaged(4, &[2]), Err(Damaged::Field("mode")));
        assert_eq!(damaged(34, &[1]), Err(Damaged::Field("mode")));
        assert_eq!(damaged(32, &[8]), Err(Damaged::Field("reserved part")));
        assert_eq!(told(&edited(&bytes, 1, &[1])).map(drop), Err(Damaged::Field("mode")), "as a change");
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], Arrival::Payload, 11_000, HERE).is_err(), "{len}");
        }
    }

    #[test]
    fn impossible_locks_are_refused() {
        let (_, bytes) = sample();
        let edit = |at, with: &[u8]| edited(&bytes, at, with);
        let cases = [
            (edit(0, &[4]), Damaged::Version { found: 4, known: 3 }),
            (edit(0, &[0]), Damaged::Version { found: 0, known: 3 }),
            (edit(1, &[2]), Damaged::Field("reserved part")),
            (edit(1, &[8]), Damaged::Field("reserved part")),
            (edit(6, &[1]), Damaged::Field("reserved part")),
            (edit(2, &[0, 0, 14, 0]), Damaged::Field("owner")),
            (edit(2, &[3, 0]), Damaged::Length),
            (edit(2, &[0xFF, 0xFF, 0xFF, 0xFF]), Damaged::Length),
            (edit(8, &0u32.to_le_bytes()), Damaged::Field("ttl")),
            (edit(8, &86_400_001u32.to_le_bytes()), Damaged::Field("ttl")),
            (edit(12, &0u32.to_le_bytes()), Damaged::Field("number of holds")),
            (edit(12, &1_000_001u32.to_le_bytes()), Damaged::Field("number of holds")),
            (edit(16, &0u64.to_le_bytes()), Damaged::Field("token")),
            (edit(16, &(1u64 << 53).to_le_bytes()), Damaged::Field("token")),
            (edit(24, &11_000_001u64.to_le_bytes()), Damaged::Field("time of the grant")),
            (edit(40, &13_000_001u64.to_le_bytes()), Damaged::Field("deadline")),
            (edit(40, &9_999_999u64.to_le_bytes()), Damaged::Field("deadline")),
            (edit(40, &u64::MAX.to_le_bytes()), Damaged::Field("deadline")),
        ];
        for (bytes, expected) in cases {
            for arrival in ARRIVALS {
                for boot in [HERE, ELSEWHERE] {
                    assert_eq!(read(&bytes, arrival, 11_000, boot), Err(expected));
                }
            }
        }
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len], Arrival::Storage, 11_000, HERE), Err(Damaged::Length));
        }
        assert_eq!(read(&[&bytes[..], b"x"].concat(), Arrival::Storage, 0, HERE), Err(Damaged::Length));
    }

    #[test]
    fn lengths_add_up_but_no_field_may_borrow_from_the_other() {
        let (_, bytes) = sample();
        let longest = [vec![b'o'; 256], vec![b'n'; 1024]].concat();
        let head = |owner: u16, note: u16| {
            let mut head = bytes[..64].to_vec();
            head[2..4].copy_from_slice(&owner.to_le_bytes());
            head[4..6].copy_from_slice(&note.to_le_bytes());
            [head, longest.clone()].concat()
        };
        assert!(read(&head(256, 1024), Arrival::Storage, 11_000, HERE).is_ok());
        assert_eq!(read(&head(257, 1023), Arrival::Storage, 11_000, HERE), Err(Damaged::Field("owner")));
        assert_eq!(read(&head(255, 1025), Arrival::Storage, 11_000, HERE), Err(Damaged::Field("note")));
    }

    proptest! {
        /// Any bytes decode to a possible lock, or are refused with an error; nothing panics.
        #[test]
        fn any_bytes_decode_or_are_refused(
            head in prop::collection::vec(any::<u8>(), 63),
            text in prop::collection::vec(any::<u8>(), 0..40),
            now in any::<u64>(),
        ) {
            let bytes = [vec![VERSION], head, text].concat();
            let now = BootTime::from_us(now);
            for arrival in ARRIVALS {
                if let Ok(lock) = decode(&bytes, Here { arrival, now, boot: HERE }) {
                    prop_assert!(lock.first().left_ms(now) <= u64::from(lock.first().ttl_ms()));
                }
            }
        }

        /// One field of a good record is changed at random. It decodes to a lock within bounds, or is refused.
        #[test]
        fn any_damage_leaves_a_lawful_lock(at in 0usize..78, byte in any::<u8>(), now in 0u64..30_000) {
            let (_, mut bytes) = sample();
            bytes[at] = byte;
            for boot in [HERE, ELSEWHERE] {
                for arrival in ARRIVALS {
                    if let Ok(lock) = read(&bytes, arrival, now, boot) {
                        prop_assert!(lock.first().left_ms(ms(now)) <= u64::from(lock.first().ttl_ms()));
                        prop_assert!(lock.first().holds() >= 1 && lock.first().holds() <= HOLDS_MAX && !lock.first().owner().is_empty());
                    }
                }
            }
        }
    }
}
