//! A promoted replica may not know its master's last grants.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, Frozen, SHORT, Server, Setup, error, follow, free_port, guarded_ms, in_step, int, null, read, state_file,
    text, wait_until,
};

#[test]
fn a_promoted_replica_is_guarded_for_the_longest_lease_its_master_granted() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    // The replica's own limit is far below its master's.
    let mut replica = Setup::new().aof().replication().module_arguments(&SHORT).start();
    let mut copy = replica.client();
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let token = master.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    wait_until("the lock is there", || copy.say("EXISTS k") == int(1));
    assert!(error(copy.say("LOCK.ACQUIRE other me 10")).starts_with("READONLY"));
    copy.say("REPLICAOF NO ONE");
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 10")) > 50_000);
    assert!(guarded_ms(copy.say("LOCK.EXTEND k me 10")) > 50_000);
    assert_eq!(copy.say("LOCK.NODE").field("guard_reason"), text("promotion"));
    replica.lift();
    assert_eq!(copy.say("LOCK.BREAK k"), int(token));
    let newer = copy.insist("LOCK.ACQUIRE k you 300").as_int();
    assert!(newer > token);
    // The AOF of this incarnation began as a replica's, so nothing proves that it is complete.
    drop(copy);
    replica.kill();
    replica.start_again();
    let mut copy = replica.client();
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k me 10")) > 0);
    replica.lift();
    let mut reply = null();
    wait_until("the lease of the loaded lock ends", || {
        reply = copy.say("LOCK.ACQUIRE k me 10");
        reply != null()
    });
    assert!(reply.as_int() > newer);
}

#[test]
fn a_promoted_replica_issues_no_token_that_its_master_may_have_issued() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().module_arguments(&SHORT).start();
    let mut copy = replica.client();
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let ceiling = |server: &Server| server.info("token_ceiling");
    let mut client = master.client();
    wait_until("the replica is known", || client.say("INFO replication").as_text().contains("connected_slaves:1"));
    let heard = ceiling(&master);
    wait_until("the replica has heard of the ceiling", || {
        copy.say("INFO commandstats").as_text().to_lowercase().contains("lock.ceiling")
    });
    let newest = client.insist("LOCK.ACQUIRE k me 1").as_int();
    assert!(newest as u64 <= heard);
    copy.say("REPLICAOF NO ONE");
    // No lease that the replica saw was long, but its master may have granted longer ones.
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE other you 1")) > 50_000);
    replica.lift();
    // The replica has never seen this key; the master may have granted it with tokens up to its ceiling.
    let token = copy.insist("LOCK.ACQUIRE other you 300").as_int();
    assert!(token as u64 > heard, "{token} is not above {heard}");
}

/// The old master is frozen, not dead: it grants nothing more, but its earlier grants count. The new master grants only
/// when these have ended.
#[test]
fn no_second_grant_after_a_fail_over_before_the_first_has_ended() {
    let setup = || Setup::new().replication().option("repl-diskless-sync-delay", "0").module_arguments(&SHORT);
    let (master, replica) = (setup().start(), setup().start());
    let (mut client, mut copy) = (master.client(), replica.client());
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the replica has heard of its master", || {
        copy.say("INFO commandstats").as_text().to_lowercase().contains("lock.ceiling")
    });
    for round in 0..5 {
        // Only the master has this grant; the replica does not receive it.
        let replica_frozen = Frozen::new(&replica);
        let sent = Instant::now();
        let token = client.insist(&format!("LOCK.ACQUIRE k{round} me 300")).as_int();
        let master_frozen = Frozen::new(&master);
        drop(replica_frozen);
        copy.say("REPLICAOF NO ONE");
        let newer = copy.outlast_guard(&format!("LOCK.ACQUIRE k{round} you 300")).as_int();
        assert!(sent.elapsed() >= Duration::from_millis(300), "granted after {:?}", sent.elapsed());
        assert!(newer > token, "{newer} after {token}");
        drop(master_frozen);
        copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        wait_until("it has heard of its master again", || replica.info("outstanding_ttl_ms") == 300);
    }
}

/// A replica that was shut down cleanly saved everything that it had, which proves nothing: its master may have granted
/// more since.
#[test]
fn a_replica_that_is_started_as_a_master_is_guarded() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let mut replica = Setup::new().replication().option("save", "3600 1").start();
    let mut copy = replica.client();
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    master.client().insist("LOCK.ACQUIRE k me 60000");
    wait_until("the lock is there", || copy.say("EXISTS k") == int(1));
    drop(copy);
    replica.shutdown("SAVE");
    master.client().insist("LOCK.ACQUIRE later me 60000");
    // The server became a replica by command, so it restarts as a master.
    replica.start_again();
    assert!(guarded_ms(replica.client().say("LOCK.ACQUIRE later you 1000")) > 30_000);
    assert!(guarded_ms(replica.client().say("LOCK.EXTEND k me 60000")) > 30_000);
}

/// A replica still knows after a restart what its master reported: its ceiling and its longest lease. The replica used
/// to keep that only in memory.
#[test]
fn what_a_replica_heard_outlives_its_restart() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let mut replica = Setup::new().replication().module_arguments(&SHORT).start();
    let mut client = master.client();
    // The master's ceiling is hours ahead of the clock.
    let token = client.insist("LOCK.ACQUIRE k me 60000").as_int();
    let ahead = token + 7_200_000_000;
    assert_eq!(client.insist(&format!("LOCK.FENCE k me {ahead}")), int(ahead));
    client.say("LOCK.RELEASE k me");
    replica.client().say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the replica has heard, and put it on the disk", || {
        read(state_file(&replica)).contains("owed-max-ttl-ms 60000")
    });
    replica.kill();
    replica.start_again();
    assert!(guarded_ms(replica.client().say("LOCK.ACQUIRE k you 100")) > 50_000);
    replica.lift();
    assert!(replica.client().insist("LOCK.ACQUIRE k you 100").as_int() > ahead);
}

/// Waits until a replica has received its master's data.
fn is_linked(replica: &mut Client) {
    wait_until("the replica has the data", || {
        replica.say("INFO replication").as_text().contains("master_link_status:up")
    });
}

/// A full synchronisation brings nothing about grants that have ended, and what the replica knew before is about an
/// earlier incarnation of its master. Once promoted, the replica still issues no token a second time.
#[test]
fn a_replica_that_is_in_step_after_a_full_sync_issues_no_token_again() {
    // The master's periodic message comes every 2 s, and must not be the one that informs the replica.
    let mut master = Setup::new().aof().replication().option("repl-diskless-sync-delay", "0").option("hz", "1").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    let mut client = master.client();
    let ahead = client.insist("LOCK.ACQUIRE k me 60000").as_int() + 864_000_000_000;
    assert_eq!(client.insist(&format!("LOCK.FENCE k me {ahead}")), int(ahead));
    client.say("LOCK.RELEASE k me");
    in_step(&mut client);
    let frozen = Frozen::new(&replica);
    master.kill();
    master.start_again();
    let mut client = master.client();
    let token = client.insist("LOCK.ACQUIRE k you 60000").as_int();
    client.say("LOCK.RELEASE k you");
    drop(frozen);
    let mut copy = replica.client();
    wait_until("the replica is known again", || {
        client.say("INFO replication").as_text().contains("connected_slaves:1")
    });
    is_linked(&mut copy);
    // A later write, so that the replica has received what its master sent after the fork.
    client.say("SET stream runs");
    in_step(&mut client);
    copy.say("REPLICAOF NO ONE");
    replica.lift();
    let newer = copy.insist("LOCK.ACQUIRE k they 60000").as_int();
    assert!(newer > token, "{newer} after {token}");
}

/// A replica's knowledge from before a full synchronisation is about an earlier incarnation of its master. So a
/// promotion right after the synchronisation is guarded for a day.
#[test]
fn a_replica_that_was_told_nothing_since_its_full_sync_assumes_the_worst() {
    const DAY_MS: u64 = 86_400_000;
    let mut master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let replica = Setup::new().replication().start();
    follow(&replica, &master);
    let frozen = Frozen::new(&replica);
    master.kill();
    master.start_again();
    // A master that may not write sends nothing.
    master.client().say("CLIENT PAUSE 60000 WRITE");
    drop(frozen);
    let mut copy = replica.client();
    wait_until("the replica is known again", || {
        master.client().say("INFO replication").as_text().contains("connected_slaves:1")
    });
    is_linked(&mut copy);
    copy.say("REPLICAOF NO ONE");
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 10")) > DAY_MS);
}

/// A replica counts the longest lease that its master reported, however old the report is. The report used to be
/// discarded when the leases of that time had ended, though the master continued to grant.
#[test]
fn what_a_master_told_counts_however_long_ago_it_was() {
    let setup = |ttl| Setup::new().replication().module_arguments(&["max-clock-skew", "0", "max-ttl", ttl]);
    let (master, replica) = (setup("2000").start(), setup("10").start());
    replica.client().say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the replica has heard", || replica.info("outstanding_ttl_ms") == 2_000);
    let heard = replica.client().say("LOCK.NODE").field("clock_us").as_int();
    let frozen = Frozen::new(&master);
    wait_until("every lease of that time has ended", || {
        replica.client().say("LOCK.NODE").field("clock_us").as_int() > heard + 2_100_000
    });
    assert_eq!(replica.info("outstanding_ttl_ms"), 2_000);
    let mut copy = replica.client();
    copy.say("REPLICAOF NO ONE");
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 10")) > 10);
    drop(frozen);
}

/// A server that starts as a replica and is promoted is guarded for a minute, its own longest lease. Its guard used to
/// be as long as any lease that a silent master can grant.
#[test]
fn a_server_that_starts_as_a_replica_is_guarded_for_what_it_owes_itself() {
    let master = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let port = master.port();
    let replica = Setup::new().replication().guarded().option("replicaof", &format!("127.0.0.1 {port}")).start();
    let mut copy = replica.client();
    wait_until("the replica has heard", || replica.info("outstanding_ttl_ms") == 60_000);
    copy.say("REPLICAOF NO ONE");
    assert!((50_000..70_000).contains(&guarded_ms(copy.say("LOCK.ACQUIRE k you 10"))));
}

/// A replica is promoted before a master has reported how long its leases are. It is guarded for more than a day.
#[test]
fn a_replica_that_was_told_nothing_assumes_the_worst() {
    const DAY_MS: u64 = 86_400_000;
    let setup = |ttl| Setup::new().replication().module_arguments(&["max-clock-skew", "0", "max-ttl", ttl]);
    let (master, replica) = (setup("60000").start(), setup("100").start());
    let mut copy = replica.client();
    // No server listens at this port.
    copy.pipeline(&[format!("REPLICAOF 127.0.0.1 {}", free_port()), "REPLICAOF NO ONE".to_owned()]);
    assert!(guarded_ms(copy.say("LOCK.ACQUIRE k you 10")) > DAY_MS);
    replica.lift();
    copy.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("the replica has heard", || replica.info("outstanding_ttl_ms") == 60_000);
    copy.say("REPLICAOF NO ONE");
    assert!((50_000..DAY_MS).contains(&guarded_ms(copy.say("LOCK.ACQUIRE k you 10"))));
    assert_eq!(replica.info("outstanding_ttl_ms"), 60_000);
}
