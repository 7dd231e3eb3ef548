//! A slot of a cluster migrates while several clients hold a lock in it: all grants move along, and waiters of all
//! modes are redirected.

use crate::cluster::begin_move;
use crate::harness::{
    asking, cluster, error, grants, guarded_ms, int, joined, null, number, owners, text, token, wait_until, waits,
};

/// The slot of `k`.
const SLOT: i64 = 7629;

#[test]
fn readers_and_those_who_wait_in_a_slot_that_migrates() {
    let (one, other) = cluster();
    let mut me = one.client();
    let a = me.insist("LOCK.ACQUIRE k a 60000 SHARED").as_int();
    let b = me.say("LOCK.ACQUIRE k b 60000 SHARED").as_int();
    let mut waiters = [
        waits(&one.server, "LOCK.ACQUIRE k w 60000 WAIT 60000").0,
        waits(&one.server, "LOCK.ACQUIRE k c 60000 SHARED WAIT 60000").0,
        waits(&one.server, "LOCK.WAIT k p 60000 LIMIT 3").0,
    ];
    begin_move(&one, &other);
    assert_eq!((me.say("LOCK.EXTEND k a 60000"), one.server.info("waiters")), (int(a), 3), "it is still here");
    let line = format!("MIGRATE 127.0.0.1 {} k 0 60000", other.server.port());
    assert_eq!(me.say(&line), text("OK"));
    for waiter in &mut waiters {
        assert!(waiter.hear().is_error("TRYAGAIN"), "its slot is on its way");
    }
    // All grants keep others out there, and can only be released.
    let mut there = other.client();
    assert_eq!(asking(&mut there, "LOCK.INFO k").field("holders"), int(2));
    assert_eq!(asking(&mut there, "LOCK.ACQUIRE k w 1000"), null());
    assert!(guarded_ms(asking(&mut there, "LOCK.EXTEND k b 1000")) > 0);
    for member in [&other, &one] {
        member.client().say(&format!("CLUSTER SETSLOT {SLOT} NODE {}", other.id));
    }
    assert!(error(me.say("LOCK.RELEASE k a")).starts_with("MOVED"));
    assert!(grants(&mut there, "k").iter().all(|grant| grant.field("suspect") == int(1)));
    assert_eq!((there.say("LOCK.RELEASE k a"), there.outlast_guard("LOCK.ACQUIRE k w 1000")), (int(0), null()));
    let mut writer = waits(&other.server, "LOCK.ACQUIRE k w 60000 WAIT 60000").0;
    assert_eq!(there.say("LOCK.RELEASE k b"), int(0));
    assert!(token(&writer.hear()) > a.max(b));
    wait_until("the source has none of it", || (one.server.info("held"), one.server.info("waiters")) == (0, 0));
}

/// One of several grants ends while the slot is migrating and the lock is still here: a waiter gets the lock here.
#[test]
fn permits_are_handed_over_while_the_lock_is_still_here() {
    for cause in ["LOCK.RELEASE k b", "BREAK", "the lease ends"] {
        let (one, other) = cluster();
        let mut me = one.client();
        me.insist("LOCK.ACQUIRE k a 60000 LIMIT 2");
        let b = token(
            &me.say(&format!("LOCK.ACQUIRE k b {} LIMIT 2", if cause.starts_with("the") { 3_000 } else { 60_000 })),
        );
        let mut waiter = waits(&one.server, "LOCK.ACQUIRE k c 60000 LIMIT 2 WAIT 60000").0;
        begin_move(&one, &other);
        match cause {
            "BREAK" => assert_eq!(me.say(&format!("LOCK.BREAK k TOKEN {b}")), int(b)),
            "the lease ends" => {}
            _ => assert_eq!(me.say(cause), int(0)),
        }
        assert_eq!(number(&waiter.hear()), 2, "{cause}");
        assert_eq!(owners(&mut me, "k"), ["a", "c"], "{cause}");
        // When the last grant ends, the key is gone, and the next one is requested at the target.
        let mut last = waits(&one.server, "LOCK.ACQUIRE k w 60000 WAIT 60000").0;
        me.say("LOCK.BREAK k");
        assert!(last.hear().is_error("TRYAGAIN"), "{cause}");
    }
}

/// The slot came without its locks, and readers that are unknown here may still be reading. So it is guarded for all
/// modes.
#[test]
fn a_slot_that_came_without_its_readers_is_guarded_for_all_modes() {
    let mut members = joined(["0 5460 10923 16383", "5461 10922", ""]);
    members[1].client().insist("LOCK.ACQUIRE k a 60000 SHARED");
    members[1].server.kill();
    let to = &members[2];
    for at in [to, &members[0]] {
        assert_eq!(at.client().say(&format!("CLUSTER SETSLOT {SLOT} NODE {}", to.id)), text("OK"));
    }
    let mut client = to.client();
    for mode in ["", " SHARED", " LIMIT 3"] {
        assert!(guarded_ms(client.say(&format!("LOCK.ACQUIRE k you 60000{mode}"))) > 30_000, "{mode}");
        assert!(guarded_ms(client.say(&format!("LOCK.WAIT k you 1000{mode}"))) > 30_000, "{mode}");
    }
    let mut waiters =
        ["x", "y"].map(|owner| waits(&to.server, &format!("LOCK.ACQUIRE k {owner} 60000 SHARED WAIT 600000")).0);
    assert_eq!(client.say("LOCK.GUARD LIFT"), int(0));
    assert!(waiters.iter_mut().all(|waiter| token(&waiter.hear()) > 0));
    assert_eq!(owners(&mut client, "k"), ["x", "y"]);
}
