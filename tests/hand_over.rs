//! A free lock passes to the first waiter, whatever freed it, and before any later request gets it.

use crate::harness::{Reply, Server, Setup, int, null, queues, text, wait_until, waits};

/// Returns the token and the waiting time of a grant after a wait.
fn grant(reply: &Reply) -> (i64, i64) {
    match reply {
        Reply::List(list) => (list[0].as_int(), list[1].as_int()),
        other => panic!("a grant was expected, not {other:?}"),
    }
}

#[test]
fn whatever_frees_the_lock_passes_it_on_in_order_with_growing_tokens() {
    let server = Server::start();
    let mut me = server.client();
    let mut last = me.say("LOCK.ACQUIRE k o0 60000").as_int();
    // The causes that free the lock of owner n, with their answers.
    let causes = [
        ("LOCK.RELEASE k o0", int(0)),
        ("LOCK.BREAK k", Reply::Null),
        ("DEL k", int(1)),
        ("UNLINK k", int(1)),
        ("RENAME k elsewhere", text("OK")),
        ("MOVE k 5", int(1)),
        ("PEXPIRE k 1", int(1)),
        ("EXPIRE k -1", int(1)),
        ("GETDEL-LIKE", Reply::Null),
    ];
    let mut waiters: Vec<_> = (1..=causes.len()).map(|n| queues(&server, &format!("o{n}")).0).collect();
    for (n, (cause, expected)) in causes.into_iter().enumerate() {
        if cause == "GETDEL-LIKE" {
            // The same happens in a transaction that overwrites the lock for a moment.
            for line in ["MULTI", "SET k x", "DEL k"] {
                me.say(line);
            }
            assert_eq!(me.say("EXEC"), Reply::List(vec![text("OK"), int(1)]));
        } else {
            let reply = me.say(cause);
            if expected != Reply::Null {
                assert_eq!(reply, expected, "{cause}");
            }
        }
        let (token, _) = grant(&waiters[n].hear());
        assert!(token > last, "{cause}");
        last = token;
        let info = me.say("LOCK.INFO k");
        assert_eq!((info.field("owner"), info.field("token")), (text(&format!("o{}", n + 1)), int(token)), "{cause}");
        assert_eq!(me.say("LOCK.ACQUIRE k late 1000"), null(), "{cause}");
    }
    assert_eq!((server.info("waiters"), server.info("hand_overs")), (0, 9));
    assert_eq!(me.say("LOCK.INFO elsewhere").field("owner"), text("o4"), "a renamed lock lives on under its new name");
}

#[test]
fn a_dead_holders_lock_passes_on_when_its_lease_ends() {
    let server = Server::start();
    let mut holder = server.client();
    holder.say("LOCK.ACQUIRE k holder 1500");
    let mut next = queues(&server, "next").0;
    drop(holder);
    grant(&next.hear());
    assert_eq!((server.info("expiries"), server.info("hand_overs")), (1, 1));
}

#[test]
fn the_lease_starts_with_the_grant() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut next = waits(&server, "LOCK.ACQUIRE k next 5000 WAIT 60000 NOTE later").0;
    let before = me.say("LOCK.INFO k WAITERS 1").field("queue").as_list()[0].field("waited").as_int();
    wait_until("some time passes", || {
        me.say("LOCK.INFO k WAITERS 1").field("queue").as_list()[0].field("waited").as_int() > before + 100
    });
    me.say("LOCK.RELEASE k me");
    let (_, waited) = grant(&next.hear());
    let info = me.say("LOCK.INFO k");
    assert!(waited > before + 100);
    assert!(info.field("held").as_int() + info.field("ttl").as_int() >= 4_990, "{info:?}");
    assert_eq!(info.field("note"), text("later"));
}

#[test]
fn the_reply_has_the_time_waited_whenever_it_could_have() {
    let server = Server::start();
    let mut me = server.client();
    let token = grant(&me.say("LOCK.ACQUIRE k me 60000 WAIT 0")).0;
    assert_eq!(me.say("LOCK.ACQUIRE k me 60000 WAIT 5 RETRY"), Reply::List(vec![int(token), int(0)]));
    assert_eq!(me.say("LOCK.ACQUIRE k you 60000 WAIT 0"), null());
    assert_eq!(me.say("LOCK.ACQUIRE k you 60000 WAIT 20"), null());
    assert_eq!(server.info("wait_timeouts"), 1);
    let mut modern = server.client_resp3();
    assert_eq!(modern.say("LOCK.ACQUIRE k you 60000 WAIT 1"), null());
    me.say("LOCK.RELEASE k me");
    assert_eq!(grant(&modern.say("LOCK.ACQUIRE k you 60000 WAIT 1")).1, 0);
}

#[test]
fn the_queue_can_be_seen() {
    let server = Server::start();
    let mut me = server.client_resp3();
    me.say("LOCK.ACQUIRE k me 60000");
    assert_eq!(me.say("LOCK.INFO k WAITERS 5").field("queue"), Reply::List(vec![]));
    let _a = waits(&server, "LOCK.ACQUIRE k a 60000 WAIT 60000 NOTE nightly").0;
    let _b = waits(&server, "LOCK.WAIT k b 60000").0;
    let _c = queues(&server, "c").0;
    let info = me.say("LOCK.INFO k WAITERS 2");
    assert_eq!((info.field("waiters"), info.field("owner")), (int(3), text("me")));
    let list = info.field("queue").as_list();
    assert_eq!(list.len(), 2);
    assert_eq!((list[0].field("owner"), list[0].field("note")), (text("a"), text("nightly")));
    assert_eq!((list[0].field("wants"), list[1].field("wants")), (text("lock"), text("turn")));
    assert!(list[0].field("waited").as_int() >= list[1].field("waited").as_int());
    assert_eq!((server.info("waiters"), server.info("waiters_most")), (3, 3));
}

#[test]
fn a_repeated_request_waits_for_no_one_else_and_a_grant_answers_both() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut first = queues(&server, "a").0;
    let _other = queues(&server, "b").0;
    let mut again = queues(&server, "a").0;
    me.say("LOCK.RELEASE k me");
    let (token, _) = grant(&first.hear());
    assert_eq!(grant(&again.hear()).0, token);
    assert_eq!((server.info("waiters"), server.info("grants")), (1, 2));
    // Repeated once more, the request does not wait for itself, either.
    assert!(crate::harness::error(again.say("LOCK.ACQUIRE k a 60000 WAIT 60000")).starts_with("OWNED"));
    assert_eq!(grant(&again.say("LOCK.ACQUIRE k a 60000 WAIT 60000 RETRY")).0, token);
}

/// With two requests for leases of different lengths, their owner gets the longer lease.
#[test]
fn the_lease_is_the_longest_that_its_owner_asked_for() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut short = waits(&server, "LOCK.ACQUIRE k o 300 WAIT 60000").0;
    let mut long = waits(&server, "LOCK.ACQUIRE k o 30000 WAIT 60000").0;
    me.say("LOCK.RELEASE k me");
    assert_eq!(grant(&short.hear()).0, grant(&long.hear()).0);
    assert!(me.say("LOCK.INFO k").field("ttl").as_int() > 300);
}

#[test]
fn release_withdraws_what_its_owner_waits_for() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut a = queues(&server, "a").0;
    let mut told = waits(&server, "LOCK.WAIT k a 60000").0;
    let mut b = queues(&server, "b").0;
    assert_eq!(me.say("LOCK.RELEASE k a TOKEN 5"), null());
    assert_eq!(server.info("waiters"), 3, "that was about one grant");
    assert_eq!(me.say("LOCK.RELEASE k a"), null());
    assert_eq!((a.hear(), told.hear()), (null(), int(0)));
    me.say("LOCK.RELEASE k me");
    grant(&b.hear());
}

#[test]
fn inside_transactions_and_scripts_the_answer_is_at_once() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    for line in
        ["MULTI", "LOCK.ACQUIRE k you 60000 WAIT 60000", "LOCK.WAIT k you 60000", "LOCK.ACQUIRE l you 60000 WAIT 60000"]
    {
        me.say(line);
    }
    let replies = me.say("EXEC").as_list();
    assert_eq!(replies[..2], [null(), int(0)]);
    assert_eq!(grant(&replies[2]).1, 0);
    let script = "return {redis.call('LOCK.ACQUIRE', 'k', 'you', 1000, 'WAIT', 60000) or 'null', redis.call('LOCK.WAIT', 'k', 'you', 60000)}";
    assert_eq!(me.send(&[b"EVAL", script.as_bytes(), b"0"]), Reply::List(vec![text("null"), int(0)]));
    assert_eq!(server.info("waiters"), 0);
}

/// A hand-over in a transaction takes effect within it.
#[test]
fn a_release_in_a_transaction_passes_on_in_it() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut next = queues(&server, "next").0;
    for line in ["MULTI", "LOCK.RELEASE k me", "LOCK.ACQUIRE k me 60000", "LOCK.INFO k"] {
        me.say(line);
    }
    let replies = me.say("EXEC").as_list();
    assert_eq!(replies[..2], [int(0), null()]);
    assert_eq!(replies[2].field("owner"), text("next"));
    grant(&next.hear());
}

#[test]
fn a_wait_outlives_steps_of_the_wall_clock() {
    let server = Setup::new().wall_clock().start();
    let mut me = server.client();
    for step in [-3_600, 3_600, -86_400] {
        me.insist("LOCK.ACQUIRE k me 2000");
        let mut next = waits(&server, "LOCK.ACQUIRE k next 60000 WAIT 60000").0;
        let mut short = waits(&server, "LOCK.ACQUIRE k short 60000 WAIT 500").0;
        server.wall_clock().set(step);
        assert_eq!(short.hear(), null(), "stepped by {step} s");
        let (_, waited) = grant(&next.hear());
        println!("stepped by {step} s, it waited {waited} ms");
        me.say("LOCK.RELEASE k next");
    }
}

/// Nothing is written while writes are paused, but no waiter is forgotten.
#[test]
fn a_hand_over_waits_until_writes_go_on() {
    let server = Setup::new().aof().start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 1500");
    let mut next = queues(&server, "next").0;
    let mut short = waits(&server, "LOCK.ACQUIRE k short 1000 WAIT 300").0;
    me.say("CLIENT PAUSE 100000 WRITE");
    assert_eq!(short.hear(), null(), "time goes on");
    wait_until("the lease ends", || me.say("LOCK.INFO k") == null());
    assert_eq!(server.info("waiters"), 1);
    me.say("CLIENT UNPAUSE");
    grant(&next.hear());
}

/// The background work may not grant what the server would refuse to a client. Otherwise a master that lost its
/// replicas could grant what its successor grants as well.
#[test]
fn without_enough_replicas_a_lease_that_ends_passes_to_nobody() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 1500");
    let mut next = queues(&server, "next").0;
    me.say("CONFIG SET min-replicas-to-write 1");
    wait_until("the lease ends", || me.say("EXISTS k") == int(0));
    let mut short = waits(&server, "LOCK.WAIT k short 300").0;
    assert_eq!((short.hear(), server.info("waiters")), (int(0), 1));
    me.say("CONFIG SET min-replicas-to-write 0");
    grant(&next.hear());
}
