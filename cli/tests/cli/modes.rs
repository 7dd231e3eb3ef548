//! Locks that several owners hold: readers, and permits with numbers.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fixture::{Nodes, Running, json, run, run_with};
use crate::harness::{null, wait_until};

/// Returns the number of holders of `key` on each node.
fn holders(nodes: &Nodes, key: &str) -> Vec<i64> {
    let info = nodes.say(&format!("LOCK.INFO {key}"));
    info.iter().map(|info| if *info == null() { 0 } else { info.field("holders").as_int() }).collect()
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let nodes = Nodes::start(3);
    let reader = |name: &str| {
        let reader =
            Running::start(nodes.exec(&format!("--shared --note {name} k"), &format!("echo > {name}; sleep 1000")));
        nodes.wait_file(name);
        reader
    };
    let readers = (reader("web-1"), reader("web-2"));
    wait_until("all have both", || holders(&nodes, "k") == [2; 3]);
    run(nodes.exec("--no-wait k", "true")).assert_refused(194, "k is held by ");
    let info = run(nodes.palisade("info k")).out();
    assert!(info.contains("and 1 more (shared 2)") && info.contains("holders  2\n"), "{info}");
    for name in ["web-1, token ", "web-2, token "] {
        assert!(info.contains(name), "{info}");
    }
    let list = json(&nodes, "ls");
    assert_eq!((&list[0]["mode"], &list[0]["holders"]), (&Value::from("shared"), &Value::from(2)));
    assert_eq!(list[0]["grants"].as_array().unwrap().len(), 2);
    assert!(run(nodes.palisade("ls")).out().contains("  shared 2  "));
    assert!(run(nodes.palisade("top --once")).out().contains("  shared 2  "));

    // One of the two is broken by its token, and the other continues.
    let grants = list[0]["grants"].as_array().unwrap();
    let token = &grants.iter().find(|grant| grant["holder"] == "web-2").unwrap()["token"];
    let broken = json(&nodes, &format!("break --yes --token {token} k"));
    assert_eq!(&broken["token"], token);
    // The holder that has lost a majority gives back the rest at once, perhaps before the break gets there.
    assert!([2, 3].contains(&broken["nodes"].as_u64().unwrap()), "{broken}");
    let (first, second) = readers;
    assert_eq!(second.end().code(), Some(197));
    assert_eq!(holders(&nodes, "k"), [1; 3]);
    assert_eq!(json(&nodes, "info k")["holder"], "web-1");
    let writer = Running::start(nodes.exec("k", "true"));
    wait_until("it waits", || nodes.waiters() == 1);
    run(nodes.exec("--shared --no-wait k", "true")).assert_refused(194, "k is held by ");
    first.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(writer.end().code(), Some(0));
    first.end();
    nodes.wait_idle();
}

#[test]
fn so_many_commands_run_at_a_time_each_with_a_number() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let worker = |n: usize| {
            let script = format!("echo $PALISADE_PERMIT > worker-{n}; sleep 1000");
            Running::start(nodes.exec(&format!("--limit 3 --note web-{n} k"), &script))
        };
        let workers: Vec<_> = (0..3).map(worker).collect();
        let numbers: BTreeSet<String> = (0..3).map(|n| nodes.wait_file(&format!("worker-{n}"))).collect();
        assert_eq!(numbers.iter().map(String::as_str).collect::<Vec<_>>(), ["1", "2", "3"]);
        wait_until("all nodes have all", || holders(&nodes, "k") == vec![3; count]);
        run(nodes.exec("--limit 3 --no-wait k", "true")).assert_refused(194, "k is held by ");
        run(nodes.exec("--limit 3 --wait 50ms k", "true")).assert_refused(195, "k was not free within 50ms");
        assert!(run(nodes.palisade("ls")).out().contains("  permits 3/3  "));
        assert_eq!(json(&nodes, "info k")["limit"], 3);
        let next = Running::start(nodes.exec("--limit 3 k", "echo $PALISADE_PERMIT > next"));
        wait_until("it waits", || nodes.waiters() == 1);
        workers[1].signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(nodes.wait_file("next"), nodes.wait_file("worker-1"));
        next.end();
        // The number is printed after the token. A nested lock has none.
        let out = run_with(nodes.palisade("try --limit 3 k"), b"\n").out();
        assert_eq!(out.split_whitespace().last(), Some(&*nodes.wait_file("worker-1")), "{out}");
        let inside =
            nodes.exec("--limit 2 other", "$0 exec inner -- sh -c 'echo \"${PALISADE_PERMIT-none}\" > inside'");
        let mut inside = inside;
        inside.arg(crate::fixture::PALISADE);
        assert_eq!(run(inside).code(), Some(0));
        assert_eq!(nodes.wait_file("inside"), "none");
        for worker in workers {
            worker.signal(nix::sys::signal::Signal::SIGTERM);
            worker.end();
        }
        nodes.wait_idle();
    }
}
