//! Holders that wait for each other.

use crate::fixture::{Nodes, PALISADE, Running, json, run};
use crate::harness::{wait_until, waits};

/// Runs a command under the lock `outer` that also wants the lock `inner`.
fn worker(nodes: &Nodes, name: &str, outer: &str, inner: &str) -> Running {
    let script =
        format!("echo > {name}; while ! [ -e go ]; do sleep 0.01; done; \"$0\" exec --note {name} {inner} -- true");
    let mut command = nodes.exec(&format!("--note {name} {outer}"), &script);
    command.arg(PALISADE);
    let worker = Running::start(command);
    nodes.wait_file(name);
    worker
}

#[test]
fn two_that_wait_for_each_other() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        assert_eq!(run(nodes.palisade("deadlocks")).out(), "no deadlock among 0 locks that are waited for\n");
        let workers = [worker(&nodes, "web-1", "a", "b"), worker(&nodes, "web-2", "b", "a")];
        let behind = Running::start(nodes.exec("--note web-3 a", "true"));
        let waiting = |count: u64| nodes.servers.iter().all(|server| server.info("waiters") == count);
        wait_until("one waits", || waiting(1));
        let idle = run(nodes.palisade("deadlocks"));
        assert_eq!((idle.code(), idle.out().as_str()), (Some(0), "no deadlock among 1 locks that are waited for\n"));
        std::fs::write(nodes.file("go"), "").unwrap();
        wait_until("all wait", || waiting(3));

        let said = json(&nodes, "deadlocks");
        let circles = said["deadlocks"].as_array().unwrap();
        assert_eq!(circles.len(), 1, "{said}");
        let mut members: Vec<_> = circles[0].as_array().unwrap().iter().collect();
        members.sort_by_key(|member| member["holder"].to_string());
        for (member, [holder, holds, waits_for]) in members.iter().zip([["web-1", "a", "b"], ["web-2", "b", "a"]]) {
            assert_eq!(
                [&member["holder"], &member["holds"], &member["waits_for"]],
                [holder, holds, waits_for],
                "{said}"
            );
        }
        let ended = run(nodes.palisade("deadlocks"));
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        assert!(ended.out().starts_with("2 wait for each other:\n"), "{ended:?}");
        assert!(ended.out().contains("take these locks in one order everywhere, such as a, b."), "{ended:?}");

        // Following the advice resolves the deadlock.
        let advice = ended.out().lines().last().unwrap().to_owned();
        let said = advice.split('`').nth(1).unwrap().strip_prefix("palisade break ").unwrap();
        assert_eq!(run(nodes.palisade(&format!("break --yes {said}"))).code(), Some(0));
        let codes = workers.map(|worker| worker.end().code());
        assert!(codes.contains(&Some(0)) && codes.contains(&Some(197)), "{codes:?}");
        assert_eq!(behind.end().code(), Some(0));
        nodes.wait_idle();
    }
}

#[test]
fn one_that_waits_for_itself() {
    let nodes = Nodes::start(1);
    let worker = worker(&nodes, "web-1", "a", "a");
    std::fs::write(nodes.file("go"), "").unwrap();
    wait_until("it waits", || nodes.waiters() == 1);
    let ended = run(nodes.palisade("deadlocks"));
    assert!(ended.code() == Some(1) && ended.out().starts_with("one waits for itself:\n  web-1 holds a "), "{ended:?}");
    drop(worker);
}

/// Only parties with a holder id can be found, whatever client they use. Others may wait for each other unnoticed.
#[test]
fn holders_with_a_name_and_without() {
    for note in ["", " NOTE [holder=NAME]"] {
        let nodes = Nodes::start(1);
        let (one, two) = (note.replace("NAME", "w/1"), note.replace("NAME", "w/2"));
        nodes.say(&format!("LOCK.ACQUIRE a one 60000{one}"));
        nodes.say(&format!("LOCK.ACQUIRE b two 60000{two}"));
        let _waiters = [
            waits(&nodes.servers[0], &format!("LOCK.ACQUIRE b one-again 60000 WAIT 60000{one}")),
            waits(&nodes.servers[0], &format!("LOCK.ACQUIRE a two-again 60000 WAIT 60000{two}")),
        ];
        let ended = run(nodes.palisade("deadlocks"));
        if note.is_empty() {
            assert_eq!(ended.code(), Some(2), "{ended:?}");
            assert!(ended.out().contains("cannot be known: 4 of 4 holders and waiters tell no holder id"), "{ended:?}");
            let said = json(&nodes, "deadlocks");
            assert_eq!((&said["is_known"], &said["unnamed"], &said["parties"]), (&false.into(), &4.into(), &4.into()));
        } else {
            assert!(ended.code() == Some(1) && ended.out().starts_with("2 wait for each other:"), "{ended:?}");
        }
    }
}
