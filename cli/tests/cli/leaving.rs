//! No process that the command leaves behind outlives the lock.

use std::fs;

use crate::fixture::{Nodes, Running, is_alive, run, wait_dead};

#[test]
fn what_is_left_behind_is_ended() {
    let nodes = Nodes::start(1);
    let ended = run(nodes.exec(
        "--grace 100ms k",
        "sh -c 'echo $$ > inner; trap \"\" TERM; while :; do sleep 1; done' & \
                                                    while ! [ -s inner ]; do sleep 0.01; done; exit 3",
    ));
    assert_eq!(ended.code(), Some(3), "{ended:?}");
    assert!(!is_alive(&nodes.wait_file("inner")), "it is dead when the lock is free");
    nodes.wait_idle();
}

/// A shell ends without waiting for a background process that reads its output. `palisade exec` gives that process time
/// to finish.
#[test]
fn what_ends_by_itself_is_waited_for() {
    let nodes = Nodes::start(1);
    let script = "sh -c 'while ! [ -e go ]; do sleep 0.01; done; echo > finished' & echo > held; exit 3";
    let running = Running::start(nodes.exec("--ttl 60s --grace 30s k", script));
    nodes.wait_file("held");
    assert_eq!(nodes.holding("k"), 1);
    fs::write(nodes.file("go"), "").unwrap();
    assert_eq!(running.end().code(), Some(3));
    assert!(nodes.file("finished").exists());
    nodes.wait_idle();
}

/// A daemon that leaves the process group on purpose is not ended.
#[test]
fn a_session_of_its_own_is_left_alone() {
    let nodes = Nodes::start(1);
    let script = "setsid sh -c 'echo $$ > daemon; while ! [ -e go ]; do sleep 0.01; done' > /dev/null 2>&1 & \
                  while ! [ -s daemon ]; do sleep 0.01; done";
    assert_eq!(run(nodes.exec("k", script)).code(), Some(0));
    let daemon = nodes.wait_file("daemon");
    assert!(is_alive(&daemon));
    fs::write(nodes.file("go"), "").unwrap();
    wait_dead(&daemon);
}
