//! Locks with several holders on a replica, and locks whose leases end while the server is down.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{
    Client, Frozen, Reply, Setup, error, follow, grants, has_heard, in_step, int, null, owners, pair, permits, seed,
    text, token, wait_until,
};
use crate::persistence::{assert_same, fill, picture};

/// A lease long enough for a hundred commands, in milliseconds.
const SHORT_MS: u64 = 1_000;

/// Some leases end while the server is down. After the restart only these are over; the others still hold.
#[test]
fn leases_that_end_while_the_server_is_down_are_over() {
    for setup in [Setup::new().aof(), Setup::new().option("save", "3600 1")] {
        let mut server = setup.start();
        let mut client = server.client();
        let ttl = |n| if n % 10 == 0 { 60_000 } else { SHORT_MS };
        client.pipeline(&(0..100).map(|n| format!("LOCK.ACQUIRE k o{n} {} LIMIT 200", ttl(n))).collect::<Vec<_>>());
        // No grant is removed before the server ends.
        client.say("CLIENT PAUSE 100000 WRITE");
        assert_eq!(server.info("expiries"), 0);
        let paused = Instant::now();
        drop(client);
        server.shutdown("");
        wait_until("short leases end", || paused.elapsed() > Duration::from_millis(SHORT_MS));
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.say("LOCK.INFO k").field("holders"), int(10));
        assert_eq!(client.say("LOCK.EXTEND k o1 1000"), null());
        assert!(client.insist("LOCK.EXTEND k o10 60000").as_int() > 0);
        wait_until("they are taken out in the background", || server.info("expiries") == 90);
        let left: Vec<_> = (0..100).step_by(10).map(|n| (format!("o{n}"), n + 1)).collect();
        assert_eq!(permits(&mut client, "k"), left);
    }
}

#[test]
fn a_replica_holds_the_same_by_stream_and_by_full_synchronisation() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let mut me = master.client();
    fill(&mut me);
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    assert_same(&picture(&mut me), &mut replica.client());
    assert_eq!((replica.info("held"), replica.info("deadlines")), (14, 14));
    me.say("FLUSHALL");
    me.lift();
    fill(&mut me);
    in_step(&mut me);
    assert_same(&picture(&mut me), &mut replica.client());
    assert_eq!((replica.info("held"), replica.info("deadlines")), (14, 14));
    for line in ["LOCK.ACQUIRE read z 1000 SHARED", "LOCK.CONVERT alone a EXCLUSIVE", "LOCK.BREAK read TOKEN 5"] {
        assert!(error(replica.client().say(line)).starts_with("READONLY"), "{line}");
    }
}

/// Only the master ends leases; it does so one by one, so the replica receives each end.
#[test]
fn the_end_of_one_of_several_reaches_the_replica() {
    let (master, replica) = pair();
    let mut me = master.client();
    me.say("LOCK.ACQUIRE k a 60000 SHARED");
    for n in 0..150 {
        me.say(&format!("LOCK.ACQUIRE k r{n} {} SHARED", 50 + n));
    }
    wait_until("all but one end", || master.info("expiries") == 150);
    // WAIT covers this client's write, and so everything before it.
    me.say("SET after all");
    in_step(&mut me);
    assert_eq!(me.say("DEBUG DIGEST"), replica.client().say("DEBUG DIGEST"));
    assert_eq!((owners(&mut replica.client(), "k"), replica.info("expiries")), (vec!["a".to_owned()], 0));
}

/// The master may have granted locks, in any mode, that never reached the replica. So the replica is guarded when it is
/// promoted, and knows the holders that did reach it.
#[test]
fn a_promoted_replica_knows_the_holders_and_is_guarded() {
    let (mut master, replica) = pair();
    let (mut me, mut copy) = (master.client(), replica.client());
    let a = token(&me.say("LOCK.ACQUIRE k a 60000 LIMIT 3"));
    let b = token(&me.say("LOCK.ACQUIRE k b 60000 LIMIT 3"));
    me.say("LOCK.ACQUIRE r x 60000 SHARED");
    in_step(&mut me);
    has_heard(&replica);
    let frozen = Frozen::new(&replica);
    let never_heard = token(&me.say("LOCK.ACQUIRE k c 60000 LIMIT 3"));
    master.kill();
    drop(frozen);
    copy.say("REPLICAOF NO ONE");
    for line in [
        "LOCK.ACQUIRE k d 1000 LIMIT 3",
        "LOCK.ACQUIRE r y 1000 SHARED",
        "LOCK.ACQUIRE other d 1000 SHARED",
        "LOCK.WAIT k d 1000 LIMIT 3",
        "LOCK.CONVERT r x EXCLUSIVE",
        "LOCK.EXTEND k a 60000",
    ] {
        assert!(error(copy.say(line)).starts_with("GUARDED "), "{line}");
    }
    assert!(permits(&mut copy, "k").starts_with(&[("a".to_owned(), 1), ("b".to_owned(), 2)]));
    assert_eq!(copy.say("LOCK.RELEASE k a"), int(0), "each can be released");
    replica.lift();
    let newer = copy.insist("LOCK.ACQUIRE k d 1000 LIMIT 3 PERMIT 1").as_list();
    assert!(newer[0].as_int() > a.max(b).max(never_heard), "also above what it never heard of");
}

/// Runs random joins, extensions, releases, conversions, breaks and ends of leases.
fn storm(client: &mut Client, random: &mut StdRng, commands: usize) {
    let mut tokens = vec![1];
    for batch in 0..commands / 100 {
        let lines: Vec<_> = (0..100)
            .map(|_| {
                let key = random.random_range(0..4);
                let owner = random.random_range(0..7);
                let ttl = [1, 5, 20, 60_000][random.random_range(0..4)];
                let mode =
                    ["", " SHARED", " SHARED", " LIMIT 3", " LIMIT 5", " LIMIT 5 PERMIT 4"][random.random_range(0..6)];
                match random.random_range(0..20) {
                    0..9 => format!("LOCK.ACQUIRE k{key} o{owner} {ttl}{mode}"),
                    9 => format!("LOCK.ACQUIRE k{key} o{owner} {ttl}{mode} RETRY"),
                    10..13 => format!("LOCK.RELEASE k{key} o{owner}"),
                    13..15 => format!("LOCK.EXTEND k{key} o{owner} {ttl}"),
                    15 => format!("LOCK.REENTER k{key} o{owner}"),
                    16 => format!("LOCK.CONVERT k{key} o{owner} SHARED"),
                    17 => format!("LOCK.CONVERT k{key} o{owner} EXCLUSIVE"),
                    18 => format!("LOCK.BREAK k{key} TOKEN {}", tokens[random.random_range(0..tokens.len())]),
                    _ if batch % 2 == 0 => format!("LOCK.BREAK k{key}"),
                    _ if batch % 10 == 9 => format!("RENAME k{key} k{}", random.random_range(0..4)),
                    _ => format!("LOCK.EXTEND k{key} o{owner} 60000 NOTE x"),
                }
            })
            .collect();
        for reply in client.pipeline(&lines) {
            match reply {
                Reply::List(list) => tokens.push(list[0].as_int()),
                Reply::Int(value) if value > 1_000_000 => tokens.push(value),
                _ => {}
            }
        }
        let from = tokens.len().saturating_sub(40);
        tokens.drain(..from);
    }
}

/// The keys of the random commands, and one more.
const ALL: [&str; 5] = ["k0", "k1", "k2", "k3", "many"];

#[test]
fn a_storm_leaves_master_replica_and_files_with_the_same() {
    let mut random = StdRng::seed_from_u64(seed());
    let mut master = Setup::new().aof().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    let mut me = master.client();
    storm(&mut me, &mut random, 30_000);
    for n in 0..3 {
        me.say(&format!("LOCK.ACQUIRE many o{n} 60000 LIMIT 5"));
    }
    let counts = ["grants", "shared_grants", "permit_grants", "conversions", "breaks", "releases", "expiries"];
    let counts = counts.map(|name| (name, master.info(name)));
    assert!(counts.iter().all(|(_, count)| *count > 5), "it is a storm: {counts:?}");
    wait_until("short leases end", || {
        let short = |client: &mut Client, key: usize| {
            grants(client, &format!("k{key}")).iter().any(|grant| grant.field("ttl").as_int() < 1_000)
        };
        (0..4).all(|key| !short(&mut me, key))
    });
    // Waits until ended leases are out of memory, too.
    wait_until("nothing is due", || {
        let before = master.info("expiries");
        me.say("SET after all");
        in_step(&mut me);
        let live = ALL.iter().filter(|key| !grants(&mut me, key).is_empty()).count() as u64;
        before == master.info("expiries")
            && master.info("held") == live
            && me.say("DEBUG DIGEST") == replica.client().say("DEBUG DIGEST")
    });
    let locks = (master.info("held"), master.info("deadlines"));
    assert_eq!((replica.info("held"), replica.info("deadlines")), locks);
    assert_eq!((replica.info("expiries"), replica.info("poisoned"), master.info("poisoned")), (0, 0, 0));
    let digest = me.say("DEBUG DIGEST");
    let listed = |client: &mut Client| ALL.map(|key| permits(client, key));
    assert_eq!(listed(&mut replica.client()), listed(&mut me));
    drop(me);
    master.kill();
    master.start_again();
    let mut me = master.client();
    assert_eq!(me.say("DEBUG DIGEST"), digest);
    assert_eq!((master.info("held"), master.info("deadlines")), locks);
    assert_eq!(me.say("LOCK.NODE").field("state"), text("serving"), "it proves that it remembers every grant");
}
