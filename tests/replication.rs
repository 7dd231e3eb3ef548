//! A replica has the same locks as its master, and decides nothing.

use crate::harness::{Frozen, Setup, error, follow, in_step, int, null, pair, text, wait_until};

#[test]
fn a_replica_keeps_the_same_locks() {
    let (server, replica) = pair();
    let (mut master, mut copy) = (server.client(), replica.client());
    let token = master.say("LOCK.ACQUIRE k me 60000 NOTE n").as_int();
    master.say("LOCK.REENTER k me LEVEL 3");
    master.say("LOCK.EXTEND k me 60000");
    master.say("SELECT 4");
    master.say("LOCK.ACQUIRE l me 60000");
    in_step(&mut master);
    let info = copy.say("LOCK.INFO k");
    assert_eq!((info.field("owner"), info.field("token")), (text("me"), int(token)));
    assert_eq!((info.field("holds"), info.field("note")), (int(3), text("n")));
    assert_eq!(info.field("suspect"), int(0));
    let (left, copied) = (server.client().say("LOCK.INFO k").field("ttl"), info.field("ttl"));
    assert!(copied.as_int() >= left.as_int(), "never shorter than promised: {copied:?} < {left:?}");
    assert_eq!(master.say("DEBUG DIGEST"), copy.say("DEBUG DIGEST"));
    master.say("SELECT 0");
    master.say("RENAME k m");
    master.say("SWAPDB 0 4");
    master.say("MOVE l 7");
    in_step(&mut master);
    assert_eq!(master.say("DEBUG DIGEST"), copy.say("DEBUG DIGEST"));
    assert_eq!((replica.info("held"), replica.info("deadlines")), (2, 2));
    master.say("FLUSHALL");
    in_step(&mut master);
    wait_until("nothing is left", || (replica.info("held"), replica.info("deadlines")) == (0, 0));
}

#[test]
fn a_replica_gets_locks_by_full_synchronisation() {
    let server = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let mut master = server.client();
    for n in 0..500 {
        master.say(&format!("LOCK.ACQUIRE k{n} me 60000"));
    }
    let replica = Setup::new().replication().start();
    // The replica had locks of its own, which the synchronisation replaces.
    replica.client().say("LOCK.ACQUIRE own me 60000");
    follow(&replica, &server);
    in_step(&mut master);
    assert_eq!(replica.client().say("LOCK.INFO own"), null());
    wait_until("bookkeeping is that of the new locks", || {
        (replica.info("held"), replica.info("deadlines")) == (500, 500)
    });
    assert_eq!(master.say("DEBUG DIGEST"), replica.client().say("DEBUG DIGEST"));
}

#[test]
fn a_replica_refuses_writes_and_promises_nothing() {
    let (server, replica) = pair();
    let (mut master, mut copy) = (server.client(), replica.client());
    let token = master.say("LOCK.ACQUIRE k me 60000").as_int();
    in_step(&mut master);
    for line in ["LOCK.ACQUIRE x me 1000", "LOCK.RELEASE k me", "LOCK.EXTEND k me 1000", "LOCK.REENTER k me"] {
        assert!(error(copy.say(line)).starts_with("READONLY"), "{line}");
    }
    assert!(error(copy.say("LOCK.BREAK k")).starts_with("READONLY"));
    assert!(error(copy.say("LOCK.EFFECT k x")).starts_with("READONLY"));
    assert!(error(copy.say(&format!("LOCK.CHECK k {token}"))).starts_with("READONLY"));
    assert_eq!(copy.say("LOCK.INFO k").field("owner"), text("me"));
}

/// The release reaches the replica after the lease has ended by the replica's clock. It ends the lock all the same: the
/// replica does not check whether the owner holds it.
#[test]
fn a_release_that_comes_late_ends_the_lock_on_the_replica() {
    let (server, replica) = pair();
    let mut master = server.client();
    master.say("LOCK.ACQUIRE k me 4000");
    master.say("LOCK.ACQUIRE clock me 4000");
    master.say("LOCK.REENTER k me LEVEL 3");
    master.say("LOCK.ACQUIRE reader me 60000 SHARED");
    in_step(&mut master);
    let frozen = Frozen::new(&replica);
    assert_eq!(master.say("LOCK.RELEASE k me LEVEL 1"), int(0));
    assert_eq!(master.say("LOCK.RELEASE reader me"), int(0));
    wait_until("a lease of that time is over", || master.say("EXISTS clock") == int(0));
    drop(frozen);
    in_step(&mut master);
    let mut copy = replica.client();
    assert_eq!(copy.say("EXISTS k reader"), int(0));
    assert_eq!((replica.info("held"), replica.info("deadlines")), (0, 0));
    assert_eq!(master.say("DEBUG DIGEST"), copy.say("DEBUG DIGEST"));
}

#[test]
fn expiry_is_the_masters_and_reaches_the_replica() {
    let (server, replica) = pair();
    let (mut master, mut copy) = (server.client(), replica.client());
    master.say("LOCK.ACQUIRE k me 200");
    in_step(&mut master);
    assert_eq!(copy.say("EXISTS k"), int(1));
    wait_until("it is deleted on the replica", || copy.say("EXISTS k") == int(0));
    assert_eq!(replica.info("expiries"), 0, "the replica was told");
    assert_eq!(server.info("expiries"), 1);
    assert_eq!((replica.info("held"), replica.info("deadlines")), (0, 0));
}

#[test]
fn an_expired_lock_is_free_on_a_replica_whose_master_is_silent() {
    let (mut server, replica) = pair();
    let (mut master, mut copy) = (server.client(), replica.client());
    let token = master.say("LOCK.ACQUIRE k me 400").as_int();
    in_step(&mut master);
    server.kill();
    assert_eq!(copy.say("LOCK.INFO k").field("owner"), text("me"));
    wait_until("the lease ends", || copy.say("LOCK.INFO k") == null());
    assert_eq!(copy.say("EXISTS k"), int(1), "a replica deletes nothing by itself");
    // Once promoted, the replica deletes the ended lock.
    copy.say("REPLICAOF NO ONE");
    wait_until("it is deleted", || copy.say("EXISTS k") == int(0));
    replica.lift();
    assert!(copy.insist("LOCK.ACQUIRE k you 1000").as_int() > token, "tokens go on");
}

#[test]
fn a_promoted_replica_knows_the_holder() {
    let (mut server, replica) = pair();
    let (mut master, mut copy) = (server.client(), replica.client());
    let token = master.say("LOCK.ACQUIRE k me 60000").as_int();
    in_step(&mut master);
    server.kill();
    copy.say("REPLICAOF NO ONE");
    // The replica's former master may have granted locks that never reached the replica.
    assert!(error(copy.say("LOCK.ACQUIRE other you 1000")).starts_with("GUARDED "));
    assert!(error(copy.say("LOCK.EXTEND k me 60000")).starts_with("GUARDED "));
    assert_eq!(copy.say("LOCK.INFO k").field("owner"), text("me"));
    assert_eq!(copy.say("LOCK.RELEASE k me"), int(0));
    replica.lift();
    assert!(copy.insist("LOCK.ACQUIRE k you 1000").as_int() > token);
}

#[test]
fn a_replica_with_an_aof_keeps_locks_over_its_own_restart() {
    let server = Setup::new().replication().option("repl-diskless-sync-delay", "0").start();
    let mut replica = Setup::new().replication().aof().start();
    follow(&replica, &server);
    let mut master = server.client();
    let token = master.say("LOCK.ACQUIRE k me 60000 NOTE n").as_int();
    in_step(&mut master);
    wait_until("its AOF is being written", || replica.client().info_field("aof_rewrite_in_progress") == 0);
    master.say("LOCK.REENTER k me");
    in_step(&mut master);
    replica.kill();
    replica.start_again();
    let info = replica.client().say("LOCK.INFO k");
    assert_eq!((info.field("token"), info.field("holds"), info.field("note")), (int(token), int(2), text("n")));
}

#[test]
fn a_restored_lock_reaches_the_replica_as_suspect() {
    let (server, replica) = pair();
    let mut master = server.client();
    master.say("LOCK.ACQUIRE k me 60000");
    let dump = master.say("DUMP k");
    assert_eq!(master.send(&[b"RESTORE", b"copy", b"0", dump.as_bytes()]), text("OK"));
    in_step(&mut master);
    assert_eq!(replica.client().say("LOCK.INFO copy").field("suspect"), int(1));
    assert_eq!(master.say("DEBUG DIGEST"), replica.client().say("DEBUG DIGEST"));
}

#[test]
fn a_paused_failover_with_expiring_locks_harms_nobody() {
    let (server, replica) = pair();
    let (mut master, mut copy) = (server.client(), replica.client());
    for n in 0..200 {
        master.say(&format!("LOCK.ACQUIRE k{n} me {}", 50 + n));
    }
    in_step(&mut master);
    assert_eq!(master.say(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 30000", replica.port())), text("OK"));
    wait_until("the roles have changed", || {
        copy.say("ROLE").as_list()[0] == text("master") && master.say("ROLE").as_list()[0] == text("slave")
    });
    wait_until("every lock expires", || copy.say("DBSIZE") == int(0) && master.say("DBSIZE") == int(0));
    for server in [&server, &replica] {
        wait_until("nothing is left", || (server.info("held"), server.info("deadlines")) == (0, 0));
    }
}

/// A replica that accepts writes from clients grants nothing. It used to grant what its master had granted to another.
#[test]
fn a_writable_replica_grants_nothing_either() {
    let (server, replica) = pair();
    let (mut master, mut copy) = (server.client(), replica.client());
    copy.say("CONFIG SET replica-read-only no");
    let token = master.say("LOCK.ACQUIRE k me 60000").as_int();
    let dump = master.say("DUMP k");
    in_step(&mut master);
    for line in [
        "LOCK.ACQUIRE x me 1000".to_owned(),
        "LOCK.RELEASE k me".to_owned(),
        "LOCK.EXTEND k me 1000".to_owned(),
        "LOCK.REENTER k me".to_owned(),
        "LOCK.BREAK k".to_owned(),
        format!("LOCK.CHECK k {token}"),
    ] {
        assert!(error(copy.say(&line)).starts_with("READONLY this is a replica"), "{line}");
    }
    assert!(error(copy.say("LOCK.EFFECT k x")).starts_with("ERR LOCK.EFFECT"));
    assert_eq!(copy.send(&[b"RESTORE", b"copy", b"0", dump.as_bytes()]), text("OK"));
    assert_eq!(copy.say("LOCK.INFO copy").field("suspect"), int(1));
    copy.say("REPLICAOF NO ONE");
    replica.lift();
    assert!(copy.insist("LOCK.ACQUIRE x me 1000").as_int() > 0);
}
