//! While there is no replica and no AOF, changes are not sent. A replica or an AOF that begins in the middle of many
//! changes misses none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use crate::harness::{Client, Server, Setup, follow, in_step, int, text, wait_until};

/// Runs `body` while clients change locks as fast as they can.
fn under_load(server: &Server, body: impl FnOnce()) {
    let done = AtomicBool::new(false);
    scope(|scope| {
        for worker in 0..3 {
            let (mut client, done) = (server.client(), &done);
            scope.spawn(move || {
                for n in 0_u64.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("{worker}-{}", n * 7 % 50);
                    client.say(&format!("LOCK.ACQUIRE {key} o{n} 60000"));
                    client.say(&format!("LOCK.REENTER {key} o{n}"));
                    // Every other lock stays, and is broken in the next round.
                    client.say(&format!("{} {key} o{n}", if n % 2 == 0 { "LOCK.RELEASE" } else { "LOCK.INFO" }));
                    client.say(&format!("LOCK.BREAK {}-{}", worker, (n + 25) * 7 % 50));
                }
            });
        }
        body();
        done.store(true, Ordering::Relaxed);
    });
}

/// Waits until the replica has everything that the master's clients have done.
fn all_in_step(master: &mut Client) {
    // WAIT covers the changes of its own client, so it writes something itself.
    master.say("SET all done");
    in_step(master);
}

/// Waits until the AOF that was just switched on is complete.
fn aof_stands(server: &Server) {
    let mut client = server.client();
    wait_until("the AOF has all", || {
        let info = client.say("INFO persistence").as_text();
        ["aof_enabled:1", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"].iter().all(|line| info.contains(line))
    });
}

fn nobody_listens(server: &Server) {
    wait_until("nobody listens", || server.info("propagates") == 0);
}

#[test]
fn a_replica_that_comes_in_a_storm_misses_nothing() {
    // (diskless, its delay in seconds)
    for (diskless, delay) in [("yes", "0"), ("yes", "1"), ("no", "0")] {
        let server = Setup::new()
            .replication()
            .option("repl-diskless-sync", diskless)
            .option("repl-diskless-sync-delay", delay)
            .option("repl-backlog-ttl", "1")
            .start();
        let replica = Setup::new().replication().start();
        let mut master = server.client();
        for round in 0..2 {
            nobody_listens(&server);
            under_load(&server, || {
                wait_until("there is something to miss", || server.info("held") > 10);
                follow(&replica, &server);
            });
            all_in_step(&mut master);
            assert_eq!(master.say("DEBUG DIGEST"), replica.client().say("DEBUG DIGEST"), "{diskless} {delay} {round}");
            assert_eq!(server.info("propagates"), 1);
            replica.client().say("REPLICAOF NO ONE");
        }
    }
}

#[test]
fn an_aof_switched_on_in_a_storm_misses_nothing() {
    let mut server = Setup::new().option("appendfsync", "always").start();
    nobody_listens(&server);
    under_load(&server, || {
        assert_eq!(server.client().say("CONFIG SET appendonly yes"), text("OK"));
        aof_stands(&server);
    });
    assert_eq!(server.info("propagates"), 1);
    let before = server.client().say("DEBUG DIGEST");
    server.kill();
    server.start_again_with(|setup| setup.option("appendonly", "yes"));
    assert_eq!(server.client().say("DEBUG DIGEST"), before);
}

#[test]
fn a_change_in_the_transaction_that_switches_the_aof_on_is_in_it() {
    let mut server = Setup::new().option("appendfsync", "always").start();
    nobody_listens(&server);
    let mut client = server.client();
    client.say("LOCK.ACQUIRE before me 60000");
    client.say("MULTI");
    client.say("CONFIG SET appendonly yes");
    client.say("LOCK.ACQUIRE within me 60000");
    client.say("LOCK.RELEASE before me");
    client.say("EXEC");
    aof_stands(&server);
    let before = client.say("DEBUG DIGEST");
    server.kill();
    server.start_again_with(|setup| setup.option("appendonly", "yes"));
    assert_eq!(server.client().say("DEBUG DIGEST"), before);
    assert_eq!(server.client().say("LOCK.INFO within").field("owner"), text("me"));
}

#[test]
fn a_replica_that_goes_on_from_the_backlog_misses_nothing() {
    let server = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &server);
    // The replica's link breaks, and the replica resumes from the backlog without a copy of the data.
    let mut master = server.client();
    master.say("CLIENT KILL TYPE replica");
    under_load(&server, || {
        wait_until("it is back", || master.say("INFO replication").as_text().contains("state=online"));
    });
    all_in_step(&mut master);
    assert_eq!(master.say("DEBUG DIGEST"), replica.client().say("DEBUG DIGEST"));
    assert!(master.say("INFO stats").as_text().contains("sync_partial_ok:1"));
}

#[test]
fn a_replica_of_the_old_master_that_follows_the_new_one_misses_nothing() {
    let server = Setup::new()
        .replication()
        .option("repl-diskless-sync-delay", "0")
        .option("repl-ping-replica-period", "3600")
        .start();
    let [new_master, other] = [(); 2].map(|()| Setup::new().replication().start());
    nobody_listens(&new_master);
    follow(&new_master, &server);
    other.client().say(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    let mut master = server.client();
    // From here on the master sends nothing more, because a replica that is ahead of the new master could not follow
    // it.
    let both_follow = |master: &mut Client| {
        master.say("SET all done");
        master.say("WAIT 2 1000") == int(2)
    };
    wait_until("both follow", || both_follow(&mut master));
    master.say("CLIENT PAUSE 600000 WRITE");
    wait_until("both are at the same place", || master.say("WAIT 2 1000") == int(2));
    new_master.client().say("REPLICAOF NO ONE");
    new_master.lift();
    // Changes from before the other replica connects are in the backlog that the new master kept as a replica.
    let mut client = new_master.client();
    for n in 0..100 {
        client.say(&format!("LOCK.ACQUIRE k{n} me 60000"));
    }
    follow(&other, &new_master);
    all_in_step(&mut client);
    assert!(client.say("INFO stats").as_text().contains("sync_partial_ok:1"), "it went on from the backlog");
    assert_eq!(client.say("DEBUG DIGEST"), other.client().say("DEBUG DIGEST"));
}

#[test]
fn changes_that_nobody_hears_count_towards_the_next_snapshot() {
    let server = Server::start();
    nobody_listens(&server);
    let mut client = server.client();
    let mut dirty = || client.info_field("rdb_changes_since_last_save");
    let before = dirty();
    assert!(server.client().say("LOCK.ACQUIRE k me 60000").as_int() > 0);
    assert_eq!(dirty(), before + 1);
    assert_eq!(server.client().say("LOCK.RELEASE k me"), int(0));
    assert_eq!(dirty(), before + 2);
}
