//! The guard of a node that is new, of one whose locks were dropped or evicted, and of one that an operator guards.

use crate::harness::{
    Reply, SHORT, Server, Setup, StateFolder, assert_remembers, guarded_ms, held, int, null, read, state_file, text,
    wait_until,
};

#[test]
fn a_new_node_is_guarded_until_every_lease_of_an_unknown_past_has_ended() {
    let server = Setup::new().module_arguments(&SHORT).guarded().start();
    let mut client = server.client();
    let first = guarded_ms(client.say("LOCK.ACQUIRE k me 300"));
    assert!((1..=403).contains(&first), "{first}");
    let node = client.say("LOCK.NODE");
    assert_eq!((node.field("state"), node.field("guard_reason")), (text("guarded"), text("restart")));
    wait_until("the time falls", || match client.say("LOCK.ACQUIRE k me 300") {
        Reply::Error(text) => guarded_ms(Reply::Error(text)) < first,
        _ => true,
    });
    assert!(client.outlast_guard("LOCK.ACQUIRE k me 300").as_int() > 0);
    assert_eq!((client.say("LOCK.GUARD"), client.say("LOCK.NODE").field("state")), (int(0), text("serving")));
}

#[test]
fn lift_and_arm_are_the_operators_word() {
    let mut server = Setup::new().guarded().start();
    let mut client = server.client();
    assert!(client.say("LOCK.GUARD").as_int() > 60_000);
    client.lift();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    let armed = client.say("LOCK.GUARD arm 50000").as_int();
    assert!((49_000..=50_000).contains(&armed));
    // The node cannot vouch for earlier grants, so they can only be read, released and broken.
    for line in [
        "LOCK.ACQUIRE other me 1000".to_owned(),
        "LOCK.ACQUIRE k me 1000 RETRY".to_owned(),
        "LOCK.EXTEND k me 1000".to_owned(),
        "LOCK.REENTER k me".to_owned(),
        format!("LOCK.CHECK k {token}"),
        format!("LOCK.FENCE k me {}", token + 1),
    ] {
        assert!(guarded_ms(client.say(&line)) > 40_000, "{line}");
    }
    assert_eq!(client.say("LOCK.NODE").field("guard_reason"), text("operator"));
    assert_eq!(client.say("LOCK.INFO k").field("owner"), text("me"));
    // A shorter guard does not end a longer one, which outlives a clean restart.
    assert!(client.say("LOCK.GUARD ARM 5").as_int() > 40_000);
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    wait_until("it is on the disk", || read(state_file(&server)).contains("\nguard operator "));
    drop(client);
    server.shutdown("");
    server.start_again();
    let mut client = server.client();
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k me 1000")) > 30_000);
    client.lift();
    assert!(client.insist("LOCK.ACQUIRE k me 1000").as_int() > token);
}

#[test]
fn flushing_live_locks_is_guarded_until_the_last_of_them_would_have_ended() {
    for line in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1"] {
        let mut server = Setup::new().aof().start();
        let mut client = server.client();
        client.insist("LOCK.ACQUIRE gone me 60000");
        client.say("LOCK.RELEASE gone me");
        client.say("LOCK.ACQUIRE k me 40000");
        client.say(line);
        let left = guarded_ms(client.say("LOCK.ACQUIRE k you 1000"));
        assert!(left <= 40_000, "{line}: {left}, the released lock counts for nothing");
        assert_eq!(client.say("LOCK.NODE").field("guard_reason"), text("flush"), "{line}");
        // The guard survives a crash, though the AOF proves everything else.
        drop(client);
        server.kill();
        server.start_again();
        assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000")) <= left, "{line}");
    }
    let server = Server::start();
    let mut client = server.client();
    client.insist("LOCK.ACQUIRE k me 200");
    client.say("FLUSHALL");
    assert!(client.outlast_guard("LOCK.ACQUIRE k you 1000").as_int() > 0, "it ends with the last lease");
    client.say("LOCK.RELEASE k you");
    // Without live locks, nothing has to be guarded.
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "DEBUG RELOAD"] {
        client.say(line);
        assert!(client.insist("LOCK.ACQUIRE k me 60000").as_int() > 0, "{line}");
        client.say("LOCK.RELEASE k me");
    }
}

/// A node is guarded for a flush that only the AOF contains. The end of loading used to mistake this guard for that of
/// a reload, and to undo it.
#[test]
fn a_flush_that_only_the_aof_knows_of_is_guarded() {
    let folder = StateFolder::new();
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let mut server = folder.setup().aof().start();
        let mut client = server.client();
        client.insist("LOCK.ACQUIRE k me 60000");
        // From here on, the state file cannot change.
        folder.take_away();
        client.say(line);
        assert!(guarded_ms(client.say("LOCK.ACQUIRE k you 1000")) > 30_000, "{line}");
        drop(client);
        server.kill();
        folder.bring_back();
        server.start_again();
        assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000")) > 30_000, "{line}");
    }
}

#[test]
fn a_reload_drops_nothing() {
    let (server, token) = held(Setup::new());
    assert_eq!(server.client().say("DEBUG RELOAD"), text("OK"));
    assert_remembers(&server, token);
}

#[test]
fn an_evicted_lock_bars_its_key_from_others() {
    let server = Setup::new().option("maxmemory-policy", "allkeys-lru").start();
    assert!(server.log().contains("maxmemory-policy lets the server evict keys"));
    let mut client = server.client();
    for n in 0..500 {
        client.say(&format!("LOCK.ACQUIRE k{n} me 60000"));
    }
    let used = client.info_field("used_memory");
    client.say(&format!("CONFIG SET maxmemory {}", used - 30_000));
    client.say("SET x 1");
    client.say("CONFIG SET maxmemory 0");
    client.say("DEL x");
    assert!(server.info("evicted") > 0);
    let evicted = (0..500).find(|n| client.say(&format!("EXISTS k{n}")) == int(0)).expect("one is evicted");
    assert!(guarded_ms(client.say(&format!("LOCK.ACQUIRE k{evicted} you 1000"))) > 30_000);
    assert!(client.insist("LOCK.ACQUIRE other you 1000").as_int() > 0, "that key alone");
    assert_eq!(client.say(&format!("LOCK.EXTEND k{evicted} me 1000")), null(), "its holder is told the truth");
    assert!(client.say(&format!("LOCK.ACQUIRE k{evicted} me 1")).as_int() > 0, "and may have it again");
    wait_until("that lease ends", || client.say(&format!("EXISTS k{evicted}")) == int(0));
    assert!(guarded_ms(client.say(&format!("LOCK.ACQUIRE k{evicted} you 1000"))) > 30_000, "the first one lasts");
    client.insist(&format!("LOCK.ACQUIRE k{evicted} me 60000"));
    assert_eq!(client.say(&format!("LOCK.RELEASE k{evicted} me")), int(0));
    assert!(client.say(&format!("LOCK.ACQUIRE k{evicted} you 1000")).as_int() > 0, "its holder gave it up");
}

#[test]
fn an_armed_guard_is_on_the_disk_when_it_is_answered() {
    let (mut server, _) = held(Setup::new().aof());
    for _ in 0..3 {
        assert!(server.client().say("LOCK.GUARD ARM 50000").as_int() > 0);
        server.kill();
        server.start_again();
        assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k you 1000")) > 30_000);
        server.lift();
    }
}

/// The server reloads its data, but a lock is not in it: a flush came before, or the file is older than the lock. The
/// node is guarded. It used to take this for a reload that brings all locks back.
#[test]
fn a_reload_that_brings_nothing_back_is_guarded() {
    let (server, _) = held(Setup::new());
    let mut client = server.client();
    client.pipeline(&["FLUSHALL".to_owned(), "DEBUG RELOAD".to_owned()]);
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k you 1000")) > 30_000, "dropped before the reload");

    let server = Setup::new().start();
    let mut client = server.client();
    client.say("SAVE");
    client.insist("LOCK.ACQUIRE k me 60000");
    assert_eq!(client.say("DEBUG RELOAD NOSAVE"), text("OK"));
    assert!(guarded_ms(client.say("LOCK.ACQUIRE k you 1000")) > 30_000, "not in the file");
}

/// The eviction of an ordinary key keeps nobody out. It used to be attributed to a lock that had been released before.
#[test]
fn an_evicted_key_that_is_no_lock_bars_nothing() {
    let server = Setup::new().option("maxmemory-policy", "allkeys-lru").start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 60000");
    client.say("LOCK.RELEASE k me");
    for n in 0..500 {
        client.say(&format!("SET s{n} xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
    }
    let used = client.info_field("used_memory");
    client.say(&format!("CONFIG SET maxmemory {}", used - 20_000));
    wait_until("some are evicted", || {
        client.say("SET x 1");
        client.info_field("evicted_keys") > 0
    });
    assert_eq!(server.info("evicted"), 0);
}

/// A flush of one database leaves the locks in others. The node is still sure of them, so they can be extended.
#[test]
fn a_flush_of_one_database_costs_nobody_a_lock_in_another() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    client.say("SELECT 3");
    client.insist("LOCK.ACQUIRE dropped me 60000");
    client.say("FLUSHDB");
    assert!(guarded_ms(client.say("LOCK.ACQUIRE dropped you 1000")) > 1_000);
    client.say("SELECT 0");
    assert_eq!(client.say("LOCK.EXTEND k me 60000"), int(token));
    assert!(client.say(&format!("LOCK.CHECK k {token}")).as_int() > 1_000);
    assert_eq!(client.say("LOCK.REENTER k me"), int(2));
    assert_eq!(client.say("LOCK.ACQUIRE k me 60000 RETRY"), int(token));
    assert_eq!(client.say("LOCK.INFO k").field("suspect"), int(0));
    assert!(guarded_ms(client.say("LOCK.ACQUIRE other me 1000")) > 1_000, "nothing is granted");
}

/// A guard that an operator lifted after a flush stays lifted after a crash. The AOF contains the flush, and its replay
/// used to arm the guard again.
#[test]
fn a_guard_that_was_lifted_after_a_flush_stays_lifted_over_a_crash() {
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let mut server = Setup::new().aof().start();
        let mut client = server.client();
        client.insist("LOCK.ACQUIRE dropped me 60000");
        client.say(line);
        assert!(guarded_ms(client.say("LOCK.ACQUIRE k me 1000")) > 1_000, "{line}");
        server.lift();
        let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
        server.kill();
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.say("LOCK.NODE").field("state"), text("serving"), "{line}");
        assert_eq!(client.say("LOCK.EXTEND k me 60000"), int(token), "{line}");
        if line.starts_with("SWAPDB") {
            // Both databases have locks now, so the rest of this test does not apply.
            continue;
        }
        // After the next flush the node is guarded, also after a crash.
        client.say(line);
        server.kill();
        server.start_again();
        assert!(guarded_ms(server.client().say("LOCK.ACQUIRE other me 1000")) > 1_000, "{line}");
    }
}
