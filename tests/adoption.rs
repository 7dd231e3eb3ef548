//! A grant adopted by another process of its owner: a plain RELEASE leaves it in place, also after its record was
//! saved, replicated or restored.

use crate::harness::{Client, Reply, Setup, error, follow, in_step, int, null, pair, text, wait_until};

/// Takes locks: one exclusive and adopted, one adopted with two holds and a later note, and one with two readers, one
/// of which is adopted.
fn fill(client: &mut Client) {
    for line in [
        "LOCK.ACQUIRE alone me 60000",
        "LOCK.ACQUIRE noted me 60000",
        "LOCK.REENTER noted me",
        "LOCK.NOTE noted me later",
        "LOCK.ACQUIRE shared me 60000 SHARED",
        "LOCK.ACQUIRE shared you 60000 SHARED",
        "LOCK.ACQUIRE fresh me 60000",
    ] {
        client.say(line);
    }
    for (key, holds) in [("alone", 1), ("noted", 2), ("shared", 1)] {
        assert_eq!(client.say(&format!("LOCK.REENTER {key} me LEVEL 1 ADOPT")), int(holds));
    }
}

/// Checks that a plain RELEASE leaves adopted grants and frees the rest, and that LEVEL or TOKEN frees adopted ones.
#[track_caller]
fn assert_adopted(client: &mut Client) {
    for (key, holds) in [("alone", 1), ("noted", 2), ("shared", 1)] {
        assert_eq!(client.say(&format!("LOCK.RELEASE {key} me")), null(), "{key}");
        let info = client.say(&format!("LOCK.INFO {key}"));
        assert_eq!((info.field("owner"), info.field("holds")), (text("me"), int(holds)), "{key}");
    }
    assert_eq!(client.say("LOCK.RELEASE shared you"), int(0));
    assert_eq!(client.say("LOCK.RELEASE fresh me"), int(0));
    let token = client.say("LOCK.INFO alone").field("token").as_int();
    assert_eq!(client.say(&format!("LOCK.RELEASE alone me TOKEN {token}")), int(0));
    assert_eq!(client.say("LOCK.RELEASE noted me LEVEL 2"), int(1));
    assert_eq!(client.say("LOCK.RELEASE noted me"), null());
    assert_eq!(client.say("LOCK.RELEASE noted me LEVEL 1"), int(0));
    assert_eq!(client.say("LOCK.RELEASE shared me LEVEL 1"), int(0));
    assert_eq!(client.say("EXISTS alone noted shared fresh"), int(0));
}

#[test]
fn outlives_a_restart_from_the_aof() {
    for preamble in [None, Some("yes"), Some("no")] {
        let setup = Setup::new().aof();
        let mut server = match preamble {
            Some(preamble) => setup.option("aof-use-rdb-preamble", preamble).start(),
            None => setup.start(),
        };
        let mut client = server.client();
        fill(&mut client);
        if preamble.is_some() {
            wait_until("the rewrite starts", || {
                !matches!(client.say("BGREWRITEAOF"), Reply::Error(_))
                    || client.info_field("aof_rewrite_in_progress") == 1
            });
            wait_until("the rewrite ends", || {
                client.info_field("aof_rewrite_in_progress") == 0 && client.info_field("aof_rewrite_scheduled") == 0
            });
        }
        server.kill();
        server.start_again();
        assert_adopted(&mut server.client());
    }
}

#[test]
fn outlives_a_restart_from_a_snapshot() {
    let mut server = Setup::new().option("save", "3600 1").start();
    fill(&mut server.client());
    server.shutdown("SAVE");
    server.start_again();
    let mut client = server.client();
    assert!(client.say("LOCK.EXTEND alone me 60000").as_int() > 0, "it is proven to be what it was");
    assert_adopted(&mut client);
}

#[test]
fn reaches_a_replica_by_the_stream_and_by_full_synchronisation() {
    let (streaming, replica) = pair();
    fill(&mut streaming.client());
    let full = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    fill(&mut full.client());
    let late = Setup::new().replication().start();
    follow(&late, &full);
    for (server, copy) in [(streaming, replica), (full, late)] {
        let (mut master, mut client) = (server.client(), copy.client());
        in_step(&mut master);
        assert_eq!(master.say("DEBUG DIGEST"), client.say("DEBUG DIGEST"));
        client.say("REPLICAOF NO ONE");
        copy.lift();
        assert_adopted(&mut client);
    }
}

#[test]
fn stays_with_a_lock_that_moves_or_changes() {
    let server = Setup::new().start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    assert_eq!(client.say("LOCK.REENTER k me LEVEL 1 ADOPT"), int(1));
    assert_eq!(client.say("LOCK.REENTER k me LEVEL 1 adopt"), int(1), "again, as if the answer was lost");
    for change in [
        "LOCK.EXTEND k me 60000",
        "LOCK.NOTE k me later",
        "LOCK.CONVERT k me SHARED",
        "LOCK.CONVERT k me EXCLUSIVE",
        "LOCK.REENTER k me LEVEL 1",
        &format!("LOCK.FENCE k me {}", token + 1_000),
        "RENAME k other",
        "RENAME other k",
        "MOVE k 3",
    ] {
        assert!(!matches!(client.say(change), Reply::Error(_)), "{change}");
        if change.starts_with("MOVE") {
            client.say("SELECT 3");
        }
        let key = if change == "RENAME k other" { "other" } else { "k" };
        assert_eq!(client.say(&format!("LOCK.RELEASE {key} me")), null(), "{change}");
        assert_eq!(client.say(&format!("LOCK.INFO {key}")).field("holds"), int(1), "{change}");
    }
    // A grant from a client's payload is suspect, but still adopted.
    let dump = client.say("DUMP k");
    assert_eq!(client.send(&[b"RESTORE", b"copy", b"0", dump.as_bytes()]), text("OK"));
    assert_eq!(client.say("LOCK.RELEASE copy me"), null());
    assert!(error(client.say("LOCK.REENTER copy me LEVEL 1 ADOPT")).starts_with("GUARDED "));
    assert_eq!(client.say("LOCK.RELEASE copy me LEVEL 1"), int(0));
    // The next grant to the same owner is a new one.
    assert_eq!(client.say("LOCK.RELEASE k me LEVEL 1"), int(0));
    assert!(client.say("LOCK.ACQUIRE k me 60000").as_int() > 0);
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
}
