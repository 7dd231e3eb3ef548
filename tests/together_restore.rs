//! A payload with several grants: if any of them conflict, it is refused as a whole; if it is accepted, the grants are
//! suspect.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Client, error, grants, int, null, owners, permits, seed, text, token, wait_until, waits};
use crate::restore::{restore, signed, start};

/// The length of the payload's end: two bytes of version and the checksum.
const FOOTER: usize = 10;

/// A grant in a record, with the number of bytes before its owner and note.
#[derive(Clone)]
struct Grant {
    flags: u8,
    mode: u8,
    number: u16,
    limit: u16,
    reserved: u16,
    ttl_ms: u32,
    holds: u32,
    token: u64,
    granted_us: u64,
    deadline_us: u64,
    owner: Vec<u8>,
}

/// A record of version 2: the head, and the grants.
#[derive(Clone)]
struct Record {
    kind: u8,
    reserved: u16,
    /// The number of grants in the head; `None` for the real number.
    count: Option<u32>,
    at_us: u64,
    boot: [u8; 16],
    grants: Vec<Grant>,
    trailing: Vec<u8>,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

impl Record {
    /// Returns the record in a payload from the server, and the bytes before the record's length.
    fn of(payload: &[u8], first_owner: &[u8]) -> (Self, Vec<u8>) {
        let at = payload.windows(first_owner.len()).position(|window| window == first_owner).unwrap() - 44 - 32;
        // The length of a string takes one byte, two, or five if it is long.
        let length_bytes = [1, 2, 5].into_iter().find(|bytes| {
            let kind = payload[at - bytes] >> 6;
            (kind, *bytes) == (0, 1) || (kind, *bytes) == (1, 2) || (payload[at - bytes], *bytes) == (0x80, 5)
        });
        let bytes = &payload[at..payload.len() - FOOTER - 1];
        assert_eq!((bytes[0], bytes[1]), (2, 0));
        let mut record = Self {
            kind: 0,
            reserved: 0,
            count: None,
            at_us: u64::from_le_bytes(number(bytes, 8)),
            boot: number(bytes, 16),
            grants: vec![],
            trailing: vec![],
        };
        let mut rest = &bytes[32..];
        while !rest.is_empty() {
            let u16 = |at| u16::from_le_bytes(number(rest, at));
            let u32 = |at| u32::from_le_bytes(number(rest, at));
            let u64 = |at| u64::from_le_bytes(number(rest, at));
            let end = 44 + usize::from(u16(6));
            assert_eq!(u16(8), 0, "without notes");
            record.grants.push(Grant {
                flags: rest[0],
                mode: rest[1],
                number: u16(2),
                limit: u16(4),
                reserved: u16(10),
                ttl_ms: u32(12),
                holds: u32(16),
                token: u64(20),
                granted_us: u64(28),
                deadline_us: u64(36),
                owner: rest[44..end].to_vec(),
            });
            rest = &rest[end..];
        }
        (record, payload[..at - length_bytes.unwrap()].to_vec())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, self.kind];
        bytes.extend(self.reserved.to_le_bytes());
        bytes.extend(self.count.unwrap_or(self.grants.len() as u32).to_le_bytes());
        bytes.extend(self.at_us.to_le_bytes());
        bytes.extend(self.boot);
        for grant in &self.grants {
            bytes.extend([grant.flags, grant.mode]);
            for number in [grant.number, grant.limit, grant.owner.len() as u16, 0, grant.reserved] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(grant.ttl_ms.to_le_bytes());
            bytes.extend(grant.holds.to_le_bytes());
            for number in [grant.token, grant.granted_us, grant.deadline_us] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(&grant.owner);
        }
        bytes.extend(&self.trailing);
        bytes
    }

    /// Returns a DUMP payload with this record and a valid checksum, so that the server accepts it.
    fn payload(&self, before: &[u8], original: &[u8]) -> Vec<u8> {
        let bytes = self.bytes();
        let mut payload = before.to_vec();
        payload.push(0x80);
        payload.extend((bytes.len() as u32).to_be_bytes());
        payload.extend(bytes);
        payload.extend(&original[original.len() - FOOTER - 1..]);
        signed(payload)
    }
}

/// Returns a payload with three permits of limit 4: numbers 1, 2 and 4.
fn sample(client: &mut Client) -> Vec<u8> {
    for (owner, number) in [("unmistakable", 1), ("second", 2), ("third", 4)] {
        client.say(&format!("LOCK.ACQUIRE k {owner} 60000 LIMIT 4 PERMIT {number}"));
    }
    client.say("DUMP k").as_bytes().to_vec()
}

#[test]
fn records_are_forged_as_the_server_makes_them() {
    let server = start();
    let mut client = server.client();
    let original = sample(&mut client);
    let (record, before) = Record::of(&original, b"unmistakable");
    assert_eq!(record.grants.len(), 3);
    assert_eq!(restore(&mut client, &record.payload(&before, &original)), text("OK"));
    assert_eq!(permits(&mut client, "copy"), permits(&mut client, "k"));
}

#[test]
fn what_could_not_be_granted_together_is_refused_whole() {
    let server = start();
    let mut client = server.client();
    let original = sample(&mut client);
    let (record, before) = Record::of(&original, b"unmistakable");
    type Change = fn(&mut Record);
    let cases: [(&str, Change); 32] = [
        ("no grants", |record| record.grants.clear()),
        ("no grants, and bytes behind", |record| record.count = Some(0)),
        ("fewer grants than there are", |record| record.count = Some(2)),
        ("more grants than there are", |record| record.count = Some(4)),
        ("four billion grants", |record| record.count = Some(u32::MAX)),
        ("a million and one grants", |record| record.count = Some(1_000_001)),
        ("bytes behind", |record| record.trailing = vec![0]),
        ("one grant that changed", |record| {
            record.kind = 1;
            record.grants.truncate(1);
        }),
        ("one grant that ended", |record| {
            record.kind = 2;
            record.grants.truncate(1);
        }),
        ("a kind that is none", |record| record.kind = 3),
        ("a head with more in it", |record| record.reserved = 1),
        ("a grant with more in it", |record| record.grants[2].reserved = 1),
        ("a flag that is none", |record| record.grants[1].flags = 2),
        ("two grants of one owner", |record| record.grants[2].owner = b"second".to_vec()),
        ("a number twice", |record| record.grants[2].number = 2),
        ("a number above its limit", |record| record.grants[2].number = 5),
        ("a number above another's limit", |record| record.grants[0].limit = 3),
        ("no number", |record| record.grants[0].number = 0),
        ("no limit", |record| record.grants[0].limit = 0),
        ("one of one, which is an exclusive lock", |record| {
            record.grants.truncate(1);
            record.grants[0].limit = 1;
        }),
        ("an exclusive grant", |record| {
            record.grants.truncate(1);
            (record.grants[0].mode, record.grants[0].number, record.grants[0].limit) = (0, 0, 0);
        }),
        ("a mode that is none", |record| record.grants[0].mode = 3),
        ("a reader with a number", |record| {
            record.grants.truncate(1);
            record.grants[0].mode = 1;
        }),
        ("a reader beside permits", |record| {
            (record.grants[1].mode, record.grants[1].number, record.grants[1].limit) = (1, 0, 0);
        }),
        ("no holds", |record| record.grants[1].holds = 0),
        ("too many holds", |record| record.grants[1].holds = u32::MAX),
        ("no token", |record| record.grants[2].token = 0),
        ("a token out of bounds", |record| record.grants[2].token = 1 << 53),
        ("a token from an hour ahead", |record| record.grants[2].token += 3_600_000_000),
        ("a ttl of 49 days", |record| record.grants[2].ttl_ms = u32::MAX),
        ("a deadline in an hour", |record| record.grants[2].deadline_us += 3_600_000_000),
        ("an owner that is none", |record| record.grants[2].owner.clear()),
    ];
    let last = token(&client.say("LOCK.ACQUIRE copy me 60000"));
    client.say("LOCK.RELEASE copy me");
    for (what, change) in cases {
        let mut hostile = record.clone();
        change(&mut hostile);
        let reply = restore(&mut client, &hostile.payload(&before, &original));
        assert!(error(reply).starts_with("ERR Bad data format"), "{what}");
        assert_eq!(client.say("EXISTS copy"), int(0), "{what}");
    }
    // This lock's ttl is from a node that grants longer leases.
    let mut foreign = record.clone();
    (foreign.boot, foreign.grants[2].ttl_ms) = ([0xEE; 16], 60_001);
    assert!(error(restore(&mut client, &foreign.payload(&before, &original))).starts_with("ERR Bad data format"));
    // The refused payloads left nothing in tables or tokens, and the present lock is unchanged.
    assert_eq!((server.info("held"), server.info("deadlines"), server.info("poisoned")), (1, 1, 0));
    let next = client.say("LOCK.ACQUIRE copy me 1000").as_int();
    assert!(next > last && next < last + 1_800_000_000);
    assert_eq!(permits(&mut client, "k").len(), 3);
}

/// The restored lock keeps others out until the last of its leases ends, and each grant can only be released.
#[test]
fn each_grant_of_what_is_restored_is_suspect() {
    let server = start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k a 60000 SHARED");
    client.say("LOCK.ACQUIRE k b 60000 SHARED");
    let b = client.say("LOCK.REENTER k b");
    assert_eq!(b, int(2));
    let dump = client.say("DUMP k").as_bytes().to_vec();
    assert_eq!(restore(&mut client, &dump), text("OK"));
    let listed = grants(&mut client, "copy");
    assert!(listed.iter().all(|grant| grant.field("suspect") == int(1)), "{listed:?}");
    assert_eq!((owners(&mut client, "copy"), listed[1].field("holds")), (vec!["a".to_owned(), "b".to_owned()], int(2)));
    let b = listed[1].field("token").as_int();
    for line in [
        "LOCK.EXTEND copy a 1000".to_owned(),
        "LOCK.REENTER copy b".to_owned(),
        "LOCK.CONVERT copy b EXCLUSIVE".to_owned(),
        "LOCK.ACQUIRE copy b 1000 SHARED RETRY".to_owned(),
        format!("LOCK.FENCE copy a {}", b + 5),
        format!("LOCK.CHECK copy {b}"),
    ] {
        assert!(error(client.say(&line)).starts_with("GUARDED "), "{line}");
    }
    assert_eq!(client.say("LOCK.ACQUIRE copy w 1000"), null());
    // The grant of an owner that joins after RESTORE is not suspect.
    assert!(client.say("LOCK.ACQUIRE copy c 60000 SHARED").as_int() > 0);
    assert!(client.say("LOCK.EXTEND copy c 60000").as_int() > 0);
    let mut writer = waits(&server, "LOCK.ACQUIRE copy w 60000 WAIT 60000").0;
    for line in ["LOCK.RELEASE copy a", "LOCK.RELEASE copy b LEVEL 1", "LOCK.RELEASE copy c"] {
        assert_eq!(server.info("waiters"), 1);
        assert_eq!(client.say(line), int(0), "{line}");
    }
    assert!(token(&writer.hear()) > b);
}

/// Each restored grant ends at its own deadline.
#[test]
fn restored_grants_end_one_by_one() {
    let server = start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k a 60000 LIMIT 3");
    client.say("LOCK.ACQUIRE k b 2000 LIMIT 3");
    let dump = client.say("DUMP k").as_bytes().to_vec();
    assert_eq!(restore(&mut client, &dump), text("OK"));
    assert_eq!(client.say("LOCK.INFO copy").field("holders"), int(2));
    wait_until("b's leases end", || server.info("expiries") == 2);
    assert_eq!((permits(&mut client, "k"), permits(&mut client, "copy")), {
        let a = vec![("a".to_owned(), 1)];
        (a.clone(), a)
    });
    assert_eq!((server.info("held"), server.info("deadlines")), (2, 2));
}

#[test]
fn any_damage_is_an_error_or_a_possible_lock() {
    let mut random = StdRng::seed_from_u64(seed());
    let server = start();
    let mut client = server.client();
    let original = sample(&mut client);
    let (record, before) = Record::of(&original, b"unmistakable");
    let mut accepted = 0;
    for _ in 0..10_000 {
        let mut hostile = record.payload(&before, &original);
        let body = hostile.len() - FOOTER;
        for _ in 0..random.random_range(1..4) {
            // The damage avoids the part that the server itself reads, which another test covers.
            let at = random.random_range(before.len() + 5..body - 1);
            hostile[at] = random.random();
        }
        if restore(&mut client, &signed(hostile)) == text("OK") {
            let held = grants(&mut client, "copy");
            accepted += usize::from(!held.is_empty());
            let mut numbers = vec![];
            for grant in &held {
                let field = |name| grant.field(name).as_int();
                assert!((0..=60_000).contains(&field("ttl")) && (1..=1_000_000).contains(&field("holds")));
                assert!((1..1 << 53).contains(&field("token")) && field("suspect") == 1);
                assert!(field("permit") <= field("limit") && !numbers.contains(&field("permit")), "{held:?}");
                assert!(held.iter().all(|other| field("permit") <= other.field("limit").as_int()), "{held:?}");
                numbers.push(field("permit"));
            }
        }
        client.say("DEL copy");
    }
    println!("{accepted} damaged payloads were possible locks");
    assert!(accepted > 0);
    assert_eq!((server.info("poisoned"), server.info("held"), server.info("deadlines")), (0, 1, 1));
    assert!(client.say("LOCK.EXTEND k unmistakable 60000").as_int() > 0);
}
