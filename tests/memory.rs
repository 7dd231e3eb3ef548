//! Full memory, and much memory that is freed at once.

use std::path::Path;

use crate::harness::{Reply, Server, Setup, error, int, wait_until};

#[test]
fn full_memory_refuses_acquire_and_nothing_else() {
    let server = Setup::new().aof().option("maxmemory-policy", "noeviction").start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    client.say("LOCK.ACQUIRE l me 60000");
    client.say("CONFIG SET maxmemory 1");
    assert!(error(client.say("LOCK.ACQUIRE other me 60000")).starts_with("OOM"));
    assert_eq!(client.say("LOCK.EXTEND k me 60000"), int(token));
    assert_eq!(client.say("LOCK.REENTER k me"), int(2));
    assert!(client.say(&format!("LOCK.CHECK k {token}")).as_int() > 0);
    assert_eq!(client.say("LOCK.RELEASE k me LEVEL 1"), int(0));
    assert!(client.say("LOCK.BREAK l").as_int() > 0);
    client.say("CONFIG SET maxmemory 0");
    assert!(client.say("LOCK.ACQUIRE k me 60000").as_int() > token);
}

/// Waiting requests take memory too: with the shipped configuration, further ones are refused with QUEUEFULL before the
/// server refuses them with OOM.
#[test]
fn the_shipped_configuration_has_room_for_all_who_may_wait() {
    const CROWD: u64 = 300;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis.conf");
    let server = Setup::bare().config(&file).start();
    let mut client = server.client();
    let mut get = |name: &str| {
        let value = client.say(&format!("CONFIG GET {name}")).field(name).as_text();
        value.parse::<u64>().unwrap()
    };
    let (bound, clients, waiters) = (get("maxmemory"), get("maxclients"), get("lock.max-waiters"));
    assert!(waiters + 100 <= clients, "who holds a lock gets through to release it");
    client.insist("LOCK.ACQUIRE k me 60000");
    let before = client.info_field("used_memory");
    let crowd: Vec<_> = (0..CROWD)
        .map(|n| {
            let mut one = server.client();
            one.ask(&format!("LOCK.ACQUIRE k an-owner-of-20-bytes{n} 60000 WAIT 60000"));
            one
        })
        .collect();
    wait_until("they wait", || client.info_field("lock_waiters") == CROWD);
    let each = (client.info_field("used_memory") - before) / CROWD;
    assert!(each > 10_000, "{each}: a connection takes more");
    assert!(before + waiters * each < bound / 4 * 3, "{waiters} of {each} bytes, and locks beside them, in {bound}");
    drop(crowd);
}

#[test]
fn an_evicted_lock_leaves_no_bookkeeping() {
    let server = Setup::new().option("maxmemory-policy", "allkeys-random").start();
    let mut client = server.client();
    for n in 0..2_000 {
        client.say(&format!("LOCK.ACQUIRE k{n} me 60000"));
    }
    let used = client.info_field("used_memory");
    client.say(&format!("CONFIG SET maxmemory {}", used - 100_000));
    wait_until("some are evicted", || {
        client.say("SET x 1");
        client.info_field("evicted_keys") > 0
    });
    client.say("CONFIG SET maxmemory 0");
    client.say("DEL x");
    let left = client.say("DBSIZE").as_int() as u64;
    assert!(left < 2_000);
    wait_until("bookkeeping is that of the rest", || (server.info("held"), server.info("deadlines")) == (left, left));
}

#[test]
fn a_hundred_thousand_locks_are_flushed_under_load() {
    for how in ["FLUSHALL ASYNC", "FLUSHALL SYNC"] {
        let server = Server::start();
        let mut client = server.client();
        for batch in 0..10 {
            let lines: Vec<_> = (0..10_000).map(|n| format!("LOCK.ACQUIRE k{} me 60000", batch * 10_000 + n)).collect();
            client.pipeline(&lines);
        }
        assert_eq!((server.info("held"), server.info("deadlines")), (100_000, 100_000));
        std::thread::scope(|scope| {
            for worker in 0..2 {
                let mut busy = server.client();
                scope.spawn(move || {
                    for n in 0..3_000 {
                        let key = n % 50;
                        // The lock is granted, held by the other client, or refused because the flush dropped live
                        // locks.
                        if let Reply::Error(text) = busy.say(&format!("LOCK.ACQUIRE b{key} w{worker} 60000")) {
                            assert!(text.starts_with("GUARDED "), "{text}");
                        }
                        busy.say(&format!("LOCK.RELEASE b{key} w{worker}"));
                    }
                });
            }
            client.say(how);
        });
        client.say("FLUSHALL");
        wait_until("nothing is left", || (server.info("held"), server.info("deadlines")) == (0, 0));
        assert_eq!(client.say("DBSIZE"), int(0));
        assert_eq!(server.info("poisoned"), 0);
    }
}

/// Each of 60 leases of one lock used to keep a copy of its key, even after the lock was deleted. The copy stayed for a
/// third of its ttl, which can be a day.
#[test]
fn leases_with_keepalive_share_the_key_of_their_lock_and_leave_none_of_it() {
    const KEY_BYTES: usize = 1_000_000;
    let server = Setup::new().module_arguments(&["max-ttl", "3600000"]).start();
    let mut client = server.client();
    let mut keep = |key: &[u8], owner: &str| {
        let words: [&[u8]; 7] =
            [b"LOCK.ACQUIRE", key, owner.as_bytes(), b"3600000", b"SHARED", b"KEEPALIVE", b"3600000"];
        assert!(client.send(&words).as_int() > 0);
    };
    let before = server.client().info_field("used_memory");
    let taken = || (server.client().info_field("used_memory") as usize).saturating_sub(before as usize);
    let key = vec![b'k'; KEY_BYTES];
    for n in 0..60 {
        keep(&key, &format!("o{n}"));
    }
    assert_eq!(server.info("keepalives"), 60);
    assert!(taken() < 10 * KEY_BYTES, "{} bytes", taken());
    server.client().send(&[b"DEL", &key]);
    for n in 0..60 {
        let key = [format!("{n}").as_bytes(), &key].concat();
        keep(&key, "me");
        server.client().send(&[b"DEL", &key]);
    }
    wait_until("the keys are forgotten", || taken() < 5 * KEY_BYTES);
}
