//! Readers hold a lock together, writers alone, and all wait in one queue.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::{
    Client, Server, SetAtTheEnd, error, grants, int, null, owners, past_its_first_tokens, text, token, wait_until,
    waits,
};

/// Returns a client that waits to read `k` as `owner`.
fn reader_waits(server: &Server, owner: &str) -> Client {
    waits(server, &format!("LOCK.ACQUIRE k {owner} 60000 SHARED WAIT 60000")).0
}

/// Returns a client that waits to write `k` as `owner`.
fn writer_waits(server: &Server, owner: &str) -> Client {
    waits(server, &format!("LOCK.ACQUIRE k {owner} 60000 WAIT 60000")).0
}

#[test]
fn readers_hold_together_and_keep_writers_and_permits_out() {
    let server = Server::start();
    let mut me = server.client();
    let first = me.say("LOCK.ACQUIRE k a 60000 SHARED NOTE n").as_int();
    let second = me.say("LOCK.ACQUIRE k b 60000 SHARED WAIT 0").as_list();
    assert_eq!((second.len(), second[1].clone()), (2, int(0)));
    for line in ["LOCK.ACQUIRE k w 60000", "LOCK.ACQUIRE k w 60000 LIMIT 5", "LOCK.ACQUIRE k w 60000 LIMIT 1"] {
        assert_eq!(me.say(line), null(), "{line}");
    }
    let info = me.say("LOCK.INFO k HOLDERS 10");
    assert_eq!((info.field("mode"), info.field("holders")), (text("shared"), int(2)));
    assert_eq!((info.field("owner"), info.field("token"), info.field("note")), (text("a"), int(first), text("n")));
    assert_eq!(info.field("grants").as_list()[1].field("token"), second[0]);
    assert_eq!(me.say("LOCK.INFO k HOLDERS 1").field("grants").as_list().len(), 1);
    assert_eq!((server.info("grants"), server.info("shared_grants"), server.info("held")), (2, 2, 1));
    assert_eq!(me.say("LOCK.RELEASE k a"), int(0));
    assert_eq!(me.say("LOCK.ACQUIRE k w 60000"), null(), "one reader is left");
    assert_eq!(me.say("LOCK.RELEASE k b"), int(0));
    assert_eq!(me.say("EXISTS k"), int(0));
    assert!(me.say("LOCK.ACQUIRE k w 60000").as_int() > second[0].as_int().max(first));
    assert_eq!(me.say("LOCK.ACQUIRE k a 60000 SHARED"), null(), "a writer keeps readers out");
}

#[test]
fn strictly_first_in_first_out_over_modes() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k a 60000 SHARED");
    let mut writer = writer_waits(&server, "w");
    // The request is compatible with the holder, but does not get ahead of the earlier request.
    assert_eq!(me.say("LOCK.ACQUIRE k b 60000 SHARED"), null());
    let (mut b, mut c) = (reader_waits(&server, "b"), reader_waits(&server, "c"));
    let mut last = writer_waits(&server, "x");
    let mut late = reader_waits(&server, "d");
    let queue = me.say("LOCK.INFO k WAITERS 10").field("queue").as_list();
    let modes: Vec<_> = queue.iter().map(|waiter| waiter.field("mode").as_text()).collect();
    assert_eq!(modes, ["exclusive", "shared", "shared", "exclusive", "shared"]);
    me.say("LOCK.RELEASE k a");
    let written = token(&writer.hear());
    assert_eq!((owners(&mut me, "k"), server.info("waiters")), (vec!["w".to_owned()], 4));
    // Adjacent readers are granted the lock together, in one step; a reader behind the next writer is not.
    me.say("LOCK.RELEASE k w");
    assert_eq!(owners(&mut me, "k"), ["b", "c"]);
    assert!(token(&b.hear()) > written && token(&c.hear()) > written);
    assert_eq!(server.info("waiters"), 2);
    me.say("LOCK.RELEASE k b");
    assert_eq!(server.info("waiters"), 2, "c still reads");
    me.say("LOCK.RELEASE k c");
    let written = token(&last.hear());
    me.say("LOCK.RELEASE k x");
    assert!(token(&late.hear()) > written);
    assert_eq!((server.info("hand_overs"), server.info("waiters")), (5, 0));
}

/// A thousand readers get in together when their writer leaves, although one pass of the event loop serves fewer.
#[test]
fn a_thousand_readers_who_wait_for_one_writer_get_in_together() {
    const COUNT: usize = 1_000;
    let server = Server::start();
    let mut me = server.client();
    let written = me.say("LOCK.ACQUIRE k w 60000").as_int();
    let mut clients: Vec<_> = (0..COUNT).map(|_| server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.ask(&format!("LOCK.ACQUIRE k r{n} 60000 SHARED WAIT 60000"));
    }
    wait_until("all wait", || server.info("waiters") == COUNT as u64);
    // This writer is behind all readers in the queue.
    let _writer = writer_waits(&server, "x");
    me.say("LOCK.RELEASE k w");
    for client in &mut clients {
        assert!(token(&client.hear()) > written);
    }
    let info = me.say("LOCK.INFO k");
    assert_eq!((info.field("holders"), info.field("waiters")), (int(COUNT as i64), int(1)));
    assert_eq!(server.info("answers_most"), 50, "in slices");
}

/// The queue is served when the request that blocked the others leaves.
#[test]
fn readers_get_in_when_the_writer_before_them_gives_up() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k a 60000 SHARED");
    for how in ["disconnects", "times out", "withdraws"] {
        let ms = if how == "times out" { 200 } else { 60_000 };
        let (mut writer, _) = waits(&server, &format!("LOCK.ACQUIRE k w 60000 WAIT {ms}"));
        let mut reader = reader_waits(&server, "b");
        match how {
            "disconnects" => drop(writer),
            "times out" => assert_eq!(writer.hear(), null()),
            _ => {
                me.say("LOCK.RELEASE k w");
                assert_eq!(writer.hear(), null());
            }
        }
        assert!(token(&reader.hear()) > 0, "{how}");
        assert_eq!(owners(&mut me, "k"), ["a", "b"], "{how}");
        me.say("LOCK.RELEASE k b");
    }
}

#[test]
fn each_holder_has_a_grant_of_its_own() {
    let server = Server::start();
    let mut me = server.client();
    let a = me.say("LOCK.ACQUIRE k a 60000 SHARED NOTE first").as_int();
    let b = me.say("LOCK.ACQUIRE k b 1000 SHARED").as_int();
    // Holds, lease and token are those of the owner that is named.
    assert_eq!(me.say("LOCK.REENTER k b"), int(2));
    assert_eq!(me.say("LOCK.EXTEND k b 50000"), int(b));
    assert_eq!(me.say(&format!("LOCK.EXTEND k b 50000 TOKEN {}", b + 1)), null());
    let raised = b + 1_000_000;
    assert_eq!(me.insist(&format!("LOCK.FENCE k a {raised}")), int(raised));
    let listed = grants(&mut me, "k");
    let of = |field: &str| [listed[0].field(field), listed[1].field(field)];
    assert_eq!(of("holds"), [int(1), int(2)]);
    assert_eq!(of("token"), [int(raised), int(b)]);
    assert_eq!((of("note"), of("mode")), ([text("first"), text("")], [text("shared"), text("shared")]));
    let ttl = of("ttl").map(|ttl| ttl.as_int());
    assert!(ttl[0] > 50_000 && (40_000..=50_000).contains(&ttl[1]), "{ttl:?}");
    // Each token is checked separately; the raised one is no longer that of a's first grant.
    assert!(me.say(&format!("LOCK.CHECK k {raised}")).as_int() > 50_000);
    assert!((1..=50_000).contains(&me.say(&format!("LOCK.CHECK k {b}")).as_int()));
    assert_eq!(me.say(&format!("LOCK.CHECK k {a}")), null());
    // Tokens that belong to no grant are refused.
    assert_eq!(
        (me.say("LOCK.EXTEND k c 1000"), me.say("LOCK.REENTER k c"), me.say("LOCK.RELEASE k c")),
        (null(), null(), null())
    );
    assert_eq!(me.say(&format!("LOCK.RELEASE k b TOKEN {raised}")), null());
    assert_eq!((me.say("LOCK.RELEASE k b"), me.say("LOCK.RELEASE k b")), (int(1), int(0)));
    assert_eq!((me.say("LOCK.RELEASE k b"), me.say(&format!("LOCK.CHECK k {b}"))), (null(), null()));
    assert_eq!(owners(&mut me, "k"), ["a"]);
}

/// Tokens of readers are not ordered among themselves: a proposal that equals another reader's token, or lies between
/// those of two readers, is accepted. A writer's is above all of them, and a later reader's above the writer's.
#[test]
fn tokens_of_readers_are_in_no_order() {
    let server = past_its_first_tokens();
    let mut me = server.client();
    let a = me.say("LOCK.ACQUIRE k a 20000 SHARED").as_int();
    assert_eq!(me.say(&format!("LOCK.ACQUIRE k b 40000 SHARED FENCE {a}")), int(a));
    assert_eq!(me.say(&format!("LOCK.ACQUIRE k c 40000 SHARED FENCE {}", a - 1)), int(a - 1));
    // If two grants have one token, CHECK reports the one that lasts longer.
    assert!((20_001..=40_000).contains(&me.say(&format!("LOCK.CHECK k {a}")).as_int()));
    me.say("LOCK.RELEASE k b");
    assert!((1..=20_000).contains(&me.say(&format!("LOCK.CHECK k {a}")).as_int()));
    me.say("LOCK.RELEASE k a");
    me.say("LOCK.RELEASE k c");
    let written = me.say(&format!("LOCK.ACQUIRE k w 60000 FENCE {a}")).as_int();
    assert!(written > a);
    me.say("LOCK.RELEASE k w");
    let read = me.say(&format!("LOCK.ACQUIRE k a 60000 SHARED FENCE {written}")).as_int();
    assert!(read > written);
    // A later reader's token is above the writer's also if the writer itself became a reader.
    let written = me.say("LOCK.ACQUIRE x w 60000").as_int();
    me.say("LOCK.CONVERT x w SHARED");
    assert!(me.say(&format!("LOCK.ACQUIRE x a 60000 SHARED FENCE {written}")).as_int() > written);
}

#[test]
fn a_repeated_request_is_one_in_the_same_mode() {
    let server = Server::start();
    let mut me = server.client();
    let a = me.say("LOCK.ACQUIRE k a 1000 SHARED").as_int();
    me.say("LOCK.ACQUIRE k b 60000 SHARED");
    assert_eq!(me.say("LOCK.ACQUIRE k a 60000 SHARED RETRY"), int(a));
    assert!(grants(&mut me, "k")[0].field("ttl").as_int() > 50_000, "it lasts as long as it asks for");
    let waited = me.say("LOCK.ACQUIRE k a 60000 SHARED RETRY WAIT 5000");
    assert_eq!(token(&waited), a);
    for line in ["SHARED", "RETRY", "LIMIT 3 RETRY", "LIMIT 1 RETRY", "RETRY WAIT 5000"] {
        assert!(error(me.say(&format!("LOCK.ACQUIRE k a 60000 {line}"))).starts_with("OWNED"), "{line}");
    }
    assert_eq!(owners(&mut me, "k"), ["a", "b"]);
    assert_eq!(server.info("grants"), 2);
    // Conversely, the only writer cannot ask for the lock as a reader.
    me.say("LOCK.ACQUIRE x a 60000");
    assert!(error(me.say("LOCK.ACQUIRE x a 60000 SHARED RETRY")).starts_with("OWNED"));
}

/// An owner that is granted the lock no longer waits. Its requests in that mode are answered with the grant, and those
/// in another mode are refused.
#[test]
fn a_holder_does_not_wait_for_itself() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k w 60000");
    let mut read = reader_waits(&server, "a");
    let mut again = waits(&server, "LOCK.ACQUIRE k a 60000 SHARED WAIT 60000 RETRY").0;
    let mut write = writer_waits(&server, "a");
    let mut turn = waits(&server, "LOCK.WAIT k a 60000 LIMIT 3").0;
    let mut next = reader_waits(&server, "b");
    me.say("LOCK.RELEASE k w");
    assert_eq!(token(&read.hear()), token(&again.hear()), "one grant answers both");
    assert!(write.hear().is_error("OWNED") && turn.hear().is_error("OWNED"));
    assert!(token(&next.hear()) > 0, "nobody stands between the readers any more");
    assert_eq!((owners(&mut me, "k"), server.info("waiters")), (vec!["a".to_owned(), "b".to_owned()], 0));
}

/// Runs three clients that repeatedly take the lock in the mode `crowd` and release it, while `meanwhile` runs with
/// their tokens.
fn among_a_crowd(server: &Server, crowd: &str, meanwhile: impl FnOnce(&Mutex<Vec<i64>>)) {
    let (done, tokens) = (AtomicBool::new(false), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for name in ["x", "y", "z"] {
            let (mut client, done, tokens) = (server.client(), &done, &tokens);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    let reply = client.say(&format!("LOCK.ACQUIRE k {name} 60000{crowd} WAIT 60000"));
                    tokens.lock().unwrap().push(token(&reply));
                    client.say(&format!("LOCK.RELEASE k {name}"));
                }
            });
        }
        let _done = SetAtTheEnd(&done);
        meanwhile(&tokens);
    });
}

const ROUNDS: usize = 20;

/// The lock is never free, and new requests would be compatible with its holders, yet they queue behind the waiter.
#[test]
fn those_who_keep_coming_do_not_keep_out_who_waits() {
    for (crowd, lonely) in [(" SHARED", ""), (" LIMIT 9", ""), (" SHARED", " LIMIT 3"), (" LIMIT 9", " SHARED")] {
        let server = Server::start();
        among_a_crowd(&server, crowd, |tokens| {
            let (mut anchor, mut patient) = (server.client(), server.client());
            for _ in 0..ROUNDS {
                token(&anchor.say(&format!("LOCK.ACQUIRE k anchor 60000{crowd} WAIT 60000")));
                let before = tokens.lock().unwrap().len();
                wait_until("they come and go", || tokens.lock().unwrap().len() > before);
                patient.ask(&format!("LOCK.ACQUIRE k patient 60000{lonely} WAIT 60000"));
                wait_until("all wait", || server.info("waiters") == 4);
                assert_eq!(owners(&mut anchor, "k"), ["anchor"], "{lonely} among {crowd}");
                anchor.say("LOCK.RELEASE k anchor");
                assert!(token(&patient.hear()) > 0);
                assert_eq!(owners(&mut anchor, "k"), ["patient"], "{lonely} among {crowd}");
                patient.say("LOCK.RELEASE k patient");
            }
        });
    }
}

/// A reader waits behind writers that keep asking for the lock. Each writer that waits before the reader is served
/// once, and no later request of a writer is served before the reader.
#[test]
fn writers_who_keep_coming_do_not_keep_a_reader_out() {
    let server = Server::start();
    among_a_crowd(&server, "", |tokens| {
        let (mut anchor, mut patient) = (server.client(), server.client());
        for _ in 0..ROUNDS {
            let from = token(&anchor.say("LOCK.ACQUIRE k anchor 60000 WAIT 60000"));
            wait_until("they wait", || server.info("waiters") == 3);
            patient.ask("LOCK.ACQUIRE k patient 60000 SHARED WAIT 60000");
            wait_until("it waits", || server.info("waiters") == 4);
            anchor.say("LOCK.RELEASE k anchor");
            let until = token(&patient.hear());
            // The last writer may not have recorded its token yet.
            let between = || tokens.lock().unwrap().iter().filter(|&&token| from < token && token < until).count();
            wait_until("they tell", || between() >= 3);
            assert_eq!(between(), 3);
            patient.say("LOCK.RELEASE k patient");
        }
    });
}
