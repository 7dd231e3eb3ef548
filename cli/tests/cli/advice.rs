//! The advice that is printed for people on call.

use nix::sys::signal::Signal;

use crate::fixture::{Ended, Nodes, Running, json, palisade_at, run};
use crate::harness::{Setup, text, wait_until};

/// Starts nodes without problems, so that there are no other findings.
fn lasting(count: usize) -> Nodes {
    let mut nodes = Nodes::start(0);
    nodes.servers = (0..count).map(|_| Setup::new().aof().start()).collect();
    nodes
}

/// Returns the line of advice, which follows the line with the text `found`.
fn advice(ended: &Ended, found: &str) -> String {
    let out = ended.out();
    let mut lines = out.lines().skip_while(|line| !line.contains(found));
    lines.nth(1).unwrap_or_else(|| panic!("{found}: {out}")).trim().to_owned()
}

/// A node that lost its disk looks like a new one. Only its guard prevents it from granting again what it had granted,
/// so no advice says to lift the guard.
#[test]
fn nobody_is_told_to_lift_the_guard_of_a_node_that_may_have_lost_its_disk() {
    let mut nodes = lasting(3);
    nodes.servers[1] = Setup::new().aof().guarded().start();
    let ended = run(nodes.palisade("doctor"));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(advice(&ended, "grants nothing until then").starts_with("wait: it may have forgotten"), "{ended:?}");
    nodes.servers[2] = Setup::new().aof().guarded().start();
    let why = run(nodes.palisade("why k"));
    assert!(why.out().contains("to do    Wait "), "{why:?}");
    for ended in [ended, run(nodes.palisade("doctor")), why] {
        assert!(!ended.all().contains("lift"), "{ended:?}");
    }
}

/// Once a set of nodes is stored, `doctor` can tell a node that lost its disk from a new one. Before that it says how
/// to store one.
#[test]
fn how_to_found_a_set() {
    let nodes = lasting(4);
    let ended = run(nodes.palisade("doctor"));
    let said = advice(&ended, "no set is founded");
    assert!(said.starts_with("palisade members set unix://") && said.contains("4 are an even number"), "{ended:?}");
    let addresses: Vec<&str> = said.split(", if").next().unwrap().split(' ').skip(3).collect();
    assert_eq!(addresses.join(","), nodes.addresses());
    let founded = run(nodes.palisade(&format!("members set --yes {}", addresses.join(" "))));
    assert!(founded.code() == Some(0) && founded.out().contains("4 are an even number"), "{founded:?}");
    let ended = run(nodes.palisade("doctor"));
    assert!(ended.out().contains("they are version 1 of the set") && !ended.out().contains("founded"), "{ended:?}");
}

/// The user that takes locks may run `doctor`, and learns whether it lacks a permission.
#[test]
fn the_doctor_as_the_user_of_an_application() {
    let nodes = lasting(3);
    let line = run(nodes.palisade("acl application --user app --key *")).out().trim().replace("PASSWORD", "secret");
    assert!(nodes.say(&line).iter().all(|reply| *reply == text("OK")), "{line}");
    let addresses = nodes.addresses_with("?user=app&pass=secret");
    let as_app = |line: &str| run(palisade_at(&addresses, line));
    assert_eq!(as_app("exec k -- true").code(), Some(0));
    let ended = as_app("doctor --key k");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.out().contains("3 of 3 serve, and 2 are needed"), "{ended:?}");
    assert_eq!(ended.out().matches("its user may do what the role application needs").count(), 3, "{ended:?}");
    assert_eq!(ended.out().matches("failures of the module are not checked: NOPERM").count(), 3, "{ended:?}");
    nodes.say("ACL SETUSER app -lock.extend");
    let ended = as_app("doctor");
    assert!(ended.code() == Some(1) && ended.out().contains("lacks lock.extend"), "{ended:?}");
    as_app("nodes").assert_refused(193, "NOPERM");
}

/// One node with a problem does not prevent a lock; two would. `palisade why` says what to repair before that happens.
#[test]
fn what_to_repair_is_told_before_it_matters() {
    let mut nodes = Nodes::start(3);
    nodes.servers[1].kill();
    nodes.servers[2].client().say("LOCK.GUARD ARM 50000");
    nodes.servers[1].start_again();
    nodes.servers[1].lift();
    let guarded = run(nodes.palisade("why k"));
    assert!(guarded.out().contains("s (operator): it serves again by itself\n"), "{guarded:?}");
    nodes.servers[2].lift();
    nodes.servers[1].kill();
    let down = run(nodes.palisade("why k"));
    assert!(down.code() == Some(0) && down.out().starts_with("k is free\n"), "{down:?}");
    assert!(down.out().contains(": bring it back, or replace it as docs/operations.md says\n"), "{down:?}");
}

#[test]
fn a_holder_that_is_stopped() {
    let nodes = Nodes::start(3);
    let holder = Running::start(nodes.palisade("lock --ttl 10s --note web-1 k"));
    wait_until("all have it", || nodes.holding("k") == 3);
    let said = json(&nodes, "why k");
    assert!(said["advice"].as_str().unwrap().starts_with("Ask web-1 what it does"), "{said}");
    holder.signal(Signal::SIGSTOP);
    wait_until("that is told while it holds the lock", || {
        let said = json(&nodes, "why k");
        said["state"] == "held"
            && said["advice"]
                .as_str()
                .unwrap()
                .starts_with("See whether web-1 still runs: it has not extended the lock for ")
            && said["findings"][0]["found"].as_str().unwrap().contains("s of the lease left, not extended for ")
    });
}

/// A lock that was broken soon after its grant is in the history, since a later reader cannot know how long it was
/// held.
#[test]
fn a_lock_that_was_broken_young_is_in_the_history() {
    let nodes = Nodes::start(3);
    nodes.say("LOCK.ACQUIRE k me 60000 NOTE web-1");
    nodes.say("LOCK.BREAK k");
    nodes.say("LOCK.ACQUIRE k you 60000 NOTE web-2");
    nodes.say("LOCK.RELEASE k you");
    let said = json(&nodes, "history k");
    let ends: Vec<_> = said.as_array().unwrap().iter().map(|event| [&event["ended"], &event["holder"]]).collect();
    assert_eq!(ends, [["broken", "web-1"]], "{said}");
}

/// Two addresses of one server are one node: its answer is not a majority.
#[test]
fn two_addresses_of_one_server() {
    let mut nodes = Nodes::start(0);
    nodes.servers = (0..2).map(|_| Setup::new().replication().start()).collect();
    let [one, other] = [0, 1].map(|n| format!("127.0.0.1:{}", nodes.servers[n].port()));
    let alias = format!("localhost:{}", nodes.servers[0].port());
    let at = |addresses: &[&String], line: &str| {
        let mut command = nodes.palisade(line);
        command.env("PALISADE_NODES", addresses.iter().map(|address| address.as_str()).collect::<Vec<_>>().join(","));
        command
    };
    let once = format!("{alias}: it is the same server as {one}: it counts once");
    // The second and the third node have the lock, and the first has two names.
    let down = "127.0.0.1:1".to_owned();
    let said = nodes.servers[1].client().say("LOCK.ACQUIRE k me 60000");
    assert!(said.as_int() > 0, "{said:?}");
    for line in ["why k", "info k", "ls", "nodes", "history k", "deadlocks", "exec --no-wait k -- true", "watch k"] {
        let ended = run(at(&[&one, &alias, &down], line));
        assert_eq!(ended.code(), Some(196), "{line}: {ended:?}");
        assert!(ended.all().contains(&once), "{line}: {ended:?}");
        assert!(!ended.all().contains("is free"), "{line}: {ended:?}");
        // As long as the list has both names, the problem is permanent.
        let ended = run(at(&[&one, &alias], line));
        assert_eq!(ended.code(), Some(193), "{line}: {ended:?}");
        assert!(ended.all().contains(&once), "{line}: {ended:?}");
    }
    // A majority of different servers is sufficient.
    let three = [&one, &alias, &other];
    let why = run(at(&three, "why free"));
    assert!(why.code() == Some(0) && why.out().starts_with("free is free\n") && why.out().contains(&once), "{why:?}");
    let held = run(at(&three, "acquire mine --owner me --ttl 1m"));
    assert_eq!(held.code(), Some(0), "{held:?}");
    let why = run(at(&three, "why mine"));
    assert!(why.out().starts_with("mine is held by ") && why.out().contains(", on 2 of 3 nodes\n"), "{why:?}");
    // One of the two servers that count has granted the other lock to another owner: no answer may say that this owner
    // has it.
    let refused = run(at(&[&alias, &one, &down], "acquire free --owner me --ttl 1m"));
    assert!(refused.all().contains("it is the same server as ") && !refused.all().contains("OWNED"), "{refused:?}");
}
