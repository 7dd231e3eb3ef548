//! `lock.events`: the events of grants, as JSON, for subscribers to the channel `lock.events`.

use serde_json::{Value, json};

use crate::harness::{Client, Reply, Server, Setup, error, in_step, int, pair, text, wait_until};

fn telling() -> Server {
    Setup::new().module_arguments(&["events", "yes"]).start()
}

/// Returns a client that subscribes to the channel.
fn listener(server: &Server) -> Client {
    let mut client = server.client();
    client.ask("SUBSCRIBE lock.events");
    assert_eq!(client.hear().as_list()[0], text("subscribe"));
    client
}

fn next(listener: &mut Client) -> Value {
    let message = listener.hear().as_list();
    assert_eq!(message[..2], [text("message"), text("lock.events")]);
    serde_json::from_slice(message[2].as_bytes()).unwrap()
}

/// Checks the next events, each with its owner.
#[track_caller]
fn assert_told(listener: &mut Client, expected: &[(&str, &str)]) {
    for (event, owner) in expected {
        let told = next(listener);
        assert_eq!((&told["event"], &told["owner"]), (&json!(event), &json!(owner)), "{told}");
    }
}

#[test]
fn an_event_says_who_has_it_and_how_it_ended() {
    let server = telling();
    let (mut client, mut listener) = (server.client(), listener(&server));
    client.say("SELECT 3");
    let token = client.say("LOCK.ACQUIRE k me 60000 NOTE deploy").as_int();
    let granted = next(&mut listener);
    let node = client.say("LOCK.NODE").field("id").as_text();
    let mut expected = json!({
        "event": "granted", "time": granted["time"], "node": node, "db": 3, "key": "k", "owner": "me", "token": token,
        "mode": "exclusive", "permit": 0, "limit": 0, "note": "deploy", "ttl": 60_000, "waited": 0, "held": 0, "waiters": 0,
    });
    assert_eq!(granted, expected);
    let mut other = server.client();
    other.say("SELECT 3");
    other.ask("LOCK.ACQUIRE k next 50000 LIMIT 3 PERMIT 2 WAIT 60000");
    wait_until("it waits", || server.info("waiters") == 1);
    client.say("LOCK.RELEASE k me");
    let (released, handed_over) = (next(&mut listener), next(&mut listener));
    expected["event"] = json!("released");
    expected["waiters"] = json!(1);
    (expected["time"], expected["held"]) = (released["time"].clone(), released["held"].clone());
    assert_eq!(released, expected);
    assert!(released["time"].as_u64() >= granted["time"].as_u64());
    let answer = other.hear().as_list();
    for (field, value) in [
        ("event", json!("handed_over")),
        ("owner", json!("next")),
        ("token", json!(answer[0].as_int())),
        ("waited", json!(answer[1].as_int())),
        ("mode", json!("permit")),
        ("permit", json!(2)),
        ("limit", json!(3)),
        ("ttl", json!(50_000)),
        ("note", json!("")),
    ] {
        assert_eq!(handed_over[field], value, "{field}");
    }
}

#[test]
fn each_thing_that_happens_to_a_grant_in_order() {
    let server = telling();
    let (mut client, mut listener) = (server.client(), listener(&server));
    let grant = |client: &mut Client, owner: &str| client.say(&format!("LOCK.ACQUIRE k {owner} 60000")).as_int();
    for (owner, line, event) in [
        ("a", "LOCK.RELEASE k a", "released"),
        ("b", "LOCK.BREAK k", "broken"),
        ("c", "DEL k", "deleted"),
        ("d", "SET k x", "deleted"),
        ("e", "FLUSHALL", "flushed"),
    ] {
        assert!(grant(&mut client, owner) > 0);
        client.say(line);
        client.say("DEL k");
        client.lift();
        assert_told(&mut listener, &[("granted", owner), (event, owner)]);
    }
    client.say("LOCK.ACQUIRE k f 20");
    assert_told(&mut listener, &[("granted", "f"), ("expired", "f")]);
    let token = grant(&mut client, "g");
    client.say("LOCK.EXTEND k g 60000");
    client.say("LOCK.REENTER k g");
    client.say(&format!("LOCK.FENCE k g {}", token + 9));
    client.say("LOCK.CONVERT k g SHARED");
    client.say("RENAME k other");
    client.say("LOCK.RELEASE other g LEVEL 1");
    assert_told(&mut listener, &[("granted", "g")]);
    for event in ["raised", "converted", "renamed", "released"] {
        let told = next(&mut listener);
        assert_eq!((&told["event"], &told["token"]), (&json!(event), &json!(token + 9)), "{told}");
    }
    // In one transaction, then in a script, the events keep their order, also if another command of the server removes
    // the lock.
    for line in ["MULTI", "LOCK.ACQUIRE k a 60000", "DEL k", "LOCK.ACQUIRE k b 60000", "LOCK.RELEASE k b", "EXEC"] {
        client.say(line);
    }
    assert_told(&mut listener, &[("granted", "a"), ("deleted", "a"), ("granted", "b"), ("released", "b")]);
    let script = "redis.call('LOCK.ACQUIRE', KEYS[1], 'me', '60000') return redis.call('LOCK.RELEASE', KEYS[1], 'me')";
    assert_eq!(client.send(&[b"EVAL", script.as_bytes(), b"1", b"k"]), int(0));
    assert_told(&mut listener, &[("granted", "me"), ("released", "me")]);
    client.say("LOCK.ACQUIRE k kept 60000");
    client.say("DEBUG RELOAD");
    client.say("LOCK.RELEASE k kept");
    assert_told(&mut listener, &[("granted", "kept"), ("released", "kept")]);
}

#[test]
fn names_owners_and_notes_are_any_bytes() {
    let server = telling();
    let (mut client, mut listener) = (server.client(), listener(&server));
    let long = [b'k'; 300];
    for (name, owner, note, shown) in [
        (
            &b"k\"\\\r\n"[..],
            &b"\0"[..],
            "caf\u{e9}\u{2028}".as_bytes(),
            ["k\"\\\r\n", "\0", "caf\u{e9}\u{2028}"].map(|text| json!(text)),
        ),
        (b"\xFFk", b"\x80\x81", b"", [json!({"hex": "ff6b"}), json!({"hex": "8081"}), json!("")]),
        (&long, b"me", b"", [json!(format!("{}... (44 more bytes)", "k".repeat(256))), json!("me"), json!("")]),
    ] {
        assert!(client.send(&[b"LOCK.ACQUIRE", name, owner, b"60000", b"NOTE", note]).as_int() > 0);
        let told = next(&mut listener);
        assert_eq!([&told["key"], &told["owner"], &told["note"]].map(Value::clone), shown);
    }
}

/// The node that grants publishes the event, once. No event is replicated or written to the AOF.
#[test]
fn a_replica_tells_nothing_and_nothing_is_written() {
    let (master, replica) = pair();
    for server in [&master, &replica] {
        assert_eq!(server.client().say("CONFIG SET lock.events yes"), text("OK"));
    }
    let (mut client, mut heard, mut unheard) = (master.client(), listener(&master), listener(&replica));
    client.say("LOCK.ACQUIRE k me 60000");
    client.say("LOCK.ACQUIRE k2 me 60000");
    client.say("DEL k2");
    client.say("LOCK.RELEASE k me");
    let expected = [("granted", "me"), ("granted", "me"), ("deleted", "me"), ("released", "me")];
    assert_told(&mut heard, &expected);
    in_step(&mut client);
    // A message that a client publishes on the master reaches both nodes, and is the first on the replica.
    client.send(&[b"PUBLISH", b"lock.events", b"{\"event\":\"mine\"}"]);
    assert_eq!([next(&mut heard), next(&mut unheard)], [json!({"event": "mine"}), json!({"event": "mine"})]);
}

#[test]
fn with_an_aof_nothing_of_it_is_in_the_aof_and_a_start_tells_nothing() {
    let mut server = Setup::new().aof().module_arguments(&["events", "yes"]).start();
    let mut client = server.client();
    {
        let mut listener = listener(&server);
        client.say("LOCK.ACQUIRE k me 60000");
        client.say("DEL k");
        client.say("LOCK.ACQUIRE k2 you 60000");
        assert_told(&mut listener, &[("granted", "me"), ("deleted", "me"), ("granted", "you")]);
    }
    let aof = |server: &Server| {
        let files = std::fs::read_dir(server.dir().join("appendonlydir")).unwrap();
        files
            .map(|file| String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).into_owned())
            .collect::<String>()
    };
    let written = aof(&server);
    assert!(
        written.contains("LOCK.EFFECT") && !written.contains("granted") && !written.contains("PUBLISH"),
        "{written}"
    );
    server.kill();
    server.start_again();
    wait_until("it has loaded", || !server.client().say("PING").is_error("LOADING"));
    let mut listener = listener(&server);
    server.client().say("LOCK.RELEASE k2 you");
    assert_told(&mut listener, &[("released", "you")]);
}

/// One command may delete more grants than events are kept for publishing. The number of those left out is published.
#[test]
fn too_many_at_once_are_counted() {
    let server = telling();
    let mut client = server.client();
    let names: Vec<String> = (0..1_100).map(|n| format!("k{n}")).collect();
    client.pipeline(&names.iter().map(|name| format!("LOCK.ACQUIRE {name} me 60000")).collect::<Vec<_>>());
    let mut listener = listener(&server);
    assert_eq!(client.say(&format!("DEL {}", names.join(" "))), int(1_100));
    assert_told(&mut listener, &[("deleted", "me"); 1_024]);
    let missed = next(&mut listener);
    assert_eq!((&missed["event"], &missed["count"]), (&json!("missed"), &json!(76)));
}

/// The server's limit disconnects a subscriber that does not read; locks are granted meanwhile.
#[test]
fn who_listens_slowly_is_cut_off_and_keeps_nobody_from_a_lock() {
    let server = telling();
    let mut client = server.client();
    client.send(&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"pubsub 65536 0 0"]);
    let _listener = listener(&server);
    let subscribers = |client: &mut Client| client.say("PUBSUB NUMSUB lock.events").as_list()[1].as_int();
    assert_eq!(subscribers(&mut client), 1);
    wait_until("it is cut off", || {
        let lines = (0..200).flat_map(|n| [format!("LOCK.ACQUIRE k{n} me 60000"), format!("LOCK.RELEASE k{n} me")]);
        let answers = client.pipeline(&lines.collect::<Vec<_>>());
        assert!(answers.iter().all(|answer| matches!(answer, Reply::Int(_))), "{answers:?}");
        subscribers(&mut client) == 0
    });
}

#[test]
fn it_is_off_until_it_is_set_and_may_be_set_while_many_wait() {
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), listener(&server));
    assert_eq!(client.say("CONFIG GET lock.events").field("lock.events"), text("no"));
    client.say("LOCK.ACQUIRE k first 60000");
    let _waiting: Vec<Client> =
        (0..1_000).map(|n| waits_without_looking(&server, &format!("LOCK.ACQUIRE k o{n} 60000 WAIT 600000"))).collect();
    wait_until("they wait", || server.info("waiters") == 1_000);
    assert!(error(client.say("CONFIG SET lock.events maybe")).starts_with("ERR"));
    assert_eq!(client.say("CONFIG SET lock.events yes"), text("OK"));
    client.say("LOCK.RELEASE k first");
    assert_told(&mut listener, &[("released", "first")]);
    let handed_over = next(&mut listener);
    assert_eq!((&handed_over["event"], &handed_over["waiters"]), (&json!("handed_over"), &json!(999)));
    assert_eq!(client.say("CONFIG SET lock.events no"), text("OK"));
    client.say("LOCK.BREAK k");
    assert_eq!(server.info("waiters"), 998);
    client.say("PUBLISH lock.events {}");
    assert_eq!(next(&mut listener), json!({}));
}

fn waits_without_looking(server: &Server, line: &str) -> Client {
    let mut client = server.client();
    client.ask(line);
    client
}

/// Events contain owners, and a client that knows an owner can release its lock. So a restricted user receives events
/// only if its rules allow the channel.
#[test]
fn who_may_listen_is_said_by_the_rules_for_channels() {
    let server = telling();
    let mut client = server.client();
    client.say("ACL SETUSER app on nopass ~* +@all resetchannels");
    client.say("ACL SETUSER audit on nopass +subscribe &lock.events");
    let mut app = server.client();
    app.say("AUTH app x");
    assert!(error(app.say("SUBSCRIBE lock.events")).starts_with("NOPERM"));
    assert!(error(app.say("PUBLISH lock.events x")).starts_with("NOPERM"));
    let mut audit = server.client();
    audit.say("AUTH audit x");
    audit.ask("SUBSCRIBE lock.events");
    audit.hear();
    // The module publishes the events of this user's commands, although the user may not publish.
    assert!(app.say("LOCK.ACQUIRE k me 60000").as_int() > 0);
    assert_told(&mut audit, &[("granted", "me")]);
}
