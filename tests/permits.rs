//! Permits: at most a given number of holders at a time, each with its own number.

use crate::harness::{
    Client, Reply, Server, error, grants, int, null, number, past_its_first_tokens, permits, text, token, waits,
};

/// Takes a permit of `k` for `owner`, if one is free.
fn take(client: &mut Client, owner: &str, options: &str) -> Option<i64> {
    match client.say(&format!("LOCK.ACQUIRE k {owner} 60000 {options}")) {
        Reply::Null => None,
        reply => Some(number(&reply)),
    }
}

fn permit_waits(server: &Server, owner: &str, options: &str) -> Client {
    waits(server, &format!("LOCK.ACQUIRE k {owner} 60000 {options} WAIT 60000")).0
}

#[test]
fn as_many_as_the_limit_each_with_the_lowest_free_number() {
    let server = Server::start();
    let mut me = server.client();
    let first = me.say("LOCK.ACQUIRE k a 60000 LIMIT 3").as_list();
    assert_eq!((first.len(), first[1].clone(), first[2].clone()), (3, int(0), int(1)));
    assert_eq!((take(&mut me, "b", "LIMIT 3"), take(&mut me, "c", "LIMIT 3 WAIT 1000")), (Some(2), Some(3)));
    assert_eq!((take(&mut me, "d", "LIMIT 3"), take(&mut me, "d", "LIMIT 3 WAIT 10")), (None, None));
    assert_eq!((me.say("LOCK.ACQUIRE k d 60000"), me.say("LOCK.ACQUIRE k d 60000 SHARED")), (null(), null()));
    let info = me.say("LOCK.INFO k HOLDERS 9");
    assert_eq!((info.field("mode"), info.field("holders")), (text("permit"), int(3)));
    let listed = grants(&mut me, "k");
    assert!(listed.iter().all(|grant| (grant.field("mode"), grant.field("limit")) == (text("permit"), int(3))));
    assert_eq!((server.info("grants"), server.info("permit_grants"), server.info("held")), (3, 3, 1));
    // The next client gets the released number.
    assert_eq!(me.say("LOCK.RELEASE k b"), int(0));
    assert_eq!(take(&mut me, "d", "LIMIT 3"), Some(2));
    let held = [("a", 1), ("c", 3), ("d", 2)].map(|(owner, number)| (owner.to_owned(), number));
    assert_eq!(permits(&mut me, "k"), held);
}

#[test]
fn a_permit_that_is_named() {
    let server = Server::start();
    let mut me = server.client();
    assert_eq!(take(&mut me, "a", "LIMIT 5 PERMIT 4"), Some(4));
    assert_eq!(take(&mut me, "b", "PERMIT 4 LIMIT 5"), None, "somebody has it");
    assert_eq!((take(&mut me, "b", "LIMIT 5 PERMIT 5"), take(&mut me, "c", "LIMIT 5")), (Some(5), Some(1)));
    // A waiter for a particular number keeps its place: later requests do not get ahead of it, though other numbers are
    // free.
    let mut d = permit_waits(&server, "d", "LIMIT 5 PERMIT 4");
    assert_eq!(take(&mut me, "e", "LIMIT 5"), None);
    let mut e = permit_waits(&server, "e", "LIMIT 5");
    me.say("LOCK.RELEASE k b");
    assert_eq!(server.info("waiters"), 2);
    let before = grants(&mut me, "k")[0].field("token").as_int();
    me.say("LOCK.RELEASE k a");
    let (d, e) = (d.hear(), e.hear());
    assert_eq!((number(&d), number(&e)), (4, 2));
    assert!(token(&d) > before, "above the one before it of this number");
}

/// Each limit is a promise to the holder that named it: while that holder has its permit, no more permits are held than
/// its limit.
#[test]
fn of_limits_that_differ_the_smaller_one_counts_until_its_last_holder_leaves() {
    let server = Server::start();
    let mut me = server.client();
    // A smaller limit: holders of larger numbers have to release first.
    for n in 1..=4 {
        assert_eq!(take(&mut me, &format!("o{n}"), "LIMIT 4"), Some(n));
    }
    assert_eq!(me.say("LOCK.RELEASE k o1"), int(0));
    assert_eq!(take(&mut me, "low", "LIMIT 2"), None, "numbers 3 and 4 are held");
    me.say("LOCK.RELEASE k o3");
    me.say("LOCK.RELEASE k o4");
    assert_eq!(take(&mut me, "low", "LIMIT 2"), Some(1));
    // A larger limit: not while a permit is held under the smaller one.
    assert_eq!(take(&mut me, "high", "LIMIT 4"), None);
    assert_eq!(take(&mut me, "high", "LIMIT 4 PERMIT 3"), None);
    me.say("LOCK.RELEASE k o2");
    assert_eq!(take(&mut me, "high", "LIMIT 4"), Some(2));
    assert_eq!(take(&mut me, "more", "LIMIT 4"), None);
    let mut waiter = permit_waits(&server, "more", "LIMIT 4");
    me.say("LOCK.RELEASE k low");
    assert_eq!(number(&waiter.hear()), 1);
    assert_eq!(take(&mut me, "last", "LIMIT 4"), Some(3));
}

#[test]
fn a_limit_of_one_is_an_exclusive_lock() {
    let server = Server::start();
    let mut me = server.client();
    assert_eq!(take(&mut me, "a", "LIMIT 1 PERMIT 1"), Some(1));
    let info = me.say("LOCK.INFO k HOLDERS 5");
    assert_eq!((info.field("mode"), info.field("holders")), (text("exclusive"), int(1)));
    assert_eq!(me.say("LOCK.ACQUIRE k b 60000"), null());
    assert_eq!(take(&mut me, "b", "LIMIT 5"), None);
    let a = info.field("token").as_int();
    assert_eq!(me.say("LOCK.ACQUIRE k a 60000 RETRY"), int(a), "the same request in other words");
    assert_eq!(me.say("LOCK.ACQUIRE k a 60000 LIMIT 1 RETRY").as_list(), [int(a), int(0), int(1)]);
    assert_eq!(me.say("LOCK.CONVERT k a SHARED"), int(a));
    me.say("LOCK.RELEASE k a");
    // An exclusive lock also keeps out a request for a single permit.
    assert!(me.say("LOCK.ACQUIRE k a 60000").as_int() > a);
    assert_eq!((take(&mut me, "b", "LIMIT 1"), server.info("permit_grants")), (None, 0));
    me.say("LOCK.RELEASE k a");
    assert_eq!(take(&mut me, "a", "LIMIT 2"), Some(1));
    assert_eq!(take(&mut me, "b", "LIMIT 1"), None);
}

/// An exclusive request waits until all permits are released, and meanwhile no new one is granted.
#[test]
fn an_exclusive_request_drains_a_semaphore() {
    let server = Server::start();
    let mut me = server.client();
    for owner in ["a", "b", "c"] {
        take(&mut me, owner, "LIMIT 3");
    }
    let mut alone = waits(&server, "LOCK.ACQUIRE k alone 60000 WAIT 60000").0;
    let mut next = permit_waits(&server, "d", "LIMIT 3");
    for owner in ["a", "b", "c"] {
        assert_eq!(server.info("waiters"), 2);
        me.say(&format!("LOCK.RELEASE k {owner}"));
    }
    let written = token(&alone.hear());
    assert_eq!((permits(&mut me, "k"), server.info("waiters")), (vec![("alone".to_owned(), 0)], 1));
    me.say("LOCK.RELEASE k alone");
    let reply = next.hear();
    assert!(token(&reply) > written && number(&reply) == 1);
}

#[test]
fn a_repeated_request_names_the_same_limit() {
    let server = Server::start();
    let mut me = server.client();
    let first = me.say("LOCK.ACQUIRE k a 60000 LIMIT 3 PERMIT 2").as_list();
    for same in ["LIMIT 3", "LIMIT 3 PERMIT 2"] {
        let again = me.say(&format!("LOCK.ACQUIRE k a 60000 {same} RETRY"));
        assert_eq!(again.as_list(), first, "{same}");
    }
    for other in ["LIMIT 3", "LIMIT 4 RETRY", "LIMIT 3 PERMIT 1 RETRY", "SHARED RETRY", "RETRY", "LIMIT 1 RETRY"] {
        assert!(error(me.say(&format!("LOCK.ACQUIRE k a 60000 {other}"))).starts_with("OWNED"), "{other}");
    }
    assert_eq!(permits(&mut me, "k"), [("a".to_owned(), 2)]);
}

/// The tokens of one number grow; those of different numbers are not ordered.
#[test]
fn each_number_has_an_order_of_tokens() {
    let server = past_its_first_tokens();
    let mut me = server.client();
    let a = token(&me.say("LOCK.ACQUIRE k a 60000 LIMIT 3 PERMIT 1"));
    let proposed = |me: &mut Client, owner: &str, number: i64, proposal: i64| {
        token(&me.say(&format!("LOCK.ACQUIRE k {owner} 60000 LIMIT 3 PERMIT {number} FENCE {proposal}")))
    };
    assert_eq!(proposed(&mut me, "b", 2, a), a, "another number");
    assert_eq!(proposed(&mut me, "c", 3, a - 1), a - 1);
    me.say("LOCK.RELEASE k b");
    assert!(proposed(&mut me, "d", 2, a) > a, "the same number, while others hold theirs");
    me.say("LOCK.RELEASE k c");
    assert_eq!(proposed(&mut me, "e", 3, a), a, "above the one of its number");
    for owner in ["a", "d", "e"] {
        me.say(&format!("LOCK.RELEASE k {owner}"));
    }
    // The largest token from before the lock was free is the lower bound, whatever its number.
    assert!(proposed(&mut me, "f", 3, a + 1) > a + 1);
    let read = {
        me.say("LOCK.RELEASE k f");
        me.say(&format!("LOCK.ACQUIRE k r 60000 SHARED FENCE {a}")).as_int()
    };
    me.say("LOCK.RELEASE k r");
    assert!(proposed(&mut me, "g", 1, read) > read);
}

#[test]
fn the_lease_of_each_permit_is_its_own() {
    let server = Server::start();
    let mut me = server.client();
    let a = token(&me.say("LOCK.ACQUIRE k a 60000 LIMIT 2 NOTE n"));
    let b = token(&me.say("LOCK.ACQUIRE k b 60000 LIMIT 2"));
    assert_eq!((me.say("LOCK.REENTER k b"), me.say("LOCK.RELEASE k b")), (int(2), int(1)));
    assert_eq!(me.say("LOCK.EXTEND k a 60000"), int(a));
    for token in [a, b] {
        assert!(me.say(&format!("LOCK.CHECK k {token}")).as_int() > 50_000);
    }
    me.say("LOCK.RELEASE k a");
    assert_eq!((me.say(&format!("LOCK.CHECK k {a}")), me.say("LOCK.EXTEND k a 60000")), (null(), null()));
    assert!(me.say(&format!("LOCK.CHECK k {b}")).as_int() > 50_000);
    assert_eq!(permits(&mut me, "k"), [("b".to_owned(), 2)]);
}

/// A semaphore with the largest limit grants every number up to it.
#[test]
fn sixty_five_thousand_permits() {
    const LIMIT: usize = 65_535;
    let server = Server::start();
    let mut me = server.client();
    for batch in (0..LIMIT).collect::<Vec<_>>().chunks(5_000) {
        let lines: Vec<_> = batch.iter().map(|n| format!("LOCK.ACQUIRE k o{n} 60000 LIMIT {LIMIT}")).collect();
        let numbers: Vec<_> = me.pipeline(&lines).iter().map(number).collect();
        assert_eq!(numbers, batch.iter().map(|n| *n as i64 + 1).collect::<Vec<_>>());
    }
    assert_eq!(take(&mut me, "more", &format!("LIMIT {LIMIT}")), None);
    assert_eq!(me.say("LOCK.INFO k").field("holders"), int(LIMIT as i64));
    me.say("LOCK.RELEASE k o4711");
    assert_eq!(take(&mut me, "more", &format!("LIMIT {LIMIT}")), Some(4712));
}
