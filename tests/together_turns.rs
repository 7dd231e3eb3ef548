//! LOCK.WAIT in shared modes: several turns exist at the same time, each with its reserved number.

use crate::harness::{Client, Server, Setup, error, int, null, number, owners, permits, text, token, waits};

/// Arguments that make reservations long enough to inspect.
const LONG: &[&str] = &["handoff-window", "10000"];

fn turn(server: &Server, owner: &str, options: &str) -> Client {
    waits(server, format!("LOCK.WAIT k {owner} 60000 {options}").trim_end()).0
}

#[test]
fn as_many_turns_as_there_are_permits_each_with_its_number() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000 LIMIT 3 PERMIT 2");
    assert_eq!((me.say("LOCK.WAIT k a 0 LIMIT 3"), me.say("LOCK.WAIT k b 0 LIMIT 3")), (int(1), int(3)));
    assert_eq!(me.say("LOCK.WAIT k a 0 LIMIT 3"), int(1), "it is a's already");
    assert_eq!((me.say("LOCK.WAIT k c 0 LIMIT 3"), me.say("LOCK.ACQUIRE k c 1000 LIMIT 3")), (int(0), null()));
    let info = me.say("LOCK.INFO k WAITERS 5");
    assert_eq!((info.field("holders"), info.field("reserved")), (int(1), text("a")), "the one whose time ends first");
    // Each owner can take its reserved number, even without naming it, but no other.
    assert_eq!(me.say("LOCK.ACQUIRE k b 60000 LIMIT 3 PERMIT 1"), null(), "that is a's");
    assert_eq!(number(&me.say("LOCK.ACQUIRE k b 60000 LIMIT 3")), 3);
    assert_eq!(number(&me.say("LOCK.ACQUIRE k a 60000 LIMIT 3 PERMIT 1")), 1);
    assert_eq!(me.say("LOCK.WAIT k a 0 LIMIT 3"), int(1), "it holds it so");
    assert!(error(me.say("LOCK.WAIT k a 0")).starts_with("OWNED"));
    // A waiter is answered with the number of the permit that becomes free.
    let (mut c, mut d) = (turn(&server, "c", "LIMIT 3"), turn(&server, "d", "LIMIT 3"));
    me.say("LOCK.RELEASE k me");
    assert_eq!((c.hear(), server.info("waiters")), (int(2), 1));
    me.say("LOCK.RELEASE k b");
    assert_eq!(d.hear(), int(3));
    assert_eq!(server.info("turns"), 2);
}

#[test]
fn readers_are_told_together_and_a_writer_alone() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k w 60000");
    let mut readers = [turn(&server, "a", "SHARED"), turn(&server, "b", "SHARED")];
    let mut writer = turn(&server, "x", "");
    let mut late = turn(&server, "c", "SHARED");
    me.say("LOCK.RELEASE k w");
    assert_eq!(readers.each_mut().map(Client::hear), [int(1), int(1)]);
    assert_eq!(server.info("waiters"), 2);
    assert_eq!((me.say("LOCK.ACQUIRE k thief 1000"), me.say("LOCK.ACQUIRE k thief 1000 SHARED")), (null(), null()));
    for owner in ["a", "b"] {
        assert!(me.say(&format!("LOCK.ACQUIRE k {owner} 60000 SHARED")).as_int() > 0);
    }
    assert_eq!(owners(&mut me, "k"), ["a", "b"]);
    me.say("LOCK.RELEASE k a");
    me.say("LOCK.RELEASE k b");
    assert_eq!((writer.hear(), server.info("waiters")), (int(1), 1));
    // After a release, the next waiter is answered.
    assert_eq!(me.say("LOCK.RELEASE k x"), null());
    assert_eq!(late.hear(), int(1));
}

/// A reservation excludes other owners that ask in an incompatible mode.
#[test]
fn what_is_kept_keeps_out_what_does_not_go_with_it() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    let cases = [
        ("SHARED", ["", "LIMIT 3", "LIMIT 1"], "SHARED"),
        ("LIMIT 3 PERMIT 3", ["", "SHARED", "LIMIT 2"], "LIMIT 5"),
        ("", ["", "SHARED", "LIMIT 3"], ""),
    ];
    for (key, (kept, not, goes)) in cases.into_iter().enumerate() {
        let ask =
            |owner: &str, options: &str| format!("LOCK.ACQUIRE k{key} {owner} 60000 {options}").trim_end().to_owned();
        assert!(me.say(format!("LOCK.WAIT k{key} a 0 {kept}").trim_end()).as_int() > 0);
        for options in not {
            assert_eq!(me.say(&ask("thief", options)), null(), "{options} beside {kept}");
        }
        if goes.is_empty() {
            continue;
        }
        let beside = token(&me.say(&ask("b", goes)));
        assert!(token(&me.say(&ask("a", kept))) > beside || kept.starts_with("LIMIT"), "{kept}");
        assert_eq!(owners(&mut me, &format!("k{key}")), ["b", "a"]);
    }
}

/// An unused turn ends, and the next waiter gets the reservation.
#[test]
fn an_unused_number_is_kept_for_the_next() {
    let server = Server::start();
    let mut me = server.client();
    for owner in ["x", "y"] {
        me.say(&format!("LOCK.ACQUIRE k {owner} 60000 LIMIT 2"));
    }
    let (mut a, mut b) = (turn(&server, "a", "LIMIT 2"), turn(&server, "b", "LIMIT 2"));
    let mut c = waits(&server, "LOCK.ACQUIRE k c 60000 LIMIT 2 WAIT 60000").0;
    me.say("LOCK.RELEASE k y");
    assert_eq!((a.hear(), b.hear()), (int(2), int(2)));
    assert_eq!(number(&c.hear()), 2);
    assert_eq!(permits(&mut me, "k"), [("x".to_owned(), 1), ("c".to_owned(), 2)]);
    assert_eq!((server.info("turns"), server.info("hand_overs"), server.info("waiters")), (2, 1, 0));
}

/// Turns are in the order of tickets, whatever the modes.
#[test]
fn tickets_order_turns_of_all_modes() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 60000");
    let mut third = turn(&server, "third", "TICKET 30");
    let mut second = turn(&server, "second", "SHARED TICKET 20");
    let mut first = turn(&server, "first", "TICKET 10 SHARED");
    me.say("LOCK.RELEASE k me");
    assert_eq!((first.hear(), second.hear(), server.info("waiters")), (int(1), int(1), 1));
    me.say("LOCK.RELEASE k first");
    assert_eq!(server.info("waiters"), 1, "one is still kept for a reader");
    me.say("LOCK.RELEASE k second");
    assert_eq!(third.hear(), int(1));
}

/// While the lock is reserved for another owner, not even the only reader becomes a writer.
#[test]
fn a_turn_stands_in_the_way_of_a_conversion() {
    let server = Setup::new().module_arguments(LONG).start();
    let mut me = server.client();
    let a = me.say("LOCK.ACQUIRE k a 60000 SHARED").as_int();
    assert_eq!(me.say("LOCK.WAIT k b 0 SHARED"), int(1));
    assert_eq!(me.say("LOCK.CONVERT k a EXCLUSIVE"), null());
    me.say("LOCK.RELEASE k b");
    assert!(me.say("LOCK.CONVERT k a EXCLUSIVE").as_int() > a);
}
