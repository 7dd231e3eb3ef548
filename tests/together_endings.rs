//! Every way in which one of several grants ends or changes, and which waiters get the lock then: leases, BREAK,
//! CONVERT, key events.

use crate::harness::{
    Client, Server, Setup, error, grants, guarded_ms, int, null, number, owners, permits, text, token, wait_until,
    waits,
};

/// Returns a server with key events, and a client that subscribes to them.
fn told() -> (Server, Client) {
    let server = Setup::new().option("notify-keyspace-events", "Ed").start();
    let mut events = server.client();
    events.ask("PSUBSCRIBE __keyevent@*");
    events.hear();
    (server, events)
}

/// Returns the next key event.
fn next(events: &mut Client) -> String {
    let message = events.hear().as_list();
    format!("{} {}", message[2].as_text().trim_start_matches("__keyevent@0__:"), message[3].as_text())
}

#[test]
fn each_grant_that_comes_changes_or_ends_is_told_and_a_lock_that_ends_once() {
    let (server, mut events) = told();
    let mut me = server.client();
    let a = me.say("LOCK.ACQUIRE k a 60000 SHARED").as_int();
    for line in [
        "LOCK.ACQUIRE k b 60000 SHARED",
        "LOCK.ACQUIRE k w 60000",
        "LOCK.EXTEND k b 60000",
        "LOCK.REENTER k b",
        "LOCK.RELEASE k b",
        "LOCK.RELEASE k b",
        "LOCK.CONVERT k a EXCLUSIVE",
        "LOCK.CONVERT k a EXCLUSIVE",
        "LOCK.CONVERT k a SHARED",
        "LOCK.ACQUIRE k b 60000 SHARED",
        "LOCK.BREAK k",
        "LOCK.BREAK k",
    ] {
        me.say(line);
    }
    for event in ["acquire", "acquire", "extend", "release", "convert", "convert", "acquire", "break"]
        .map(|event| format!("lock.{event} k"))
    {
        assert_eq!(next(&mut events), event);
    }
    assert_eq!(me.say(&format!("LOCK.BREAK k TOKEN {a}")), null());
    // One grant is broken by its token, one ends with its lease, then the last is broken.
    let c = me.say("LOCK.ACQUIRE k c 60000 SHARED").as_int();
    me.say("LOCK.ACQUIRE k d 3000 SHARED");
    me.say("LOCK.ACQUIRE k e 20 SHARED");
    let mut writer = waits(&server, "LOCK.ACQUIRE k w 60000 WAIT 60000").0;
    for event in ["lock.acquire k", "lock.acquire k", "lock.acquire k", "lock.expire k"] {
        assert_eq!(next(&mut events), event);
    }
    assert_eq!(me.say(&format!("LOCK.BREAK k TOKEN {c}")), int(c));
    token(&writer.hear());
    for event in ["lock.break k", "lock.expire k", "lock.handoff k"] {
        assert_eq!(next(&mut events), event);
    }
}

/// If all leases of a lock are over, the server publishes one event, whatever their number.
#[test]
fn a_lock_whose_leases_are_all_over_is_told_once() {
    let (server, mut events) = told();
    let mut me = server.client();
    // All of the leases end while nothing may be written.
    let lines: Vec<_> = (0..20).map(|n| format!("LOCK.ACQUIRE k o{n} {} SHARED", 3_000 + n)).collect();
    me.pipeline(&lines);
    me.say("CLIENT PAUSE 100000 WRITE");
    wait_until("all leases end", || me.say("LOCK.INFO k") == null());
    me.say("CLIENT UNPAUSE");
    wait_until("the key goes", || me.say("EXISTS k") == int(0));
    me.say("LOCK.ACQUIRE k last 60000");
    for _ in 0..20 {
        assert_eq!(next(&mut events), "lock.acquire k");
    }
    assert_eq!((next(&mut events), next(&mut events)), ("lock.expire k".to_owned(), "lock.acquire k".to_owned()));
    assert_eq!(server.info("expiries"), 20);
}

#[test]
fn the_number_of_a_lease_that_ended_is_the_next_ones() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k a 60000 LIMIT 3");
    let b = token(&me.say("LOCK.ACQUIRE k b 2000 LIMIT 3"));
    me.say("LOCK.ACQUIRE k c 60000 LIMIT 3");
    let mut waiter = waits(&server, "LOCK.ACQUIRE k d 60000 LIMIT 3 WAIT 60000").0;
    let reply = waiter.hear();
    assert_eq!(number(&reply), 2);
    assert!(token(&reply) > b);
    let held = [("a", 1), ("c", 3), ("d", 2)].map(|(owner, number)| (owner.to_owned(), number));
    assert_eq!(permits(&mut me, "k"), held);
    assert_eq!((server.info("expiries"), server.info("held"), server.info("deadlines")), (1, 1, 1));
    assert_eq!(
        (me.say("LOCK.EXTEND k b 1000"), me.say("LOCK.RELEASE k b"), me.say(&format!("LOCK.CHECK k {b}"))),
        (null(), null(), null())
    );
}

/// A grant whose lease is over, but which the server has not removed yet, does not exist for any command.
#[test]
fn a_grant_that_is_over_counts_for_nothing_before_it_is_taken_out() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k a 60000 SHARED");
    let b = me.say("LOCK.ACQUIRE k b 100 SHARED").as_int();
    me.say("CLIENT PAUSE 100000 WRITE");
    wait_until("it ends", || me.say("LOCK.INFO k").field("holders") == int(1));
    assert_eq!((owners(&mut me, "k"), me.say(&format!("LOCK.CHECK k {b}"))), (vec!["a".to_owned()], null()));
    // Commands sent now run right after the pause, together with the work that has come due.
    me.ask("LOCK.CONVERT k a EXCLUSIVE");
    let mut operator = server.client();
    operator.say("CLIENT UNPAUSE");
    assert!(me.hear().as_int() > b);
    assert_eq!(grants(&mut me, "k")[0].field("mode"), text("exclusive"));
    assert_eq!(server.info("expiries"), 1);
}

#[test]
fn break_ends_all_grants_or_those_with_one_token() {
    let server = Server::start();
    let mut me = server.client();
    let a = token(&me.say("LOCK.ACQUIRE k a 60000 LIMIT 9"));
    let b = token(&me.say("LOCK.ACQUIRE k b 60000 LIMIT 9"));
    let c = token(&me.say("LOCK.ACQUIRE k c 60000 LIMIT 9"));
    let mut waiter = waits(&server, "LOCK.ACQUIRE k d 60000 LIMIT 9 PERMIT 2 WAIT 60000").0;
    assert_eq!((me.say(&format!("LOCK.BREAK k TOKEN {}", c + 1)), server.info("waiters")), (null(), 1));
    assert_eq!(me.say(&format!("LOCK.BREAK k TOKEN {b}")), int(b));
    assert_eq!(number(&waiter.hear()), 2);
    assert_eq!((me.say("LOCK.EXTEND k b 1000"), me.say("LOCK.EXTEND k a 1000")), (null(), int(a)));
    // BREAK of all grants answers with the largest token.
    let d = grants(&mut me, "k")[2].field("token").as_int();
    let mut alone = waits(&server, "LOCK.ACQUIRE k alone 60000 WAIT 60000").0;
    assert_eq!(me.say("LOCK.BREAK k"), int(d.max(c)));
    assert!(token(&alone.hear()) > d.max(c));
    let alone = grants(&mut me, "k")[0].field("token").as_int();
    assert_eq!(
        (me.say(&format!("LOCK.BREAK k TOKEN {d}")), me.say(&format!("LOCK.BREAK k TOKEN {alone}"))),
        (null(), int(alone))
    );
    assert_eq!((me.say("EXISTS k"), server.info("breaks")), (int(0), 3));
}

/// Several readers may share a token. A BREAK of this token ends the grants of all of them.
#[test]
fn break_by_a_token_ends_all_who_have_it() {
    let server = Server::start();
    let mut me = server.client();
    let last = (0..5).map(|n| me.say(&format!("LOCK.ACQUIRE k r{n} 60000 SHARED")).as_int()).max().unwrap();
    for n in [0, 2, 4] {
        assert_eq!(me.insist(&format!("LOCK.FENCE k r{n} {}", last + 7)), int(last + 7));
    }
    assert_eq!(me.say(&format!("LOCK.BREAK k TOKEN {}", last + 7)), int(last + 7));
    assert_eq!((owners(&mut me, "k"), server.info("breaks")), (vec!["r1".to_owned(), "r3".to_owned()], 1));
    for n in [1, 3] {
        assert_eq!(me.insist(&format!("LOCK.FENCE k r{n} {}", last + 9)), int(last + 9));
    }
    assert_eq!(me.say(&format!("LOCK.BREAK k TOKEN {}", last + 9)), int(last + 9));
    assert_eq!((me.say("EXISTS k"), server.info("held"), server.info("deadlines")), (int(0), 0, 0));
}

#[test]
fn a_writer_becomes_a_reader_at_once_and_lets_readers_in() {
    let server = Server::start();
    let mut me = server.client();
    let w = me.say("LOCK.ACQUIRE k w 60000 NOTE n").as_int();
    me.say("LOCK.REENTER k w");
    let mut readers =
        ["a", "b"].map(|owner| waits(&server, &format!("LOCK.ACQUIRE k {owner} 60000 SHARED WAIT 60000")).0);
    let mut writer = waits(&server, "LOCK.ACQUIRE k x 60000 WAIT 60000").0;
    let _late = waits(&server, "LOCK.ACQUIRE k c 60000 SHARED WAIT 60000");
    assert_eq!(me.say(&format!("LOCK.CONVERT k w SHARED TOKEN {}", w + 1)), null());
    assert_eq!(me.say("LOCK.CONVERT k nobody SHARED"), null());
    assert_eq!(me.say(&format!("LOCK.CONVERT k w shared TOKEN {w}")), int(w), "the token stays");
    for reader in &mut readers {
        assert!(token(&reader.hear()) > w);
    }
    let first = grants(&mut me, "k")[0].clone();
    assert_eq!((first.field("owner"), first.field("holds"), first.field("note")), (text("w"), int(2), text("n")));
    assert_eq!(
        (owners(&mut me, "k"), server.info("waiters")),
        (vec!["w".to_owned(), "a".to_owned(), "b".to_owned()], 2)
    );
    assert_eq!((me.say("LOCK.CONVERT k w SHARED"), server.info("conversions")), (int(w), 1), "it is one already");
    for line in ["LOCK.RELEASE k w LEVEL 1", "LOCK.RELEASE k a", "LOCK.RELEASE k b"] {
        me.say(line);
    }
    token(&writer.hear());
}

#[test]
fn the_only_reader_becomes_a_writer_with_a_new_token() {
    let server = Server::start();
    let mut me = server.client();
    let a = me.say("LOCK.ACQUIRE k a 60000 SHARED NOTE n").as_int();
    let b = me.say("LOCK.ACQUIRE k b 60000 SHARED").as_int();
    me.say("LOCK.REENTER k a");
    let mut writer = waits(&server, "LOCK.ACQUIRE k w 60000 WAIT 60000").0;
    assert_eq!(
        (me.say("LOCK.CONVERT k a EXCLUSIVE"), me.say("LOCK.CONVERT k b EXCLUSIVE")),
        (null(), null()),
        "neither waits"
    );
    me.say("LOCK.RELEASE k b");
    let converted = me.say("LOCK.CONVERT k a EXCLUSIVE").as_int();
    assert!(converted > a.max(b));
    let grant = grants(&mut me, "k")[0].clone();
    assert_eq!(
        (grant.field("mode"), grant.field("holds"), grant.field("note")),
        (text("exclusive"), int(2), text("n"))
    );
    assert_eq!((me.say(&format!("LOCK.CHECK k {a}")), me.say("LOCK.ACQUIRE k c 1000 SHARED")), (null(), null()));
    assert!(me.say(&format!("LOCK.CHECK k {converted}")).as_int() > 50_000);
    assert_eq!(server.info("waiters"), 1);
    me.say("LOCK.RELEASE k a LEVEL 1");
    assert!(token(&writer.hear()) > converted);
    // A permit can be converted neither to an exclusive nor to a shared grant.
    me.say("LOCK.ACQUIRE jobs a 60000 LIMIT 3");
    assert_eq!((me.say("LOCK.CONVERT jobs a EXCLUSIVE"), me.say("LOCK.CONVERT jobs a SHARED")), (null(), null()));
}

/// Readers that a guarded node has forgotten may still be reading, so it converts no reader to a writer.
#[test]
fn a_guarded_node_makes_no_writers() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.GUARD ARM 50000");
    server.lift();
    let r = me.insist("LOCK.ACQUIRE k r 60000 SHARED").as_int();
    // A flush of another database does not make locks of this one suspect.
    let mut other = server.client();
    other.say("SELECT 3");
    other.say("LOCK.ACQUIRE dropped x 60000");
    other.say("FLUSHDB");
    let w = grants(&mut me, "k")[0].field("suspect");
    assert_eq!(w, int(0));
    assert!(guarded_ms(me.say("LOCK.CONVERT k r EXCLUSIVE")) > 30_000);
    assert!(error(me.say("LOCK.ACQUIRE k s 1000 SHARED")).starts_with("GUARDED"));
    assert_eq!(me.say("LOCK.EXTEND k r 60000"), int(r));
    server.lift();
    assert!(me.insist("LOCK.CONVERT k r EXCLUSIVE").as_int() > r);
}
