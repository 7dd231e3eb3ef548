//! Users restricted by ACL rules.

use crate::harness::{Client, Reply, Server, Setup, acl_rules, error, int, not_here, null, text, wait_until, waits};

#[test]
fn a_user_reaches_only_the_keys_of_its_pattern() {
    let server = Server::start();
    let mut operator = server.client();
    // The rules name commands, not categories, so that they also work on servers without categories for modules.
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

/// Checks the permissions of the user in docs/acl.md, and their limits.
fn assert_limited(server: &Server) {
    let mut app = server.client();
    assert!(app.say("LOCK.INFO orders:1").is_error("NOAUTH"), "nobody gets in without a password");
    assert_eq!(app.say("AUTH app secret"), text("OK"));
    wait_until("data is loaded", || !app.say("LOCK.INFO orders:1").is_error("LOADING"));
    let token = app.insist("LOCK.ACQUIRE orders:1 me 60000").as_int();
    assert_eq!(app.say("LOCK.ACQUIRE orders:1 you 60000"), null());
    assert_eq!(app.say("LOCK.EXTEND orders:1 me 60000"), int(token));
    assert_eq!(app.say("LOCK.REENTER orders:1 me"), int(2));
    assert!(app.say(&format!("LOCK.CHECK orders:1 {token}")).as_int() > 0);
    assert_eq!(app.say("LOCK.INFO orders:1").field("owner"), text("me"));
    assert_eq!(app.say("LOCK.WAIT orders:1 you 1"), int(0));
    // LOCK.NODE is for clients that lock on several nodes.
    assert_eq!(app.say("LOCK.NODE").field("state"), text("serving"));
    assert_eq!(app.say(&format!("LOCK.FENCE orders:1 me {token}")), int(token));
    assert_eq!(app.say("LOCK.ACQUIRE orders:1 you 60000 WAIT 1"), null());
    assert_eq!(app.say("LOCK.RELEASE orders:1 me LEVEL 1"), int(0));
    // The node's timer makes this grant, and no user's rules apply to it.
    app.say("LOCK.ACQUIRE orders:1 me 300");
    let mut next = server.client();
    next.say("AUTH app secret");
    next.ask("LOCK.ACQUIRE orders:1 next 60000 WAIT 60000");
    assert!(next.hear().as_list()[0].as_int() > token);
    assert_eq!(next.say("LOCK.RELEASE orders:1 next"), int(0));

    for line in [
        "LOCK.BREAK orders:1",
        "LOCK.GUARD",
        "LOCK.GUARD LIFT",
        "LOCK.SETMEMBERS 1 PROMISE 00000000000000000000000000000001",
        "LOCK.EFFECT orders:1 x",
        "LOCK.CEILING 1 1",
        "LOCK.ACQUIRE users:1 me 1000",
        "LOCK.WAIT users:1 me 1000",
        "LOCK.INFO users:1",
        "LOCK.RELEASE users:1 me",
        "DEL orders:1",
        "SET orders:1 x",
        "RESTORE orders:1 0 x",
        "RENAME orders:1 orders:2",
        "FLUSHALL",
        "CONFIG GET lock.max-ttl",
        "CONFIG SET lock.max-clock-skew 0",
        "KEYS *",
        "ACL WHOAMI",
        "SHUTDOWN",
    ] {
        assert!(app.say(line).is_error("NOPERM"), "{line}");
    }
}

/// Checks, before and after a restart, the permissions of an application's user with this rule, on a server that
/// requires a password.
fn locked(rule: &str) {
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users.acl");
    std::fs::write(&users, "").unwrap();
    let mut server = Setup::new().aof().option("aclfile", users.to_str().unwrap()).start();
    let mut operator = server.client();
    for line in ["ACL SETUSER operator on >opsecret ~* &* +@all", rule, "ACL SETUSER default off", "ACL SAVE"] {
        assert_eq!(operator.say(line), text("OK"), "{line}");
    }
    assert_limited(&server);
    // Rules that name the module's commands are read at a start, and the node's own records need no user.
    let mut holder = server.client();
    holder.say("AUTH app secret");
    let token = holder.insist("LOCK.ACQUIRE orders:9 me 60000").as_int();
    drop((holder, operator));
    server.kill();
    server.start_again();
    assert_limited(&server);
    let mut holder = server.client();
    holder.say("AUTH app secret");
    assert_eq!(holder.say("LOCK.EXTEND orders:9 me 60000"), int(token));
}

#[test]
fn the_user_of_the_page_by_name_can_lock_and_nothing_else() {
    locked(&acl_rules("+lock.acquire")[0]);
}

#[test]
fn the_user_of_the_page_by_category_can_lock_and_little_else() {
    let server = Server::start();
    let mut client = server.client();
    if !format!("{:?}", client.say("ACL CAT").as_list()).contains(&format!("{:?}", text("lock"))) {
        return not_here("this server has no ACL categories for modules");
    }
    locked(&acl_rules("+@lock")[0]);
}

/// Changed rules also apply to users that already wait: a lock that a user may no longer request is not granted to it.
#[test]
fn a_user_that_is_deleted_no_longer_waits() {
    let server = Server::start();
    let mut operator = server.client();
    operator.say("ACL SETUSER app on nopass ~* +lock.acquire");
    operator.say("LOCK.ACQUIRE k me 60000");
    let mut app = server.client();
    app.say("AUTH app x");
    app.ask("LOCK.ACQUIRE k app 60000 WAIT 60000");
    let _next: (Client, i64) = {
        wait_until("it waits", || server.info("waiters") == 1);
        waits(&server, "LOCK.ACQUIRE k next 60000 WAIT 60000")
    };
    assert_eq!(operator.say("ACL DELUSER app"), int(1));
    wait_until("it is gone", || server.info("waiters") == 1);
    assert_eq!(operator.say("LOCK.RELEASE k me"), int(0));
    assert_eq!(operator.say("LOCK.INFO k").field("owner"), text("next"));
    assert!(matches!(app.hear(), Reply::Error(_)), "hung up on");
}

/// Starts a client of user `app`, which has the permissions and waits for k.
fn app_waits(server: &Server, line: &str) -> Client {
    let before = server.info("waiters");
    let mut app = server.client();
    assert_eq!(app.say("AUTH app x"), text("OK"));
    app.ask(line);
    wait_until("it waits", || server.info("waiters") == before + 1);
    app
}

/// A user that lost a permission does not get the lock by an earlier request; the next waiter gets it in the same step.
#[test]
fn who_lost_the_permission_while_waiting_is_passed_over() {
    let rules = "ACL SETUSER app on nopass ~k +lock.acquire +lock.wait";
    let changes = ["resetkeys", "-lock.acquire -lock.wait", "reset", "resetkeys %R~k"];
    for change in changes.map(|change| format!("ACL SETUSER app {change}")) {
        for (asked, freed) in [
            ("LOCK.ACQUIRE k a 60000 WAIT 60000", "LOCK.RELEASE k me"),
            ("LOCK.WAIT k a 60000", "LOCK.RELEASE k me"),
            ("LOCK.ACQUIRE k a 60000 WAIT 60000", "DEL k"),
        ] {
            let server = Server::start();
            let mut operator = server.client();
            operator.say(rules);
            let token = operator.say("LOCK.ACQUIRE k me 60000").as_int();
            let mut gone = [app_waits(&server, asked), app_waits(&server, &asked.replace(" a ", " b "))];
            let mut next = waits(&server, "LOCK.ACQUIRE k next 60000 WAIT 60000").0;
            assert_eq!(operator.say(&change), text("OK"));
            operator.say(freed);
            assert!(next.hear().as_list()[0].as_int() > token, "{change}, {asked}");
            for app in &mut gone {
                assert!(app.hear().is_error("NOPERM"), "{change}, {asked}");
            }
            assert_eq!((server.info("hand_overs"), server.info("turns"), server.info("waiters")), (1, 0, 0));
        }
    }
}

/// A user is deleted in the same step that frees the lock, and the server has not closed its connection yet. The user
/// does not get the lock.
#[test]
fn who_was_deleted_while_waiting_is_passed_over() {
    let server = Server::start();
    let mut operator = server.client();
    operator.say("ACL SETUSER app on nopass ~* +@all");
    operator.say("LOCK.ACQUIRE k me 60000");
    let _gone = app_waits(&server, "LOCK.ACQUIRE k a 60000 WAIT 60000");
    let mut next = waits(&server, "LOCK.ACQUIRE k next 60000 WAIT 60000").0;
    operator.pipeline(&["MULTI", "ACL DELUSER app", "LOCK.RELEASE k me", "EXEC"].map(str::to_owned));
    next.hear().as_list();
    assert_eq!(operator.say("LOCK.INFO k").field("owner"), text("next"));
    assert_eq!(server.info("hand_overs"), 1);
}

/// A waiting user that keeps its permission gets the lock. A disabled user gets it too, because the server leaves its
/// connection open.
#[test]
fn who_kept_the_permission_is_served() {
    for change in ["off", "~other", "+get", "-lock.release"] {
        let server = Server::start();
        let mut operator = server.client();
        operator.say("ACL SETUSER app on nopass ~k +lock.acquire +lock.wait +lock.release");
        operator.say("LOCK.ACQUIRE k me 60000");
        let mut app = app_waits(&server, "LOCK.ACQUIRE k a 60000 WAIT 60000");
        assert_eq!(operator.say(&format!("ACL SETUSER app {change}")), text("OK"));
        operator.say("LOCK.RELEASE k me");
        assert!(app.hear().as_list()[0].as_int() > 0, "{change}");
    }
}

/// A server with a user `app` whose rules name the databases 0 and 1 (Valkey from 9.1). `None` if there are no such rules.
fn limited_to_databases() -> Option<Server> {
    let server = Server::start();
    let mut operator = server.client();
    if operator.say("ACL SETUSER app on nopass ~* +@all resetdbs db=0,1") != text("OK") {
        not_here("users have no rules about databases");
        return None;
    }
    Some(server)
}

#[test]
fn who_may_use_this_database_alone_gets_the_lock_after_a_wait() {
    let Some(server) = limited_to_databases() else { return };
    for db in 0..2 {
        let (mut holder, mut app) = (server.client(), server.client());
        app.say("AUTH app x");
        [&mut holder, &mut app].into_iter().for_each(|client| drop(client.say(&format!("SELECT {db}"))));
        holder.say("LOCK.ACQUIRE k holder 60000");
        app.ask("LOCK.ACQUIRE k app 60000 WAIT 60000");
        wait_until("it waits", || server.info("waiters") == 1);
        holder.say("LOCK.RELEASE k holder");
        let granted = app.hear();
        assert!(matches!(granted, Reply::List(_)), "database {db}: {granted:?}");
    }
}

#[test]
fn who_may_use_this_database_alone_writes_behind_a_gate() {
    let Some(server) = limited_to_databases() else { return };
    let mut app = server.client();
    app.say("AUTH app x");
    for db in 0..2 {
        app.say(&format!("SELECT {db}"));
        assert_eq!(app.say("LOCK.GATE gate 5 COMMAND SET data 1"), text("OK"), "database {db}");
    }
}
