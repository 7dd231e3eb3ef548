//! Locks as they are written down, from any bytes.

use palisade_core::BootId;
use palisade_core::limits::{HOLDS_MAX, MAX_TTL_LIMIT_MS, NOTE_BYTES_MAX, OWNER_BYTES_MAX};
use palisade_core::record::{Arrival, Here, decode, encode};
use palisade_core::{BootTime, Lock};

/// The boot that the node runs in; a record whose boot bytes are all 1 is of the same.
pub const HERE: BootId = BootId([1; 16]);

/// Where a record says when it ends, and which boot it is of (see the table in `palisade_core::record`).
const DEADLINE: std::ops::Range<usize> = 40..48;
const BOOT: std::ops::Range<usize> = 48..64;

fn here(arrival: Arrival, now: BootTime) -> Here {
    Here { arrival, now, boot: HERE }
}

/// The first 8 bytes are the time at which the record is read, the others are the record.
pub fn run(input: &[u8]) {
    let Some((now, bytes)) = input.split_first_chunk::<8>() else { return };
    let now = BootTime::from_us(u64::from_le_bytes(*now));
    for arrival in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
        match decode(bytes, here(arrival, now)) {
            Ok(lock) => possible(&lock, bytes, arrival, now),
            Err(damaged) => assert!(!damaged.to_string().is_empty()),
        }
    }
}

fn possible(lock: &Lock, bytes: &[u8], arrival: Arrival, now: BootTime) {
    assert!((1..=OWNER_BYTES_MAX).contains(&lock.first().owner().len()) && lock.first().note().len() <= NOTE_BYTES_MAX);
    assert!((1..=HOLDS_MAX).contains(&lock.first().holds()) && (1..=MAX_TTL_LIMIT_MS).contains(&lock.first().ttl_ms()));
    assert!(lock.first().left_ms(now) <= u64::from(lock.first().ttl_ms()), "more is left than the full ttl");
    if bytes[BOOT] == HERE.0 {
        let written = u64::from_le_bytes(bytes[DEADLINE].try_into().expect("eight bytes"));
        assert!(lock.first().deadline() <= BootTime::from_us(written), "within one boot no lease gets longer");
    }
    // Its length is what its head says, no byte more or less.
    assert!(decode(&bytes[..bytes.len() - 1], here(arrival, now)).is_err());
    assert!(decode(&[bytes, b"x"].concat(), here(arrival, now)).is_err());

    let mut written = Vec::new();
    encode(lock, now, HERE, &mut written);
    for again in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
        assert_eq!(decode(&written, here(again, now)).as_ref(), Ok(lock), "{again:?}: what is written is read");
    }
    let mut twice = Vec::new();
    encode(&decode(&written, here(Arrival::Storage, now)).expect("read above"), now, HERE, &mut twice);
    assert_eq!(twice, written);
}
