//! LOCK.WAIT: answers in turn and reserves the lock for a short time, but grants nothing.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::{Server, Setup, free_port, int, null, text, wait_until, waits};

/// Arguments that make reservations long enough to inspect.
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
    // The lock is reserved for a now, though nobody holds it.
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

/// Waiting creates no key, and sends nothing to replicas or the AOF.
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

/// A master makes reservations, and becomes a replica before they are used.
#[test]
fn they_end_on_a_replica_too() {
    let server = Setup::new().module_arguments(&["handoff-window", "1000"]).start();
    let mut me = server.client();
    let waits = ["LOCK.WAIT a me 0".to_owned(), "LOCK.WAIT b me 0".to_owned()];
    assert_eq!(me.pipeline(&waits), [int(1), int(1)]);
    assert!(server.info("waiting_bytes") > 0);
    me.say(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    wait_until("they are over", || server.info("waiting_bytes") == 0);
}

/// A free lock that is reserved or waited for cannot be acquired by every client; LOCK.INFO shows why to a client that
/// asks for the queue.
#[test]
fn info_tells_for_whom_a_free_lock_is_kept_and_who_waits_for_it() {
    let server = Setup::new().module_arguments(LONG).start();
    let (mut me, mut new) = (server.client(), server.client_resp3());
    assert_eq!(me.say("LOCK.INFO k WAITERS 5"), null());
    assert_eq!(me.say("LOCK.WAIT k told 0"), int(1));
    let _b = waits(&server, "LOCK.ACQUIRE k b 60000 WAIT 60000 NOTE later").0;
    for client in [&mut me, &mut new] {
        assert_eq!(client.say("LOCK.INFO k"), null(), "it is free");
        let info = client.say("LOCK.INFO k WAITERS 5");
        let nobody = ["token", "holds", "ttl", "held", "suspect"].map(|field| info.field(field));
        assert_eq!((nobody, info.field("owner"), info.field("note")), ([0; 5].map(int), text(""), text("")));
        assert_eq!((info.field("waiters"), info.field("reserved")), (int(1), text("told")));
        assert!((1..=10_000).contains(&info.field("reserved_ms").as_int()));
        assert_eq!(info.field("queue").as_list()[0].field("owner"), text("b"));
    }
    me.say("LOCK.ACQUIRE k told 60000");
    let info = me.say("LOCK.INFO k WAITERS 5");
    assert_eq!(
        (info.field("owner"), info.field("reserved"), info.field("reserved_ms")),
        (text("told"), text(""), int(0))
    );
    // Free, not reserved, and waited for: the node is guarded.
    me.say("LOCK.GUARD ARM 50000");
    me.say("LOCK.RELEASE k told");
    let info = me.say("LOCK.INFO k WAITERS 5");
    assert_eq!((info.field("owner"), info.field("waiters"), info.field("reserved")), (text(""), int(1), text("")));
    assert_eq!(me.say("LOCK.INFO k"), null());
}

/// Clients ask repeatedly with the smallest ticket, each time as a new owner, and never acquire. Another client gets
/// the free lock all the same.
#[test]
fn clients_that_never_acquire_keep_nobody_from_a_free_lock() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut patient = waits(&server, "LOCK.WAIT k patient 60000 TICKET 7").0;
    let mut waiter = waits(&server, "LOCK.ACQUIRE k waiter 60000 WAIT 60000").0;
    let done = AtomicBool::new(false);
    let (told, granted) = std::thread::scope(|scope| {
        for name in ["x", "y", "z"] {
            let (mut client, done) = (server.client(), &done);
            scope.spawn(move || {
                for n in 0.. {
                    if done.load(Relaxed) {
                        return;
                    }
                    client.say(&format!("LOCK.WAIT k {name}{n} 1000 TICKET 0"));
                }
            });
        }
        wait_until("they wait", || server.info("waiters") == 5);
        me.say("LOCK.RELEASE k me");
        let heard = (patient.hear(), waiter.hear());
        done.store(true, Relaxed);
        heard
    });
    assert_eq!(told, int(1));
    assert!(granted.as_list()[0].as_int() > 0);
}
