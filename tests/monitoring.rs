//! Monitoring: INFO lock matches docs/monitoring.md, the exporter's script exports its numbers, and the log has no
//! secrets.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Client, Reply, Server, Setup, error};

fn read(path: &str) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the fields of INFO lock with their values.
fn fields(client: &mut Client) -> Vec<(String, String)> {
    let info = client.say("INFO lock").as_text();
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn info_has_the_fields_of_the_documentation() {
    let server = Server::start();
    let page = read("docs/monitoring.md");
    let rows: Vec<Vec<_>> = page
        .lines()
        .filter(|line| line.starts_with("| `lock_"))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect())
        .collect();
    let shown = fields(&mut server.client());
    let names = |pairs: &[(String, String)]| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(rows.iter().map(|row| row[1].clone()).collect::<Vec<_>>(), names(&shown));
    for (row, (name, value)) in rows.iter().zip(&shown) {
        let is_number = value.parse::<u64>().is_ok();
        assert_eq!(is_number, row[2] != "word", "{name}:{value} is not a {}", row[2]);
    }
}

#[test]
fn the_exporters_script_exports_every_number() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 60000");
    let script = read("monitoring/exporter.lua");
    let mut run = || client.send(&[b"EVAL", script.as_bytes(), b"0"]);
    let answer: Vec<_> = run().as_list().iter().map(Reply::as_text).collect();
    let exported: Vec<_> = answer.chunks(2).map(|pair| pair[0].clone()).collect();
    let mut numbers = fields(&mut server.client());
    numbers.retain(|(_, value)| value.parse::<u64>().is_ok());
    assert_eq!(exported, numbers.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
    let held = answer.chunks(2).find(|pair| pair[0] == "lock_held").unwrap();
    assert_eq!(held[1], "1");
    // The script also exports the figures of each prefix, with the prefix in the name, and those of all other keys.
    client.send(&[b"CONFIG", b"SET", b"lock.metrics-prefixes", b"k :%20=%20%2C%22:{}"]);
    client.say("LOCK.RELEASE k me");
    for key in [&b"k"[..], b": = ,\":{}1", b"x", b"y"] {
        client.send(&[b"LOCK.ACQUIRE", key, b"me", b"60000"]);
    }
    let by_prefix = client.send(&[b"EVAL", script.as_bytes(), b"0"]);
    for (name, value) in [
        ("lock_prefix_grants:k", 1),
        ("lock_prefix_ends:k", 1),
        ("lock_prefix_grants::%20%3D%20%2C%22:{}", 1),
        ("lock_prefix_held_max_us::%20%3D%20%2C%22:{}", 0),
        ("lock_other_grants", 2),
        ("lock_other_contended", 0),
        ("lock_held", 4),
    ] {
        assert_eq!(by_prefix.field(name).as_text(), value.to_string(), "{name}");
    }
    assert_eq!(by_prefix.as_list().len(), answer.len() + 3 * 10 * 2, "nothing else");
}

#[test]
fn the_log_has_no_key_owner_or_note() {
    // Causes every log line that a client can cause.
    let mut server = Setup::new().aof().option("loglevel", "debug").option("maxmemory-policy", "allkeys-lru").start();
    let mut client = server.client();
    client.insist("LOCK.ACQUIRE secret-key secret-owner 60000 NOTE secret-note");
    client.say("LOCK.ACQUIRE secret-key secret-owner 60000 RETRY");
    error(client.say("LOCK.ACQUIRE secret-key secret-owner secret-ttl"));
    client.say("LOCK.EXTEND secret-key secret-owner 60000");
    let dump = client.say("DUMP secret-key");
    client.say("LOCK.BREAK secret-key");
    client.send(&[b"RESTORE", b"secret-key", b"0", dump.as_bytes()]);
    client.say("DEL secret-key");
    let elsewhere = Setup::new().module_arguments(&["max-ttl", "90000"]).start();
    elsewhere.client().say("LOCK.ACQUIRE secret-key secret-owner 90000");
    let too_long = elsewhere.client().say("DUMP secret-key");
    error(client.send(&[b"RESTORE", b"secret-elsewhere", b"0", too_long.as_bytes()]));
    error(client.say("LOCK.EFFECT secret-key secret-record"));
    client.insist("LOCK.ACQUIRE secret-key secret-owner 60000 NOTE secret-note");
    client.say("FLUSHALL");
    client.say("LOCK.GUARD LIFT");
    client.insist("LOCK.ACQUIRE secret-key secret-owner 60000 NOTE secret-note");
    server.kill();
    server.start_again();
    let log = server.log();
    for line in ["incarnation 2", "a lock was refused", "grants nothing for", "maxmemory-policy"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    // The server itself logs its AOF's file, its options and its clients' addresses, none of which is secret here.
    let told: Vec<_> = log.lines().filter(|line| line.contains("secret")).collect();
    assert!(told.is_empty(), "{told:?}");
}
