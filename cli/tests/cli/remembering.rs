//! Past holders, as the nodes' logs record them.

use serde_json::Value;

use crate::fixture::{Nodes, json, palisade_at, run};
use crate::harness::{Frozen, int, null};

/// Returns the ending and the holder of each event, newest first.
fn told(said: &Value) -> Vec<(&str, &str)> {
    said.as_array()
        .unwrap()
        .iter()
        .map(|event| (event["ended"].as_str().unwrap(), event["holder"].as_str().unwrap()))
        .collect()
}

#[test]
fn who_had_it_and_how_that_ended() {
    let nodes = Nodes::start(3);
    nodes.say("CONFIG SET lock.log-slower-than 0");
    assert_eq!(json(&nodes, "history"), serde_json::json!([]));
    // Acquires the lock, which every node has to grant.
    let acquire = |name: &str| {
        let replies = nodes.say(&format!("LOCK.ACQUIRE k {name} 60000 NOTE web-{name}"));
        assert!(replies.iter().all(|reply| *reply != null()), "{replies:?}");
    };
    acquire("1");
    assert!(nodes.say("LOCK.RELEASE k 1").iter().all(|reply| *reply == int(0)));
    acquire("2");
    // A wait on one node fails, with a note.
    let waited = nodes.servers[0].client().say("LOCK.ACQUIRE k impatient 60000 WAIT 1 NOTE web-9");
    assert_eq!(waited, null());
    assert!(nodes.say("LOCK.BREAK k").iter().all(|reply| *reply != null()));
    acquire("3");
    nodes.say("LOCK.ACQUIRE other 4 60000 NOTE web-4");

    let said = json(&nodes, "history k");
    assert_eq!(
        told(&said),
        [("held", "web-3"), ("broken", "web-2"), ("timeout", "web-9"), ("released", "web-1")],
        "{said}"
    );
    let counts: Vec<_> = said.as_array().unwrap().iter().map(|event| event["nodes"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3, 3, 1, 3], "{said}");
    assert!(said[1]["token"].as_u64() > said[3]["token"].as_u64() && said[2]["token"] == 0, "{said}");
    // The form is 2026-11-23T02:13:07.251+01:00.
    for moment in ["from", "to"] {
        let moment = said[1][moment].as_str().unwrap();
        assert!(moment.len() == 29 && moment.contains('T'), "{said}");
    }
    assert_eq!(told(&json(&nodes, "history k --limit 2")), [("held", "web-3"), ("broken", "web-2")]);
    assert_eq!(told(&json(&nodes, "history")).len(), 3, "of all keys, without who holds what now");
    assert_eq!(json(&nodes, "history nothing"), serde_json::json!([]));
    let table = run(nodes.palisade("history k")).out();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][0], rows[0][2], rows.len()), ("FROM", "KEY", 5), "{table}");
    assert_eq!((rows[1][2], *rows[1].last().unwrap()), ("now", "web-3"), "{table}");
    // `why` shows the last three events, so it shows how the last grant ended.
    nodes.say("LOCK.BREAK k");
    let why = json(&nodes, "why k");
    assert_eq!(told(&why["log"]), [("broken", "web-3"), ("broken", "web-2"), ("timeout", "web-9")], "{why}");
    assert!(why["advice"].as_str().unwrap().starts_with("See that web-3 has stopped before you trust what it wrote"));

    // A majority of the nodes has to answer; the others are named.
    let frozen = Frozen::new(&nodes.servers[2]);
    let ended = run(nodes.palisade("history k"));
    assert!(ended.code() == Some(0) && ended.err().contains("socket: it "), "{ended:?}");
    let also = Frozen::new(&nodes.servers[1]);
    run(nodes.palisade("history k")).assert_refused(196, "1 of 3 nodes can be asked, and 2 are needed");
    drop((frozen, also));
}

/// LOCK.LOG is for operators: without the permission, everything else is explained.
#[test]
fn a_user_that_may_not_read_the_log() {
    let nodes = Nodes::start(1);
    nodes.say("ACL SETUSER app on >secret ~* +lock.info +lock.node");
    nodes.say("LOCK.ACQUIRE k me 60000 NOTE web-1");
    let ended = run(palisade_at(&(nodes.servers[0].address() + "?user=app&pass=secret"), "why k"));
    assert!(ended.code() == Some(0) && ended.out().contains("to do    Ask web-1 what it does"), "{ended:?}");
    assert!(ended.out().contains("  log      not told by ") && ended.out().contains(": NOPERM "), "{ended:?}");
}
