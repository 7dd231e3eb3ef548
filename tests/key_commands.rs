//! The effects of Redis's own commands on a lock.

use crate::harness::{Client, Reply, Server, Setup, error, int, null, text, wait_until};

/// Locks `k` for "me" and returns the token.
fn lock(client: &mut Client) -> i64 {
    client.say("LOCK.ACQUIRE k me 60000 NOTE n").as_int()
}

/// Checks that no locks are left, and no memory for them.
fn assert_nothing_left(server: &Server) {
    wait_until("no lock and no deadline is left", || (server.info("held"), server.info("deadlines")) == (0, 0));
}

#[test]
fn deleting_and_overwriting_break_the_lock_and_tokens_go_on() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = 0;
    for line in
        ["DEL k", "UNLINK k", "SET k v", "FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "FLUSHDB ASYNC", "RENAME other k"]
    {
        client.say("SET other v");
        let token = lock(&mut client);
        assert!(token > last, "after {line}");
        last = token;
        assert!(!matches!(client.say(line), Reply::Error(_)), "{line}");
        client.say("DEL k");
        client.lift();
        assert_eq!(client.say("LOCK.EXTEND k me 1000"), null(), "{line}");
        assert_nothing_left(&server);
    }
}

#[test]
fn rename_moves_the_lock_with_token_and_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 300");
    // The other name has a lock of its own, with smaller tokens, which the rename overwrites.
    client.say("LOCK.ACQUIRE other you 60000");
    let token = client.say("LOCK.INFO k").field("token").as_int();
    client.say("RENAME k other");
    assert_eq!(client.say("LOCK.INFO k"), null());
    let info = client.say("LOCK.INFO other");
    assert_eq!((info.field("owner"), info.field("token")), (text("me"), int(token)));
    assert!(info.field("ttl").as_int() <= 300);
    assert_eq!(info.field("suspect"), int(0));
    assert_eq!((server.info("held"), server.info("deadlines")), (1, 1));
    wait_until("it expires under its new name", || client.say("EXISTS other") == int(0));
    assert_nothing_left(&server);
    assert!(client.say("LOCK.ACQUIRE other you 1000").as_int() > token, "the name has seen that token");
}

#[test]
fn tokens_of_a_name_are_above_those_renamed_to_it() {
    let server = Server::start();
    let mut client = server.client();
    // Makes the tokens of `k` larger than those of every other name.
    let mut token = 0;
    for _ in 0..50 {
        token = lock(&mut client);
        client.say("LOCK.RELEASE k me");
    }
    token = token.max(lock(&mut client));
    client.say("RENAME k fresh");
    assert_eq!(client.say("LOCK.BREAK fresh"), int(token));
    assert!(client.say("LOCK.ACQUIRE fresh you 1000").as_int() > token);
}

#[test]
fn move_takes_the_lock_to_another_database() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE k me 300").as_int();
    assert_eq!(client.say("MOVE k 3"), int(1));
    // Valkey 8.1 leaves a client in the other database if a module listens to key events.
    assert!(client.say("CLIENT INFO").as_text().contains(" db=0 "));
    assert_eq!(client.say("LOCK.INFO k"), null());
    client.say("SELECT 3");
    assert_eq!(client.say("LOCK.EXTEND k me 200"), int(token));
    wait_until("it expires there", || client.say("EXISTS k") == int(0));
    assert_nothing_left(&server);
}

/// MOVE in a transaction takes the lock to the other database. Valkey 9.1 then calls back about the key as if it were
/// in the client's database.
#[test]
fn move_takes_the_lock_to_another_database_in_a_transaction() {
    let server = Server::start();
    let (mut client, mut there, mut watcher) = (server.client(), server.client(), server.client());
    client.insist("LOCK.ACQUIRE k me 1500");
    for other in [&mut there, &mut watcher] {
        other.say("SELECT 3");
    }
    watcher.ask("LOCK.WATCH k 3600000");
    wait_until("somebody watches", || server.info("watchers") == 1);
    client.say("MULTI");
    client.say("MOVE k 3");
    assert_eq!(client.say("EXEC"), Reply::List(vec![int(1)]));
    assert!(client.say("CLIENT INFO").as_text().contains(" db=0 "));
    there.ask("LOCK.ACQUIRE k you 300 WAIT 20000");
    wait_until("who watches is told", || server.info("watchers") == 0);
    assert_eq!(there.hear().as_list().len(), 2, "who waits gets it when the lease ends");
    wait_until("it expires there", || there.say("EXISTS k") == int(0));
    assert_nothing_left(&server);
}

#[test]
fn databases_are_apart_and_swapdb_swaps_them() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 60000");
    client.say("LOCK.ACQUIRE short me 300");
    client.say("SELECT 1");
    client.say("LOCK.ACQUIRE k you 60000");
    client.say("SWAPDB 0 1");
    assert_eq!(client.say("LOCK.INFO k").field("owner"), text("me"));
    wait_until("a lock expires in its new database", || client.say("EXISTS short") == int(0));
    client.say("SELECT 0");
    assert_eq!(client.say("LOCK.INFO k").field("owner"), text("you"));
    client.say("FLUSHDB");
    // The server may leave freeing to a thread.
    wait_until("one is left", || (server.info("held"), server.info("deadlines")) == (1, 1));
    client.lift();
    client.say("SELECT 1");
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
    assert_nothing_left(&server);
}

#[test]
fn copy_refuses_a_lock() {
    let server = Server::start();
    let mut client = server.client();
    lock(&mut client);
    assert!(error(client.say("COPY k other")).starts_with("ERR not supported"));
    assert_eq!(client.say("EXISTS other"), int(0));
}

#[test]
fn a_restored_lock_is_suspect() {
    let server = Server::start();
    let mut client = server.client();
    let token = lock(&mut client);
    let dump = client.say("DUMP k");
    client.say("LOCK.RELEASE k me");
    assert_eq!(client.send(&[b"RESTORE", b"k", b"0", dump.as_bytes()]), text("OK"));
    let info = client.say("LOCK.INFO k");
    assert_eq!((info.field("suspect"), info.field("token")), (int(1), int(token)));
    assert_eq!(client.say("LOCK.ACQUIRE k you 1000"), null(), "it keeps others out");
    for line in [
        "LOCK.EXTEND k me 1000".to_owned(),
        "LOCK.REENTER k me".to_owned(),
        "LOCK.ACQUIRE k me 1000 RETRY".to_owned(),
        format!("LOCK.CHECK k {token}"),
    ] {
        let error = error(client.say(&line));
        let ms: u64 = error.strip_prefix("GUARDED ").and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap();
        assert!((1..=60_000).contains(&ms), "{line}: {error}");
    }
    assert!(error(client.say("LOCK.ACQUIRE k me 1000")).starts_with("OWNED"));
    // The lock stays suspect when it is renamed.
    client.say("RENAME k other");
    assert_eq!(client.say("LOCK.INFO other").field("suspect"), int(1));
    assert_eq!(client.say("LOCK.RELEASE other me"), int(0), "it can be released");
    assert!(client.say("LOCK.ACQUIRE other you 1000").as_int() > token);
    client.say("DEL other");
    assert_nothing_left(&server);
}

#[test]
fn a_restored_lock_ends_when_it_would_have() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 300");
    let dump = client.say("DUMP k");
    assert_eq!(client.send(&[b"RESTORE", b"copy", b"0", dump.as_bytes()]), text("OK"));
    let (left, copied) = (client.say("LOCK.INFO k").field("ttl"), client.say("LOCK.INFO copy").field("ttl"));
    assert!((left.as_int() - copied.as_int()).abs() <= 100, "{left:?} {copied:?}");
    wait_until("both expire", || client.say("EXISTS k copy") == int(0));
    assert_nothing_left(&server);
}

#[test]
fn every_grant_clears_an_expiry() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 5");
    client.say("PEXPIRE k 60000");
    wait_until("the lease ends", || client.say("LOCK.INFO k") == null());
    client.say("LOCK.ACQUIRE k you 60000");
    assert_eq!(client.say("TTL k"), int(-1));
    client.say("EXPIRE k 100");
    client.say("LOCK.EXTEND k you 60000");
    assert_eq!(client.say("TTL k"), int(-1), "a lease ends by its own deadline only");
}

#[test]
fn expire_on_a_lock_deletes_it_by_the_wall_clock() {
    let server = Server::start();
    let mut client = server.client();
    for line in ["LOCK.ACQUIRE k you 60000", "LOCK.INFO k", "LOCK.RELEASE k me", "LOCK.BREAK k"] {
        lock(&mut client);
        // With this, the server notices expired keys only when they are used: here, by a command of the module.
        client.say("DEBUG SET-ACTIVE-EXPIRE 0");
        client.say("PEXPIRE k 1");
        wait_until("the expiry passes", || client.say("PTTL k").as_int() < 0);
        client.say(line);
        client.say("DEL k");
        assert_nothing_left(&server);
        client.say("DEBUG SET-ACTIVE-EXPIRE 1");
    }
    lock(&mut client);
    client.say("PEXPIRE k 1");
    assert_nothing_left(&server);
}

#[test]
fn the_server_knows_the_type() {
    let server = Server::start();
    let mut client = server.client();
    lock(&mut client);
    client.say("SET other v");
    assert_eq!(client.say("TYPE k"), text("redislock"));
    assert_eq!(client.say("OBJECT ENCODING k"), text("raw"));
    assert!(client.say("OBJECT IDLETIME k").as_int() >= 0);
    let scanned = client.say("SCAN 0 COUNT 1000 TYPE redislock").as_list();
    assert_eq!(scanned[1], Reply::List(vec![text("k")]));
    let small = client.say("MEMORY USAGE k").as_int();
    assert!((100..1000).contains(&small), "{small}");
    client.send(&[b"LOCK.ACQUIRE", b"l", b"me", b"60000", b"NOTE", &[b'x'; 1024]]);
    assert!(client.say("MEMORY USAGE l").as_int() > small + 1000, "a note takes memory");
}

#[test]
fn debug_reload_keeps_every_lock() {
    let server = Server::start();
    let mut client = server.client();
    let token = lock(&mut client);
    client.say("LOCK.REENTER k me");
    client.say("SELECT 2");
    client.say("LOCK.ACQUIRE short me 400");
    let before = client.say("DEBUG DIGEST");
    assert_eq!(client.say("DEBUG RELOAD"), text("OK"));
    assert_eq!(client.say("DEBUG DIGEST"), before);
    wait_until("a lock expires after the reload", || client.say("EXISTS short") == int(0));
    wait_until("what was flushed is freed", || (server.info("held"), server.info("deadlines")) == (1, 1));
    client.say("SELECT 0");
    assert_eq!(client.say("LOCK.EXTEND k me 60000"), int(token));
    assert_eq!(client.say("LOCK.RELEASE k me LEVEL 1"), int(0));
    assert_nothing_left(&server);
}

#[test]
fn lazy_freeing_and_defragmentation_do_no_harm() {
    let server = Setup::new()
        .option("lazyfree-lazy-user-del", "yes")
        .option("lazyfree-lazy-user-flush", "yes")
        .option("lazyfree-lazy-server-del", "yes")
        .option("lazyfree-lazy-expire", "yes")
        .start();
    let mut client = server.client();
    // Not every build can defragment; those that cannot say so.
    client.say("CONFIG SET activedefrag yes");
    for n in 0..200 {
        client.say(&format!("LOCK.ACQUIRE k{n} me 60000"));
        client.say(&format!("RENAME k{n} r{n}"));
        client.say(if n % 2 == 0 { "LOCK.BREAK r1" } else { "DEL r1" });
    }
    client.say("FLUSHALL");
    assert_nothing_left(&server);
}
