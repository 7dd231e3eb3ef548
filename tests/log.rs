//! LOCK.LOG: grants that took long, how they ended, and waits that failed.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::{Client, Reply, Server, Setup, error, in_step, int, null, pair, queues, text, wait_until, waits};

/// Returns a server that logs everything.
fn logging() -> Server {
    Setup::new().module_arguments(&["log-slower-than", "0"]).start()
}

/// Returns the owner and ending of each entry, newest first.
fn ends(client: &mut Client) -> Vec<(String, String)> {
    let entries = client.say("LOCK.LOG COUNT 1000").as_list();
    entries.iter().map(|entry| (entry.field("owner").as_text(), entry.field("ended").as_text())).collect()
}

/// Waits until the lock of `owner` is in the log, and checks how it ended.
#[track_caller]
fn assert_ended(client: &mut Client, owner: &str, how: &str) {
    wait_until("it is in the log", || ends(client).first().is_some_and(|entry| entry.0 == owner));
    assert_eq!(ends(client)[0], (owner.to_owned(), how.to_owned()));
}

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

#[test]
fn an_entry_says_who_had_it_how_long_and_who_waited() {
    let server = logging();
    let mut client = server.client();
    let before = wall_ms();
    let token = client.say("LOCK.ACQUIRE k me 60000 NOTE deploy").as_int();
    let (mut next, _) = waits(&server, "LOCK.ACQUIRE k next 60000 LIMIT 3 PERMIT 2 WAIT 60000");
    client.say("LOCK.RELEASE k me");
    let granted = next.hear().as_list();
    client.say("LOCK.RELEASE k next");
    let entries = client.say("LOCK.LOG").as_list();
    let after = wall_ms();
    let [newest, oldest] = &entries[..] else { panic!("{entries:?}") };
    for (field, value) in [
        ("id", int(0)),
        ("db", int(0)),
        ("key", text("k")),
        ("owner", text("me")),
        ("token", int(token)),
        ("mode", text("exclusive")),
        ("permit", int(0)),
        ("limit", int(0)),
        ("note", text("deploy")),
        ("waited", int(0)),
        ("ended", text("released")),
        ("error", text("")),
        ("waiters", int(1)),
    ] {
        assert_eq!(oldest.field(field), value, "{field}");
    }
    assert!((before..=after).contains(&oldest.field("time").as_int()), "{oldest:?} {before} {after}");
    for (field, value) in [
        ("id", int(1)),
        ("token", granted[0].clone()),
        ("mode", text("permit")),
        ("permit", int(2)),
        ("limit", int(3)),
        ("waited", granted[1].clone()),
        ("waiters", int(0)),
    ] {
        assert_eq!(newest.field(field), value, "{field}");
    }
    // Over RESP3 the entries are maps.
    let maps = server.client_resp3().say("LOCK.LOG");
    assert!(matches!(&maps.as_list()[0], Reply::Map(fields) if fields.len() == 15), "{maps:?}");
}

#[test]
fn each_way_in_which_a_grant_ends() {
    let server = logging();
    let mut client = server.client();
    let ends = |client: &mut Client, owner: &str, line: &str, how: &str| {
        assert!(client.say(&format!("LOCK.ACQUIRE k {owner} 60000")).as_int() > 0);
        client.say(line);
        assert_ended(client, owner, how);
        client.say("DEL k other");
        client.lift();
    };
    ends(&mut client, "released", "LOCK.RELEASE k released", "released");
    ends(&mut client, "broken", "LOCK.BREAK k", "broken");
    ends(&mut client, "deleted", "DEL k", "deleted");
    ends(&mut client, "unlinked", "UNLINK k", "deleted");
    ends(&mut client, "overwritten", "SET k x", "deleted");
    ends(&mut client, "flushed", "FLUSHALL", "flushed");
    client.say("LOCK.ACQUIRE k expired 50");
    assert_ended(&mut client, "expired", "expired");
    // A lock that was renamed is still held.
    client.say("LOCK.ACQUIRE k renamed 60000");
    client.say("RENAME k other");
    assert_ended(&mut client, "renamed", "renamed");
    client.say("LOCK.RELEASE other renamed");
    assert_eq!(client.say("LOCK.LOG COUNT 1").as_list()[0].field("key"), text("other"));
    assert_ended(&mut client, "renamed", "released");
    {
        let mut holder = server.client();
        assert!(holder.say("LOCK.ACQUIRE k unconnected 3000 KEEPALIVE 60000").as_int() > 0);
    }
    assert_ended(&mut client, "unconnected", "unconnected");
}

#[test]
fn each_way_in_which_a_wait_comes_to_nothing() {
    let server = logging();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k holder 60000");
    assert_eq!(server.client().say("LOCK.ACQUIRE k late 1000 WAIT 20"), null());
    assert_ended(&mut client, "late", "timeout");
    let (gone, _) = queues(&server, "gone");
    drop(gone);
    assert_ended(&mut client, "gone", "left");
    let (mut back, _) = queues(&server, "back");
    client.say("LOCK.RELEASE k back");
    back.hear();
    assert_ended(&mut client, "back", "withdrawn");
    let (mut refused, _) = queues(&server, "refused");
    client.say("SET k x");
    refused.hear();
    wait_until("it is in the log", || ends(&mut client)[0].0 == "refused");
    let entry = client.say("LOCK.LOG COUNT 1").as_list()[0].clone();
    assert_eq!((entry.field("ended"), entry.field("error")), (text("refused"), text("WRONGTYPE")));
    assert_eq!((entry.field("token"), entry.field("held")), (int(0), int(0)));
}

/// A lock that was evicted is in the log with this ending. The server evicts every key that it can, because it has no
/// room at all.
#[test]
fn an_evicted_lock_says_so() {
    let server = logging();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 60000");
    client.say("CONFIG SET maxmemory-policy allkeys-random");
    client.say("CONFIG SET maxmemory 1");
    assert!(client.say("SET x y").is_error("OOM"));
    client.say("CONFIG SET maxmemory 0");
    assert_ended(&mut client, "me", "evicted");
}

#[test]
fn what_is_asked_for_is_listed_and_the_ring_has_a_length() {
    let server = logging();
    let mut client = server.client();
    client.say("CONFIG SET lock.log-max-len 20");
    for n in 0..30 {
        let key = if n % 3 == 0 { "COUNT" } else { "k" };
        client.say(&format!("LOCK.ACQUIRE {key} o{n} 60000"));
        client.say(&format!("LOCK.RELEASE {key} o{n}"));
    }
    let ids = |reply: Reply| reply.as_list().iter().map(|entry| entry.field("id").as_int()).collect::<Vec<_>>();
    assert_eq!(ids(client.say("LOCK.LOG")), (20..30).rev().collect::<Vec<_>>(), "ten, as SLOWLOG");
    assert_eq!(ids(client.say("LOCK.LOG COUNT 10000")), (10..30).rev().collect::<Vec<_>>());
    assert_eq!(ids(client.say("LOCK.LOG KEY COUNT COUNT 2")), [27, 24]);
    assert_eq!(server.info("log_len"), 20);
    client.say("CONFIG SET lock.log-max-len 1");
    assert_eq!(ids(client.say("LOCK.LOG")), [29]);
    assert_eq!(client.say("LOCK.LOG RESET"), text("OK"));
    assert_eq!((client.say("LOCK.LOG").as_list(), server.info("log_len")), (vec![], 0));
    for (name, value) in [("log-max-len", "0"), ("log-slower-than", "-1"), ("log-slower-than", "60000")] {
        client.say("CONFIG SET lock.log-max-len 20 lock.log-slower-than 0");
        assert_eq!(client.say(&format!("CONFIG SET lock.{name} {value}")), text("OK"));
        client.say("LOCK.ACQUIRE k me 60000");
        client.say("LOCK.RELEASE k me");
        assert_eq!(client.say("LOCK.LOG").as_list(), vec![], "{name} {value}");
    }
}

#[test]
fn it_is_this_nodes_own() {
    let (master, replica) = pair();
    for server in [&master, &replica] {
        server.client().say("CONFIG SET lock.log-slower-than 0");
    }
    let mut client = master.client();
    client.say("LOCK.ACQUIRE k me 60000");
    client.say("LOCK.RELEASE k me");
    client.say("LOCK.ACQUIRE k other 60000");
    client.say("DEL k");
    in_step(&mut client);
    assert_eq!((ends(&mut client).len(), replica.info("log_len")), (2, 0));
    assert_eq!(replica.client().say("LOCK.LOG").as_list(), vec![]);
}

#[test]
fn it_is_gone_after_a_restart() {
    let mut server = Setup::new().aof().module_arguments(&["log-slower-than", "0"]).start();
    let mut client = server.client();
    client.say("LOCK.ACQUIRE k me 60000");
    client.say("DEL k");
    assert_eq!(server.info("log_len"), 1);
    server.kill();
    server.start_again();
    wait_until("it has loaded", || !server.client().say("LOCK.LOG").is_error("LOADING"));
    assert_eq!(server.info("log_len"), 0, "what is replayed is no news");
}

#[test]
fn only_operators_read_it() {
    let server = logging();
    let mut client = server.client();
    client.say("ACL SETUSER app on nopass ~* +@all -@admin -lock.log");
    client.say("AUTH app x");
    assert!(error(client.say("LOCK.LOG")).starts_with("NOPERM"));
}
