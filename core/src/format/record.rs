//! How a lock is written down: in the RDB file, in the AOF, on the replication stream, in a DUMP payload.
//!
//! One record, version 1, all integers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | flags: bit 0 suspect; the others 0 |
//! | 2..4 | length of the owner, 1 to 256 |
//! | 4..6 | length of the note, 0 to 1024 |
//! | 6..8 | 0 |
//! | 8..12 | full ttl in milliseconds |
//! | 12..16 | holds |
//! | 16..24 | token |
//! | 24..32 | time of the grant, microseconds on the boot clock |
//! | 32..40 | time of writing, likewise |
//! | 40..48 | deadline, likewise |
//! | 48..64 | which boot of which machine that clock belongs to |
//! | 64.. | owner, note |
//!
//! Within that boot the deadline is exact, also for another process. Elsewhere boot-clock times mean nothing: then the
//! time left when the record was written is used if the record comes straight off a stream, and the full ttl if it
//! lay on a disk for an unknown time. Either way the lease is never shorter than what its holder was promised.

use crate::lock::Lock;
use crate::refusal::Damaged;
use crate::request::{Note, Owner, Ttl};
use crate::values::limits::{HOLDS_MAX, MAX_TTL_LIMIT_MS};
use crate::values::time::{BootId, BootTime};
use crate::values::token::Token;

/// The version this code writes, and the only one it reads.
pub const VERSION: u8 = 1;

const FLAG_SUSPECT: u8 = 1;
const HEAD_BYTES: usize = 64;

/// How a record came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Off a live replication stream: written a moment ago.
    Stream,
    /// From this node's own files or a full synchronisation: written at an unknown time.
    Storage,
    /// In a payload that a client handed in (RESTORE, MIGRATE): nothing in it is believed.
    Payload,
}

/// Appends `lock` as it is at `now` to `out`.
pub fn encode(lock: &Lock, now: BootTime, boot: BootId, out: &mut Vec<u8>) {
    out.reserve(HEAD_BYTES + lock.owner().len() + lock.note().len());
    out.extend_from_slice(&[VERSION, if lock.suspect { FLAG_SUSPECT } else { 0 }]);
    out.extend_from_slice(&(lock.owner().len() as u16).to_le_bytes());
    out.extend_from_slice(&(lock.note().len() as u16).to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&lock.ttl_ms.to_le_bytes());
    out.extend_from_slice(&lock.holds.to_le_bytes());
    out.extend_from_slice(&lock.token.get().to_le_bytes());
    for time in [lock.granted, now, lock.deadline] {
        out.extend_from_slice(&time.as_us().to_le_bytes());
    }
    out.extend_from_slice(&boot.0);
    out.extend_from_slice(lock.owner());
    out.extend_from_slice(lock.note());
}

/// The lock that `bytes` describe, as it is at `now` in this `boot`.
///
/// Never an impossible lock: every field is within its bounds, and no more than the full ttl is left.
pub fn decode(bytes: &[u8], arrival: Arrival, now: BootTime, boot: BootId) -> Result<Lock, Damaged> {
    let mut fields = Fields(bytes);
    match fields.take::<1>()? {
        [VERSION] => {}
        [version] => return Err(Damaged::Version { found: version, known: VERSION }),
    }
    let [flags] = fields.take()?;
    let owner_len = usize::from(u16::from_le_bytes(fields.take()?));
    let note_len = usize::from(u16::from_le_bytes(fields.take()?));
    let reserved: [u8; 2] = fields.take()?;
    let ttl_ms = u32::from_le_bytes(fields.take()?);
    let holds = u32::from_le_bytes(fields.take()?);
    let token = u64::from_le_bytes(fields.take()?);
    let granted = fields.time()?;
    let written = fields.time()?;
    let deadline = fields.time()?;
    let written_in = BootId(fields.take()?);
    let text = fields.0;

    if flags & !FLAG_SUSPECT != 0 || reserved != [0, 0] {
        return Err(Damaged::Field("reserved part"));
    }
    if text.len() != owner_len + note_len {
        return Err(Damaged::Length);
    }
    let (owner, note) = text.split_at(owner_len);
    let owner = Owner::new(owner).map_err(|_| Damaged::Field("owner"))?;
    let note = Note::new(note).map_err(|_| Damaged::Field("note"))?;
    let ttl = Ttl::new(Some(ttl_ms.into()), MAX_TTL_LIMIT_MS).map_err(|_| Damaged::Field("ttl"))?;
    let token = Token::new(token).ok_or(Damaged::Field("token"))?;
    if holds == 0 || holds > HOLDS_MAX {
        return Err(Damaged::Field("number of holds"));
    }
    if granted > written {
        return Err(Damaged::Field("time of the grant"));
    }
    if deadline > written.plus_ms(ttl_ms) || deadline < granted {
        return Err(Damaged::Field("deadline"));
    }

    let latest = now.plus_ms(ttl_ms);
    let same_boot = written_in == boot;
    if same_boot && arrival == Arrival::Payload && (written > now || deadline > latest) {
        return Err(Damaged::Field("deadline"));
    }
    let mut lock = Lock::new(owner, note, token, now, ttl);
    lock.holds = holds;
    lock.suspect = flags & FLAG_SUSPECT != 0;
    if same_boot {
        // The clock of one boot never goes back, except where a machine is set back to a snapshot.
        lock.granted = granted.min(now);
        lock.deadline = deadline.min(latest);
    } else {
        lock.granted = BootTime::from_us(now.us_since(BootTime::from_us(written.us_since(granted))));
        lock.deadline = match arrival {
            Arrival::Stream => now.plus_us(deadline.us_since(written)),
            Arrival::Storage | Arrival::Payload => latest,
        };
    }
    Ok(lock)
}

/// What of a record has not been read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    fn time(&mut self) -> Result<BootTime, Damaged> {
        Ok(BootTime::from_us(u64::from_le_bytes(self.take()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;
    use proptest::prelude::*;

    const HERE: BootId = BootId([1; 16]);
    const ELSEWHERE: BootId = BootId([2; 16]);

    fn ms(ms: u64) -> BootTime {
        at(ms).boot
    }

    /// A lock granted at 10 s for 1 s, extended at 10.5 s to 12.5 s (ttl 2 s), written at 11 s: 1.5 s are left.
    fn sample() -> (Lock, Vec<u8>) {
        let note = Note::new(b"for \0 people").unwrap();
        let mut lock = Lock::new(owner("me"), note, token(77), ms(10_000), ttl(1_000));
        lock.prolong(ms(10_500), ttl(2_000));
        lock.holds = 3;
        let mut bytes = Vec::new();
        encode(&lock, ms(11_000), HERE, &mut bytes);
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
    fn deadline_is_exact_within_one_boot() {
        let (lock, bytes) = sample();
        for arrival in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
            for now in [11_000, 12_000, 12_500, 99_000] {
                let read = decode(&bytes, arrival, ms(now), HERE).unwrap();
                assert_eq!(read, lock);
                assert_eq!(read.is_expired(ms(now)), now > 12_500);
            }
        }
    }

    #[test]
    fn never_shorter_than_promised_in_another_boot() {
        let (lock, bytes) = sample();
        // (arrival, ms left)
        for (arrival, left) in [(Arrival::Stream, 1_500), (Arrival::Storage, 2_000), (Arrival::Payload, 2_000)] {
            for now in [0, 500, 700_000] {
                let read = decode(&bytes, arrival, ms(now), ELSEWHERE).unwrap();
                assert_eq!(read.left_ms(ms(now)), left, "{arrival:?}");
                assert_eq!(read.held_ms(ms(now)), now.min(1_000), "granted a second before it was written");
                assert_eq!((read.owner(), read.note(), read.holds()), (lock.owner(), lock.note(), 3));
                assert_eq!(read.token(), token(77));
            }
        }
    }

    #[test]
    fn an_expired_lock_stays_expired_on_the_stream() {
        let mut bytes = Vec::new();
        encode(&mine(1), ms(5_000), HERE, &mut bytes);
        assert!(decode(&bytes, Arrival::Storage, ms(5_000), HERE).unwrap().is_expired(ms(5_000)));
        assert_eq!(decode(&bytes, Arrival::Stream, ms(5_000), ELSEWHERE).unwrap().left_ms(ms(5_000)), 0);
    }

    #[test]
    fn a_clock_set_back_with_its_machine_leaves_at_most_the_full_ttl() {
        let (_, bytes) = sample();
        assert_eq!(decode(&bytes, Arrival::Storage, ms(3_000), HERE).unwrap().left_ms(ms(3_000)), 2_000);
        let lock = decode(&bytes, Arrival::Storage, ms(3_000), HERE).unwrap();
        let mut again = Vec::new();
        encode(&lock, ms(3_000), HERE, &mut again);
        assert_eq!(decode(&again, Arrival::Storage, ms(3_000), HERE), Ok(lock), "it can be written and read again");
        let refused = decode(&bytes, Arrival::Payload, ms(3_000), HERE);
        assert_eq!(refused, Err(Damaged::Field("deadline")));
    }

    #[test]
    fn suspect_is_kept() {
        let mut bytes = Vec::new();
        encode(&suspect(), ms(0), HERE, &mut bytes);
        assert!(decode(&bytes, Arrival::Storage, ms(0), HERE).unwrap().suspect);
    }

    #[test]
    fn impossible_locks_are_refused() {
        let edit = |at: usize, with: &[u8]| {
            let (_, mut bytes) = sample();
            bytes[at..at + with.len()].copy_from_slice(with);
            bytes
        };
        let cases = [
            (edit(0, &[2]), Damaged::Version { found: 2, known: VERSION }),
            (edit(0, &[0]), Damaged::Version { found: 0, known: VERSION }),
            (edit(1, &[2]), Damaged::Field("reserved part")),
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
            for arrival in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
                for boot in [HERE, ELSEWHERE] {
                    assert_eq!(decode(&bytes, arrival, ms(11_000), boot), Err(expected));
                }
            }
        }
        let (_, bytes) = sample();
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], Arrival::Storage, ms(11_000), HERE), Err(Damaged::Length));
        }
        assert_eq!(decode(&[&bytes[..], b"x"].concat(), Arrival::Storage, ms(0), HERE), Err(Damaged::Length));
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
        assert!(decode(&head(256, 1024), Arrival::Storage, ms(11_000), HERE).is_ok());
        assert_eq!(decode(&head(257, 1023), Arrival::Storage, ms(11_000), HERE), Err(Damaged::Field("owner")));
        assert_eq!(decode(&head(255, 1025), Arrival::Storage, ms(11_000), HERE), Err(Damaged::Field("note")));
    }

    proptest! {
        /// Hostile bytes are an error or a possible lock, never a panic.
        #[test]
        fn any_bytes(
            head in prop::collection::vec(any::<u8>(), 63),
            text in prop::collection::vec(any::<u8>(), 0..40),
            now in any::<u64>(),
        ) {
            let bytes = [vec![VERSION], head, text].concat();
            let now = BootTime::from_us(now);
            for arrival in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
                if let Ok(lock) = decode(&bytes, arrival, now, HERE) {
                    prop_assert!(lock.left_ms(now) <= u64::from(lock.ttl_ms));
                }
            }
        }

        /// One field of a good record changed at random: an error, or a lock within bounds.
        #[test]
        fn any_damage(at in 0usize..78, byte in any::<u8>(), now in 0u64..30_000) {
            let (_, mut bytes) = sample();
            bytes[at] = byte;
            for boot in [HERE, ELSEWHERE] {
                for arrival in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
                    if let Ok(lock) = decode(&bytes, arrival, ms(now), boot) {
                        prop_assert!(lock.left_ms(ms(now)) <= u64::from(lock.ttl_ms));
                        prop_assert!(lock.holds >= 1 && lock.holds <= HOLDS_MAX && !lock.owner().is_empty());
                    }
                }
            }
        }
    }
}
