//! A majority of the nodes lost its data and is guarded. While it is, nobody can know whether a lock is free, even if
//! other nodes still show it.

use crate::fixture::{Nodes, json, run};
use crate::harness::wait_until;

#[test]
fn what_guarded_nodes_do_not_show_is_not_free() {
    let mut nodes = Nodes::start(5);
    assert_eq!(run(nodes.palisade("acquire k --owner me --ttl 1m --note nightly")).code(), Some(0));
    wait_until("all have it", || nodes.holding("k") == 5);
    for server in &mut nodes.servers[..3] {
        server.kill();
        server.start_again();
    }
    assert_eq!(nodes.holding("k"), 2);
    // Every command has the same status, with or without a wait; it used to be 194, 195 or 196.
    for line in [
        "try k",
        "lock --wait 300ms k",
        "exec --no-wait k -- true",
        "exec --wait 300ms k -- true",
        "exec --wait 300ms --conflict-exit-code 0 k -- true",
        "acquire k --owner you",
        "acquire k --owner you --wait 300ms",
        "acquire k --owner you --shared",
        "acquire k --owner me --retry",
    ] {
        let ended = run(nodes.palisade(line));
        ended.assert_refused(196, "guarded for ");
        assert!(ended.err().contains("3 of 5 nodes may have forgotten"), "{line}: {ended:?}");
    }
    run(nodes.palisade("extend k --owner me --ttl 1m")).assert_refused(196, "guarded for ");
    run(nodes.palisade("info free")).assert_refused(196, "whether free is free cannot be known now: ");
    let ended = run(nodes.palisade("info k"));
    ended.assert_refused(196, "whether k is free cannot be known now: ");
    assert!(ended.out().starts_with("k is held by nobody, or by an owner that too few nodes show\n"), "{ended:?}");
    assert!(ended.out().contains("nightly") && ended.out().contains("others may have forgotten"), "{ended:?}");
    let ended = run(nodes.palisade("deadlocks"));
    assert_eq!(ended.code(), Some(2), "{ended:?}");
    assert!(ended.out().contains("cannot be known now: ") && ended.out().contains("guarded for "), "{ended:?}");
    let said = json(&nodes, "deadlocks");
    assert!(said["is_known"] == false && said["unsure"].is_string(), "{said}");
    // As soon as a majority serves, the answer is known again.
    nodes.servers[0].lift();
    assert_eq!(run(nodes.palisade("deadlocks")).code(), Some(0));
    run(nodes.palisade("info free"));
    assert_eq!(run(nodes.palisade("info free")).code(), Some(0));
}
