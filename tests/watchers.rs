//! LOCK.WATCH: each change is reported once, whatever its cause, and nothing else is.

use crate::harness::{
    Client, Member, Reply, Server, Setup, cluster, error, in_step, int, null, pair, text, wait_until,
};

/// Returns a watching client and its id.
fn watches(server: &Server, line: &str) -> (Client, i64) {
    let before = server.info("watchers");
    let mut client = server.client();
    let id = client.say("CLIENT ID").as_int();
    client.ask(line);
    wait_until(&format!("it watches: {line}"), || server.info("watchers") == before + 1);
    (client, id)
}

/// Returns the owner, token, note and sequence number of the note in an answer.
fn told(reply: &Reply) -> (String, i64, String, i64) {
    let (owner, note) = (reply.field("owner").as_text(), reply.field("note").as_text());
    (owner, reply.field("token").as_int(), note, reply.field("seq").as_int())
}

fn nobody() -> (String, i64, String, i64) {
    (String::new(), 0, String::new(), 0)
}

#[test]
fn what_is_not_known_is_told_at_once() {
    let server = Server::start();
    let mut me = server.client();
    let free = me.say("LOCK.WATCH k 60000 TOKEN 5");
    assert_eq!(told(&free), nobody());
    assert_eq!((free.field("holders"), free.field("mode"), free.field("waiters")), (int(0), text(""), int(0)));
    let token = me.say("LOCK.ACQUIRE k me 60000 NOTE first").as_int();
    for line in ["LOCK.WATCH k 60000", "LOCK.WATCH k 60000 TOKEN 0", "LOCK.WATCH k 0 TOKEN 5"] {
        assert_eq!(told(&me.say(line)), ("me".to_owned(), token, "first".to_owned(), 0), "{line}");
    }
    me.say("LOCK.NOTE k me second SEQ 9");
    let answer = me.say(&format!("LOCK.WATCH k 60000 TOKEN {token} SEQ 8"));
    assert_eq!(told(&answer), ("me".to_owned(), token, "second".to_owned(), 9));
    // The client does not wait unless the lock is in the known state; in a transaction or a script the answer comes at
    // once.
    assert_eq!(me.say("LOCK.WATCH other 1"), null());
    assert_eq!(me.say(&format!("LOCK.WATCH k 1 TOKEN {token} SEQ 9")), null());
    me.say("MULTI");
    me.say(&format!("LOCK.WATCH k 60000 TOKEN {token}"));
    assert_eq!(me.say("EXEC"), Reply::List(vec![null()]));
    assert_eq!(me.say("EVAL return(redis.call('LOCK.WATCH','other','60000')) 0"), null());
    me.say("SET other x");
    assert!(error(me.say("LOCK.WATCH other 1")).starts_with("WRONGTYPE"));
    assert_eq!(server.info("watchers"), 0);
}

/// A watcher is answered at each way to end or replace a grant.
#[test]
fn every_end_of_a_grant_is_told() {
    let server = Server::start();
    let mut me = server.client();
    for cause in [
        "LOCK.RELEASE k me",
        "LOCK.BREAK k",
        "DEL k",
        "UNLINK k",
        "RENAME k away",
        "MOVE k 5",
        "SWAPDB 0 7",
        "FLUSHDB",
        "EVAL redis.call('LOCK.RELEASE','k','me') 0",
        "PEXPIRE k 1",
    ] {
        let token = me.insist("LOCK.ACQUIRE k me 60000").as_int();
        let (mut watcher, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {token}"));
        let (mut other, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {token} SEQ 0"));
        // None of these commands ends the grant.
        for line in
            ["LOCK.EXTEND k me 60000", "LOCK.REENTER k me", "LOCK.RELEASE k me", "LOCK.INFO k", "LOCK.WAIT k you 0"]
        {
            me.say(line);
        }
        assert_eq!(server.info("watchers"), 2, "{cause}");
        assert!(!matches!(me.say(cause), Reply::Error(_)), "{cause}");
        assert_eq!((told(&watcher.hear()), told(&other.hear())), (nobody(), nobody()), "{cause}");
        for line in ["FLUSHALL", "LOCK.GUARD LIFT"] {
            me.insist(line);
        }
    }
    let token = me.insist("LOCK.ACQUIRE k me 60").as_int();
    let mut watcher = server.client();
    watcher.ask(&format!("LOCK.WATCH k 60000 TOKEN {token}"));
    assert_eq!(told(&watcher.hear()), nobody(), "the lease ends");
    // The lock is overwritten.
    let token = me.insist("LOCK.ACQUIRE k me 60000").as_int();
    let (mut watcher, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {token}"));
    me.say("SET k x");
    assert!(error(watcher.hear()).starts_with("WRONGTYPE"));
    assert_eq!(server.info("watchers"), 0);
}

#[test]
fn grants_notes_and_conversions_are_told() {
    let server = Server::start();
    let mut me = server.client();
    let (mut watcher, _) = watches(&server, "LOCK.WATCH k 60000");
    let first = me.say("LOCK.ACQUIRE k me 60000").as_int();
    assert_eq!(told(&watcher.hear()).1, first);
    // A new note is reported only to a client that named a sequence number.
    let (mut watcher, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {first} SEQ 3"));
    let (mut of_the_end, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {first}"));
    me.say("LOCK.NOTE k me three SEQ 3");
    assert_eq!(server.info("watchers"), 2);
    me.say("LOCK.NOTE k me four");
    assert_eq!(told(&watcher.hear()), ("me".to_owned(), first, "four".to_owned(), 4));
    // The next holder gets the lock in the same step that ends this grant.
    let mut next = server.client();
    next.ask("LOCK.ACQUIRE k next 60000 WAIT 60000");
    wait_until("it waits", || server.info("waiters") == 1);
    me.say("LOCK.RELEASE k me");
    let second = next.hear().as_list()[0].as_int();
    assert_eq!(told(&of_the_end.hear()), ("next".to_owned(), second, String::new(), 0));
    // A raised token is a different one, and so is that after an upgrade. A downgrade keeps the token.
    let (mut watcher, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {second}"));
    me.say("LOCK.CONVERT k next SHARED");
    assert_eq!(server.info("watchers"), 1);
    let third = me.say("LOCK.CONVERT k next EXCLUSIVE").as_int();
    assert_eq!(told(&watcher.hear()).1, third);
    let (mut watcher, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {third}"));
    me.say(&format!("LOCK.FENCE k next {}", third + 5));
    assert_eq!(told(&watcher.hear()).1, third + 5);
}

/// A watcher can watch any one of several holders by its token.
#[test]
fn one_of_several_holders_ends() {
    let server = Server::start();
    let mut me = server.client();
    let one = me.say("LOCK.ACQUIRE k one 60000 SHARED").as_int();
    let two = me.say("LOCK.ACQUIRE k two 60000 SHARED").as_int();
    assert_ne!(one, two);
    let (mut of_one, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {one}"));
    let (mut of_two, _) = watches(&server, &format!("LOCK.WATCH k 60000 TOKEN {two}"));
    me.say("LOCK.RELEASE k two");
    let answer = of_two.hear();
    assert_eq!((told(&answer).1, answer.field("holders")), (one, int(1)));
    let short = me.say("LOCK.ACQUIRE k short 30 SHARED").as_int();
    let mut of_short = server.client();
    of_short.ask(&format!("LOCK.WATCH k 60000 TOKEN {short}"));
    assert_eq!(told(&of_short.hear()).1, one, "its lease ends, the lock stays");
    assert_eq!(server.info("watchers"), 1);
    me.say(&format!("LOCK.BREAK k TOKEN {one}"));
    assert_eq!(told(&of_one.hear()), nobody());
}

#[test]
fn every_way_to_stop_watching() {
    let server = Setup::new().option("lock.max-waiters", "5").start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let (gone, _) = watches(&server, "LOCK.WATCH free 60000");
    drop(gone);
    wait_until("its disconnection is seen", || server.info("watchers") == 0);
    let (_killed, killed) = watches(&server, "LOCK.WATCH free 60000");
    let (mut unblocked, id) = watches(&server, "LOCK.WATCH free 60000");
    let (mut fails, failing) = watches(&server, "LOCK.WATCH free 60000");
    me.say(&format!("CLIENT KILL ID {killed}"));
    me.say(&format!("CLIENT UNBLOCK {id}"));
    me.say(&format!("CLIENT UNBLOCK {failing} ERROR"));
    assert_eq!(unblocked.hear(), null());
    assert!(error(fails.hear()).starts_with("UNBLOCKED"));
    assert_eq!(server.info("watchers"), 0);
    // As many clients may watch as may wait, and neither group takes places of the other.
    let all: Vec<_> = (0..5).map(|_| watches(&server, "LOCK.WATCH free 60000").0).collect();
    assert!(error(me.say("LOCK.WATCH free 60000")).starts_with("QUEUEFULL"));
    assert_eq!(me.say("LOCK.ACQUIRE k you 1000 WAIT 1"), null());
    drop(all);
    wait_until("they are gone", || server.info("watchers") == 0);
    assert_eq!((unblocked.say("PING"), fails.say("PING")), (text("PONG"), text("PONG")));
}

/// A thousand watchers are answered after one change, fifty in each pass of the event loop. A watcher of another lock is
/// not.
#[test]
fn crowds_are_told_in_slices() {
    let server = Server::start();
    let mut me = server.client();
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    let mut crowd: Vec<_> = (0..1_000).map(|_| server.client()).collect();
    crowd.iter_mut().for_each(|client| client.ask(&format!("LOCK.WATCH k 60000 TOKEN {token}")));
    let (_sleeps, _) = watches(&server, "LOCK.WATCH free 60000");
    wait_until("they watch", || server.info("watchers") == 1_001);
    me.say("LOCK.RELEASE k me");
    assert!(crowd.iter_mut().all(|client| told(&client.hear()) == nobody()));
    assert_eq!((server.info("watchers"), server.info("answers_most")), (1, 50));
}

/// A replica answers watchers when it receives a change from its master, when a lease ends while its master is gone,
/// and after its promotion.
#[test]
fn replicas_are_watched() {
    let (mut master, replica) = pair();
    let mut me = master.client();
    let (mut watcher, _) = watches(&replica, "LOCK.WATCH k 60000");
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    assert_eq!(told(&watcher.hear()).1, token);
    let (mut watcher, _) = watches(&replica, &format!("LOCK.WATCH k 60000 TOKEN {token} SEQ 0"));
    me.say("LOCK.NOTE k me text");
    assert_eq!(told(&watcher.hear()), ("me".to_owned(), token, "text".to_owned(), 1));
    let (mut watcher, _) = watches(&replica, &format!("LOCK.WATCH k 60000 TOKEN {token}"));
    me.say("LOCK.RELEASE k me");
    assert_eq!(told(&watcher.hear()), nobody());
    // The lease ends on the replica, though no master reports that.
    let short = me.say("LOCK.ACQUIRE k me 2000").as_int();
    let long = me.say("LOCK.ACQUIRE long me 60000").as_int();
    in_step(&mut me);
    let (mut of_short, _) = watches(&replica, &format!("LOCK.WATCH k 60000 TOKEN {short}"));
    let (mut of_long, _) = watches(&replica, &format!("LOCK.WATCH long 60000 TOKEN {long}"));
    master.kill();
    assert_eq!(told(&of_short.hear()), nobody());
    let mut there = replica.client();
    there.say("REPLICAOF NO ONE");
    assert_eq!(replica.info("watchers"), 1, "nothing has happened to its lock");
    there.say("LOCK.BREAK long");
    assert_eq!(told(&of_long.hear()), nobody());
}

/// Watchers on a master that becomes a replica are not forgotten: most servers end their waits with an error.
#[test]
fn a_master_that_becomes_a_replica() {
    let (master, _replica) = pair();
    let other = Setup::new().replication().start();
    let mut there = other.client();
    let token = there.say("LOCK.ACQUIRE k me 60000").as_int();
    let (mut watcher, _) = watches(&other, &format!("LOCK.WATCH k 60000 TOKEN {token}"));
    there.say(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let answer = watcher.hear();
    assert!(answer.is_error("UNBLOCKED") || told(&answer) == nobody(), "{answer:?}");
    wait_until("nobody watches", || other.info("watchers") == 0);
}

#[test]
fn permission_to_read_is_enough_and_can_be_lost() {
    let server = Server::start();
    let mut operator = server.client();
    operator.say("ACL SETUSER watcher on nopass %R~* +lock.watch");
    let mut watcher = server.client();
    watcher.say("AUTH watcher x");
    for (rule, answer) in [("", "me"), ("-lock.watch", "NOPERM")] {
        watcher.ask("LOCK.WATCH k 60000");
        wait_until("it watches", || server.info("watchers") == 1);
        operator.say(&format!("ACL SETUSER watcher {rule}"));
        operator.say("LOCK.ACQUIRE k me 60000");
        let told = watcher.hear();
        assert!(told.is_error(answer) || told.field("owner") == text(answer), "{told:?}");
        operator.say("LOCK.RELEASE k me");
    }
}

/// Watchers of a lock whose slot moves are redirected, even if nobody held the lock.
#[test]
fn watchers_of_a_slot_that_is_gone_are_redirected() {
    const SLOT: i64 = 7629;
    let (one, other) = cluster();
    let token = one.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    let (mut of_held, _) = watches(&one.server, &format!("LOCK.WATCH k 60000 TOKEN {token}"));
    let (mut of_free, _) = watches(&one.server, "LOCK.WATCH {k}free 60000");
    let move_to = |at: &Member, line: &str| assert_eq!(at.client().say(line), text("OK"));
    move_to(&other, &format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", one.id));
    move_to(&one, &format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", other.id));
    assert!(of_free.hear().is_error("TRYAGAIN"), "the other node grants it from now on");
    move_to(&one, &format!("MIGRATE 127.0.0.1 {} k 0 60000", other.server.port()));
    assert!(of_held.hear().is_error("TRYAGAIN"), "its slot is on its way");
    for member in [&other, &one] {
        move_to(member, &format!("CLUSTER SETSLOT {SLOT} NODE {}", other.id));
    }
    let moved = format!("MOVED {SLOT} 127.0.0.1:{}", other.server.port());
    assert_eq!(error(one.client().say("LOCK.WATCH {k}free 60000")), moved);
    let mut there = other.client();
    assert_eq!(told(&there.say("LOCK.WATCH k 60000")).1, token);
}
