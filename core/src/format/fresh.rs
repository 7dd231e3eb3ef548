//! Version 3 of a record: an exclusive lock that has just been granted.
//!
//! Most records for replicas and the AOF are of such a lock, and each byte of a record is copied several times on its
//! way. With an owner of 20 bytes this record has 44 bytes, which servers keep as an argument in one piece. All
//! integers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | version, 3 |
//! | 1 | length of the owner less one, 0 to 255 |
//! | 2..9 | token |
//! | 9..13 | full ttl in milliseconds |
//! | 13..19 | deadline, microseconds on the boot clock |
//! | 19..24 | the first bytes of the id of the boot that this clock belongs to |
//! | 24.. | owner |
//!
//! The lock was granted, and the record written, a full ttl before its deadline. It has one hold and no note, and is
//! neither suspect nor adopted. Times have the meaning of version 1. The 40 random bits of a boot are equal to those of
//! another boot once in a million million.

use super::fields::{Fields, Here, Written, flags};
use crate::lock::grant::Grant;
use crate::refusal::Damaged;
use crate::request::NoteSequence;
use crate::values::time::{BootId, BootTime};

/// The first byte of a record of this version.
pub const VERSION: u8 = 3;

const HEAD_BYTES: usize = 24;

/// The first deadline that does not fit into six bytes, nine years after a machine was booted.
const DEADLINE_END_US: u64 = 1 << 48;

/// The part of a boot's id that the record has.
pub(super) type BootTag = [u8; 5];

pub(super) fn tag(boot: BootId) -> BootTag {
    let [a, b, c, d, e, ..] = boot.0;
    [a, b, c, d, e]
}

/// Returns whether a record of this version can express an exclusive lock completely at `now`.
pub(super) fn is_fresh(grant: &Grant, now: BootTime) -> bool {
    grant.granted() == now
        && grant.deadline() == now.plus_ms(grant.ttl_ms())
        && grant.deadline().as_us() < DEADLINE_END_US
        && grant.holds() == 1
        && grant.note().is_empty()
        && grant.note_sequence() == NoteSequence::FIRST
        && flags(grant) == 0
}

/// Appends an exclusive lock for which [`is_fresh`] returns true.
pub(super) fn encode(grant: &Grant, boot: BootId, out: &mut Vec<u8>) {
    let (token, deadline) = (grant.token().get().to_le_bytes(), grant.deadline().as_us().to_le_bytes());
    let mut head = [VERSION; HEAD_BYTES];
    head[1] = (grant.owner().len() - 1) as u8;
    head[2..9].copy_from_slice(&token[..7]);
    head[9..13].copy_from_slice(&grant.ttl_ms().to_le_bytes());
    head[13..19].copy_from_slice(&deadline[..6]);
    head[19..].copy_from_slice(&tag(boot));
    out.reserve(HEAD_BYTES + grant.owner().len());
    out.extend_from_slice(&head);
    out.extend_from_slice(grant.owner());
}

/// Decodes the grant from `fields`, the record after its version.
pub(super) fn decode(mut fields: Fields<'_>, here: Here) -> Result<Grant, Damaged> {
    let [owner_len_less_one] = fields.take()?;
    let token = fields.short::<7>()?;
    let ttl_ms = fields.u32()?;
    let deadline = BootTime::from_us(fields.short::<6>()?);
    let is_same_boot = fields.take()? == tag(here.boot);
    let owner = fields.bytes(u16::from(owner_len_less_one) + 1)?;
    if !fields.0.is_empty() {
        return Err(Damaged::Length);
    }
    let granted = deadline.minus_ms(ttl_ms);
    if granted.plus_ms(ttl_ms) != deadline {
        return Err(Damaged::Field("deadline"));
    }
    let (note, sequence, flags, holds, at) = (&[][..], 0, 0, 1, granted);
    Written { owner, note, sequence, flags, ttl_ms, holds, token, granted, deadline, at, is_same_boot }.read(here)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::*;
    use crate::format::fixture::*;
    use crate::format::record::{self, Arrival};
    use crate::lock::Lock;
    use crate::lock::grant::GrantId;
    use crate::request::Note;

    /// Returns a lock granted 10 s after boot for 2 s.
    fn lock(owner: &str) -> Lock {
        exclusive(crate::fixture::owner(owner), Note::default(), token(77), at(10_000).boot, ttl(2_000))
    }

    #[test]
    fn layout_is_as_documented() {
        let bytes = written(&lock("me"), at(10_000).boot);
        assert_eq!(bytes[..9], [3, 1, 77, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[9..13], 2_000_u32.to_le_bytes());
        assert_eq!(bytes[13..19], 12_000_000_u64.to_le_bytes()[..6]);
        assert_eq!(bytes[19..], [1, 1, 1, 1, 1, b'm', b'e']);
        assert_eq!(written(&lock(&"o".repeat(20)), at(10_000).boot).len(), 44, "servers keep it in one piece");
    }

    #[test]
    fn reads_as_it_was_written_and_elsewhere_lasts_its_full_ttl() {
        for lock in [lock("m"), lock(&"o".repeat(256))] {
            let bytes = written(&lock, at(10_000).boot);
            for arrival in ARRIVALS {
                for now in [10_000, 11_000, 12_001] {
                    assert_eq!(read(&bytes, arrival, now, HERE).as_ref(), Ok(&lock));
                }
                // Another boot, whose id differs in the last byte of the tag only.
                let mut boot = HERE;
                boot.0[4] = 2;
                let read = read(&bytes, arrival, 500, boot).unwrap();
                assert_eq!((read.first().left_ms(at(500).boot), read.first().granted()), (2_000, at(500).boot));
                assert_eq!((read.first().token(), read.first().owner()), (token(77), lock.first().owner()));
            }
        }
    }

    /// A lock that version 3 of the record cannot express is written in another version, and read back unchanged.
    #[test]
    fn is_taken_only_where_it_says_all() {
        let now = at(10_000).boot;
        let changed = |change: &dyn Fn(&mut Lock)| {
            let mut lock = lock("me");
            change(&mut lock);
            lock
        };
        let id = GrantId::default();
        let late = BootTime::from_us(DEADLINE_END_US - 1);
        let cases = [
            (lock("me"), now, VERSION),
            (lock("me"), now.plus_us(1), record::VERSION),
            (changed(&|lock| lock.grant_mut(id).set_holds(2)), now, record::VERSION),
            (changed(&|lock| lock.mark_suspect()), now, record::VERSION),
            (changed(&|lock| lock.grant_mut(id).mark_adopted()), now, record::VERSION),
            (changed(&|lock| assert!(lock.prolong(id, now, ttl(3_000)))), now, VERSION),
            (changed(&|lock| assert!(lock.prolong(id, now.plus_us(1), ttl(3_000)))), now.plus_us(1), record::VERSION),
            (
                changed(&|lock| lock.grant_mut(id).set_note(Note::new(b"n").unwrap(), NoteSequence::FIRST)),
                now,
                record::VERSION,
            ),
            (
                changed(&|lock| lock.grant_mut(id).set_note(Note::default(), NoteSequence::new(Some(1)).unwrap())),
                now,
                super::super::joint::VERSION,
            ),
            (exclusive(owner("me"), Note::default(), token(7), late.minus_ms(1), ttl(1)), late.minus_ms(1), VERSION),
            (exclusive(owner("me"), Note::default(), token(7), late, ttl(1)), late, record::VERSION),
        ];
        for (lock, now, version) in cases {
            let bytes = written(&lock, now);
            assert_eq!(bytes[0], version, "{lock:?}");
            assert_eq!(
                record::decode(&bytes, Here { arrival: Arrival::Storage, now: now.plus_us(1), boot: HERE }).as_ref(),
                Ok(&lock)
            );
        }
    }

    /// A replica that was just started reads a lock with less than its ttl left, and counts it as granted at that
    /// moment. Version 3 of the record would say that the full ttl is left, so the replica writes another version.
    #[test]
    fn is_not_taken_for_what_has_less_than_its_ttl_left() {
        let sent = written(&lock("me"), at(10_500).boot);
        let replica = read(&sent, Arrival::Stream, 0, ELSEWHERE).unwrap();
        assert_eq!((replica.first().granted(), replica.first().left_ms(at(0).boot)), (at(0).boot, 1_500));
        let mut bytes = vec![];
        record::encode(&replica, at(0).boot, ELSEWHERE, &mut bytes);
        assert_eq!(read(&bytes, Arrival::Storage, 1, ELSEWHERE), Ok(replica));
    }

    #[test]
    fn impossible_ones_are_refused() {
        let good = written(&lock("me"), at(10_000).boot);
        let edit = |at, with: &[u8]| edited(&good, at, with);
        let cases = [
            (edit(1, &[0]), Damaged::Length),
            (edit(1, &[255]), Damaged::Length),
            (edit(2, &[0]), Damaged::Field("token")),
            (edit(2, &[0, 0, 0, 0, 0, 0, 0x20]), Damaged::Field("token")),
            (edit(9, &[0; 4]), Damaged::Field("ttl")),
            (edit(9, &86_400_001_u32.to_le_bytes()), Damaged::Field("deadline")),
            (edit(13, &[0; 6]), Damaged::Field("deadline")),
        ];
        for (bytes, damaged) in cases {
            for arrival in ARRIVALS {
                let read = read(&bytes, arrival, 10_000, HERE);
                assert_eq!(read, Err(damaged), "{bytes:?}");
            }
        }
        let early = read(&good, Arrival::Payload, 9_999, HERE);
        assert_eq!(early, Err(Damaged::Field("deadline")), "nobody writes before it is granted");
        for len in 0..good.len() {
            assert!(read(&good[..len], Arrival::Storage, 10_000, HERE).is_err());
        }
    }

    proptest! {
        /// Any bytes decode to a possible lock, or are refused with an error; nothing panics.
        #[test]
        fn any_bytes_decode_or_are_refused(text in prop::collection::vec(any::<u8>(), 0..60), now in any::<u64>()) {
            let (bytes, now) = ([vec![VERSION], text].concat(), BootTime::from_us(now));
            for arrival in ARRIVALS {
                if let Ok(lock) = record::decode(&bytes, Here { arrival, now, boot: HERE }) {
                    prop_assert!(lock.first().left_ms(now) <= u64::from(lock.first().ttl_ms()));
                }
            }
        }
    }
}
