//! LOCK.WAIT: told in turn, the lock is kept for a moment, and nothing is granted.

use crate::harness::{Server, Setup, int, null, waits};

/// Long enough to look at a reservation while it lasts.
const LONG: &[&str] = &["handoff-window", "10000"];

#[test]
fn used_it_becomes_a_grant() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    let mut a = waits(&server, "LOCK.WAIT k a 60000").0;
    let mut b = waits(&server, "LOCK.ACQUIRE k b 60000 WAIT 60000").0;
    me.say("LOCK.RELEASE k me");
    assert_eq!(a.hear(), int(1));
    // It is a's now, though nobody holds it.
    assert_eq!((me.say("LOCK.INFO k"), me.say("EXISTS k")), (null(), int(0)));
    assert_eq!(me.say("LOCK.ACQUIRE k thief 60000"), null());
    assert_eq!((me.say("LOCK.WAIT k thief 0"), a.say("LOCK.WAIT k a 0")), (int(0), int(1)));
    assert!(a.say("LOCK.ACQUIRE k a 60000").as_int() > token);
    a.say("LOCK.RELEASE k a");
    b.hear().as_list();
    assert_eq!((server.info("turns"), server.info("hand_overs"), server.info("waiters")), (1, 1, 0));
}

#[test]
fn unused_the_next_is_told() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut a = waits(&server, "LOCK.WAIT k a 60000").0;
    let mut b = waits(&server, "LOCK.WAIT k b 60000").0;
    let mut c = waits(&server, "LOCK.ACQUIRE k c 60000 WAIT 60000").0;
    me.say("LOCK.RELEASE k me");
    assert_eq!((a.hear(), b.hear()), (int(1), int(1)));
    c.hear().as_list();
    assert_eq!(a.say("LOCK.ACQUIRE k a 60000"), null(), "too late");
}

#[test]
fn given_back_the_next_is_told_at_once() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut a = waits(&server, "LOCK.WAIT k a 60000").0;
    let mut b = waits(&server, "LOCK.WAIT k b 60000").0;
    me.say("LOCK.RELEASE k me");
    assert_eq!(a.hear(), int(1));
    assert_eq!(a.say("LOCK.RELEASE k a"), null());
    assert_eq!(b.hear(), int(1));
}

#[test]
fn a_free_lock_is_kept_for_the_one_who_asks() {
    let server = Setup::new().module_arguments(LONG).start();
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(a.say("LOCK.WAIT k a 60000"), int(1));
    assert_eq!((b.say("LOCK.ACQUIRE k b 1000"), b.say("LOCK.WAIT k b 0")), (null(), int(0)));
    assert!(a.say("LOCK.ACQUIRE k a 60000").as_int() > 0);
    assert_eq!(a.say("LOCK.WAIT k a 0"), int(1), "it is its own");
}

#[test]
fn tickets_order_the_queue_whatever_the_order_of_arrival() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let tickets = [50, 10, 40, 20, 30];
    let mut waiters: Vec<_> = tickets
        .iter()
        .map(|ticket| waits(&server, &format!("LOCK.WAIT k o{ticket} 60000 TICKET {ticket}")).0)
        .collect();
    me.say("LOCK.RELEASE k me");
    for expected in [10, 20, 30, 40, 50] {
        let at = tickets.iter().position(|&ticket| ticket == expected).unwrap();
        assert_eq!(waiters[at].hear(), int(1));
        waiters[at].say(&format!("LOCK.ACQUIRE k o{expected} 60000")).as_int();
        waiters[at].say(&format!("LOCK.RELEASE k o{expected}"));
    }
}

/// A read: no key, nothing for replicas or the AOF.
#[test]
fn it_writes_nothing() {
    let server = Setup::new().aof().module_arguments(LONG).start();
    let mut me = server.client();
    let size = |server: &Server| -> u64 {
        let dir = server.dir().join("appendonlydir");
        std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    let before = size(&server);
    assert_eq!((me.say("LOCK.WAIT k me 10"), me.say("LOCK.WAIT k you 10")), (int(1), int(0)));
    assert_eq!((me.say("DBSIZE"), size(&server)), (int(0), before));
    me.say("CLIENT PAUSE 100000 WRITE");
    assert_eq!(me.say("LOCK.WAIT other me 10"), int(1));
}
