//! Random bytes and arguments: the server survives and keeps its locks.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::harness::{Reply, Server, int, seed};

const COMMANDS: [&str; 10] = [
    "LOCK.ACQUIRE",
    "LOCK.RELEASE",
    "LOCK.EXTEND",
    "LOCK.REENTER",
    "LOCK.CHECK",
    "LOCK.WAIT",
    "LOCK.INFO",
    "LOCK.BREAK",
    "LOCK.HELP",
    "LOCK.EFFECT",
];

const WORDS: [&[u8]; 24] = [
    b"",
    b"\0",
    b"\xFF",
    b"\r\n",
    b"a",
    b"b",
    b"0",
    b"1",
    b"-1",
    b"60000",
    b"60001",
    b"9007199254740991",
    b"9007199254740992",
    b"18446744073709551615",
    b"18446744073709551616",
    b"RETRY",
    b"NOTE",
    b"LEVEL",
    b"TOKEN",
    b"TTL",
    b"%s%n",
    b"WAIT",
    b"WAITERS",
    b"TICKET",
];

#[test]
fn random_arguments_leave_the_server_running() {
    let mut random = StdRng::seed_from_u64(seed());
    let server = Server::start();
    let mut client = server.client();
    // An operator unblocks waiting requests.
    let id = client.say("CLIENT ID").as_int();
    let mut operator = server.client();
    let done = Arc::new(AtomicBool::new(false));
    let operator = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            while !done.load(Ordering::Relaxed) {
                operator.say(&format!("CLIENT UNBLOCK {id}"));
            }
        }
    });
    let token = client.say("LOCK.ACQUIRE held me 60000").as_int();
    for _ in 0..20_000 {
        let mut arguments: Vec<Vec<u8>> = vec![COMMANDS[random.random_range(0..COMMANDS.len())].into()];
        for _ in 0..random.random_range(0..8) {
            arguments.push(match random.random_range(0..10) {
                0 => {
                    let mut bytes = vec![0; random.random_range(0..300)];
                    random.fill_bytes(&mut bytes);
                    bytes
                }
                1 => vec![b'x'; random.random_range(250..1100)],
                _ => WORDS[random.random_range(0..WORDS.len())].to_vec(),
            });
        }
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        if let Reply::Error(text) = client.send(&arguments) {
            let code = text.split(' ').next().unwrap();
            assert!(["ERR", "OWNED", "WRONGTYPE"].contains(&code), "{text} for {arguments:?}");
        }
    }
    done.store(true, Ordering::Relaxed);
    operator.join().unwrap();
    assert_eq!((server.info("poisoned"), server.info("waiters")), (0, 0));
    assert_eq!(client.say("LOCK.EXTEND held me 60000"), int(token));
}

#[test]
fn random_bytes_on_the_wire() {
    let mut random = StdRng::seed_from_u64(seed());
    let server = Server::start();
    let token = server.client().say("LOCK.ACQUIRE held me 60000").as_int();
    for _ in 0..300 {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut bytes = match random.random_range(0..3) {
            0 => b"LOCK.ACQUIRE k me 1000 NOTE \"\\x00\\xff\"\r\n".to_vec(),
            1 => b"*4\r\n$12\r\nLOCK.ACQUIRE\r\n$1\r\nk\r\n$2\r\nme\r\n$4\r\n1000\r\n".to_vec(),
            _ => vec![0; 100],
        };
        for _ in 0..random.random_range(0..10) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        // The server may close the connection in the middle.
        let _ = stream.write_all(&bytes);
        let _ = stream.read(&mut [0; 1000]);
    }
    assert_eq!(server.info("poisoned"), 0);
    assert_eq!(server.client().say("LOCK.EXTEND held me 60000"), int(token));
}
