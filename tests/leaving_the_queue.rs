//! Every way out of the queue: no request is forgotten, and a client that is gone is granted no lock.

use crate::harness::{Reply, Server, Setup, error, int, null, pair, queues, text, wait_until};

fn is_grant(reply: &Reply) -> bool {
    matches!(reply, Reply::List(list) if list.len() == 2)
}

#[test]
fn who_is_gone_is_granted_nothing() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let (disconnects, _) = queues(&server, "a");
    let (_killed, killed_id) = queues(&server, "b");
    let (mut times_out, id) = queues(&server, "c");
    let (mut fails, failing_id) = queues(&server, "d");
    let (mut last, _) = queues(&server, "e");
    drop(disconnects);
    wait_until("its disconnection is seen", || server.info("waiters") == 4);
    assert_eq!(me.say(&format!("CLIENT KILL ID {killed_id}")), int(1));
    assert_eq!(me.say(&format!("CLIENT UNBLOCK {id} TIMEOUT")), int(1));
    assert_eq!(me.say(&format!("CLIENT UNBLOCK {failing_id} ERROR")), int(1));
    assert_eq!(times_out.hear(), null());
    assert!(error(fails.hear()).starts_with("UNBLOCKED"));
    assert_eq!(server.info("waiters"), 1);
    me.say("LOCK.RELEASE k me");
    assert!(is_grant(&last.hear()));
    // Unblocked clients are ordinary clients again.
    assert_eq!((times_out.say("PING"), fails.say("PING")), (text("PONG"), text("PONG")));
    assert_eq!(server.info("grants"), 2);
}

/// Regression: only the server's cron noticed that the lock could pass to the next request in the queue, once the one
/// before it had left. With `hz 1` that took up to a second.
#[test]
fn the_next_in_the_queue_does_not_wait_for_the_cron_if_one_before_it_leaves() {
    let server = Server::start();
    let mut me = server.client();
    me.say("CONFIG SET hz 1");
    me.say("LOCK.ACQUIRE k me 60000 LIMIT 3");
    for ends in ["closed", "killed", "unblocked"].repeat(4) {
        let mut reader = server.client();
        let reader_id = reader.say("CLIENT ID").as_int();
        reader.ask("LOCK.ACQUIRE k reader 60000 SHARED WAIT 60000");
        wait_until("the reader waits", || server.info("waiters") == 1);
        let mut next = server.client();
        next.ask("LOCK.ACQUIRE k next 60000 LIMIT 3 WAIT 500");
        wait_until("the next one waits", || server.info("waiters") == 2);
        match ends {
            "closed" => drop(reader),
            "killed" => drop(me.say(&format!("CLIENT KILL ID {reader_id}"))),
            _ => drop(me.say(&format!("CLIENT UNBLOCK {reader_id}"))),
        }
        assert_ne!(next.hear(), null(), "{ends}");
        me.say("LOCK.RELEASE k next");
    }
}

#[test]
fn a_turn_that_is_unblocked_is_told_no() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut waiter = server.client();
    let id = waiter.say("CLIENT ID").as_int();
    waiter.ask("LOCK.WAIT k w 60000");
    wait_until("it waits", || server.info("waiters") == 1);
    me.say(&format!("CLIENT UNBLOCK {id}"));
    assert_eq!(waiter.hear(), int(0));
}

#[test]
fn an_overwritten_key_is_told_and_stays_as_it_is() {
    let server = Server::start();
    let mut me = server.client();
    for line in ["SET k x", "SETRANGE k 0 x", "RPUSH other x"] {
        me.say("LOCK.ACQUIRE k me 60000");
        let (mut waiter, _) = queues(&server, "a");
        if line.starts_with("RPUSH") {
            me.say(line);
            me.say("RENAME other k");
        } else if line.starts_with("SETRANGE") {
            assert!(error(me.say(line)).starts_with("WRONGTYPE"));
            me.say("SET k x PX 100000");
        } else {
            me.say(line);
        }
        assert!(error(waiter.hear()).starts_with("WRONGTYPE"), "{line}");
        assert_eq!((me.say("EXISTS k"), server.info("waiters")), (int(1), 0));
        me.say("DEL k");
    }
}

#[test]
fn a_queue_stays_with_its_name() {
    let server = Server::start();
    let mut me = server.client();
    // Another lock gets the name: the waiter now waits for its holder.
    me.say("LOCK.ACQUIRE k me 60000");
    me.say("LOCK.ACQUIRE l you 60000");
    let (mut waiter, _) = queues(&server, "a");
    me.say("RENAME l k");
    assert_eq!(me.say("LOCK.INFO k").field("waiters"), int(1));
    me.say("LOCK.RELEASE k you");
    assert!(is_grant(&waiter.hear()));
    // The databases are swapped: the waiter now waits for the lock that is there.
    let (mut waiter, _) = queues(&server, "b");
    me.say("SELECT 1");
    me.say("LOCK.ACQUIRE k there 60000");
    me.say("SWAPDB 0 1");
    assert_eq!(me.say("LOCK.INFO k").field("owner"), text("a"), "in database 1 now");
    let mut zero = server.client();
    assert_eq!(zero.say("LOCK.INFO k").field("owner"), text("there"));
    zero.say("LOCK.RELEASE k there");
    assert!(is_grant(&waiter.hear()));
    // If the other database has no such lock, the lock is free.
    let (mut waiter, _) = queues(&server, "c");
    me.say("DEL k");
    me.say("LOCK.ACQUIRE other there 60000");
    me.say("SWAPDB 0 1");
    assert!(is_grant(&waiter.hear()));
}

#[test]
fn a_flush_refuses_who_cannot_outwait_its_guard_and_serves_the_others_after() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 4000");
    let mut short = server.client();
    short.ask("LOCK.ACQUIRE k short 1000 WAIT 3000");
    let mut turn = server.client();
    turn.ask("LOCK.WAIT other w 200");
    wait_until("it is told", || server.info("waiters") == 1);
    assert_eq!(turn.hear(), int(1));
    let (mut long, _) = queues(&server, "long");
    me.say("FLUSHALL");
    assert!(error(short.hear()).starts_with("GUARDED "));
    assert!(is_grant(&long.hear()));
    assert_eq!(server.info("guard_ms"), 0);
}

#[test]
fn an_armed_guard_refuses_who_cannot_outwait_it_and_lifted_serves_at_once() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let (mut long, _) = queues(&server, "long");
    let mut short = server.client();
    short.ask("LOCK.ACQUIRE k short 1000 WAIT 50000");
    wait_until("it waits", || server.info("waiters") == 2);
    me.say("LOCK.GUARD ARM 55000");
    assert!(error(short.hear()).starts_with("GUARDED 5"));
    me.say("LOCK.RELEASE k me");
    assert_eq!(server.info("waiters"), 1);
    assert!(error(me.insist("LOCK.ACQUIRE k me 1000 WAIT 50000")).starts_with("GUARDED 5"));
    assert!(error(me.insist("LOCK.WAIT k me 50000")).starts_with("GUARDED 5"));
    me.say("LOCK.GUARD LIFT");
    assert!(is_grant(&long.hear()));
}

#[test]
fn a_guarded_start_serves_those_who_wait_when_it_ends() {
    let server = Setup::new().module_arguments(&["max-ttl", "1000", "max-clock-skew", "0"]).guarded().start();
    let (mut a, mut b) = (server.client(), server.client());
    assert!(error(a.insist("LOCK.ACQUIRE k a 1000 WAIT 200")).starts_with("GUARDED"));
    a.ask("LOCK.ACQUIRE k a 1000 WAIT 60000");
    wait_until("a waits", || server.info("waiters") == 1);
    b.ask("LOCK.WAIT k b 60000");
    let list = a.hear();
    assert!(is_grant(&list), "{list:?}");
    assert_eq!(server.info("guard_ms"), 0);
    assert_eq!(a.say("LOCK.RELEASE k a"), int(0));
    assert_eq!(b.hear(), int(1));
}

#[test]
fn a_demoted_master_sends_its_waiters_away() {
    let (server, replica) = pair();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    // These are more requests than can be answered in one pass.
    let waiters: Vec<_> = (0..150).map(|n| queues(&server, &format!("owner{n}")).0).collect();
    let port = replica.port();
    replica.client().say("REPLICAOF NO ONE");
    me.say(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert_eq!(server.info("waiters"), 0);
    for mut waiter in waiters {
        assert!(error(waiter.hear()).starts_with("UNBLOCKED"));
    }
    assert_eq!(server.info("grants"), 1);
    assert!(error(me.say("LOCK.WAIT k a 1")).starts_with("READONLY"));
}

#[test]
fn shutdown_with_waiters_ends_cleanly_and_grants_nothing() {
    let mut server = Setup::new().aof().start();
    let mut me = server.client();
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    let (mut waiter, _) = queues(&server, "a");
    server.shutdown("");
    assert!(error(waiter.hear()).starts_with("no code"), "the connection is closed");
    server.start_again();
    let mut me = server.client();
    assert_eq!(me.say("LOCK.INFO k").field("token"), int(token));
    assert_eq!(me.insist("LOCK.EXTEND k me 60000"), int(token), "nothing was forgotten");
}

/// A request that waited for a guard is answered when the guard ends, even if its owner has had the lock all along.
#[test]
fn a_repetition_that_the_guard_delayed_finds_its_grant() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    me.say("LOCK.GUARD ARM 60000");
    let mut again = server.client();
    let token = me.say("LOCK.INFO k").field("token");
    again.ask("LOCK.ACQUIRE k me 60000 WAIT 86400000 RETRY");
    wait_until("it waits", || server.info("waiters") == 1);
    wait_until("the lease is shorter", || me.say("LOCK.INFO k").field("ttl").as_int() < 59_900);
    me.say("LOCK.GUARD LIFT");
    let answer = again.hear().as_list();
    assert_eq!(answer[0], token);
    assert!(answer[1].as_int() > 0, "valid until sent + waited + ttl");
    assert!(me.say("LOCK.INFO k").field("ttl").as_int() > 59_900 || answer[1].as_int() > 60_000);
}

#[test]
fn no_more_wait_than_may() {
    let server = Setup::new().module_arguments(&["max-waiters", "1"]).start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let (_a, _) = queues(&server, "a");
    for line in ["LOCK.ACQUIRE k b 1000 WAIT 1000", "LOCK.WAIT k b 1000"] {
        assert!(error(me.say(line)).starts_with("QUEUEFULL as many requests wait on this node as may (1,"), "{line}");
    }
    assert_eq!((me.say("LOCK.ACQUIRE k b 1000"), me.say("LOCK.WAIT k b 0")), (null(), int(0)));
    assert_eq!(me.say("CONFIG SET lock.max-waiters 2"), text("OK"));
    queues(&server, "b");
}

#[test]
fn the_module_cannot_be_unloaded_while_anybody_waits() {
    let server = Setup::new().option("enable-module-command", "yes").start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let (mut waiter, _) = queues(&server, "a");
    assert!(matches!(me.say("MODULE UNLOAD lock"), Reply::Error(_)));
    me.say("LOCK.RELEASE k me");
    assert!(is_grant(&waiter.hear()));
}

/// A panic poisons the module: no lock is granted any more, so no request waits, either.
#[test]
fn after_a_failure_inside_the_module_nobody_is_left_waiting() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let (mut waiter, _) = queues(&server, "a");
    assert!(error(me.say("LOCK.PANIC")).starts_with("LOCKPANIC"));
    me.say("LOCK.RELEASE k me");
    assert!(error(waiter.hear()).starts_with("LOCKPANIC"));
}
