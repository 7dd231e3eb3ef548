//! Users that an ACL limits.

use crate::harness::{Server, error, int, null, text};

#[test]
fn a_user_reaches_only_the_keys_of_its_pattern() {
    let server = Server::start();
    let mut operator = server.client();
    // By name, so that it works on servers without categories for modules too.
    let rules = "ACL SETUSER app on nopass ~orders:* +lock.acquire +lock.release +lock.extend +lock.reenter +lock.info";
    assert_eq!(operator.say(rules), text("OK"));
    let mut app = server.client();
    app.say("AUTH app x");
    assert!(app.say("LOCK.ACQUIRE orders:1 me 10000").as_int() > 0);
    assert_eq!(app.say("LOCK.REENTER orders:1 me"), int(2));
    assert!(error(app.say("LOCK.ACQUIRE users:1 me 10000")).starts_with("NOPERM"));
    assert!(error(app.say("LOCK.INFO users:1")).starts_with("NOPERM"));
    assert!(error(app.say("LOCK.BREAK orders:1")).starts_with("NOPERM"), "operators only");
    assert_eq!(operator.say("LOCK.INFO users:1"), null());
}

#[test]
fn read_permission_is_enough_to_look() {
    let server = Server::start();
    let mut operator = server.client();
    operator.say("LOCK.ACQUIRE k me 10000");
    operator.say("ACL SETUSER watcher on nopass %R~* +lock.info +lock.check +lock.release");
    let mut watcher = server.client();
    watcher.say("AUTH watcher x");
    assert_eq!(watcher.say("LOCK.INFO k").field("owner"), text("me"));
    assert_eq!(watcher.say("LOCK.CHECK k 1"), null());
    assert!(error(watcher.say("LOCK.RELEASE k me")).starts_with("NOPERM"));
}
