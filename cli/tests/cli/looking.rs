//! The views and actions of operators: locks, nodes, guards, the doctor.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::{Nodes, Running, json, palisade_at, run};
use crate::harness::Frozen;
use crate::harness::{Server, Setup, acl_rules, patience, text, wait_until};

#[test]
fn locks_and_who_holds_them() {
    let nodes = Nodes::start(3);
    assert_eq!(json(&nodes, "ls"), serde_json::json!([]));
    assert_eq!(json(&nodes, "info a:1"), Value::Null);
    assert_eq!(run(nodes.palisade("info a:1")).out(), "a:1 is free\n");

    let holder = nodes.holder("--ttl 60s --note web-1 a:1");
    let token_at = |server: &Server| server.client().say("LOCK.INFO a:1").field("token").as_int();
    wait_until("all have it", || nodes.holding("a:1") == 3);
    wait_until("they agree on its token", || {
        nodes.servers.iter().all(|server| token_at(server) == token_at(&nodes.servers[0]))
    });
    let waiter = Running::start(nodes.exec("--note web-2 a:1", "true"));
    wait_until("it waits everywhere", || nodes.servers.iter().all(|server| server.info("waiters") == 1));
    // A lock on only one node is held by nobody.
    nodes.servers[1].client().say("LOCK.ACQUIRE b:2 somebody 60000");
    nodes.say("SET c:3 text");

    let list = json(&nodes, "ls");
    let keys: Vec<_> = list.as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a:1", "b:2"]);
    let token = nodes.servers[0].client().say("LOCK.INFO a:1").field("token").as_int();
    let expected: [(&str, Value); 5] = [
        ("holder", "web-1".into()),
        ("token", token.into()),
        ("nodes", 3.into()),
        ("is_held", true.into()),
        ("waiters", 1.into()),
    ];
    for (name, value) in &expected {
        assert_eq!(list[0][name], *value, "{name}");
    }
    assert_eq!((&list[1]["nodes"], &list[1]["is_held"]), (&Value::from(1), &Value::from(false)));
    assert_eq!(json(&nodes, "info a:1")["token"], token);
    assert_eq!(json(&nodes, "ls b:*").as_array().unwrap().len(), 1);
    let info = run(nodes.palisade("info b:2")).out();
    assert!(info.contains("1 of 3: no majority, so nobody may rely on it"), "{info}");
    let partly = "b:2 is held by nobody: 1 of 3 nodes holds a grant that no majority confirmed; it ends in ";
    assert!(info.starts_with(partly), "{info}");
    let why = json(&nodes, "why b:2");
    assert!(why["summary"].as_str().unwrap().starts_with(partly) && why["state"] == "free", "{why}");
    assert!(why["advice"].as_str().unwrap().starts_with("Take it all the same: 2 of 3 nodes "), "{why}");
    let limited = run(nodes.palisade("ls --limit 1"));
    assert!(limited.out().contains("a:1") && !limited.out().contains("b:2"), "{limited:?}");
    assert!(limited.err().contains("1 more: say --limit 2"), "{limited:?}");
    let top = run(nodes.palisade("top --once")).out();
    assert!(top.contains("serving") && top.contains("web-1") && top.contains("locks: 2"), "{top}");

    let some = run(nodes.palisade("top --once --interval 1ms --filter b:* --sort key")).out();
    assert!(some.contains("GRANTS/s") && some.contains("locks: 1, by key") && !some.contains("web-1"), "{some}");
    assert!(!top.contains("GRANTS/s") && top.contains("locks: 2, by waiters"), "{top}");

    let page = json(&nodes, "top --once --interval 1ms --filter a:*");
    assert_eq!(page["nodes"].as_array().map(Vec::len), Some(3), "{page}");
    assert_eq!((&page["locks"][0]["holder"], &page["seen"]), (&"web-1".into(), &1.into()), "{page}");
    assert!(page["rates"][2]["granted"].is_number() && page["contended"]["keys"].is_array(), "{page}");

    // The lock is listed if one of three nodes does not answer, but not if two do not.
    let frozen = Frozen::new(&nodes.servers[2]);
    assert_eq!(json(&nodes, "info a:1")["nodes"], 2);
    let also = Frozen::new(&nodes.servers[1]);
    run(nodes.palisade("info a:1")).assert_refused(196, "1 of 3 nodes can be asked, and 2 are needed");
    drop((frozen, also));
    wait_until("all have it, also if it ended meanwhile on those", || nodes.holding("a:1") == 3);

    // The holder is stopped: after a break on one node it would release the lock on the others, perhaps before they are
    // asked.
    holder.signal(Signal::SIGSTOP);
    assert_eq!(json(&nodes, "break --yes a:1")["nodes"], 3);
    assert_eq!(json(&nodes, "break --yes free")["nodes"], 0);
    drop(holder);
    assert_eq!(waiter.end().code(), Some(0), "it got what was broken");
}

/// A node that is guarded or cannot be asked may belong to a majority that has the lock. If too many nodes are like
/// that, `info` fails, since it cannot know whether the lock is free.
#[test]
fn nobody_knows_whether_it_is_free() {
    let mut nodes = Nodes::start(3);
    nodes.servers[0].client().say("LOCK.GUARD ARM 50000");
    assert_eq!(run(nodes.palisade("info k")).out(), "k is free\n", "two know");
    nodes.servers[1].client().say("LOCK.GUARD ARM 50000");
    for line in ["info k", "info --json k"] {
        let ended = run(nodes.palisade(line));
        ended.assert_refused(196, "whether k is free cannot be known now: ");
        assert!(ended.err().contains("guarded for ") && ended.err().contains("s (operator)"), "{ended:?}");
        assert_eq!(ended.out(), "");
    }
    // A single node may not know all locks.
    nodes.servers[2].client().say("LOCK.ACQUIRE k me 60000");
    let ended = run(nodes.palisade("info k"));
    assert_eq!(ended.code(), Some(196), "{ended:?}");
    assert!(ended.out().contains("1 of 3: no majority, but others may have forgotten it"), "{ended:?}");
    nodes.servers[2].client().say("LOCK.RELEASE k me");
    nodes.servers[1].lift();
    nodes.servers[0].kill();
    assert_eq!(run(nodes.palisade("info k")).out(), "k is free\n", "two know");
    nodes.servers[1].client().say("LOCK.GUARD ARM 50000");
    let ended = run(nodes.palisade("info k"));
    ended.assert_refused(196, "it cannot be reached");
    assert!(ended.err().contains("guarded for "), "{ended:?}");
    // If a majority has the lock, the answer is known.
    nodes.servers[0].start_again();
    nodes.servers.iter().for_each(Server::lift);
    nodes.say("LOCK.ACQUIRE k me 60000");
    nodes.servers[1].client().say("LOCK.GUARD ARM 50000");
    let ended = run(nodes.palisade("info k"));
    assert!(ended.code() == Some(0) && ended.out().contains("nodes    3 of 3\n"), "{ended:?}");
    assert!(run(nodes.palisade("break --yes other")).out().contains("no node has it, nothing was broken"));
}

#[test]
fn nodes_and_their_guards() {
    let mut nodes = Nodes::start(3);
    let list = json(&nodes, "nodes");
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 3);
    for (view, server) in list.iter().zip(&nodes.servers) {
        let told = server.client().say("LOCK.NODE");
        assert_eq!(view["id"], told.field("id").as_text());
        assert_eq!((&view["state"], &view["incarnation"]), (&Value::from("serving"), &Value::from(1)));
        assert!(view["round_trip_us"].as_u64().unwrap() < patience().as_micros() as u64);
    }
    assert_eq!(run(nodes.palisade("guard 2")).out().trim(), format!("{} serves", nodes.servers[1].socket().display()));
    assert_eq!(json(&nodes, "guard 2 arm 90s")["guard_ms"], 90_000);
    let table = run(nodes.palisade("nodes")).out();
    assert!(table.contains("guarded 1m 29s (operator)") || table.contains("guarded 1m 30s (operator)"), "{table}");
    assert_eq!(json(&nodes, "guard 2 lift --yes")["guard_ms"], 0);
    let address = nodes.servers[2].address();
    let mut by_address = nodes.palisade(&format!("guard {address} arm 90s --json"));
    let ended = run({
        by_address.env_remove("PALISADE_NODES");
        by_address
    });
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert_eq!(nodes.servers[2].client().say("LOCK.NODE").field("guard_reason").as_text(), "operator");

    nodes.servers[0].kill();
    let ended = run(nodes.palisade("nodes"));
    assert!(ended.code() == Some(0) && ended.out().contains("unreachable"), "{ended:?}");
    nodes.servers[1].kill();
    let ended = run(nodes.palisade("nodes"));
    assert_eq!(ended.code(), Some(196), "{ended:?}");
    assert_eq!(ended.out().matches("unreachable").count(), 2, "{ended:?}");
}

#[test]
fn the_doctor_names_each_fault() {
    let nodes = |setups: [Setup; 3]| {
        let mut nodes = Nodes::start(0);
        nodes.servers = setups.into_iter().map(Setup::start).collect();
        nodes
    };
    let lasting = || Setup::new().aof();
    let healthy = nodes([lasting(), lasting(), lasting()]);
    let ended = run(healthy.palisade("doctor"));
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.out().contains("all nodes: there are 3: 1 may be down"), "{ended:?}");

    healthy.servers[0].client().say("CONFIG SET maxmemory 100mb");
    healthy.servers[0].client().say("CONFIG SET maxmemory-policy allkeys-lru");
    let ended = run(healthy.palisade("doctor"));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(ended.out().contains("CHANGE") && ended.out().contains("maxmemory-policy is allkeys-lru"), "{ended:?}");

    let different =
        nodes([lasting(), lasting(), Setup::new().module_arguments(&["max-ttl", "5000", "restart-guard", "never"])]);
    let ended = run(different.palisade("doctor"));
    assert_eq!(ended.code(), Some(2), "{ended:?}");
    for text in ["FAIL    all nodes: lock.max-ttl differs", "lock.restart-guard is never"] {
        assert!(ended.out().contains(text), "{ended:?}");
    }
    let findings = json(&different, "doctor");
    assert!(findings.as_array().unwrap().iter().any(|finding| finding["level"] == "fail"), "{findings}");

    let alias = healthy.file("alias");
    std::os::unix::fs::symlink(healthy.servers[0].socket(), &alias).unwrap();
    let mut twice = healthy.palisade("doctor --nodes");
    twice.arg(format!("{},unix://{}", healthy.servers[0].address(), alias.display()));
    let ended = run(twice);
    assert_eq!(ended.code(), Some(2), "{ended:?}");
    assert!(ended.out().contains("They count once") && !ended.out().contains("may be down"), "{ended:?}");
}

/// The user in docs/cli.md can do everything, and the application's user in docs/acl.md can take locks.
#[test]
fn users_with_the_rules_of_the_documents() {
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
    let page = std::fs::read_to_string(pages).unwrap();
    let operator = page.lines().find(|line| line.starts_with("ACL SETUSER operator ")).unwrap().to_owned();
    let nodes = Nodes::start(3);
    let app = acl_rules("+lock.acquire")[0].clone();
    for rule in [&operator, &app] {
        assert!(nodes.say(rule).iter().all(|reply| *reply == text("OK")), "{rule}");
    }
    let run_as = |user: &str, line: &str| {
        let command = palisade_at(&nodes.addresses_with(&format!("?user={user}&pass=secret")), line);
        let ended = crate::fixture::run_with(command, b"\n");
        assert_eq!(ended.code(), Some(0), "{user}: {line}: {ended:?}");
    };
    for user in ["operator", "app"] {
        for line in [
            "exec orders:1 -- true",
            "try orders:1",
            "lock --wait 1m orders:1",
            "info orders:1",
            "acquire orders:1 --owner job --ttl 1m",
            "extend orders:1 --owner job --ttl 1m",
            "release orders:1 --owner job",
        ] {
            run_as(user, line);
        }
    }
    for line in [
        "ls",
        "nodes",
        "doctor",
        "top --once",
        "deadlocks",
        "why orders:1",
        "history",
        "break --yes orders:1",
        "guard 1",
        "guard 1 arm 1ms",
        "guard 1 lift --yes",
    ] {
        run_as("operator", line);
    }
    for server in &nodes.servers {
        let denied = server.client().say("ACL LOG").as_list();
        let denied: Vec<String> = denied.iter().map(|entry| entry.field("object").as_text()).collect();
        // A client also sends this command if the server knows it, but can do without it.
        assert!(denied.iter().all(|what| what == "client|setinfo"), "{denied:?}");
    }
}

/// Each node that cannot be asked has its own reason, and each reason its own advice.
#[test]
fn the_doctor_knows_a_remedy_for_each() {
    let nodes = Nodes::start(1);
    nodes.say("ACL SETUSER weak on >sesame ~* +ping");
    nodes.say("ACL SETUSER default >sesame");
    let bare = Setup::new().module_later().start();
    let socket = |server: &Server, user: &str| server.address() + user;
    for (address, text, advice) in [
        (socket(&nodes.servers[0], ""), "NOAUTH", "put its password into the address"),
        (socket(&nodes.servers[0], "?pass=wrong"), "WRONGPASS", "correct the user or the password"),
        (socket(&nodes.servers[0], "?user=weak&pass=sesame"), "NOPERM", "allow its user what it lacks"),
        (socket(&bare, ""), "the server has no lock module", "load the module"),
        ("127.0.0.1:1".to_owned(), "it cannot be reached", "bring it back, or replace it"),
    ] {
        let ended = run(palisade_at(&address, "doctor"));
        assert_eq!(ended.code(), Some(2), "{ended:?}");
        let found = ended
            .out()
            .lines()
            .skip_while(|line| !line.contains("cannot be asked: "))
            .map(str::to_owned)
            .collect::<Vec<_>>();
        assert!(found[0].contains(text) && found[1].trim_start().starts_with(advice), "{ended:?}");
        assert_eq!(ended.out().matches("bring it back").count(), usize::from(text.contains("reached")), "{ended:?}");
    }
}

/// Terminals also act on characters other than control characters: on those that reverse the order of the text, and on
/// invisible ones. The program escapes all of them.
#[test]
fn nothing_that_somebody_else_chose_is_obeyed() {
    const SHOWN: &str = "a\\u{202e}b\\u{2066}c\\u{200f}d\\u{61c}e\\u{9b}f";
    let evil = "a\u{202e}b\u{2066}c\u{200f}d\u{61c}e\u{9b}f";
    let mut nodes = Nodes::start(1);
    let mut holder = nodes.palisade(&format!("lock --note {evil} {evil}"));
    holder.stdin(std::process::Stdio::piped());
    let holder = Running::start(holder);
    wait_until("it is held", || nodes.holding(evil) == 1);
    let waiter = Running::start(nodes.palisade(&format!("lock --note w{evil} {evil}")));
    wait_until("it waits", || nodes.waiters() == 1);
    let obeyed = |c: char| (c.is_control() && c != '\n') || evil.contains(c) && !c.is_ascii();
    let alias = nodes.file(evil);
    std::os::unix::fs::symlink(nodes.servers[0].socket(), &alias).unwrap();
    for (line, shows) in [
        (format!("info {evil}"), 3),
        (format!("why {evil}"), 5),
        (format!("why --json {evil}"), 0),
        ("ls".to_owned(), 2),
        ("top --once".to_owned(), 2),
        (format!("try {evil}"), 2),
        (format!("exec --no-wait {evil} -- {evil}"), 1),
        (format!("exec --wait 10ms {evil} -- true"), 2),
        (format!("exec --ttl 61s {evil} -- true"), 0),
        (format!("{evil} x"), 1),
        (format!("guard {evil}"), 1),
        (format!("--nodes unix://{} nodes", alias.display()), 0),
        (format!("--nodes unix://{}x,127.0.0.1:1 nodes", alias.display()), 0),
        (format!("--nodes unix://{} doctor", alias.display()), 0),
        ("info --json KEY".replace("KEY", evil), 0),
        ("ls --json".to_owned(), 0),
        (format!("break --yes --json {evil}"), 0),
    ] {
        let ended = run(nodes.palisade(&line));
        assert!(!ended.all().contains(obeyed), "{line}: {ended:?}");
        assert!(ended.all().matches(SHOWN).count() >= shows, "{line}: {ended:?}");
        if line.contains("--json") {
            let text = ended.json().to_string();
            assert!(line.contains("break") || text.contains(evil), "{line}: {ended:?}");
        }
    }
    drop((holder, waiter));
    nodes.servers.clear();
}

/// Runs every command, with right and wrong arguments, and with every kind of failure. No output contains a password.
#[test]
fn passwords_are_never_shown() {
    let nodes = Nodes::start(1);
    nodes.servers[0].client().say("CONFIG SET requirepass sesame");
    let socket = nodes.servers[0].socket();
    let lines = [
        "ls",
        "info k",
        "nodes",
        "nodes --json",
        "doctor",
        "doctor --json",
        "top --once",
        "break --yes k",
        "guard 1",
        "guard x",
        "exec k -- true",
        "exec --no-wait k -- true",
        "lock k",
        "try k",
        "exec --help",
        "frobnicate",
    ];
    for (password, works) in [("sesame", true), ("sesame-wrong", false)] {
        for line in lines {
            let mut command = nodes.palisade(line);
            command.env("PALISADE_NODES", format!("unix://{}?pass={password}", socket.display()));
            let ended = crate::fixture::run_with(command, b"");
            assert!(!ended.all().contains("sesame"), "{line}: {ended:?}");
            if works && !["guard x", "frobnicate", "doctor", "doctor --json"].contains(&line) {
                assert_eq!(ended.code(), Some(0), "{line}: {ended:?}");
            }
        }
    }
}
