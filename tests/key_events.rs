//! Key events (`notify-keyspace-events` with `d`) report the events of a lock.

use crate::harness::{Client, Setup, text, wait_until};

fn next(events: &mut Client) -> String {
    let message = events.hear().as_list();
    assert_eq!(message[0], text("pmessage"));
    format!("{} {}", message[2].as_text().trim_start_matches("__keyevent@"), message[3].as_text())
}

#[test]
fn each_change_is_told_once() {
    let server = Setup::new().option("notify-keyspace-events", "Ed").start();
    let mut events = server.client();
    events.ask("PSUBSCRIBE __keyevent@*");
    events.hear();
    let (mut me, mut next_holder) = (server.client(), server.client());
    me.say("SELECT 3");
    me.say("LOCK.ACQUIRE k me 5000");
    me.say("LOCK.ACQUIRE k you 5000");
    me.say("LOCK.EXTEND k me 6000");
    me.say("LOCK.NOTE k me text SEQ 3");
    me.say("LOCK.NOTE k me text SEQ 3");
    me.say("LOCK.ACQUIRE k me 3000 RETRY");
    me.say("LOCK.ACQUIRE k me 7000 RETRY");
    next_holder.say("SELECT 3");
    next_holder.ask("LOCK.ACQUIRE k next 60000 WAIT 60000");
    wait_until("it waits", || server.info("waiters") == 1);
    me.say("LOCK.RELEASE k me");
    me.say("LOCK.BREAK k");
    me.say("LOCK.ACQUIRE k me 20");
    let expected = [
        "3__:lock.acquire k",
        "3__:lock.extend k",
        "3__:lock.note k",
        "3__:lock.extend k",
        "3__:lock.release k",
        "3__:lock.handoff k",
        "3__:lock.break k",
        "3__:lock.acquire k",
        "3__:lock.expire k",
    ];
    for expected in expected {
        assert_eq!(next(&mut events), expected);
    }
    me.say("LOCK.ACQUIRE k me 60000");
    next_holder.hear();
    next_holder.ask("LOCK.ACQUIRE k next 10 WAIT 60000");
    wait_until("it waits", || server.info("waiters") == 1);
    me.say("DEL k");
    for expected in ["3__:lock.acquire k", "3__:lock.handoff k", "3__:lock.expire k"] {
        assert_eq!(next(&mut events), expected);
    }
}

/// A client that subscribes later gets key events too: the module checks each time whether there may be subscribers.
#[test]
fn a_client_that_listens_later_hears_of_changes() {
    let server = Setup::new().start();
    let (mut me, mut events) = (server.client(), server.client());
    events.ask("PSUBSCRIBE __keyevent@*");
    events.hear();
    let told = [
        ("", "LOCK.ACQUIRE k me 5000", None),
        ("Ed", "LOCK.EXTEND k me 6000", Some("0__:lock.extend k")),
        ("", "LOCK.EXTEND k me 7000", None),
        ("KEA", "LOCK.RELEASE k me", Some("0__:lock.release k")),
    ];
    for (classes, line, expected) in told {
        me.say(&format!("CONFIG SET notify-keyspace-events {classes}"));
        me.say(line);
        if let Some(expected) = expected {
            assert_eq!(next(&mut events), expected);
        }
    }
}
