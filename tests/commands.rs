//! Tests each reply of each command.

use crate::harness::{Server, error, int, null, text, wait_until};

#[test]
fn a_first_lock() {
    let server = Server::start();
    let mut me = server.client();
    let token = me.say("LOCK.ACQUIRE orders:42 me 10000").as_int();
    assert!(token > 0 && token < 1 << 53);
    assert!(error(me.say("LOCK.ACQUIRE orders:42 me 10000")).starts_with("OWNED "));
    assert_eq!(me.say("LOCK.ACQUIRE orders:42 you 10000"), null());
    assert_eq!(me.say("LOCK.RELEASE orders:42 you"), null());
    assert_eq!(me.say("LOCK.RELEASE orders:42 me"), int(0));
    assert_eq!(me.say("LOCK.RELEASE orders:42 me"), null());
    assert!(me.say("LOCK.ACQUIRE orders:42 you 10000").as_int() > token);
}

#[test]
fn module_list_shows_the_version_of_the_node() {
    let server = Server::start();
    let version = server.client().say("LOCK.NODE").field("version").as_text();
    let release = version.split('-').next().unwrap();
    let shown = release.split('.').fold(0, |shown, part| shown * 100 + part.parse::<i64>().unwrap());
    let modules = server.client().say("MODULE LIST").as_list();
    let module = modules.iter().find(|module| module.field("name") == text("lock")).expect("the module is listed");
    assert_eq!(module.field("ver"), int(shown), "{version}");
}

#[test]
fn tokens_are_about_the_wall_clock_in_microseconds() {
    let server = Server::start();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
    let token = server.client().say("LOCK.ACQUIRE k me 1000").as_int();
    let a_minute = 60_000_000;
    assert!((now - a_minute..now + a_minute).contains(&token), "{token} is far from {now}");
}

#[test]
fn extend_never_creates_nor_shortens_a_lease() {
    let server = Server::start();
    let mut me = server.client();
    assert_eq!(me.say("LOCK.EXTEND k me 1000"), null(), "never creates a lock");
    let token = me.say("LOCK.ACQUIRE k me 10000").as_int();
    assert_eq!(me.say("LOCK.EXTEND k me 50000"), int(token));
    let ttl = me.say("LOCK.INFO k").field("ttl").as_int();
    assert!((20_000..=50_000).contains(&ttl), "{ttl}");
    assert_eq!(me.say("LOCK.EXTEND k me 1"), int(token), "never shortens");
    assert!(me.say("LOCK.INFO k").field("ttl").as_int() > 20_000);
    assert_eq!(me.say("LOCK.EXTEND k you 50000"), null());
    assert_eq!(me.say(&format!("LOCK.EXTEND k me 50000 TOKEN {token}")), int(token));
    assert_eq!(me.say(&format!("LOCK.EXTEND k me 50000 TOKEN {}", token + 1)), null());
    assert_eq!(me.say(&format!("LOCK.EXTEND k me 50000 TOKEN {}", token - 1)), null());
}

#[test]
fn reenter_and_release_by_one_and_by_level() {
    let server = Server::start();
    let mut me = server.client();
    assert_eq!(me.say("LOCK.REENTER k me"), null(), "never creates a lock");
    let token = me.say("LOCK.ACQUIRE k me 10000").as_int();
    assert_eq!(me.say("LOCK.REENTER k me"), int(2));
    assert_eq!(me.say("LOCK.REENTER k me LEVEL 2"), int(2), "idempotent");
    assert_eq!(me.say("LOCK.REENTER k me LEVEL 5"), int(5));
    assert_eq!(me.say("LOCK.REENTER k me LEVEL 1"), int(5), "never lowers");
    assert_eq!(me.say("LOCK.REENTER k you"), null());
    assert!(me.say("LOCK.INFO k").field("ttl").as_int() <= 10_000, "the deadline stays");
    assert_eq!(me.say("LOCK.REENTER k me LEVEL 5 TTL 50000"), int(5));
    assert!(me.say("LOCK.INFO k").field("ttl").as_int() > 20_000);
    assert_eq!(me.say("LOCK.INFO k").field("token"), int(token), "the token stays");

    assert_eq!(me.say("LOCK.RELEASE k me"), int(4));
    assert_eq!(me.say("LOCK.RELEASE k me LEVEL 3"), int(2));
    assert_eq!(me.say("LOCK.RELEASE k me LEVEL 3"), int(2), "idempotent");
    assert_eq!(me.say(&format!("LOCK.RELEASE k me TOKEN {}", token + 1)), null());
    assert_eq!(me.say("LOCK.INFO k").field("holds"), int(2));
    assert_eq!(me.say(&format!("LOCK.RELEASE k me LEVEL 1 TOKEN {token}")), int(0));
    assert_eq!(me.say("LOCK.RELEASE k me LEVEL 1"), null(), "already released");
    assert_eq!(me.say("EXISTS k"), int(0));
}

#[test]
fn a_lock_cannot_have_more_holds_than_the_limit() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE k me 10000");
    assert_eq!(me.say("LOCK.REENTER k me LEVEL 1000000"), int(1_000_000));
    assert!(error(me.say("LOCK.REENTER k me")).contains("has 1000000 holds"));
    assert_eq!(me.say("LOCK.INFO k").field("holds"), int(1_000_000));
}

#[test]
fn a_repeated_request_is_safe() {
    let server = Server::start();
    let mut me = server.client();
    let token = me.say("LOCK.ACQUIRE k me 10000 RETRY NOTE first").as_int();
    assert_eq!(me.say("LOCK.ACQUIRE k me 60000 retry NOTE second"), int(token));
    let info = me.say("LOCK.INFO k");
    assert_eq!(info.field("note"), text("first"), "the existing grant");
    assert!(info.field("ttl").as_int() > 10_000, "it lasts as long as the repetition asks for");
    assert_eq!(info.field("holds"), int(1), "a repetition is not a re-entry");
    assert_eq!(me.say("LOCK.ACQUIRE k me 1000 RETRY"), int(token));
    assert!(me.say("LOCK.INFO k").field("ttl").as_int() > 10_000, "and no shorter than it did");
    assert_eq!(me.say("LOCK.ACQUIRE k you 10000 RETRY"), null());
}

#[test]
fn check_is_for_exactly_the_current_grant() {
    let server = Server::start();
    let mut me = server.client();
    let first = me.say("LOCK.ACQUIRE k me 10000").as_int();
    assert!((1..=10_000).contains(&me.say(&format!("LOCK.CHECK k {first}")).as_int()));
    assert_eq!(me.say(&format!("LOCK.CHECK k {}", first + 1)), null());
    me.say("LOCK.RELEASE k me");
    assert_eq!(me.say(&format!("LOCK.CHECK k {first}")), null());
    let second = me.say("LOCK.ACQUIRE k you 10000").as_int();
    assert_eq!(me.say(&format!("LOCK.CHECK k {first}")), null(), "a stale holder is told so");
    assert!(me.say(&format!("LOCK.CHECK k {second}")).as_int() > 0);
}

#[test]
fn info_in_both_protocols() {
    let server = Server::start();
    let mut old = server.client();
    let mut new = server.client_resp3();
    assert_eq!(old.say("LOCK.INFO k"), null());
    assert_eq!(new.say("LOCK.INFO k"), null());
    let token = old.say("LOCK.ACQUIRE k me 10000 NOTE nightly").as_int();
    old.say("LOCK.REENTER k me");
    let names = [
        "owner",
        "token",
        "holds",
        "ttl",
        "held",
        "note",
        "waiters",
        "suspect",
        "mode",
        "holders",
        "seq",
        "keepalive",
        "waiters_behind",
    ];
    for reply in [old.say("LOCK.INFO k"), new.say("LOCK.INFO k")] {
        assert_eq!(reply.as_list().iter().step_by(2).cloned().collect::<Vec<_>>(), names.map(text));
        assert_eq!(reply.field("owner"), text("me"));
        assert_eq!(reply.field("token"), int(token));
        assert_eq!(reply.field("holds"), int(2));
        assert!((0..10_000).contains(&reply.field("held").as_int()));
        assert!((1..=10_000).contains(&reply.field("ttl").as_int()));
        assert_eq!(reply.field("note"), text("nightly"));
        assert_eq!((reply.field("waiters"), reply.field("suspect")), (int(0), int(0)));
        assert_eq!((reply.field("mode"), reply.field("holders")), (text("exclusive"), int(1)));
    }
    assert!(matches!(new.say("LOCK.INFO k"), crate::harness::Reply::Map(_)), "RESP3 has maps");
    assert!(matches!(old.say("LOCK.INFO k"), crate::harness::Reply::List(_)));
    assert_eq!(new.say("LOCK.ACQUIRE k you 1000"), null());
}

#[test]
fn break_frees_whoever_holds() {
    let server = Server::start();
    let mut operator = server.client();
    assert_eq!(operator.say("LOCK.BREAK k"), null());
    let token = operator.say("LOCK.ACQUIRE k me 10000").as_int();
    operator.say("LOCK.REENTER k me");
    assert_eq!(operator.say("LOCK.BREAK k"), int(token));
    assert_eq!(operator.say("LOCK.BREAK k"), null());
    assert_eq!(operator.say("LOCK.EXTEND k me 1000"), null());
    assert!(operator.say("LOCK.ACQUIRE k you 10000").as_int() > token);
}

#[test]
fn an_expired_lock_is_free_for_every_command() {
    let server = Server::start();
    let mut me = server.client();
    // The background work removes nothing while writes are paused, so the expired lock stays in memory for this check.
    let mut operator = server.client();
    let token = me.say("LOCK.ACQUIRE k me 20").as_int();
    operator.say("CLIENT PAUSE 100000 WRITE");
    wait_until("the lease ends", || me.say("LOCK.INFO k") == null());
    assert_eq!(server.info("held"), 1, "still in memory");
    assert_eq!(me.say(&format!("LOCK.CHECK k {token}")), null());
    operator.say("CLIENT UNPAUSE");
    for line in ["LOCK.EXTEND k me 1000", "LOCK.REENTER k me", "LOCK.RELEASE k me", "LOCK.BREAK k"] {
        assert_eq!(me.say(line), null(), "{line}");
    }
    assert!(me.say("LOCK.ACQUIRE k me 1000").as_int() > token, "a new grant, even for the same owner");
}

#[test]
fn another_type_is_left_alone() {
    let server = Server::start();
    let mut me = server.client();
    me.say("SET k v");
    for line in [
        "LOCK.ACQUIRE k me 1000",
        "LOCK.RELEASE k me",
        "LOCK.EXTEND k me 1000",
        "LOCK.REENTER k me",
        "LOCK.CHECK k 1",
        "LOCK.INFO k",
        "LOCK.BREAK k",
    ] {
        assert!(error(me.say(line)).starts_with("WRONGTYPE "), "{line}");
    }
    assert_eq!(me.say("GET k"), text("v"));
    me.say("LOCK.ACQUIRE l me 10000");
    assert!(error(me.say("GET l")).starts_with("WRONGTYPE "));
    assert!(error(me.say("APPEND l x")).starts_with("WRONGTYPE "));
    assert_eq!(me.say("LOCK.INFO l").field("owner"), text("me"));
}

#[test]
fn counters_tell_what_happened() {
    let server = Server::start();
    let mut me = server.client();
    for line in [
        "LOCK.ACQUIRE k me 10000",
        "LOCK.ACQUIRE k me 10000 RETRY",
        "LOCK.ACQUIRE k you 10000",
        "LOCK.EXTEND k me 10000",
        "LOCK.EXTEND k you 10000",
        "LOCK.REENTER k me",
        "LOCK.RELEASE k me",
        "LOCK.RELEASE k me",
        "LOCK.ACQUIRE k me 10000",
        "LOCK.BREAK k",
        "LOCK.ACQUIRE k me 5",
    ] {
        me.say(line);
    }
    wait_until("the last lock expires", || server.info("expiries") == 1);
    let expected = [
        ("grants", 3),
        ("contended", 1),
        ("extensions", 1),
        ("reentries", 1),
        ("releases", 1),
        ("breaks", 1),
        ("held", 0),
        ("deadlines", 0),
        ("poisoned", 0),
    ];
    for (field, value) in expected {
        assert_eq!(server.info(field), value, "{field}");
    }
    assert!(server.info("token_high") > 1 << 50);
}

#[test]
fn watchers_are_told_of_changes_and_of_nothing_else() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.client(), server.client());
    let mut committed_after = |prepare: &str, line: &str| {
        other.say("DEL k");
        other.say(prepare);
        watcher.say("WATCH k");
        other.say(line);
        watcher.say("MULTI");
        watcher.say("PING");
        watcher.say("EXEC") != null()
    };
    // (before WATCH, after it, whether the key is unchanged)
    let cases = [
        ("PING", "LOCK.ACQUIRE k me 10000", false),
        ("PING", "LOCK.RELEASE k me", true),
        ("LOCK.ACQUIRE k me 10000", "LOCK.ACQUIRE k you 10000", true),
        ("LOCK.ACQUIRE k me 10000", "LOCK.ACQUIRE k me 10000", true),
        ("LOCK.ACQUIRE k me 10000", "LOCK.ACQUIRE k me 5000 RETRY", true),
        ("LOCK.ACQUIRE k me 10000", "LOCK.ACQUIRE k me 20000 RETRY", false),
        ("LOCK.ACQUIRE k me 10000", "LOCK.EXTEND k you 20000", true),
        ("LOCK.ACQUIRE k me 10000", "LOCK.EXTEND k me 20000", false),
        ("LOCK.ACQUIRE k me 10000", "LOCK.REENTER k me", false),
        ("LOCK.ACQUIRE k me 10000", "LOCK.INFO k", true),
        ("LOCK.ACQUIRE k me 10000", "LOCK.RELEASE k me", false),
        ("LOCK.ACQUIRE k me 10000", "LOCK.BREAK k", false),
    ];
    for (prepare, line, unchanged) in cases {
        assert_eq!(committed_after(prepare, line), unchanged, "{prepare}, then {line}");
    }
}
