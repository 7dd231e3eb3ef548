//! LOCK.GATE: which tokens pass, which commands run, and which users may use it.

use crate::harness::{Client, Reply, Server, Setup, cluster, error, int, null, text, wait_until};

/// Checks that the gate refuses the command because it remembers the token `largest`.
#[track_caller]
fn assert_fenced(client: &mut Client, line: &str, largest: i64) {
    let refused = error(client.say(line));
    assert!(refused.starts_with(&format!("FENCED {largest} ")), "{line}: {refused}");
}

#[test]
fn a_late_writer_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    let old = client.say("LOCK.ACQUIRE invoices old 60000").as_int();
    let write = |token, value: &str| format!("LOCK.GATE gate {token} COMMAND SET invoice {value}");
    assert_eq!(client.say(&write(old, "1")), text("OK"));
    client.say("LOCK.BREAK invoices");
    let new = client.say("LOCK.ACQUIRE invoices new 60000").as_int();
    assert_eq!(client.say(&write(old, "2")), text("OK"), "nobody with a newer token has come to the gate");
    assert_eq!(client.say(&format!("LOCK.GATE gate {new} COMMAND GET invoice")), text("2"));
    assert_fenced(&mut client, &write(old, "3"), new);
    assert_fenced(&mut client, &format!("LOCK.GATE gate {old} COMMAND GET invoice"), new);
    assert_eq!(client.say(&write(new, "4")), text("OK"), "a holder comes several times");
    assert_eq!((client.say("GET invoice"), client.say("TYPE gate")), (text("4"), text("redisgate")));
    assert_eq!((server.info("gate_passes"), server.info("gate_refusals"), server.info("gates")), (4, 2, 1));
}

/// A gate refuses a permit whose token is smaller than that of a later reader, and a reader whose token is smaller than
/// that of a later permit. (Readers do not exclude each other, nor do permits with different numbers.)
#[test]
fn every_mode_is_refused_by_those_that_it_excludes() {
    let server = Server::start();
    let mut client = server.client();
    let steps: [(&str, Option<i64>); 16] = [
        ("5", None),
        ("4", Some(5)),
        ("4 SHARED", Some(5)),
        ("4 PERMIT 1", Some(5)),
        ("7 SHARED", None),
        ("6 shared", None),
        ("6", Some(7)),
        ("6 PERMIT 1", Some(7)),
        ("9 PERMIT 1", None),
        ("8 permit 2", None),
        ("8 PERMIT 1", Some(9)),
        ("8 SHARED", Some(9)),
        ("9007199254740991 PERMIT 65535", None),
        ("9 PERMIT 1", None),
        ("9007199254740990", Some(9_007_199_254_740_991)),
        ("9007199254740991", None),
    ];
    for (words, fenced) in steps {
        let line = format!("LOCK.GATE gate {words}");
        match fenced {
            None => assert_eq!(client.say(&line), int(1), "{line}"),
            Some(largest) => assert_fenced(&mut client, &line, largest),
        }
    }
}

#[test]
fn a_gate_shows_what_it_remembers() {
    let server = Server::start();
    let mut client = server.client_resp3();
    let shown = |client: &mut Client| {
        let gate = client.say("LOCK.INFO gate");
        ["largest", "exclusive", "shared", "permits", "keep"].map(|name| gate.field(name).as_int())
    };
    for words in ["5", "7 SHARED", "9 PERMIT 1", "8 PERMIT 2"] {
        client.say(&format!("LOCK.GATE gate {words}"));
    }
    assert_eq!(shown(&mut client), [9, 5, 7, 2, 0]);
    client.say("DEL gate");
    client.say("LOCK.GATE gate 5 KEEP 60000");
    let [.., keep] = shown(&mut client);
    assert!((60_001..=67_500).contains(&keep), "{keep}");
    assert_eq!(client.say("LOCK.INFO other"), null());
    assert!(client.say("MEMORY USAGE gate").as_int() > 60);
}

/// The protected command's reply has the form that the client gets without a gate.
#[test]
fn the_reply_is_that_of_the_command() {
    let server = Server::start();
    let (mut client, mut resp3) = (server.client(), server.client_resp3());
    client.say("LOCK.GATE g 5 COMMAND HSET h field value");
    assert_eq!(client.say("LOCK.GATE g 5 COMMAND HGETALL h"), client.say("HGETALL h"));
    let map = resp3.say("LOCK.GATE g 5 COMMAND HGETALL h");
    assert_eq!((&map, matches!(map, Reply::Map(_))), (&resp3.say("HGETALL h"), true));
    assert_eq!(client.say("LOCK.GATE g 5 COMMAND GET no"), null());
    assert_eq!(client.say("LOCK.GATE g 5 command rpush l a b"), int(2));
    assert_eq!(error(client.say("LOCK.GATE g 5 COMMAND INCR l")), error(client.say("INCR l")));
    assert_eq!(client.send(&[b"LOCK.GATE", b"g", b"5", b"COMMAND", b"SET", b"\0\xFF\r\n", b"\0"]), text("OK"));
    assert_eq!(client.send(&[b"GET", b"\0\xFF\r\n"]), text("\0"));
    let token = client.say("LOCK.ACQUIRE k me 60000").as_int();
    assert!(client.say(&format!("LOCK.GATE g 5 COMMAND LOCK.CHECK k {token}")).as_int() > 0);
}

/// LOCK.GATE runs a command with many keys as it runs a small one. Regression: it looked at the whole command for each of
/// its keys, which took minutes.
#[test]
fn a_hundred_thousand_keys() {
    const COUNT: usize = 100_000;
    let server = Server::start();
    let mut client = server.client();
    let keys: Vec<_> = (0..COUNT).map(|n| format!("k{n}")).collect();
    let pairs: Vec<_> = keys.iter().map(|key| format!("{key} v")).collect();
    assert_eq!(client.say(&format!("LOCK.GATE g 5 COMMAND MSET {}", pairs.join(" "))), text("OK"));
    let keys = keys.join(" ");
    assert_eq!(client.say(&format!("LOCK.GATE g 5 COMMAND MGET {keys}")).as_list(), vec![text("v"); COUNT]);
    assert_fenced(&mut client, &format!("LOCK.GATE g 4 COMMAND DEL {keys}"), 5);
    assert_eq!(client.say(&format!("LOCK.GATE g 5 COMMAND DEL {keys}")), int(COUNT as i64));
}

/// Each invalid call has an error of its own, and changes nothing: neither gate nor data.
#[test]
fn bad_input_changes_nothing() {
    let server = Setup::new().aof().start();
    let mut client = server.client();
    client.say("LOCK.GATE gate 5 COMMAND SET data 1");
    client.say("LOCK.ACQUIRE lock me 60000");
    let token = "ERR token must be an integer from 1 to 9007199254740991";
    let cases = [
        ("gate 6 COMMAND NOSUCH data 2", "ERR this server has no command of the name after COMMAND"),
        ("gate 6 COMMAND OBJECT NOSUCH data", "ERR this server has no command of the name after COMMAND"),
        ("gate 6 COMMAND SET data", "ERR wrong number of arguments for the command after COMMAND"),
        ("gate 6 COMMAND OBJECT", "ERR the command after COMMAND has no key"),
        ("gate 6 COMMAND PING", "ERR the command after COMMAND has no key"),
        ("gate 6 COMMAND FLUSHALL", "ERR the command after COMMAND has no key"),
        ("gate 6 COMMAND BLPOP data 1", "NOPERM lock.gate-commands does not permit"),
        ("gate 6 COMMAND EVAL return 1 data", "NOPERM lock.gate-commands does not permit"),
        ("gate 6 COMMAND SORT data", "NOPERM lock.gate-commands does not permit"),
        ("gate 6 COMMAND RESTORE data 0 x", "NOPERM lock.gate-commands does not permit"),
        ("gate 6 COMMAND WATCH data", "NOPERM lock.gate-commands does not permit"),
        ("gate 6 COMMAND LOCK.GATE data 7", "ERR LOCK.CHECK is the only lock command"),
        ("gate 6 COMMAND lock.acquire data me 1000", "ERR LOCK.CHECK is the only lock command"),
        ("gate 6 COMMAND DEL data gate", "ERR the command after COMMAND has the gate itself as a key"),
        ("gate 6 COMMAND", "ERR option COMMAND needs a value"),
        ("gate 0 COMMAND SET data 2", token),
        ("gate 9007199254740992 COMMAND SET data 2", token),
        ("gate -1", token),
        ("gate 6 PERMIT 0 COMMAND SET data 2", "ERR PERMIT must be an integer from 1 to 65535"),
        ("gate 6 PERMIT 65536", "ERR PERMIT must be an integer from 1 to 65535"),
        ("gate 6 SHARED PERMIT 1", "ERR SHARED and PERMIT exclude each other"),
        ("gate 6 KEEP 0", "ERR KEEP must be an integer from 1 to 31622400000 milliseconds"),
        ("gate 6 KEEP 31622400001", "ERR KEEP must be an integer from 1 to 31622400000 milliseconds"),
        ("gate 6 HELD KEEP 5", "ERR HELD and KEEP exclude each other"),
        ("gate 6 NX", "ERR unknown option: this command takes SHARED"),
        ("data 6 COMMAND GET other", "WRONGTYPE Operation"),
        ("lock 6 COMMAND SET data 2", "WRONGTYPE this key holds a lock"),
        ("gate 6 HELD COMMAND SET data 2", "WRONGTYPE this key holds a gate"),
        ("other 6 HELD COMMAND SET data 2", "NOTHELD "),
        // Tokens of another mode that are refused.
        ("gate 4 SHARED COMMAND SET data 2", "FENCED 5 "),
        ("gate 4 PERMIT 3 COMMAND SET data 2", "FENCED 5 "),
    ];
    let offset = |client: &mut Client| client.info_field("aof_current_size");
    let (before, digest) = (offset(&mut client), client.say("DEBUG DIGEST"));
    for (words, refusal) in cases {
        let line = format!("LOCK.GATE {words}");
        let refused = error(client.say(&line));
        assert!(refused.starts_with(refusal), "{line}: {refused}");
        assert_eq!(client.say("DEBUG DIGEST"), digest, "{line}");
    }
    assert!(error(client.say("LOCK.RELEASE gate me")).starts_with("WRONGTYPE"));
    assert!(error(client.say("COPY gate copy")).starts_with("ERR"));
    assert_eq!(offset(&mut client), before, "nothing was replicated");
    assert_eq!(client.say("LOCK.INFO gate").field("largest"), int(5));
}

#[test]
fn a_failed_command_leaves_the_gate_raised() {
    let server = Server::start();
    let mut client = server.client();
    client.say("SET text x");
    assert!(error(client.say("LOCK.GATE gate 5 COMMAND INCR text")).starts_with("ERR value is not an integer"));
    assert_fenced(&mut client, "LOCK.GATE gate 4", 5);
    assert_eq!(client.say("LOCK.GATE gate 5 COMMAND SET text 1 NX"), null());
}

/// After an error in a MULTI the later commands would still run, so there LOCK.GATE needs a COMMAND.
#[test]
fn in_a_transaction_only_with_a_command() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.GATE gate 5");
    let exec = |client: &mut Client, lines: &[&str]| {
        client.say("MULTI");
        lines.iter().for_each(|line| assert_eq!(client.say(line), text("QUEUED"), "{line}"));
        client.say("EXEC").as_list()
    };
    let replies = exec(
        &mut client,
        &["LOCK.GATE gate 6", "LOCK.GATE gate 6 COMMAND SET a 1", "LOCK.GATE gate 4 COMMAND SET a 2"],
    );
    assert!(error(replies[0].clone()).starts_with("ERR in MULTI a refusal does not stop"), "{replies:?}");
    assert_eq!(replies[1], text("OK"));
    assert!(replies[2].is_error("FENCED"), "{replies:?}");
    assert_eq!(client.say("GET a"), text("1"));
}

#[test]
fn in_a_script_a_refusal_ends_the_script() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.GATE gate 5");
    let script = b"redis.call('LOCK.GATE', KEYS[1], ARGV[1]) return redis.call('SET', KEYS[2], ARGV[1])";
    let mut run = |token: &str| client.send(&[b"EVAL", script, b"2", b"gate", b"data", token.as_bytes()]);
    assert_eq!(run("6"), text("OK"));
    assert!(error(run("5")).starts_with("FENCED 6"));
    // In a MULTI a script may check a token without a command, since the error ends the script.
    client.say("MULTI");
    client.send(&[b"EVAL", script, b"2", b"gate", b"data", b"5"]);
    client.send(&[b"EVAL", script, b"2", b"gate", b"data", b"7"]);
    let replies = client.say("EXEC").as_list();
    assert!(replies[0].is_error("FENCED"), "{replies:?}");
    assert_eq!((&replies[1], client.say("GET data")), (&text("OK"), text("7")));
    let reads = client.send(&[b"EVAL_RO", b"return redis.call('LOCK.GATE', KEYS[1], 8)", b"1", b"gate"]);
    assert!(matches!(reads, Reply::Error(_)), "{reads:?}");
    let with_command = b"return redis.call('LOCK.GATE', KEYS[1], 7, 'COMMAND', 'GET', KEYS[2])";
    assert_eq!(client.send(&[b"EVAL", with_command, b"2", b"gate", b"data"]), text("7"));
}

/// With HELD, a present grant passes in its mode, and nothing has to be remembered.
#[test]
fn held_asks_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.say("LOCK.ACQUIRE stock me 60000").as_int();
    let write = |token, value: &str| format!("LOCK.GATE stock {token} HELD COMMAND SET data {value}");
    assert_eq!(client.say(&write(token, "1")), text("OK"));
    assert!(error(client.say(&write(token + 1, "2"))).starts_with("NOTHELD"));
    assert!(error(client.say(&format!("LOCK.GATE stock {token} SHARED HELD"))).starts_with("NOTHELD"));
    client.say("LOCK.CONVERT stock me SHARED");
    assert!(error(client.say(&write(token, "3"))).starts_with("NOTHELD"), "it reads from now on");
    assert_eq!(client.say(&format!("LOCK.GATE stock {token} SHARED HELD COMMAND GET data")), text("1"));
    client.say("LOCK.RELEASE stock me");
    assert!(error(client.say(&format!("LOCK.GATE stock {token} SHARED HELD"))).starts_with("NOTHELD"));
    let permit = client.say("LOCK.ACQUIRE stock me 60000 LIMIT 3 PERMIT 2").as_list()[0].as_int();
    assert_eq!(client.say(&format!("LOCK.GATE stock {permit} PERMIT 2 HELD")), int(1));
    assert!(error(client.say(&format!("LOCK.GATE stock {permit} PERMIT 1 HELD"))).starts_with("NOTHELD"));
    // HELD refuses a lease that is over, and a lock that the node cannot vouch for.
    client.say("DEL stock");
    let short = client.say("LOCK.ACQUIRE stock me 200").as_int();
    wait_until("the lease ends", || client.say(&write(short, "4")).is_error("NOTHELD"));
    let token = client.say("LOCK.ACQUIRE stock me 60000").as_int();
    let dump = client.say("DUMP stock");
    client.say("DEL stock");
    client.send(&[b"RESTORE", b"stock", b"0", dump.as_bytes()]);
    assert!(error(client.say(&write(token, "5"))).starts_with("GUARDED"));
    assert_eq!((client.say("TYPE stock"), client.say("DBSIZE")), (text("redislock"), int(2)));
}

/// A user with this one command can write its data with a current token, and in no other way.
#[test]
fn a_user_of_the_gate_cannot_write_around_it() {
    let server = Server::start();
    let mut operator = server.client();
    operator.say("ACL SETUSER writer on nopass -@all +lock.gate ~invoice:* %R~price:*");
    operator.say("SET price:1 7");
    let mut writer = server.client();
    writer.say("AUTH writer x");
    assert_eq!(writer.say("LOCK.GATE invoice:gate 5 COMMAND SET invoice:1 paid"), text("OK"));
    assert_fenced(&mut writer, "LOCK.GATE invoice:gate 4 COMMAND SET invoice:1 open", 5);
    assert_eq!(writer.say("LOCK.GATE invoice:gate 5 COMMAND GET price:1"), text("7"));
    for line in [
        "SET invoice:1 open",
        "DEL invoice:1",
        "DEL invoice:gate",
        "GET invoice:1",
        "LOCK.GATE other 5 COMMAND SET invoice:1 open",
        "LOCK.GATE invoice:gate 5 COMMAND SET other open",
        "LOCK.GATE invoice:gate 5 COMMAND MSET invoice:1 open other open",
        "LOCK.GATE invoice:gate 5 COMMAND RENAME invoice:1 other",
        // Keys that the user may only read.
        "LOCK.GATE invoice:gate 5 COMMAND SET price:1 0",
        "LOCK.GATE invoice:gate 5 COMMAND HSET price:1 a b",
        "LOCK.GATE invoice:gate 5 COMMAND DEL price:1",
        "LOCK.GATE invoice:gate 5 COMMAND GETEX price:1 EX 1",
        "LOCK.GATE price:gate 5",
        // Commands that no gate runs.
        "LOCK.GATE invoice:gate 5 COMMAND EVAL return 1 invoice:1",
    ] {
        assert!(error(writer.say(line)).starts_with("NOPERM"), "{line}");
    }
    // A denied key is in the server's log, as one of a plain command is.
    operator.say("ACL LOG RESET");
    writer.say("LOCK.GATE invoice:gate 5 COMMAND SET other open");
    assert_eq!(operator.say("ACL LOG").as_list()[0].field("object"), text("other"));
    // The same rules apply in a transaction and a script.
    operator.say("ACL SETUSER writer +multi +exec +eval");
    writer.say("MULTI");
    assert_eq!(writer.say("LOCK.GATE invoice:gate 5 COMMAND SET other open"), text("QUEUED"));
    assert!(writer.say("EXEC").as_list()[0].is_error("NOPERM"));
    let script = b"return redis.call('LOCK.GATE', KEYS[1], 5, 'COMMAND', 'SET', 'other', 'open')";
    assert!(error(writer.send(&[b"EVAL", script, b"1", b"invoice:gate"])).contains("NOPERM"));
    assert_eq!(operator.say("GET invoice:1"), text("paid"));
    assert_eq!((operator.say("EXISTS other"), operator.say("GET price:1")), (int(0), text("7")));
}

/// A permission to change a key by other commands is none to change it through a gate.
#[test]
fn each_selector_of_a_user_stands_alone() {
    let server = Server::start();
    let mut operator = server.client();
    operator.say("ACL SETUSER writer on nopass -@all +strlen ~* (+lock.gate ~invoice:*)");
    let mut writer = server.client();
    writer.say("AUTH writer x");
    assert_eq!(writer.say("LOCK.GATE invoice:gate 5 COMMAND SET invoice:1 paid"), text("OK"));
    assert!(error(writer.say("LOCK.GATE invoice:gate 5 COMMAND SET other open")).starts_with("NOPERM"));
    assert_eq!(operator.say("EXISTS other"), int(0));
}

#[test]
fn the_operator_says_which_commands_a_gate_runs() {
    let server = Setup::new().module_arguments(&["gate-commands", "+get -@dangerous"]).start();
    let mut client = server.client();
    assert_eq!(client.say("LOCK.GATE g 5 COMMAND GET a"), null());
    assert!(error(client.say("LOCK.GATE g 5 COMMAND SET a 1")).starts_with("NOPERM lock.gate-commands"));
    let set =
        |client: &mut Client, rules: &str| client.send(&[b"CONFIG", b"SET", b"lock.gate-commands", rules.as_bytes()]);
    for wrong in ["+get ~*", "set", "+nosuch", "+@nosuch", "on", "+get\0"] {
        assert!(error(set(&mut client, wrong)).contains("needs ACL rules about commands"), "{wrong}");
        assert_eq!(client.say("LOCK.GATE g 5 COMMAND GET a"), null(), "the rules are as before");
    }
    assert_eq!(set(&mut client, "+@write -del"), text("OK"));
    assert_eq!(client.say("LOCK.GATE g 5 COMMAND SET a 1"), text("OK"));
    for other in ["GET a", "DEL a"] {
        assert!(error(client.say(&format!("LOCK.GATE g 5 COMMAND {other}"))).starts_with("NOPERM lock.gate-commands"));
    }
    assert_eq!(set(&mut client, ""), text("OK"));
    assert!(error(client.say("LOCK.GATE g 5 COMMAND GET a")).starts_with("NOPERM lock.gate-commands"));
    assert_eq!(client.say("LOCK.GATE g 5"), int(1));
}

/// Regression: Valkey 9.1 loses the error of these commands. The client got no answer, and took the next one for it.
#[test]
fn a_command_whose_error_the_server_loses_is_answered() {
    let server = Server::start();
    let mut client = server.client();
    client.say("RPUSH list x");
    for command in ["GETSET list x", "GETDEL list"] {
        let refused = error(client.say(&format!("LOCK.GATE gate 5 COMMAND {command}")));
        assert!(refused.starts_with("WRONGTYPE") || refused.starts_with("ERR the server gave no reply"), "{refused}");
    }
    assert_eq!(client.say("LLEN list"), int(1));
}

/// The server refuses the protected command just as it would without the gate.
#[test]
fn without_memory_a_command_is_refused_inside_as_outside() {
    let server = Server::start();
    let mut client = server.client();
    client.say("LOCK.GATE gate 5 COMMAND SET a 1");
    client.say("LOCK.GATE permits 5 PERMIT 1");
    client.say("CONFIG SET maxmemory 1");
    assert!(error(client.say("LOCK.GATE gate 5 COMMAND SET a 2")).starts_with("OOM"));
    assert!(error(client.say("LOCK.GATE new 5 COMMAND DEL a")).starts_with("OOM"), "no new gate");
    assert!(error(client.say("LOCK.GATE permits 6 PERMIT 2")).starts_with("OOM"), "no new permit number");
    assert!(error(client.say("LOCK.GATE permits 4 PERMIT 1")).starts_with("FENCED"), "a late writer is to stop");
    client.say("LOCK.GATE gate 9 COMMAND DEL a");
    assert!(error(client.say("LOCK.GATE gate 8 PERMIT 3")).starts_with("FENCED"));
    assert_eq!(client.say("LOCK.GATE permits 6 PERMIT 1"), int(1));
    assert_eq!(client.say("LOCK.GATE gate 9 COMMAND DEL a"), int(0));
}

#[test]
fn without_enough_replicas_nothing_passes() {
    let server = Server::start();
    let mut client = server.client();
    client.say("CONFIG SET min-replicas-to-write 1");
    assert!(error(client.say("LOCK.GATE gate 5 COMMAND SET a 2")).starts_with("NOREPLICAS"));
    assert_eq!(client.say("EXISTS gate"), int(0));
}

/// Keys of the command count as keys of LOCK.GATE: two different slots are refused, and a slot of another node is
/// redirected.
#[test]
fn in_a_cluster_all_keys_are_in_one_slot() {
    let (one, other) = cluster();
    let mut client = one.client();
    assert_eq!(client.say("LOCK.GATE {a}gate 5 COMMAND SET {a} 1"), text("OK"));
    assert!(error(client.say("LOCK.GATE {a}gate 6 COMMAND SET {b} 1")).starts_with("CROSSSLOT"));
    assert!(error(client.say("LOCK.GATE {b}gate 6 COMMAND MSET {b} 1 {a} 2")).starts_with("CROSSSLOT"));
    assert_eq!(client.say("LOCK.INFO {a}gate").field("largest"), int(5));
    assert!(error(other.client().say("LOCK.GATE {a}gate 6 COMMAND SET {a} 1")).starts_with("MOVED"));
    let script = b"return redis.call('LOCK.GATE', KEYS[1], 6, 'COMMAND', 'SET', '{b}', '1')";
    assert!(error(client.send(&[b"EVAL", script, b"1", b"{a}gate"])).contains("CROSSSLOT"));
}

/// While a slot moves key by key, the command runs only where all of its keys are. Otherwise it would write a second
/// value of a key that is still on the other node.
#[test]
fn while_a_slot_moves_a_gate_waits_for_all_keys() {
    let (source, target) = cluster();
    let (mut from, mut to) = (source.client(), target.client());
    let slot = from.say("CLUSTER KEYSLOT {a}").as_int();
    from.say("LOCK.GATE {a}gate 5 COMMAND SET {a} 1");
    from.say("LOCK.GATE {a}stays 5");
    assert_eq!(to.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id)), text("OK"));
    assert_eq!(from.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id)), text("OK"));
    let migrate = |client: &mut Client, key: &str| {
        let moved = client.say(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", target.server.port()));
        assert_eq!(moved, text("OK"));
    };
    assert_eq!(from.say("LOCK.GATE {a}gate 6 COMMAND INCR {a}"), int(2), "both are here still");
    migrate(&mut from, "{a}gate");
    let write = "LOCK.GATE {a}gate 7 COMMAND INCR {a}";
    assert!(error(from.say(write)).starts_with("ASK"));
    to.say("ASKING");
    assert!(error(to.say(write)).starts_with("TRYAGAIN"));
    to.say("ASKING");
    assert_eq!(to.say("LOCK.INFO {a}gate").field("largest"), int(6), "the token has not passed");
    migrate(&mut from, "{a}");
    to.say("ASKING");
    assert_eq!(to.say(write), int(3));
    // The other way round: the data has left, and the gate is here.
    assert!(error(from.say("LOCK.GATE {a}stays 6 COMMAND INCR {a}")).starts_with("TRYAGAIN"));
    assert_eq!(from.say("LOCK.GATE {a}stays 5"), int(1), "the token has not passed");
}

/// A gate with KEEP is forgotten a while after its last passing, by the boot clock, and is then gone from memory.
#[test]
fn a_kept_gate_is_forgotten() {
    let server = Setup::new().wall_clock().start();
    let mut client = server.client();
    client.say("LOCK.GATE long 5 KEEP 3600000");
    client.say("LOCK.GATE short 5 KEEP 300");
    assert_fenced(&mut client, "LOCK.GATE short 4 KEEP 300", 5);
    server.wall_clock().set(86_400);
    assert_fenced(&mut client, "LOCK.GATE long 4", 5);
    wait_until("the gate is gone", || client.say("EXISTS short") == int(0));
    assert_eq!(client.say("LOCK.GATE short 4"), int(1));
    // A gate without KEEP is not forgotten because of a later KEEP.
    client.say("LOCK.GATE stays 5");
    client.say("LOCK.GATE stays 5 KEEP 1");
    assert_eq!(client.say("LOCK.INFO stays").field("keep"), int(0));
}

/// A command with many keys leaves nothing in memory.
#[test]
fn a_command_with_many_keys_leaves_nothing_in_memory() {
    let server = Server::start();
    let mut client = server.client();
    let keys: Vec<_> = (0..300).map(|n| format!("k{n}")).collect();
    let line = format!("LOCK.GATE g 5 COMMAND MGET {}", keys.join(" "));
    let mut used_after = |calls| {
        (0..calls).for_each(|_| drop(client.say(&line)));
        client.info_field("used_memory")
    };
    let (before, after) = (used_after(100), used_after(1_000));
    let grown = after.saturating_sub(before);
    assert!(grown < 500_000, "a thousand commands have left {grown} bytes");
}
