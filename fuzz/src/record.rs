//! Fuzzes records of locks, of gates and of their changes, which are made of any bytes.

use palisade_core::limits::{HOLDS_MAX, MAX_TTL_LIMIT_MS, NOTE_BYTES_MAX, OWNER_BYTES_MAX};
use palisade_core::record::{Applied, Arrival, Change, Decoded, Here, apply, decode, decode_told, encode, encode_end};
use palisade_core::request::{Acquire, Note, Owner, Patience, Ttl};
use palisade_core::{Acquired, BootId, BootTime, Grant, Lock, Mode, Node, Now, Wanted, acquire, gate_record};

/// The boot of the machine on which the node runs. A record whose boot has only bytes of 1 is from the same boot.
pub const HERE: BootId = BootId([1; 16]);

/// The positions of the deadline and the boot in a record of version 1 (see the table in `palisade_core::record`).
const DEADLINE: std::ops::Range<usize> = 40..48;
const BOOT: std::ops::Range<usize> = 48..64;

/// The version of a record with a new grant, and the positions of its deadline and boot.
const FRESH: u8 = 3;
const FRESH_DEADLINE: std::ops::Range<usize> = 13..19;
const FRESH_BOOT: std::ops::Range<usize> = 19..24;

/// The version of a record of a lock with several holders, or of a change of one, and the position of its kind.
const JOINT: u8 = 2;
const KIND: usize = 1;

fn here(arrival: Arrival, now: BootTime) -> Here {
    Here { arrival, now, boot: HERE }
}

/// Reads the bytes after the first 8 as a record; the first 8 are the time. Reads them again as the record of a new
/// lock, and as each kind of record of a lock with several holders and of a gate.
pub fn run(input: &[u8]) {
    let Some((now, bytes)) = input.split_first_chunk::<8>() else { return };
    let now = BootTime::from_us(u64::from_le_bytes(*now));
    read(bytes, now);
    if let [1..=u8::MAX, rest @ ..] = bytes {
        read(&[&[FRESH], rest].concat(), now);
    }
    if bytes.len() > KIND && bytes[0] != 0 {
        for kind in 0..3 {
            let mut joint = bytes.to_vec();
            (joint[0], joint[KIND]) = (JOINT, kind);
            read(&joint, now);
            (joint[0], joint[KIND]) = (gate_record::VERSION, kind);
            read_gate(&joint, now);
        }
    }
}

/// Checks that a valid gate is the same after writing and reading, and that a record applied twice has the effect of
/// one.
fn read_gate(bytes: &[u8], now: BootTime) {
    for arrival in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
        let here = here(arrival, now);
        let mut gate = match gate_record::apply(bytes, here, None) {
            Ok(gate) => gate.expect("there was none"),
            Err(damaged) => {
                assert!(gate_record::decode(bytes, here).is_err() && !damaged.to_string().is_empty());
                continue;
            }
        };
        assert!(gate.seen().iter().count() > 0);
        let before = gate.clone();
        assert_eq!((gate_record::apply(bytes, here, Some(&mut gate)), &gate), (Ok(None), &before));
        let mut again = vec![];
        gate_record::encode(&gate, now, HERE, &mut again);
        assert_eq!(gate_record::decode(&again, here), Ok(gate));
    }
}

fn read(bytes: &[u8], now: BootTime) {
    for arrival in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
        let lock = decode(bytes, here(arrival, now));
        match &lock {
            Ok(lock) => possible(lock, bytes, arrival, now),
            Err(damaged) => assert!(!damaged.to_string().is_empty()),
        }
        match decode_told(bytes, here(arrival, now)) {
            Ok(Decoded::Whole(whole)) => assert_eq!(lock.as_ref(), Ok(&whole), "both read the same"),
            Ok(Decoded::Change(change)) => {
                assert!(lock.is_err(), "a change is no lock");
                possible_change(change, bytes, arrival, now);
            }
            Err(damaged) => assert!(lock.is_err() && !damaged.to_string().is_empty()),
        }
    }
}

fn possible_grant(grant: &Grant, now: BootTime) {
    assert!((1..=OWNER_BYTES_MAX).contains(&grant.owner().len()) && grant.note().len() <= NOTE_BYTES_MAX);
    assert!((1..=HOLDS_MAX).contains(&grant.holds()) && (1..=MAX_TTL_LIMIT_MS).contains(&grant.ttl_ms()));
    assert!(grant.left_ms(now) <= u64::from(grant.ttl_ms()), "more is left than the full ttl");
}

/// Checks that the grants are compatible, and that no owner has two.
fn check_together(lock: &Lock) {
    let grants: Vec<(Mode, &Grant)> = lock.grants().collect();
    assert!(grants.len() == lock.len() && !grants.is_empty());
    for (n, (mode, grant)) in grants.iter().enumerate() {
        for (other, others) in &grants[n + 1..] {
            assert!(mode.is_compatible(*other) && grant.owner() != others.owner(), "{grant:?} beside {others:?}");
        }
    }
}

fn written(lock: &Lock, now: BootTime) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(lock, now, HERE, &mut bytes);
    bytes
}

fn possible(lock: &Lock, bytes: &[u8], arrival: Arrival, now: BootTime) {
    lock.grants().for_each(|(_, grant)| possible_grant(grant, now));
    check_together(lock);
    let (deadline, boot) = if bytes[0] == FRESH { (FRESH_DEADLINE, FRESH_BOOT) } else { (DEADLINE, BOOT) };
    if matches!(lock, Lock::Exclusive(_)) && HERE.0.starts_with(&bytes[boot]) {
        let written = bytes[deadline].iter().rev().fold(0, |written, byte| written << 8 | u64::from(*byte));
        assert!(lock.first().deadline() <= BootTime::from_us(written), "within one boot no lease gets longer");
    }
    // A record that is a byte too short or too long is refused.
    assert!(decode(&bytes[..bytes.len() - 1], here(arrival, now)).is_err());
    assert!(decode(&[bytes, b"x"].concat(), here(arrival, now)).is_err());

    let first = written(lock, now);
    for again in [Arrival::Stream, Arrival::Storage, Arrival::Payload] {
        assert_eq!(decode(&first, here(again, now)).as_ref(), Ok(lock), "{again:?}: what is written is read");
    }
    let twice = decode(&first, here(Arrival::Storage, now)).expect("read above");
    assert_eq!(written(&twice, now), first);
    ends_one_by_one(twice, now);
}

/// Ends all grants but the first, one after the other. Checks that each end leaves the other grants as they are, and
/// finally the first alone.
fn ends_one_by_one(lock: Lock, now: BootTime) {
    let mut held = lock.clone();
    for (_, grant) in lock.grants().skip(1) {
        let mut record = Vec::new();
        encode_end(grant, now, HERE, &mut record);
        let told = decode_told(&record, here(Arrival::Stream, now)).expect("what is written is read");
        assert_eq!(apply(told, Some(&mut held)), Ok(Applied::Gone));
        assert!(held.grants().all(|(_, left)| left.owner() != grant.owner()));
    }
    assert_eq!((held.len(), held.first()), (1, lock.first()));
}

/// Applies a change to some locks. Checks that they stay valid, and that a refused change changes nothing.
fn possible_change(change: Change, bytes: &[u8], arrival: Arrival, now: BootTime) {
    let (Change::Grant(_, grant) | Change::Ended(grant)) = &change;
    possible_grant(grant, now);
    assert!(decode_told(&bytes[..bytes.len() - 1], here(arrival, now)).is_err());
    assert!(decode_told(&[bytes, b"x"].concat(), here(arrival, now)).is_err());
    let told = || decode_told(bytes, here(arrival, now)).expect("read above");
    let of_none = apply(told(), None);
    assert_eq!(of_none.is_ok(), matches!(change, Change::Ended(_)), "there is nothing to change: {of_none:?}");
    let mut whole = bytes.to_vec();
    whole[KIND] = 0;
    for mut held in decode(&whole, here(arrival, now)).into_iter().chain(readers(now)) {
        let before = held.clone();
        let owner = grant.owner();
        match (apply(told(), Some(&mut held)), &change) {
            (Err(_), _) => assert_eq!(written(&held, now), written(&before, now), "what is refused changes nothing"),
            (Ok(Applied::Grant(id)), Change::Grant(mode, grant)) => {
                assert_eq!((held.mode(id), held.grant(id)), (*mode, grant));
            }
            (Ok(Applied::Gone), Change::Ended(_)) => assert!(held.grants().all(|(_, left)| left.owner() != owner)),
            (Ok(applied), _) => panic!("{applied:?} of {change:?}"),
        }
        check_together(&held);
    }
}

/// Returns locks to which a change is applied: one with two holders, and one with one.
fn readers(now: BootTime) -> Vec<Lock> {
    let mut node = Node::new(7);
    let mut locks = vec![];
    for wanted in [Wanted::Shared, Wanted::Exclusive] {
        let mut held: Option<Lock> = None;
        for owner in [&b"a"[..], b"b"] {
            granted(&mut node, &mut held, owner, wanted, now);
        }
        locks.extend(held);
    }
    locks
}

/// Acquires the lock `held` for `owner`, if the modes are compatible.
fn granted(node: &mut Node, held: &mut Option<Lock>, owner: &[u8], wanted: Wanted, now: BootTime) {
    let (note, patience) = (Note::default(), Patience::NONE);
    let (Ok(owner), Ok(ttl)) = (Owner::new(owner), Ttl::new(Some(1_000), 1_000)) else { return };
    let ask = Acquire { owner, ttl, wanted, retry: false, fence: None, note, patience, behind: Default::default() };
    if let Ok(Acquired::Granted(lock)) =
        acquire(palisade_core::engine::Key { db: 0, name: b"k" }, held.as_mut(), &ask, node, Now::new(now, 1))
    {
        *held = Some(*lock);
    }
}
