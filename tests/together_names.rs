//! Locks with several holders, and the server's own commands for keys: RENAME, MOVE, SWAPDB, COPY, DEL, EXPIRE,
//! flushes, evictions.

use crate::harness::{
    Client, Server, Setup, error, guarded_ms, int, null, owners, past_its_first_tokens, text, token, wait_until, waits,
};

/// Makes two readers hold `k`, b for longer than a. Returns their tokens.
fn read_by_two(me: &mut Client) -> (i64, i64) {
    let a = me.insist("LOCK.ACQUIRE k a 40000 SHARED NOTE n").as_int();
    (a, me.say("LOCK.ACQUIRE k b 60000 SHARED").as_int())
}

#[test]
fn all_grants_go_along() {
    let server = Server::start();
    let mut me = server.client();
    let (a, b) = read_by_two(&mut me);
    assert!(matches!(me.say("COPY k copy"), crate::harness::Reply::Error(_) | crate::harness::Reply::Int(0)));
    assert_eq!(me.say("EXISTS copy"), int(0));
    assert_eq!(me.say("RENAME k m"), text("OK"));
    assert_eq!(me.say("MOVE m 3"), int(1));
    me.say("SELECT 3");
    assert_eq!(me.say("SWAPDB 3 4"), text("OK"));
    me.say("SELECT 4");
    assert_eq!(owners(&mut me, "m"), ["a", "b"]);
    // A swap that left a database without its locks armed the guard.
    server.lift();
    assert_eq!((me.say("LOCK.EXTEND m a 60000"), me.say("LOCK.EXTEND m b 60000")), (int(a), int(b)));
    assert_eq!(me.say("LOCK.ACQUIRE m w 1000"), null());
    assert_eq!((server.info("held"), server.info("deadlines")), (1, 1));
    assert_eq!((me.say("LOCK.RELEASE m a"), me.say("LOCK.RELEASE m b")), (int(0), int(0)));
    assert_eq!((server.info("held"), server.info("deadlines")), (0, 0));
}

/// A new token must be above all earlier ones of the key's name, also if the lock came from another name with smaller
/// ones.
#[test]
fn tokens_are_above_those_of_the_name_that_a_lock_comes_to() {
    type Moves = [&'static str];
    let cases: [(&str, &Moves); 3] = [("m", &["RENAME k m"]), ("k", &["MOVE k 1", "SELECT 1"]), ("k", &["SWAPDB 0 1"])];
    for (name, moves) in cases {
        for mode in ["SHARED", "LIMIT 3 PERMIT 2"] {
            let server = past_its_first_tokens();
            let mut me = server.client();
            token(&me.say(&format!("LOCK.ACQUIRE k a 60000 {}", mode.replace('2', "1"))));
            // A writer then takes the lock of the other name, or of the same name in the other database.
            let elsewhere = match moves[0] {
                "RENAME k m" => 0,
                _ => 1,
            };
            let mut there = server.client();
            there.say(&format!("SELECT {elsewhere}"));
            let written = there.say(&format!("LOCK.ACQUIRE {name} w 60000")).as_int();
            there.say(&format!("LOCK.RELEASE {name} w"));
            for line in moves {
                let reply = me.say(line);
                assert!(reply == text("OK") || reply == int(1), "{line}: {reply:?}");
            }
            let mut me = if moves[0].starts_with("SWAPDB") {
                server.lift();
                there
            } else {
                me
            };
            assert_eq!(owners(&mut me, name), ["a"], "{moves:?}");
            let joined = token(&me.insist(&format!("LOCK.ACQUIRE {name} b 60000 {mode} FENCE {written}")));
            assert!(joined > written, "{moves:?}, {mode}: {joined} after {written}");
        }
    }
}

/// The queue of a name is served when a lock that a waiter may join gets that name.
#[test]
fn a_queue_stays_with_its_name() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k w 60000");
    let (_, mut reader) =
        (read_by_two_as(&mut me, "other"), waits(&server, "LOCK.ACQUIRE k c 60000 SHARED WAIT 60000").0);
    let mut writer = waits(&server, "LOCK.ACQUIRE k x 60000 WAIT 60000").0;
    me.say("RENAME other k");
    assert!(token(&reader.hear()) > 0);
    assert_eq!(owners(&mut me, "k"), ["a", "b", "c"]);
    assert_eq!(server.info("waiters"), 1);
    // When the lock leaves, the name is free for the next waiter.
    me.say("RENAME k other");
    assert!(token(&writer.hear()) > 0);
}

fn read_by_two_as(me: &mut Client, key: &str) -> i64 {
    me.say(&format!("LOCK.ACQUIRE {key} a 60000 SHARED"));
    me.say(&format!("LOCK.ACQUIRE {key} b 60000 SHARED")).as_int()
}

#[test]
fn whoever_deletes_or_overwrites_the_key_ends_all_grants() {
    for line in ["DEL k", "UNLINK k", "SET k v", "PEXPIRE k 1"] {
        let server = Server::start();
        let mut me = server.client();
        let (a, b) = read_by_two(&mut me);
        me.say(line);
        wait_until(line, || (server.info("held"), server.info("deadlines")) == (0, 0));
        me.say("DEL k");
        assert_eq!((me.say("LOCK.EXTEND k a 1000"), me.say("LOCK.EXTEND k b 1000")), (null(), null()), "{line}");
        assert!(me.say("LOCK.ACQUIRE k w 1000").as_int() > a.max(b), "{line}");
    }
}

/// The guard lasts as long as the last of the leases, and every holder may still rely on its own lease.
#[test]
fn a_flush_is_guarded_until_the_last_lease_would_have_ended() {
    for line in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1"] {
        let mut server = Setup::new().aof().start();
        let mut me = server.client();
        read_by_two(&mut me);
        // Owners that released before do not count.
        me.say("LOCK.ACQUIRE long c 60000 SHARED");
        me.say("LOCK.ACQUIRE long d 10000 SHARED");
        me.say("LOCK.RELEASE long c");
        me.say("LOCK.RELEASE k b");
        me.say(line);
        let left = guarded_ms(me.say("LOCK.ACQUIRE k c 1000 SHARED"));
        assert!((20_000..=40_000).contains(&left), "{line}: {left}");
        drop(me);
        server.kill();
        server.start_again();
        assert!(guarded_ms(server.client().say("LOCK.ACQUIRE k c 1000")) <= left, "{line}");
    }
}

/// The lock comes back with all its grants. It is unknown which of them were dropped before the reload, so the node is
/// guarded.
#[test]
fn a_reload_keeps_all_grants() {
    let server = Server::start();
    let mut me = server.client();
    let (a, b) = read_by_two(&mut me);
    me.say("LOCK.ACQUIRE jobs c 60000 LIMIT 9 PERMIT 7");
    let before = me.say("DEBUG DIGEST");
    assert_eq!(me.say("DEBUG RELOAD"), text("OK"));
    assert_eq!(me.say("DEBUG DIGEST"), before);
    assert!(me.say("LOCK.ACQUIRE other d 1000").is_error("GUARDED"), "docs/guard.md says so");
    assert_eq!(
        (owners(&mut me, "k"), owners(&mut me, "jobs")),
        (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()])
    );
    server.lift();
    assert_eq!((me.say("LOCK.RELEASE k a"), me.say("LOCK.RELEASE k b")), (int(0), int(0)));
    assert!(me.insist("LOCK.ACQUIRE k w 1000").as_int() > a.max(b));
    wait_until("bookkeeping is that of what is there", || (server.info("held"), server.info("deadlines")) == (2, 2));
}

/// After an eviction, none of several holders may take the lock again alone, because the others may still rely on it.
#[test]
fn an_evicted_lock_bars_its_key_for_all_of_its_holders() {
    let server = Setup::new().option("maxmemory-policy", "allkeys-lru").start();
    let mut me = server.client();
    for n in 0..300 {
        me.say(&format!("LOCK.ACQUIRE k{n} a 40000 SHARED"));
        me.say(&format!("LOCK.ACQUIRE k{n} b 60000 SHARED"));
    }
    let used = me.info_field("used_memory");
    me.say(&format!("CONFIG SET maxmemory {}", used - 30_000));
    me.say("SET x 1");
    me.say("CONFIG SET maxmemory 0");
    assert!(server.info("evicted") > 0);
    let evicted = (0..300).find(|n| me.say(&format!("EXISTS k{n}")) == int(0)).expect("one is evicted");
    for line in [format!("k{evicted} c 1000 SHARED"), format!("k{evicted} a 1000 SHARED"), format!("k{evicted} b 1000")]
    {
        let left = guarded_ms(me.say(&format!("LOCK.ACQUIRE {line}")));
        assert!((40_001..=60_000).contains(&left), "{line}: as long as the last of them: {left}");
    }
    assert_eq!(me.say(&format!("LOCK.EXTEND k{evicted} b 1000")), null());
}

/// Nothing is written while writes are paused, and no client gets a lock that another may still have on a replica.
#[test]
fn paused_writes_delay_the_end_of_grants_and_nothing_else() {
    let server = Setup::new().aof().start();
    let mut me = server.client();
    for n in 0..200 {
        me.say(&format!("LOCK.ACQUIRE k o{n} {} LIMIT 201", 3_000 + n % 50));
    }
    assert!(token(&me.say("LOCK.ACQUIRE k last 60000 LIMIT 201")) > 0);
    let mut waiter = waits(&server, "LOCK.ACQUIRE k w 60000 LIMIT 201 WAIT 60000 PERMIT 1").0;
    me.say("CLIENT PAUSE 100000 WRITE");
    wait_until("every lease but one ends", || me.say("LOCK.INFO k").field("holders") == int(1));
    assert_eq!(me.say("LOCK.INFO k").field("owner"), text("last"));
    let up = |me: &mut Client| me.info_field("uptime_in_seconds");
    let before = up(&mut me);
    wait_until("some time passes", || up(&mut me) >= before + 2);
    assert_eq!(server.info("waiters"), 1, "nobody is granted anything while writes are paused");
    me.say("CLIENT UNPAUSE");
    assert!(token(&waiter.hear()) > 0);
    assert_eq!(owners(&mut me, "k"), ["last", "w"]);
    wait_until("all are taken out", || server.info("expiries") == 200);
    assert!(error(me.say("LOCK.ACQUIRE k w 1000 LIMIT 201")).starts_with("OWNED"));
}
