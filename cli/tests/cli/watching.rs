//! Prints a line for each change of a lock's holder.

use std::io::{BufRead, BufReader};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::{Nodes, Running, run};
use crate::harness::wait_until;

#[test]
fn several_locks_each_change() {
    let nodes = Nodes::start(3);
    let mut watch = Running::start(nodes.palisade("watch one two"));
    let mut told = BufReader::new(watch.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut first = [told.next().unwrap(), told.next().unwrap()];
    first.sort();
    assert_eq!(first, ["one -", "two -"]);
    let mut json = Running::start(nodes.palisade("watch two --json"));
    let mut objects = BufReader::new(json.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(objects.next().unwrap(), r#"{"key":"two"}"#);
    let holder = Running::start(nodes.palisade("lock two --note nightly"));
    wait_until("it holds", || nodes.holding("two") == 3);
    let line = told.next().unwrap();
    assert!(line.starts_with("two 1") && line.ends_with(" nightly"), "{line}");
    let object: Value = serde_json::from_str(&objects.next().unwrap()).unwrap();
    // While the nodes are being raised to a common token, one of the two watchers may see a smaller token.
    assert!(object["note"] == "nightly" && object["token"].is_u64(), "{object}");
    holder.signal(Signal::SIGTERM);
    holder.end();
    // A raised token is reported, too.
    let is_free = |line: &String| !line.contains("nightly");
    assert_eq!(told.find(is_free).unwrap(), "two -");
    assert_eq!(objects.find(is_free).unwrap(), r#"{"key":"two"}"#);
    for running in [watch, json] {
        running.terminate();
    }
    nodes.wait_idle();
}

/// A request that the nodes refuse for good ends in an error, as for every command.
#[test]
fn a_key_that_is_no_lock() {
    let nodes = Nodes::start(3);
    nodes.say("SET plain 1");
    run(nodes.palisade("watch free plain")).assert_refused(193, "WRONGTYPE");
}
