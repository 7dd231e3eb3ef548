//! The users of `palisade acl` can do what their role needs and nothing else, and `palisade doctor` names missing
//! permissions.

use std::process::Command;
use std::time::Duration;

use palisade_client::{Client, Loss, Options};

use crate::fixture::{Nodes, palisade_at, run};
use crate::harness::{Server, patience, text, wait_until};

/// Returns the line of `palisade acl` for this role: the one for these servers if `of_these`, otherwise the one that
/// every version accepts.
fn line(nodes: &Nodes, options: &str, of_these: bool) -> String {
    let mut command = nodes.palisade(&format!("acl {options}"));
    if !of_these {
        command.env_remove("PALISADE_NODES");
    }
    let ended = run(command);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    ended.out().trim().replace("PASSWORD", "secret")
}

/// Creates a user of this role on all nodes, with the line that every version accepts. Returns its permissions.
fn make(nodes: &Nodes, options: &str) -> Vec<String> {
    let line = line(nodes, options, false);
    assert!(nodes.say(&line).iter().all(|reply| *reply == text("OK")), "{line}");
    line.split(' ').filter(|word| word.starts_with('+')).map(|rule| rule[1..].to_owned()).collect()
}

fn address(server: &Server, user: &str) -> String {
    format!("{}?user={user}&pass=secret", server.address())
}

/// Returns the program, run as this user.
fn palisade_as(nodes: &Nodes, user: &str, line: &str) -> Command {
    palisade_at(&nodes.addresses_with(&format!("?user={user}&pass=secret")), line)
}

/// Returns all refusals so far, except those of `CLIENT SETINFO`, which a client can do without.
fn refused(nodes: &Nodes) -> Vec<String> {
    let all = nodes.say("ACL LOG").into_iter().flat_map(|log| log.as_list());
    let all = all.map(|entry| entry.field("object").as_text());
    all.filter(|what| what != "client|setinfo").collect()
}

/// Returns true if the node refuses this command because the user lacks a permission.
fn is_refused(nodes: &Nodes, user: &str, line: &str) -> bool {
    let mut client = nodes.servers[0].client();
    assert_eq!(client.say(&format!("AUTH {user} secret")), text("OK"));
    client.say(line).is_error("NOPERM")
}

const CHANGES_MUCH: [&str; 8] = [
    "LOCK.BREAK orders:1",
    "LOCK.GUARD LIFT",
    "LOCK.GUARD ARM 1",
    "LOCK.EFFECT orders:1 x",
    "FLUSHALL",
    "DEL orders:1",
    "CONFIG SET maxmemory 1",
    "ACL WHOAMI",
];

/// Does everything that the client can do, with three nodes, as a user made by a line of `palisade acl`: the line for
/// every version of the servers, and the one for these servers if it differs. None of that is refused, but every other
/// command is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_can_do_all_that_a_client_does_and_no_more() {
    let nodes = Nodes::start(3);
    let options = "application --user app --key orders:*";
    let mut lines = vec![line(&nodes, options, false), line(&nodes, options, true)];
    lines.dedup();
    for line in lines {
        let nodes = Nodes::start(3);
        assert!(nodes.say(&line).iter().all(|reply| *reply == text("OK")), "{line}");
        all_that_a_client_does(&nodes).await;
        let others = ["LOCK.ACQUIRE users:1 me 1000", "LOCK.LOG", "LOCK.TOP", "SCAN 0"];
        for line in CHANGES_MUCH.into_iter().chain(others) {
            assert!(is_refused(&nodes, "app", line), "{line}");
        }
    }
}

async fn all_that_a_client_does(nodes: &Nodes) {
    let locks = Client::new(nodes.servers.iter().map(|server| address(server, "app"))).unwrap();
    let long = Options::new().ttl(Duration::from_secs(30)).node_timeout(patience()).note("by a test");
    let guard = locks.with(&long).lock("orders:1").await.unwrap();
    let inner = guard.reenter().await.unwrap();
    // Another client waits, sees who the holder is, and is next.
    let other = Client::new(nodes.servers.iter().map(|server| address(server, "app"))).unwrap();
    let refusal = other.with(&long).try_lock("orders:1").await.unwrap_err();
    assert_eq!(refusal.holder().unwrap().note, "by a test");
    let mut changes = other.watch("orders:1").unwrap();
    assert!(changes.changed().await.unwrap().is_some());
    let next = tokio::spawn({
        let (other, long) = (other.clone(), long.clone());
        async move { other.with(&long).lock("orders:1").await.unwrap() }
    });
    wait_until("it waits", || nodes.servers.iter().all(|server| server.info("waiters") >= 1));
    guard.extend().await.unwrap();
    inner.release().await;
    guard.release().await;
    let guard = next.await.unwrap();
    // A node that lost the lock is healed by the next extension.
    wait_until("all nodes have it", || nodes.servers.iter().all(|server| server.info("held") == 1));
    nodes.servers[0].client().say("DEL orders:1");
    wait_until("it is healed", || {
        tokio::task::block_in_place(|| {
            let _ = tokio::runtime::Handle::current().block_on(guard.extend());
        });
        nodes.servers[0].info("held") == 1
    });
    // The loss is reported at once.
    wait_until("every node tells of it", || {
        nodes.servers.iter().all(|server| server.client().info_field("tracking_total_keys") >= 1)
    });
    nodes.say("LOCK.BREAK orders:1");
    assert!(matches!(guard.lost().await, Loss::TakenAway(_)));
    let lock = locks.with(&long).rw_lock("orders:2");
    let reading = lock.write().await.unwrap().downgrade().await.unwrap();
    let beside = lock.read().await.unwrap();
    reading.release().await;
    beside.release().await;
    let permits = locks.with(&long).semaphore("orders:3", 2);
    let (one, two) = (permits.acquire().await.unwrap(), permits.acquire().await.unwrap());
    assert!(permits.try_acquire().await.is_err());
    one.release().await;
    two.release().await;
    let election = locks.with(&long).election("orders:4");
    let leads = election.campaign("here").await.unwrap();
    assert_eq!(election.leader().await.unwrap().unwrap().value, b"here");
    let mut observer = other.election("orders:4").observe().unwrap();
    assert!(observer.changed().await.unwrap().is_some());
    leads.resign().await;
    // The commands that a resource sends.
    let mut app = nodes.servers[0].client();
    app.say("AUTH app secret");
    let token = app.say("LOCK.ACQUIRE orders:5 me 60000").as_int();
    assert!(app.say(&format!("LOCK.CHECK orders:5 {token}")).as_int() > 0);
    assert_eq!(refused(nodes), Vec::<String>::new());
}

#[test]
fn a_watcher_looks_and_takes_nothing() {
    let nodes = Nodes::start(3);
    make(&nodes, "watcher --user sees");
    nodes.say("LOCK.ACQUIRE orders:1 me 60000 NOTE ann");
    let info = run(palisade_as(&nodes, "sees", "info orders:1"));
    assert!(info.out().contains("ann"), "{info:?}");
    run(palisade_as(&nodes, "sees", "leader e")).assert_refused(194, "nobody leads");
    // A user that cannot hold a lock need not be informed that one was broken.
    assert!(refused(&nodes).iter().all(|what| what == "client|tracking"), "{:?}", refused(&nodes));
    for line in CHANGES_MUCH.into_iter().chain(["LOCK.ACQUIRE orders:2 me 1000", "LOCK.RELEASE orders:1 me"]) {
        assert!(is_refused(&nodes, "sees", line), "{line}");
    }
}

/// The queries of the exporter's script and of the exporter itself are allowed, and nothing else (`make
/// test-monitoring` runs the real one).
#[test]
fn the_exporter_scrapes_and_does_nothing_else() {
    let nodes = Nodes::start(1);
    make(&nodes, "monitoring --user exporter");
    let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../monitoring/exporter.lua")).unwrap();
    let mut client = nodes.servers[0].client();
    client.say("AUTH exporter secret");
    assert!(!client.send(&[b"EVAL", script.as_bytes(), b"0"]).as_list().is_empty());
    for line in ["PING", "INFO all", "CONFIG GET *", "SLOWLOG LEN", "LATENCY LATEST", "CLIENT SETNAME exporter"] {
        assert!(!client.say(line).is_error("NOPERM"), "{line}");
    }
    for line in CHANGES_MUCH.into_iter().chain(["LOCK.ACQUIRE orders:1 me 1000", "LOCK.INFO orders:1"]) {
        assert!(is_refused(&nodes, "exporter", line), "{line}");
    }
}

/// Permissions are taken away one by one. `doctor` names each, for the user itself and for an operator who asks about
/// that user, with a line that restores it.
#[test]
fn the_doctor_names_what_is_missing() {
    let nodes = Nodes::start(1);
    for role in ["application", "watcher", "operator", "monitoring"] {
        let key = if role == "monitoring" { "" } else { "--key orders:*" };
        let rules = make(&nodes, &format!("{role} --user u {key}"));
        assert!(rules.len() >= 4);
        let key = if role == "monitoring" { "" } else { "--key orders:1" };
        let whole = [
            palisade_as(&nodes, "u", &format!("doctor --role {role} {key}")),
            nodes.palisade(&format!("doctor --role {role} --user u {key}")),
        ];
        for doctor in whole {
            let out = run(doctor).out();
            assert!(out.contains(&format!("may do what the role {role} needs")), "{role}: {out}");
        }
        for rule in rules {
            nodes.say(&format!("ACL SETUSER u -{rule}"));
            let mut advice = String::new();
            for (own, doctor) in [
                (true, palisade_as(&nodes, "u", &format!("doctor --role {role} {key}"))),
                (false, nodes.palisade(&format!("doctor --role {role} --user u {key}"))),
            ] {
                let out = run(doctor).out();
                let found = format!("lacks {rule}, which the role {role} needs: ");
                let mut lines = out.lines().skip_while(|line| !line.contains(&found));
                assert!(lines.next().is_some(), "{role} without {rule}: {out}");
                advice = lines.next().unwrap().trim().to_owned();
                let name = if own { "NAME" } else { "u" };
                assert_eq!(advice, format!("ACL SETUSER {name} +{rule}"));
            }
            assert_eq!(nodes.say(&advice)[0], text("OK"));
        }
        let out = run(nodes.palisade(&format!("doctor --role {role} --user u {key}"))).out();
        assert!(out.contains("may do what"), "{out}");
    }
}

#[test]
fn the_doctor_names_a_key_and_says_what_it_cannot_check() {
    let nodes = Nodes::start(1);
    make(&nodes, "application --user app --key orders:*");
    let ended = run(nodes.palisade("doctor --user app --key users:1"));
    let lacks = "app lacks the key users:1, which the role application needs: it may not use that key";
    assert!(ended.out().contains(lacks) && ended.out().contains("ACL SETUSER app ~users:1\n"), "{ended:?}");
    assert_eq!(ended.code(), Some(1));
    assert!(run(nodes.palisade("doctor --user app")).out().contains("which keys was not looked at (--key)"));
    let ended = run(nodes.palisade("doctor --user nobody"));
    assert!(ended.out().contains("what nobody may do cannot be checked: ERR User 'nobody' not found"), "{ended:?}");
    // An operator that this program created may not ask about other users.
    make(&nodes, "operator");
    let ended = run(palisade_as(&nodes, "operator", "doctor --user app"));
    assert!(ended.out().contains("what app may do cannot be checked: NOPERM"), "{ended:?}");
    assert!(ended.out().contains("run doctor as that user, or as one with +acl|dryrun"), "{ended:?}");
}

#[test]
fn a_writer_writes_behind_a_gate_and_the_doctor_names_ways_around() {
    let nodes = Nodes::start(1);
    make(&nodes, "writer --user w --key invoice:*");
    let gate = |words: &str| run(palisade_as(&nodes, "w", &format!("gate invoice:gate --token {words}"))).code();
    assert_eq!((gate("2 -- SET invoice:42 paid"), gate("1 -- SET invoice:42 late")), (Some(0), Some(197)));
    for line in CHANGES_MUCH.into_iter().chain(["SET invoice:42 x", "GET invoice:42", "EVAL 0 0"]) {
        assert!(is_refused(&nodes, "w", line), "{line}");
    }
    let doctor = |key: &str| run(nodes.palisade(&format!("doctor --role writer --user w {key}")));
    let found = doctor("--key invoice:42").out();
    assert!(found.contains("w may do what the role writer needs"), "{found}");
    assert!(found.contains("w writes only behind a gate"), "{found}");
    for (rule, key, way) in [
        ("+set", "--key invoice:42", "by set\n"),
        ("+append +acl|setuser", "--key invoice:42", "by acl|setuser, append, set\n"),
        ("+@write", "--key invoice:42", " and "),
        ("-@all +lock.gate +set", "", "by set\n"),
    ] {
        nodes.say(&format!("ACL SETUSER w {rule}"));
        let found = doctor(key);
        assert!(found.out().contains("w can write around a gate, ") && found.out().contains(way), "{rule}: {found:?}");
        assert!(found.out().contains("ACL SETUSER w -@all +lock.gate\n"), "{rule}: {found:?}");
        assert_eq!(found.code(), Some(1));
    }
    assert!(doctor("--key price:1").out().contains("w lacks the key price:1"));
}

#[test]
fn the_doctor_finds_each_command_that_writes_around_a_gate_and_no_other() {
    let nodes = Nodes::start(1);
    let found = |rules: &str, key: &str| {
        nodes.say(&format!("ACL SETUSER w reset on >secret +lock.gate {rules}"));
        let said = run(nodes.palisade(&format!("doctor --role writer --user w --key {key}"))).out();
        let way = said.lines().find_map(|line| line.split_once("w can write around a gate, by ").map(|(_, way)| way));
        assert!(way.is_some() || said.contains("w writes only behind a gate"), "{rules}: {said}");
        way.unwrap_or_default().to_owned()
    };
    let with_keys = [
        "bitop",
        "blmpop",
        "copy",
        "georadius",
        "lmpop",
        "migrate",
        "move",
        "pfmerge",
        "rename",
        "restore",
        "sort",
        "xgroup|create",
        "xreadgroup",
        "zunionstore",
    ];
    for way in with_keys {
        assert_eq!(found(&format!("~invoice:* +{way}"), "invoice:42"), way);
    }
    let all = with_keys.map(|way| format!("+{way}")).join(" ");
    assert_eq!(found(&format!("~invoice:* {all}"), "price:1"), "", "another key");
    assert_eq!(found("%R~invoice:* +sort +georadius", "invoice:42"), "", "where the result goes");
    for way in ["cluster|reset", "flushall", "function|load", "module|load", "replicaof", "swapdb"] {
        assert_eq!(found(&format!("~price:* +{way}"), "invoice:42"), way);
    }
    // The server asks for the rights of each command in a script.
    assert_eq!(found("~invoice:* +@scripting -@write", "invoice:42"), "");
    assert_eq!(found("~invoice:* +eval +set", "invoice:42"), "set");
}
