//! A failure inside the module does not end the server: it is reported, and nothing is granted from then on.

// LOCK.PANIC, which fails on purpose, exists only in debug builds of the module.
#![cfg(debug_assertions)]

use crate::harness::{Server, error, int, null, text};

#[test]
fn a_panic_is_answered_logged_and_poisons_grants_only() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    client.say("LOCK.ACQUIRE l me 60000");
    let first = error(client.say("LOCK.PANIC"));
    assert!(first.starts_with("LOCKPANIC the command failed inside the lock module"), "{first}");
    assert_eq!(client.say("PING"), text("PONG"), "one answer for one command");

    let log = server.log();
    assert!(log.contains("the lock module failed in LOCK.PANIC at src/commands/panic.rs:"), "{log}");
    assert!(log.contains("injected fault"), "{log}");
    assert_eq!(server.info("poisoned"), 1);

    for line in [
        "LOCK.ACQUIRE other me 1000".to_owned(),
        "LOCK.EXTEND k me 1000".to_owned(),
        "LOCK.REENTER k me".to_owned(),
        format!("LOCK.CHECK k {token}"),
    ] {
        let later = error(client.say(&line));
        assert!(later.starts_with("LOCKPANIC an earlier command failed"), "{line}: {later}");
    }
    assert_eq!(client.say("LOCK.INFO k").field("owner"), text("me"));
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    assert!(client.say("LOCK.BREAK l").as_int() > 0);
    assert_eq!(client.say("LOCK.INFO l"), null());
}
