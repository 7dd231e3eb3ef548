//! Places and bytes for waiting requests: they are bounded, and no client takes the share of others.

use crate::harness::{Client, Reply, Server, Setup, error, int, null, pair, text, wait_until, waits};

const NAME: &str = "drawn-at-random-1";
const MEGABYTE: usize = 1 << 20;

/// Returns a connection that listens.
fn listener(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(client.say(&format!("LOCK.HEAR {NAME} 0")), Reply::List(vec![]));
    client
}

/// Returns a key of one megabyte, which `me` has locked.
fn held(client: &mut Client) -> Vec<u8> {
    let key = vec![b'k'; MEGABYTE];
    assert!(client.send(&[b"LOCK.ACQUIRE", &key, b"me", b"60000"]).as_int() > 0);
    key
}

/// Makes owner number `n` wait for the lock of `key`, for `ms`, with a listener.
fn wait_heard(client: &mut Client, key: &[u8], n: usize, ms: &str) -> Reply {
    let owner = format!("o{n}");
    client.send(&[b"LOCK.WAIT", key, owner.as_bytes(), ms.as_bytes(), b"HEARD", NAME.as_bytes()])
}

/// Sends waits until one is refused. Returns the number of accepted waits, and the refusal.
fn fill(client: &mut Client, key: &[u8]) -> (usize, String) {
    let mut waiting = 0;
    loop {
        match wait_heard(client, key, waiting, "60000") {
            Reply::Error(refused) => return (waiting, refused),
            reply => assert_eq!(reply, text("WAITING")),
        }
        waiting += 1;
        assert!(waiting < 1_000, "nothing bounds them");
    }
}

#[test]
fn above_maxmemory_nothing_more_is_kept_and_what_holders_do_goes_on() {
    let server = Server::start();
    let (mut me, mut asker) = (server.client(), server.client());
    let token = me.say("LOCK.ACQUIRE k me 60000").as_int();
    let key = held(&mut me);
    let mut ear = listener(&server);
    let used = me.info_field("used_memory");
    me.say(&format!("CONFIG SET maxmemory {}", used + 20 * MEGABYTE as u64));
    let (waiting, refused) = fill(&mut asker, &key);
    assert!(refused.starts_with("OOM ") && waiting < 20, "{waiting} waited: {refused}");
    // The server's memory has to be above `maxmemory`, not just a little below it.
    let used = me.info_field("used_memory");
    me.say(&format!("CONFIG SET maxmemory {}", used - 3 * MEGABYTE as u64));
    for line in [
        "LOCK.WAIT k you 60000".to_owned(),
        format!("LOCK.WAIT k you 60000 HEARD {NAME}"),
        format!("LOCK.WATCH k 60000 TOKEN {token}"),
        "LOCK.HEAR another-name-of-its-own 0".to_owned(),
        "LOCK.NOTE k me text".to_owned(),
        "LOCK.ACQUIRE k you 1000 WAIT 1000".to_owned(),
    ] {
        assert!(asker.say(&line).is_error("OOM"), "{line}");
    }
    // A request that does not wait is answered, and commands that free memory still work.
    assert_eq!((asker.say("LOCK.WAIT k you 0"), asker.say("LOCK.WAIT free you 60000")), (int(0), int(1)));
    assert_eq!(asker.say(&format!("LOCK.WATCH k 0 TOKEN {token}")), null());
    assert_eq!(me.say("LOCK.EXTEND k me 60000"), int(token));
    assert_eq!(me.say("LOCK.REENTER k me"), int(2));
    assert_eq!(ear.say(&format!("LOCK.HEAR {NAME} 0")), Reply::List(vec![]));
    assert_eq!(me.say("LOCK.RELEASE k me LEVEL 1"), int(0));
    for n in 0..waiting {
        assert_eq!(wait_heard(&mut asker, &key, n, "0"), int(0));
    }
    assert_eq!(hears_all(&mut ear), waiting);
    assert!(me.say("LOCK.ACQUIRE k me 60000 NOTE text").as_int() > token);
    assert_eq!(wait_heard(&mut asker, &key, 0, "60000"), text("WAITING"));
}

/// A replica ignores `maxmemory`, as the server itself does, because its master obeys it. So clients can watch and
/// listen there while memory is above it.
#[test]
fn a_replica_that_ignores_maxmemory_lets_clients_watch() {
    let (_server, replica) = pair();
    let (mut client, mut watcher) = (replica.client(), replica.client());
    assert_eq!(client.say("CONFIG SET maxmemory 500000"), text("OK"));
    assert!(client.info_field("used_memory") > 500_000);
    watcher.ask("LOCK.WATCH free 60000");
    wait_until("it watches", || replica.info("watchers") == 1);
    assert_eq!(client.say(&format!("LOCK.HEAR {NAME} 0")), Reply::List(vec![]));
}

#[test]
fn what_waits_has_a_bound_in_bytes() {
    let server = Setup::new().module_arguments(&["max-waiting-bytes", "16777216"]).start();
    let (mut me, mut asker) = (server.client(), server.client());
    me.say("LOCK.ACQUIRE k me 60000");
    let key = held(&mut me);
    assert_eq!((server.info("waiting_bytes"), server.info("max_waiting_bytes")), (0, 16_777_216));
    let ear = listener(&server);
    // Each request takes two parts: its place in the queue, and the listener's news.
    let (waiting, refused) = fill(&mut asker, &key);
    assert!(refused.starts_with(
        "QUEUEFULL the requests of this user, or of this listener, use up their share of lock.max-waiting-bytes,"
    ));
    assert_eq!(waiting, 3, "a listener has half");
    let taken = server.info("waiting_bytes");
    assert!(taken > 6 * MEGABYTE as u64 && taken < 8 * MEGABYTE as u64, "{taken}");
    // There is room for others, and for this connection with a short key.
    let (one, _) = waits(&server, "LOCK.WAIT k you 60000");
    assert_eq!(asker.say(&format!("LOCK.WAIT k a 60000 HEARD {NAME}")), text("WAITING"));
    drop(ear);
    wait_until("they leave", || server.info("waiters") == 1);
    assert!(server.info("waiting_bytes") < 2_000);
    drop(one);
    wait_until("nothing is left", || server.info("waiting_bytes") == 0);
    me.say("CONFIG SET lock.max-waiting-bytes 500");
    for line in ["LOCK.WAIT k you 60000", "LOCK.ACQUIRE k you 1000 WAIT 60000", "LOCK.WATCH k 60000"] {
        let line = line.replace("LOCK.WATCH k", "LOCK.WATCH free");
        let refused = error(me.say(&line));
        assert!(
            refused.starts_with(
                "QUEUEFULL what waits on this node takes as many bytes as it may (500, lock.max-waiting-bytes)"
            ),
            "{line}: {refused}"
        );
    }
}

/// Receives all answers for this listener, in replies of limited length. Returns their number.
fn hears_all(ear: &mut Client) -> usize {
    std::iter::from_fn(|| Some(ear.say(&format!("LOCK.HEAR {NAME} 0")).as_list().len()))
        .take_while(|news| *news > 0)
        .sum()
}

/// An answer that its listener has not received counts in the bytes for waiting requests until the listener receives
/// it.
#[test]
fn answers_that_nobody_hears_count() {
    let server = Setup::new().module_arguments(&["max-waiting-bytes", "16777216"]).start();
    let (mut me, mut asker) = (server.client(), server.client());
    let mut ear = listener(&server);
    let empty = server.info("waiting_bytes");
    let key = held(&mut me);
    let mut kept = 0;
    while wait_heard(&mut asker, &key, kept, "60000") == text("WAITING") {
        assert_eq!(wait_heard(&mut asker, &key, kept, "0"), int(0));
        kept += 1;
        assert!(kept < 1_000, "nothing bounds them");
    }
    assert!(kept > 3 && server.info("waiters") == 0, "{kept}");
    assert!(server.info("waiting_bytes") > (kept * MEGABYTE) as u64);
    assert_eq!(hears_all(&mut ear), kept);
    assert_eq!(server.info("waiting_bytes"), empty);
    assert_eq!(wait_heard(&mut asker, &key, 0, "60000"), text("WAITING"));
}

#[test]
fn nobody_takes_the_places_that_others_need() {
    let server = Setup::new().module_arguments(&["max-waiters", "64"]).start();
    let (mut me, mut asker) = (server.client(), server.client());
    me.say("LOCK.ACQUIRE k me 60000");
    me.say("ACL SETUSER app on nopass ~* +@all");
    let _ear = listener(&server);
    let (waiting, refused) = fill(&mut asker, b"k");
    assert_eq!(waiting, 32);
    assert!(refused.starts_with(
        "QUEUEFULL the requests of this user, or of this listener, use up their share of lock.max-waiters,"
    ));
    // Each connection of the same user has a place for its first request. When these are used up, another user still
    // has a place.
    let _crowd: Vec<_> = (0..24).map(|n| waits(&server, &format!("LOCK.WAIT k c{n} 60000")).0).collect();
    assert!(me.say("LOCK.WAIT k you 60000").is_error("QUEUEFULL"));
    let mut app = server.client();
    app.say("AUTH app x");
    let before = server.info("waiters");
    app.ask("LOCK.ACQUIRE k app 60000 WAIT 60000");
    wait_until("it waits", || server.info("waiters") == before + 1);
    // A request that need not wait is never refused.
    me.say("CONFIG SET lock.max-waiters 0");
    assert_eq!(asker.say(&format!("LOCK.WAIT free a 60000 HEARD {NAME}")), int(1));
    assert_eq!(me.say("LOCK.WAIT free you 60000"), int(1), "where nothing can be kept, nothing is");
    assert!(me.say("LOCK.ACQUIRE free you 60000 WAIT 60000").as_list()[0].as_int() > 0);
}
