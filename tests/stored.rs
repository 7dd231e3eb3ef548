//! This version of the module reads what earlier versions wrote: an upgrade by restart keeps every lock and its token.
//!
//! `stored/` has a folder per version, made by `make store`. It contains the snapshot and the state file of a node that
//! was shut down cleanly, and the AOF and the state file of one that was killed. It also has the tokens of the locks in
//! both. They are from another boot, so all leases, which are a day long, start over in full. The files are copies, and
//! those of 0.1.0 are not tied to their data, so they prove nothing and the node is guarded.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Client, Server, Setup, error, guarded_ms, int, null, read, state_file};

/// The length of the leases in `stored/`, in milliseconds.
const LEASE_MS: i64 = 86_400_000;

/// The step of the wall clock, in seconds, to a time before the files were written: tokens must not depend on it.
const STEP_BACK_SECONDS: i64 = -30 * 365 * 86_400;

fn versions() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stored");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let versions: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    assert!(!versions.is_empty());
    versions
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

/// Starts a server on a stored folder. Returns it with the tokens of the locks stored there. `keep` removes the files
/// that the server should not find.
fn started_on(stored: &Path, setup: Setup, keep: impl Fn(&Server)) -> (Server, HashMap<String, i64>) {
    let setup = setup.guarded().wall_clock().module_arguments(&["max-ttl", &LEASE_MS.to_string()]);
    let mut server = setup.start();
    server.wall_clock().set(STEP_BACK_SECONDS);
    server.kill();
    let _ = fs::remove_dir_all(server.dir().join("appendonlydir"));
    copy(stored, server.dir());
    keep(&server);
    server.start_again();
    let tokens = read(stored.join("tokens"));
    let tokens = tokens.lines().map(|line| {
        let (key, token) = line.split_once(' ').unwrap();
        (key.to_owned(), token.parse().unwrap())
    });
    (server, tokens.collect())
}

/// Checks that each stored lock is there unchanged, with nearly its full ttl left, and that no ended one is.
fn assert_there(client: &mut Client, tokens: &HashMap<String, i64>, deep_holds: i64) {
    let locks: [(&str, &[u8], i64, &[u8]); 5] = [
        ("plain", b"me", 1, b""),
        ("deep", b"me", deep_holds, b""),
        ("binary", b"\0\xFF\r\n", 1, b"\xFF\0"),
        ("other-database", b"you", 1, b""),
        ("restored", b"me", 1, b""),
    ];
    for (key, owner, holds, note) in locks {
        client.say(if key == "other-database" { "SELECT 5" } else { "SELECT 0" });
        let info = client.say(&format!("LOCK.INFO {key}"));
        assert_eq!((info.field("owner").as_bytes(), info.field("note").as_bytes()), (owner, note), "{key}");
        assert_eq!((info.field("token"), info.field("holds")), (int(tokens[key]), int(holds)), "{key}");
        let left = info.field("ttl").as_int();
        assert!((LEASE_MS - 60_000..=LEASE_MS).contains(&left), "{key}: {left} ms left");
    }
    client.say("SELECT 0");
    for key in ["released", "payload"] {
        assert_eq!(client.say(&format!("LOCK.INFO {key}")), null(), "{key}");
    }
}

/// Returns the ceiling in a state file.
fn ceiling(folder: &Path) -> i64 {
    let state = read(folder.join("lock-node-socket.state"));
    state.lines().find_map(|line| line.strip_prefix("ceiling ")).unwrap().parse().unwrap()
}

/// Checks that later tokens are above all that were issued before.
fn assert_tokens_go_on(server: &Server, stored: &Path) {
    let mut client = server.client();
    for key in ["released", "unheard-of"] {
        let newer = client.insist(&format!("LOCK.ACQUIRE {key} you 1000")).as_int();
        assert!(newer > ceiling(stored), "{key}: {newer}");
    }
}

/// Checks that the node is guarded, and that the loaded locks cannot be extended.
fn assert_guarded(server: &Server, tokens: &HashMap<String, i64>) {
    let mut client = server.client();
    for line in ["LOCK.ACQUIRE unheard-of you 1000", "LOCK.ACQUIRE plain you 1000", "LOCK.EXTEND plain me 1000"] {
        let left = guarded_ms(client.say(line));
        assert!(left as i64 > LEASE_MS - 60_000, "{line}: {left} ms");
    }
    assert_eq!(client.say("LOCK.INFO plain").field("suspect"), int(1));
    server.lift();
    assert_eq!(client.insist("LOCK.ACQUIRE plain you 1000"), null(), "its holder may go on");
    assert_eq!(client.say("LOCK.RELEASE plain me"), int(0));
    assert!(client.insist("LOCK.ACQUIRE plain you 1000").as_int() > tokens["plain"]);
}

#[test]
fn a_snapshot_and_its_state() {
    for version in versions() {
        let stored = version.join("snapshot");
        let (server, tokens) = started_on(&stored, Setup::new(), |_| ());
        assert_there(&mut server.client(), &tokens, 3);
        assert_guarded(&server, &tokens);
        assert_tokens_go_on(&server, &stored);
    }
}

#[test]
fn an_aof_and_its_state() {
    for version in versions() {
        let stored = version.join("aof");
        let (server, tokens) = started_on(&stored, Setup::new().aof(), |_| ());
        let mut client = server.client();
        assert_there(&mut client, &tokens, 2);
        assert_eq!(client.say("LOCK.INFO late").field("token"), int(tokens["late"]));
        assert_guarded(&server, &tokens);
        assert_tokens_go_on(&server, &stored);
    }
}

#[test]
fn without_the_state_file_they_are_kept_and_not_believed() {
    for version in versions() {
        for (what, setup, deep_holds) in [("snapshot", Setup::new(), 3), ("aof", Setup::new().aof(), 2)] {
            let gone = |server: &Server| fs::remove_file(state_file(server)).unwrap();
            let (server, tokens) = started_on(&version.join(what), setup, gone);
            assert_there(&mut server.client(), &tokens, deep_holds);
            assert_guarded(&server, &tokens);
        }
    }
}

/// The snapshot is gone. The state file proves nothing without its data, so the node is guarded.
#[test]
fn a_state_without_its_data_is_guarded() {
    for version in versions() {
        let gone = |server: &Server| fs::remove_file(server.dir().join("dump.rdb")).unwrap();
        let (server, _) = started_on(&version.join("snapshot"), Setup::new(), gone);
        let mut client = server.client();
        assert!(guarded_ms(client.say("LOCK.ACQUIRE plain you 1000")) as i64 > LEASE_MS - 60_000);
        assert_eq!(client.say("LOCK.INFO plain"), null());
        assert!(error(client.say("LOCK.ACQUIRE plain you 86400001")).starts_with("ERR ttl"));
    }
}

/// An AOF with commands of a later version proves nothing, since the server skips commands that are refused. The node
/// used to claim that it remembers every grant.
#[test]
fn an_aof_of_a_version_to_come_proves_nothing() {
    let mut server = Setup::new().aof().start();
    server.client().insist("LOCK.ACQUIRE late me 60000");
    server.kill();
    // The file has the same length, and only the first byte of the lock's record, which is its version, is changed.
    let path = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut bytes = fs::read(&path).unwrap();
    let name = b"\r\nlate\r\n";
    let record = (0..bytes.len()).find(|&n| bytes[n..].starts_with(name)).unwrap() + name.len();
    let length = bytes[record..].iter().position(|&byte| byte == b'\n').unwrap();
    bytes[record + length + 1] = 0xFF;
    fs::write(path, bytes).unwrap();
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.say("LOCK.INFO late"), null(), "it is not understood");
    assert!(guarded_ms(client.say("LOCK.ACQUIRE late you 1000")) > 30_000);
    assert!(server.log().contains("cannot prove that it remembers every grant"), "{}", server.log());
}
