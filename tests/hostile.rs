//! A hostile client: random commands on many connections at once, invalid bytes on others, and AOFs that are cut off in
//! the middle.
//!
//! `PALISADE_COMMANDS` sets the number of commands (default 20000; `make hostile` sends a million).

mod commands;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use self::commands::{Command, Source};
use crate::harness::{Client, Reply, Server, Setup, int, seed, text, wait_until};

/// The number of connections that send at once.
const CONNECTIONS: usize = 8;

/// The number of commands that a connection sends before it reads.
const BATCH: usize = 40;

/// The interval between two checks for waiters.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The length of a pause of writes, and the number of checks between two pauses.
const PAUSE_MS: u32 = 15;
const PAUSE_EVERY: usize = 100;

/// The most by which memory may grow from the first half of the commands to the end, after a flush of everything. (The
/// servers' own caches fill up during the first ten thousand commands.)
const GROWTH_BYTES_MAX: u64 = 256 * 1024;

/// Returns the number of commands to send.
fn commands() -> usize {
    std::env::var("PALISADE_COMMANDS").ok().and_then(|commands| commands.parse().ok()).unwrap_or(20_000)
}

/// Checks that the server's log has no sign of a failure.
fn assert_calm(server: &Server) {
    let log = server.log();
    for sign in ["BUG REPORT", "ASSERTION", "the lock module failed", "panicked", "crashed by signal"] {
        assert!(!log.contains(sign), "{sign}");
    }
}

/// Runs one connection: sends commands, keeps tokens and payloads from the answers for later commands, and connects
/// again when it is killed.
fn attack(server: &Server, source: &mut Source, commands: usize, newest: &AtomicI64) {
    let connect = || {
        let mut client = server.client();
        // The connection may be killed before it is answered.
        if let Some(Reply::Int(id)) = client.try_say("CLIENT ID") {
            newest.fetch_max(id, Ordering::Relaxed);
        }
        client
    };
    let mut client = connect();
    let mut sent = 0;
    while sent < commands {
        source.client = newest.load(Ordering::Relaxed);
        let batch = source.batch(BATCH);
        sent += batch.len();
        match client.try_pipeline(&batch) {
            Some(replies) => batch.iter().zip(replies).for_each(|(command, reply)| learn(source, command, &reply)),
            None => client = connect(),
        }
    }
}

fn learn(source: &mut Source, command: &Command, reply: &Reply) {
    match reply {
        Reply::Text(payload) if command[0] == b"DUMP" => source.payload = payload.clone(),
        Reply::Int(token) if command[0] == b"LOCK.ACQUIRE" => source.token = *token,
        Reply::List(list) if command[0] == b"EXEC" => list.iter().for_each(|reply| learn(source, &vec![vec![]], reply)),
        Reply::Error(text) => assert!(!text.starts_with("LOCKPANIC"), "{text} for {command:?}"),
        _ => {}
    }
}

/// Sends damaged commands: some bytes are random, and the end may be missing.
fn disturb(server: &Server, mut random: StdRng, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut bytes = b"*5\r\n$12\r\nLOCK.ACQUIRE\r\n$2\r\nk1\r\n$1\r\na\r\n$2\r\n50\r\n$5\r\nRETRY\r\n".repeat(3);
        for _ in 0..random.random_range(0..5) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        bytes.truncate(random.random_range(0..=bytes.len()));
        // The server may close the connection in the middle.
        let _ = stream.write_all(&bytes);
        let _ = stream.read(&mut [0; 1000]);
    }
}

/// Unblocks every waiter, so that long waits do not delay a connection's next batch, and pauses writes from time to
/// time.
///
/// It always unblocks with ERROR. Without ERROR, Redis 7.0 fails if the client waits for the end of a pause, even if no
/// module is loaded, and sends no reply at all to a client whose answer is on its way.
fn hurry(server: &Server, over: &AtomicBool) {
    let mut client = server.client();
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        if hurry_once(&mut client, round % PAUSE_EVERY == 0).is_none() {
            client = server.client();
        }
        sleep(LOOK_AGAIN);
    }
}

fn hurry_once(client: &mut Client, pause: bool) -> Option<()> {
    if pause {
        client.try_say(&format!("CLIENT PAUSE {PAUSE_MS} WRITE"))?;
    }
    let Reply::Text(list) = client.try_say("CLIENT LIST")? else { return None };
    for line in String::from_utf8_lossy(&list).lines().filter(|line| line.contains(" flags=b")) {
        let id = line.split(' ').next().and_then(|id| id.strip_prefix("id=")).unwrap();
        client.try_say(&format!("CLIENT UNBLOCK {id} ERROR"))?;
    }
    Some(())
}

fn storm(server: &Server, sources: &mut [Source], commands: usize, random: &mut StdRng) {
    let (over, newest) = (AtomicBool::new(false), AtomicI64::new(1));
    let (over, newest, each) = (&over, &newest, commands / sources.len());
    std::thread::scope(|scope| {
        let random = StdRng::from_rng(random);
        scope.spawn(move || disturb(server, random, over));
        scope.spawn(move || hurry(server, over));
        let attacks: Vec<_> =
            sources.iter_mut().map(|source| scope.spawn(move || attack(server, source, each, newest))).collect();
        // The other threads have to end, whatever the result of the attacks.
        let ends: Vec<_> = attacks.into_iter().map(|attack| attack.join()).collect();
        over.store(true, Ordering::Relaxed);
        for end in ends {
            if let Err(panic) = end {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Undoes the settings of hostile operators, flushes everything, and returns the memory in use.
fn calm(server: &Server) -> u64 {
    let mut client = server.client();
    for line in [
        "CONFIG SET maxmemory 0",
        "CONFIG SET maxmemory-policy noeviction",
        "CONFIG SET lock.max-waiters 65536",
        "CONFIG SET lock.handoff-window 20",
        "CONFIG SET lock.max-clock-skew 2000",
        "FLUSHALL SYNC",
        "SCRIPT FLUSH SYNC",
    ] {
        assert_eq!(client.say(line), text("OK"), "{line}");
    }
    client.lift();
    wait_until("nobody is connected or waits, and no child runs", || {
        client.info_field("connected_clients") == 1
            && client.info_field("lock_waiters") == 0
            && client.info_field("aof_rewrite_in_progress") == 0
            && client.info_field("lazyfree_pending_objects") == 0
    });
    assert_eq!((server.info("held"), server.info("deadlines"), server.info("poisoned")), (0, 0, 0));
    client.say("MEMORY PURGE");
    client.info_field("used_memory")
}

/// Lifts the guard, and checks that a free lock can be granted, extended and released.
fn serves(client: &mut Client) {
    client.lift();
    let token = client.insist("LOCK.ACQUIRE after me 1000").as_int();
    assert_eq!(client.say("LOCK.EXTEND after me 1000"), int(token));
    assert_eq!(client.say("LOCK.RELEASE after me"), int(0));
}

#[test]
fn random_commands_on_many_connections() {
    let (commands, mut random) = (commands(), StdRng::seed_from_u64(seed()));
    let mut server = Setup::new().option("appendonly", "yes").option("appendfsync", "no").start();
    let mut sources: Vec<_> = (0..CONNECTIONS).map(|_| Source::new(StdRng::from_rng(&mut random))).collect();
    let start = Instant::now();
    storm(&server, &mut sources, commands / 2, &mut random);
    let before = calm(&server);
    storm(&server, &mut sources, commands - commands / 2, &mut random);
    let after = calm(&server);
    let mut client = server.client();
    serves(&mut client);
    let (grants, hand_overs) = (server.info("grants"), server.info("hand_overs"));
    let seconds = start.elapsed().as_secs_f32();
    println!(
        "{commands} commands, {grants} grants, {hand_overs} hand-overs in {seconds:.1} s: {before}, then {after} bytes"
    );
    assert!(grants as usize > commands / 1_000 && hand_overs > 0, "most of it never got to a lock");
    assert!(after < before + GROWTH_BYTES_MAX, "{before} bytes used, then {after}");
    assert_calm(&server);

    // The part of the AOF that is intact can be loaded.
    storm(&server, &mut sources, commands / 10, &mut random);
    server.kill();
    server.start_again();
    serves(&mut server.client());
    calm(&server);
    assert_calm(&server);
}

/// Returns the AOF's last file.
fn tail_of_the_aof(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).unwrap().map(|file| file.unwrap().path());
    let incremental = files.filter(|file| file.to_string_lossy().ends_with(".incr.aof"));
    // The form is appendonly.aof.<number>.incr.aof.
    incremental.max_by_key(|file| file.to_string_lossy().rsplit('.').nth(2).unwrap().parse::<u32>().unwrap()).unwrap()
}

/// Returns `command` in the AOF's format.
fn written(command: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn an_aof_with_any_end_loads_or_is_refused_plainly() {
    let mut random = StdRng::seed_from_u64(seed());
    let mut server = Setup::new().option("appendonly", "yes").option("aof-load-truncated", "yes").start();
    let mut source = Source::new(StdRng::from_rng(&mut random));
    attack(&server, &mut source, 2_000, &AtomicI64::new(1));
    calm(&server);
    let mut client = server.client();
    (0..50).for_each(|n| drop(client.say(&format!("LOCK.ACQUIRE k{n} unmistakable 60000 NOTE text"))));
    server.kill();
    let tail = tail_of_the_aof(&server);
    let whole = fs::read(&tail).unwrap();
    let (mut loaded, mut refused) = (0, 0);
    for round in 0..commands() / 1_000 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(random.random_range(0..bytes.len())),
            1 => {
                // A complete command with an invalid record.
                let at = random.random_range(0..whole.len() - 100);
                bytes.extend(written(&[b"LOCK.EFFECT", b"k1", &whole[at..at + random.random_range(0..100)]]));
                bytes.extend(written(&[b"LOCK.CEILING", b"9223372036854775807", b"-1"]));
                bytes.extend(written(&[b"LOCK.CEILING", &whole[at..at + 10]]));
            }
            2 => bytes.extend((0..random.random_range(1..200)).map(|_| random.random::<u8>())),
            _ => {
                // Bytes in the records of the last commands are changed.
                for _ in 0..random.random_range(1..20) {
                    let at = bytes.len() - 1 - random.random_range(0..2_000.min(bytes.len()));
                    bytes[at] = random.random();
                }
            }
        }
        // An AOF that was truncated when it was loaded is shorter now.
        fs::write(&tail, &bytes).unwrap();
        let told = server.log().len();
        match server.try_start_again() {
            Ok(()) => {
                loaded += 1;
                serves(&mut server.client());
                assert_eq!(server.info("poisoned"), 0);
                server.kill();
            }
            Err(status) => {
                refused += 1;
                assert_eq!(status.code(), Some(1), "round {round}: the server ends by itself");
                assert!(server.log()[told..].contains("append only file"), "round {round}: the server says why");
            }
        }
        assert_calm(&server);
    }
    println!("{loaded} loaded, {refused} refused");
    assert!(loaded > 0);
}
