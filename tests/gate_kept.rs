//! Gates remember the same tokens after a crash, a restart or a rewrite, on replicas, and under other names.

use crate::harness::{Client, Reply, Server, Setup, error, follow, in_step, int, null, pair, text, wait_until};
use crate::restore::signed;

/// Makes gates that every kind of grant has passed.
fn fill(client: &mut Client) {
    for words in [
        "plain 5 COMMAND SET data 1",
        "modes 5",
        "modes 7 SHARED COMMAND INCR data",
        "modes 9 PERMIT 1",
        "modes 8 PERMIT 65535",
        "kept 5 KEEP 3600000",
        "again 5",
        "again 6 KEEP 5",
        "old 5",
    ] {
        let reply = client.say(&format!("LOCK.GATE {words}"));
        assert!(!matches!(reply, Reply::Error(_)), "{words}: {reply:?}");
    }
    client.say("RENAME old new");
    client.say("SELECT 3");
    client.say("LOCK.GATE plain 50");
    client.say("SELECT 0");
}

/// Checks that the gates are those that `fill` made.
#[track_caller]
fn assert_filled(client: &mut Client) {
    let shown = |client: &mut Client, name: &str| {
        let gate = client.say(&format!("LOCK.INFO {name}"));
        ["largest", "exclusive", "shared", "permits"].map(|field| gate.field(field).as_int())
    };
    for (name, numbers) in [
        ("plain", [5, 5, 0, 0]),
        ("modes", [9, 5, 7, 2]),
        ("kept", [5, 5, 0, 0]),
        ("again", [6, 6, 0, 0]),
        ("new", [5, 5, 0, 0]),
    ] {
        assert_eq!(shown(client, name), numbers, "{name}");
    }
    assert_eq!((client.say("GET data"), client.say("EXISTS old")), (text("2"), int(0)));
    let keeps = ["plain", "kept", "again"].map(|name| client.say(&format!("LOCK.INFO {name}")).field("keep").as_int());
    assert!(keeps[1] > 3_000_000 && (keeps[0], keeps[2]) == (0, 0), "{keeps:?}");
    client.say("SELECT 3");
    assert_eq!(shown(client, "plain"), [50, 50, 0, 0]);
    client.say("SELECT 0");
}

/// After `kill -9` the AOF contains each gate together with the data that it let through.
#[test]
fn gates_survive_a_crash() {
    let mut server = Setup::new().aof().start();
    fill(&mut server.client());
    server.kill();
    server.start_again();
    let mut client = server.client();
    assert_filled(&mut client);
    assert!(error(client.say("LOCK.GATE plain 4 COMMAND SET data 9")).starts_with("FENCED 5"));
    for (option, count) in [("yes", 1), ("no", 2)] {
        client.say(&format!("CONFIG SET aof-use-rdb-preamble {option}"));
        client.say("BGREWRITEAOF");
        wait_until("the AOF is rewritten", || client.info_field("aof_rewrite_in_progress") == 0);
        client.say(&format!("LOCK.GATE rewritten {count}"));
        server.kill();
        server.start_again();
        client = server.client();
        assert_filled(&mut client);
        assert_eq!(client.say("LOCK.INFO rewritten").field("largest"), int(count));
    }
}

#[test]
fn gates_survive_a_clean_restart() {
    let mut server = Setup::new().option("save", "900 1").start();
    fill(&mut server.client());
    server.shutdown("SAVE");
    server.start_again();
    assert_filled(&mut server.client());
    let mut client = server.client();
    client.say("DEBUG RELOAD");
    assert_filled(&mut client);
    // Valkey frees the data before the reload in a thread of its own; gates count until they are freed.
    wait_until("the gates before the reload are freed", || server.info("gates") == 6);
}

/// The token and the command are in one transaction; calls that were refused, or changed nothing, are not in the
/// stream.
#[test]
fn gate_and_command_are_one_transaction() {
    let server = Setup::new().aof().option("aof-use-rdb-preamble", "no").start();
    let mut client = server.client();
    client.say("LOCK.GATE gate 5 COMMAND SET data 1 EX 1000");
    client.say("LOCK.GATE gate 5 COMMAND SET data 2");
    client.say("LOCK.GATE gate 4 COMMAND SET data 3");
    client.say("LOCK.GATE gate 6 COMMAND GET data");
    client.say("LOCK.GATE gate 7 COMMAND INCRBY data x");
    client.say("LOCK.GATE gate 7 KEEP 5");
    let folder = server.dir().join("appendonlydir");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let aof = files.filter(|path| path.to_string_lossy().contains(".incr.")).map(|path| std::fs::read(path).unwrap());
    let aof = String::from_utf8_lossy(&aof.flatten().collect::<Vec<u8>>()).into_owned();
    let known = ["MULTI", "EXEC", "LOCK.EFFECT", "SET", "GET", "INCRBY", "LOCK.GATE"];
    let commands: Vec<_> = aof.lines().map(str::trim_end).filter(|line| known.contains(line)).collect();
    assert_eq!(commands, ["MULTI", "LOCK.EFFECT", "SET", "EXEC", "SET", "LOCK.EFFECT", "LOCK.EFFECT"], "{aof}");
    assert!(aof.contains("PXAT"), "the effect, not the request: {aof}");
}

#[test]
fn a_replica_has_the_gates_and_keeps_them_when_it_is_promoted() {
    let (master, replica) = pair();
    let mut client = master.client();
    fill(&mut client);
    client.say("LOCK.GATE short 5 KEEP 100");
    wait_until("the master forgets it", || client.say("EXISTS short") == int(0));
    in_step(&mut client);
    let mut there = replica.client();
    assert_eq!(there.say("DEBUG DIGEST"), client.say("DEBUG DIGEST"));
    assert_filled(&mut there);
    assert_eq!(there.say("EXISTS short"), int(0));
    assert!(error(there.say("LOCK.GATE plain 6 COMMAND GET data")).starts_with("READONLY"));
    there.say("REPLICAOF NO ONE");
    assert!(error(there.say("LOCK.GATE plain 4 COMMAND SET data 9")).starts_with("FENCED 5"));
    // A full synchronisation copies the gates to another replica.
    let other = Setup::new().replication().start();
    other.client().say("LOCK.GATE gone 5 KEEP 3600000");
    follow(&other, &replica);
    assert_filled(&mut other.client());
    assert_eq!(other.client().say("EXISTS gone"), int(0));
}

/// A gate with KEEP that was renamed, or restored from a payload, is forgotten in time there.
#[test]
fn a_kept_gate_is_forgotten_wherever_it_went() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["renamed", "moved", "swapped", "restored", "flushed"] {
        client.say(&format!("LOCK.GATE {name} 5 KEEP 500"));
    }
    let dump = client.say("DUMP restored");
    client.say("RENAME renamed other");
    client.say("MOVE moved 4");
    client.say("SELECT 0");
    client.send(&[b"RESTORE", b"copy", b"0", dump.as_bytes()]);
    client.say("SWAPDB 0 6");
    assert_eq!(client.say("EXISTS other swapped copy"), int(0));
    client.say("SELECT 6");
    assert_eq!(client.say("EXISTS other swapped restored copy flushed"), int(5));
    wait_until("all are forgotten", || server.info("gates") == 0);
    client.say("LOCK.GATE flushed 5 KEEP 500");
    client.say("FLUSHALL");
    assert_eq!(client.say("LOCK.GATE flushed 4 KEEP 3600000"), int(1), "with its database");
    assert!(error(client.say("LOCK.GATE flushed 3")).starts_with("FENCED 4"));
}

/// Only payloads of possible gates are restored.
#[test]
fn a_forged_payload_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    // Compressed, the bytes below would be elsewhere. Whether the server compresses them depends on its clock.
    client.say("CONFIG SET rdbcompression no");
    client.say("LOCK.GATE gate 5");
    let dump = client.say("DUMP gate");
    let restore = |client: &mut Client, bytes: &[u8]| client.send(&[b"RESTORE", b"copy", b"0", bytes]);
    assert_eq!(restore(&mut client, dump.as_bytes()), text("OK"));
    assert!(error(client.say("LOCK.GATE copy 4")).starts_with("FENCED 5"));
    client.say("DEL copy");
    let record = dump.as_bytes().windows(7).position(|part| part[..2] == [4, 0]).unwrap();
    let forged = |at: usize, byte: u8| {
        let mut bytes = dump.as_bytes().to_vec();
        bytes[record + at] = byte;
        signed(bytes)
    };
    for (at, byte) in [(0, 5), (1, 1), (1, 2), (22, 0x7F), (23, 3), (24, 1), (26, 0), (32, 0x20)] {
        assert!(matches!(restore(&mut client, &forged(at, byte)), Reply::Error(_)), "{at}");
        assert_eq!(client.say("LOCK.INFO copy"), null(), "{at}");
    }
    assert_eq!(restore(&mut client, &forged(26, 9)), text("OK"), "the rest of it is as it should be");
    assert!(server.log().contains("a gate was refused: "), "{}", server.log());
}

/// Only a master and the AOF may set what a gate remembers.
#[test]
fn an_effect_from_a_client_is_refused() {
    let server = Server::start();
    let effect = server.client().send(&[b"LOCK.EFFECT", b"gate", b"\x04"]);
    assert!(error(effect).starts_with("ERR LOCK.EFFECT"));
}

/// A gate whose time is over is deleted once the server may write; until then saved files contain it.
#[test]
fn a_gate_that_is_over_can_be_saved() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.GATE gate 5 KEEP 100");
    client.say("CLIENT PAUSE 60000 WRITE");
    wait_until("it is over", || client.say("LOCK.INFO gate") == null());
    assert_eq!((client.say("DEBUG RELOAD"), client.say("EXISTS gate")), (text("OK"), int(1)));
    client.say("CLIENT UNPAUSE");
    wait_until("it is forgotten", || client.say("EXISTS gate") == int(0));
}
