//! Explanations why a lock is not granted.

use crate::fixture::{Nodes, Running, json, palisade_at, run};
use crate::harness::{Frozen, Server, wait_until};

/// Returns the findings about `about`.
fn found(said: &serde_json::Value, about: &str) -> Vec<String> {
    let findings = said["findings"].as_array().unwrap();
    let texts = findings.iter().filter(|finding| finding["about"] == about);
    texts.map(|finding| finding["found"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_holder_the_waiters_and_what_to_do() {
    let nodes = Nodes::start(3);
    let holder = nodes.holder("--note web-1 k");
    wait_until("all have it", || nodes.holding("k") == 3);
    let waiter = Running::start(nodes.palisade("lock --note web-2 k"));
    wait_until("it waits everywhere", || nodes.servers.iter().all(|server| server.info("waiters") == 1));
    let said = json(&nodes, "why k");
    assert_eq!((&said["key"], &said["state"], &said["waiters"]), (&"k".into(), &"held".into(), &1.into()), "{said}");
    assert_eq!(said["grants"][0]["holder"], "web-1", "{said}");
    assert!(found(&said, "holder")[0].starts_with("web-1, exclusive, token 1"), "{said}");
    assert!(found(&said, "holder")[0].contains(" of the lease left, not extended for "), "{said}");
    assert!(found(&said, "holder")[0].ends_with(", on 3 of 3 nodes"), "{said}");
    assert!(found(&said, "waiter")[0].contains(", for "), "{said}");
    assert!(said["advice"].as_str().unwrap().starts_with("Ask web-1 what it does: "), "{said}");
    let ended = run(nodes.palisade("why k"));
    assert!(ended.code() == Some(0) && ended.out().starts_with("k is held by web-1 for "), "{ended:?}");
    assert!(ended.out().lines().last().unwrap().starts_with("  to do    Ask web-1"), "{ended:?}");

    // Guards are reported for each node, and so are nodes that do not answer.
    nodes.servers[0].client().say("LOCK.GUARD ARM 50000");
    assert_eq!(json(&nodes, "why k")["state"], "held", "two grant");
    nodes.servers[1].client().say("LOCK.GUARD ARM 50000");
    let said = json(&nodes, "why k");
    assert_eq!((&said["state"], found(&said, "node").len()), (&"guarded".into(), 2), "{said}");
    assert!(found(&said, "node")[0].ends_with("s (operator)"), "{said}");
    let frozen = [Frozen::new(&nodes.servers[0]), Frozen::new(&nodes.servers[1])];
    let ended = run(nodes.palisade("why k"));
    assert_eq!((ended.code(), ended.err().as_str()), (Some(196), ""), "{ended:?}");
    assert!(ended.out().starts_with("k: 1 of 3 nodes can be asked, and 2 are needed\n"), "{ended:?}");
    assert!(ended.out().contains(": bring it back, or replace it"), "{ended:?}");
    drop(frozen);
    nodes.servers.iter().for_each(Server::lift);
    drop((holder, waiter));
}

#[test]
fn nobody_has_a_majority() {
    let nodes = Nodes::start(3);
    for (server, owner) in nodes.servers.iter().zip(["a", "b"]) {
        server.client().say(&format!("LOCK.ACQUIRE k {owner} 50000 NOTE web-{owner}"));
    }
    for line in ["try k", "lock --wait 100ms k"] {
        let ended = run(nodes.palisade(line));
        assert!(ended.err().contains("wanted by several at once"), "nobody holds it: {line}: {ended:?}");
    }
    let said = json(&nodes, "why k");
    assert_eq!(said["state"], "split", "{said}");
    let mut partly = found(&said, "partly");
    partly.sort();
    assert!(partly[0].starts_with("web-a, ") && partly[1].starts_with("web-b, "), "{said}");
    assert!(partly.iter().all(|text| text.ends_with("on 1 of 3 nodes")), "{said}");
    assert!(said["advice"].as_str().unwrap().starts_with("Wait 4"), "{said}");
    nodes.say("LOCK.BREAK k");
    let said = json(&nodes, "why k");
    assert_eq!((&said["state"], &said["grants"]), (&"free".into(), &serde_json::json!([])), "{said}");

    // The lock is reserved for a waiter whose turn has come.
    nodes.say("CONFIG SET lock.handoff-window 10000");
    wait_until("it is seen while it is kept", || {
        nodes.servers[0].client().say("LOCK.WAIT k me 0");
        let said = json(&nodes, "why k");
        said["state"] == "kept" && found(&said, "kept")[0].contains(" for owner 6d65, for ")
    });
}

/// Nodes that answer, are not guarded, and refuse every lock. Each command says so, and what to do.
#[test]
fn nodes_that_refuse_every_lock() {
    let nodes = Nodes::start(3);
    let refused = |code: &str, advice: &str| {
        assert_eq!(run(nodes.palisade("try k")).code(), Some(196), "{code}");
        let said = json(&nodes, "why k");
        assert_eq!(said["state"], "refusing", "{said}");
        assert!(found(&said, "node").iter().all(|text| text.contains(code)), "{said}");
        assert!(said["advice"].as_str().unwrap().contains(advice), "{said}");
        let doctor = run(nodes.palisade("doctor"));
        assert_eq!(doctor.code(), Some(2), "{doctor:?}");
        assert!(doctor.out().contains("0 of 3 serve, and 2 are needed"), "{doctor:?}");
        assert!(doctor.out().contains(advice), "{doctor:?}");
        let listed = run(nodes.palisade("nodes")).out();
        assert_eq!(listed.matches(&format!("refuses ({code})")).count(), 3, "{listed}");
    };
    for (setting, cause, usual, code, advice) in [
        ("maxmemory", "1000", "0", "OOM", "raise maxmemory"),
        ("min-replicas-to-write", "1", "0", "NOREPLICAS", "see to its replicas"),
    ] {
        nodes.say(&format!("CONFIG SET {setting} {cause}"));
        refused(code, advice);
        nodes.say(&format!("CONFIG SET {setting} {usual}"));
        assert_eq!(json(&nodes, "why k")["state"], "free");
    }

    // Snapshots fail, because the file that they would replace is a folder.
    for server in &nodes.servers {
        server.client().send(&[b"CONFIG", b"SET", b"save", b"3600 1"]);
        std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
        server.client().say("BGSAVE");
        wait_until("it has failed", || server.client().say("INFO persistence").as_text().contains("bgsave_status:err"));
    }
    refused("MISCONF", "CONFIG SET stop-writes-on-bgsave-error no");
    nodes.say("CONFIG SET stop-writes-on-bgsave-error no");
    assert_eq!(json(&nodes, "why k")["state"], "free");
}

/// A replica grants nothing, also after its guard.
#[test]
fn a_replica_in_the_list() {
    let nodes = Nodes::start(2);
    nodes.servers[1].client().say("REPLICAOF 127.0.0.1 1");
    let said = json(&nodes, "why k");
    assert_eq!(said["state"], "unreachable", "{said}");
    assert!(found(&said, "node")[0].contains("it is a replica, and grants nothing"), "{said}");
    assert!(said["advice"].as_str().unwrap().ends_with("give the address of a master."), "{said}");
    nodes.servers[1].client().say("LOCK.GUARD ARM 50000");
    let doctor = run(nodes.palisade("doctor")).out();
    assert!(doctor.contains("it is a replica") && !doctor.contains("guarded"), "{doctor}");
}

/// The user has no permission for the key: each node's refusal is shown with its advice, even if other nodes answer.
#[test]
fn a_user_that_may_not() {
    let nodes = Nodes::start(3);
    for server in &nodes.servers[..2] {
        server.client().say("ACL SETUSER app on >secret ~orders:* +@all");
    }
    nodes.servers[2].client().say("ACL SETUSER app on >secret ~* +@all");
    let addresses = nodes.addresses_with("?user=app&pass=secret");
    let ended = run(palisade_at(&addresses, "why k"));
    assert_eq!((ended.code(), ended.err().as_str()), (Some(193), ""), "{ended:?}");
    assert_eq!(ended.out().matches(": NOPERM ").count(), 2, "{ended:?}");
    let advice = ended.out().lines().last().unwrap().to_owned();
    assert!(advice.contains("allow its user what it lacks (ACL SETUSER)"), "{ended:?}");
    assert!(!ended.all().contains("secret"), "{ended:?}");
    nodes.say("SET text x");
    let ended = run(nodes.palisade("why text"));
    assert!(ended.code() == Some(193) && ended.out().contains("give the lock another name"), "{ended:?}");
}
