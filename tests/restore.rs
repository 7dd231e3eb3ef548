//! Hostile payloads: each is an error or a possible lock, and none crashes the server.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Client, Reply, Server, Setup, error, int, seed, text};

/// Returns Redis's CRC-64 (Jones), bit by bit: short, and fast enough for a test.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL_REVERSED: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |crc, &byte| {
        (0..8)
            .fold(crc ^ u64::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL_REVERSED } else { crc >> 1 })
    })
}

/// The length of the payload's end: two bytes of version and the checksum.
const FOOTER: usize = 10;

/// Returns `payload` with a correct checksum.
pub fn signed(mut payload: Vec<u8>) -> Vec<u8> {
    let end = payload.len() - 8;
    let crc = crc64(&payload[..end]);
    payload[end..].copy_from_slice(&crc.to_le_bytes());
    payload
}

/// Returns the offset of the record in the payload of a lock: after the type, the module's id and two opcodes.
fn record_start(payload: &[u8], owner: &[u8]) -> usize {
    payload.windows(owner.len()).rposition(|window| window == owner).unwrap() - 64
}

/// Starts a server whose payloads contain uncompressed records.
pub fn start() -> Server {
    Setup::new().option("rdbcompression", "no").start()
}

pub fn restore(client: &mut Client, payload: &[u8]) -> Reply {
    client.send(&[b"RESTORE", b"copy", b"0", payload, b"REPLACE"])
}

fn sample(client: &mut Client) -> Vec<u8> {
    client.say("LOCK.ACQUIRE k unmistakable 60000");
    client.say("DUMP k").as_bytes().to_vec()
}

#[test]
fn checksums_are_made_as_the_server_makes_them() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let server = start();
    let mut client = server.client();
    let payload = sample(&mut client);
    assert_eq!(signed(payload.clone()), payload);
    assert_eq!(restore(&mut client, &payload), text("OK"));
}

#[test]
fn impossible_locks_are_refused() {
    let server = start();
    let mut client = server.client();
    let payload = sample(&mut client);
    let record = record_start(&payload, b"unmistakable");
    let token = u64::from_le_bytes(payload[record + 16..record + 24].try_into().unwrap());
    let deadline = u64::from_le_bytes(payload[record + 40..record + 48].try_into().unwrap());
    let an_hour_us = 3_600_000_000_u64;
    // (what changes, its offset in the record, the new bytes)
    let cases: [(&str, usize, &[u8]); 13] = [
        ("another version", 0, &[2]),
        ("a flag that is none", 1, &[0x80]),
        ("no owner", 2, &0u16.to_le_bytes()),
        ("a longer owner than there is", 2, &200u16.to_le_bytes()),
        ("no ttl", 8, &0u32.to_le_bytes()),
        ("a ttl of 49 days", 8, &u32::MAX.to_le_bytes()),
        ("no holds", 12, &0u32.to_le_bytes()),
        ("too many holds", 12, &u32::MAX.to_le_bytes()),
        ("no token", 16, &0u64.to_le_bytes()),
        ("a token out of bounds", 16, &(1u64 << 53).to_le_bytes()),
        ("a token from an hour ahead", 16, &(token + an_hour_us).to_le_bytes()),
        ("a deadline in an hour", 40, &(deadline + an_hour_us).to_le_bytes()),
        ("a deadline at the end of time", 40, &u64::MAX.to_le_bytes()),
    ];
    for (what, at, with) in cases {
        let mut hostile = payload.clone();
        hostile[record + at..record + at + with.len()].copy_from_slice(with);
        assert!(error(restore(&mut client, &signed(hostile))).starts_with("ERR Bad data format"), "{what}");
        assert_eq!(client.say("EXISTS copy"), int(0), "{what}");
    }
    // The refusals did not raise the key's tokens.
    let next = client.say("LOCK.ACQUIRE copy me 1000").as_int() as u64;
    assert!(next < token + an_hour_us / 2);
    assert_eq!((server.info("held"), server.info("deadlines")), (2, 2));
}

#[test]
fn any_damage_is_an_error_or_a_possible_lock() {
    let mut random = StdRng::seed_from_u64(seed());
    let server = start();
    let mut client = server.client();
    let payload = sample(&mut client);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut hostile = payload.clone();
        let body = hostile.len() - FOOTER;
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..body);
            hostile[at] = random.random();
        }
        if random.random_range(0..4) == 0 {
            // Records that are shorter or longer, with a valid footer.
            let footer = hostile.split_off(body);
            hostile.resize(random.random_range(1..2 * body), random.random());
            hostile.extend(footer);
        }
        if restore(&mut client, &signed(hostile)) == text("OK") && client.say("TYPE copy") == text("redislock") {
            let info = client.say("LOCK.INFO copy");
            if info != Reply::Null {
                accepted += 1;
                assert!((0..=86_400_000).contains(&info.field("ttl").as_int()));
                assert!((1..=1_000_000).contains(&info.field("holds").as_int()));
                assert!((1..1 << 53).contains(&info.field("token").as_int()));
                assert_eq!(info.field("suspect"), int(1));
            }
        }
        client.say("DEL copy");
    }
    println!("{accepted} damaged payloads were possible locks");
    assert_eq!(server.info("poisoned"), 0);
    assert!(client.say("LOCK.EXTEND k unmistakable 60000").as_int() > 0);
}

/// A lock that the server reads and then drops leaves no deadline behind. The deadline used to stay in memory until it
/// came due.
#[test]
fn a_lock_that_the_server_does_not_keep_leaves_no_bookkeeping() {
    let server = start();
    let mut client = server.client();
    let payload = sample(&mut client);
    let mut no_end = payload.clone();
    let end_marker = no_end.len() - FOOTER - 1;
    no_end[end_marker] ^= 1;
    let no_end = signed(no_end);
    for n in 0..100 {
        let key = format!("gone{n}");
        assert_eq!(client.send(&[b"RESTORE", key.as_bytes(), b"1", &payload, b"ABSTTL"]), text("OK"));
        assert!(error(client.send(&[b"RESTORE", key.as_bytes(), b"0", &no_end])).starts_with("ERR Bad data"));
    }
    assert_eq!((server.info("held"), server.info("deadlines")), (1, 1));
}

/// The lock in a payload from another boot gets its full ttl again. The payload is refused if this node does not grant
/// such a ttl.
#[test]
fn a_ttl_above_the_nodes_own_is_refused() {
    let server = start();
    let mut client = server.client();
    let payload = sample(&mut client);
    let record = record_start(&payload, b"unmistakable");
    for (ttl, taken) in [(60_000_u32, true), (60_001, false), (86_400_000, false)] {
        let mut foreign = payload.clone();
        foreign[record + 8..record + 12].copy_from_slice(&ttl.to_le_bytes());
        foreign[record + 48..record + 64].fill(0xEE);
        assert_eq!(restore(&mut client, &signed(foreign)) == text("OK"), taken, "{ttl}");
    }
    assert!(client.say("LOCK.INFO copy").field("ttl").as_int() <= 60_000);
}

#[test]
fn refused_payloads_do_not_flood_the_log() {
    let server = start();
    let mut client = server.client();
    let mut payload = sample(&mut client);
    let record = record_start(&payload, b"unmistakable");
    payload[record] = 9;
    let payload = signed(payload);
    for _ in 0..2_000 {
        error(restore(&mut client, &payload));
    }
    let warnings =
        server.log().matches("a lock was refused: version 9 where this module reads versions up to 3").count();
    assert!((1..100).contains(&warnings), "{warnings} warnings");
}
