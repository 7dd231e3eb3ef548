//! Locks for owners that scripts name: one process takes a lock, another extends or releases it.

use serde_json::Value;

use crate::fixture::{Nodes, Running, run};
use crate::harness::{null, wait_until};

fn token(nodes: &Nodes, line: &str) -> u64 {
    let ended = run(nodes.palisade(line));
    assert_eq!(ended.code(), Some(0), "{line}: {ended:?}");
    ended.out().trim().parse().unwrap_or_else(|why| panic!("{line}: {why}: {ended:?}"))
}

#[test]
fn taken_by_one_process_extended_and_given_back_by_others() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let taken = token(&nodes, "acquire k --owner job-1 --ttl 1m --note nightly");
        let held = |field: &str| nodes.servers[0].client().say("LOCK.INFO k").field(field);
        assert_eq!(held("note").as_text(), "nightly");
        run(nodes.palisade("acquire k --owner job-2")).assert_refused(194, "k is held by nightly for ");
        run(nodes.palisade("acquire k --owner job-2 --wait 100ms"))
            .assert_refused(195, "k was not free within 100ms: it is held by nightly for ");
        let quiet = run(nodes.palisade("acquire k --owner job-2 --conflict-exit-code 0"));
        assert_eq!((quiet.code(), quiet.all().as_str()), (Some(0), ""), "{quiet:?}");
        run(nodes.palisade("acquire k --owner job-1")).assert_refused(193, "this owner holds k already: say --retry");
        // A node that the first process did not wait for has granted the lock too, which may raise the token; tokens
        // never fall.
        let again = token(&nodes, "acquire k --owner job-1 --ttl 1m --retry");
        let extended = token(&nodes, "extend k --owner job-1 --ttl 1m");
        assert_eq!(held("holds").as_int(), 1, "those who adopt it add none");
        assert!(taken <= again && again <= extended, "{taken} {again} {extended}");
        run(nodes.palisade("extend k --owner job-2")).assert_refused(197, "job-2 does not hold k: ");
        run(nodes.palisade("release k --owner job-2")).assert_refused(197, "job-2 does not hold k: ");
        assert!(nodes.holding("k") > count / 2);
        let released = run(nodes.palisade("release k --owner job-1"));
        assert_eq!((released.code(), released.all().as_str()), (Some(0), ""), "{released:?}");
        nodes.wait_idle();
        run(nodes.palisade("release k --owner job-1")).assert_refused(197, "it was given back before");
        assert!(token(&nodes, "acquire k --owner job-2") > extended);
    }
}

#[test]
fn who_waits_gets_it_in_turn_and_may_be_interrupted() {
    let nodes = Nodes::start(3);
    token(&nodes, "acquire k --owner first --ttl 1m");
    let given_up = Running::start(nodes.palisade("acquire k --owner gone --wait 1h"));
    wait_until("it waits", || nodes.waiters() == 1);
    given_up.terminate();
    wait_until("nobody waits", || nodes.servers.iter().all(|server| server.info("waiters") == 0));
    let next = Running::start(nodes.palisade("acquire k --owner next --wait 1h --ttl 1m --json"));
    wait_until("it waits", || nodes.waiters() == 1);
    assert_eq!(run(nodes.palisade("release k --owner first")).code(), Some(0));
    let said = next.end().json();
    assert_eq!((&said["key"], &said["owner"]), (&Value::from("k"), &Value::from("next")));
    assert!(said["valid_ms"].as_u64().unwrap() < 60_000 && said["waited_ms"].is_u64(), "{said}");
    assert_eq!(said["permit"], Value::Null);
    let extended = run(nodes.palisade("extend k --owner next --ttl 1m --json")).json();
    assert!(extended["token"].as_u64() >= said["token"].as_u64(), "{extended} {said}");
}

#[test]
fn readers_and_permits_with_the_number_that_is_asked_for() {
    let nodes = Nodes::start(3);
    token(&nodes, "acquire r --owner a --shared --ttl 1m");
    token(&nodes, "acquire r --owner b --shared --ttl 1m");
    run(nodes.palisade("acquire r --owner c --ttl 1m")).assert_refused(194, "(shared 2)");
    let permit = run(nodes.palisade("acquire p --owner a --limit 3 --permit 2 --ttl 1m"));
    assert_eq!(permit.out().split_whitespace().last(), Some("2"), "{permit:?}");
    run(nodes.palisade("acquire p --owner b --limit 3 --permit 2 --ttl 1m")).assert_refused(194, "p is ");
    let other = run(nodes.palisade("acquire p --owner b --limit 3 --ttl 1m --json")).json();
    assert!([1, 3].map(Value::from).contains(&other["permit"]), "{other}");
    let one = run(nodes.palisade("acquire one --owner a --limit 1 --ttl 1m"));
    assert_eq!(one.out().split_whitespace().last(), Some("1"), "{one:?}");
    for (line, text) in [
        ("acquire p --owner b --permit 2", "required arguments were not provided: --limit <K>"),
        ("acquire p --owner b --limit 3 --permit 4", "--permit must be from 1 to --limit 3"),
        ("acquire p --owner b --limit 3 --shared", "cannot be used with"),
        ("acquire p", "required arguments were not provided: --owner <NAME>"),
        ("acquire p --owner  --ttl 1m", "a value is required for '--owner"),
        ("acquire q --owner o --ttl 61s", "ERR ttl must be an integer from 1 to 60000"),
        ("extend p --owner b --ttl 61s --limit 3", "unexpected argument '--limit'"),
    ] {
        let ended = run(nodes.palisade(line));
        assert!(ended.code() == Some(193) && ended.err().contains(text), "{line}: {ended:?}");
    }
    assert!(nodes.say("LOCK.INFO q").iter().all(|reply| *reply == null()));
}

/// The note names the script's process, not the one that took the lock and has ended.
#[test]
fn the_note_names_the_script() {
    let nodes = Nodes::start(1);
    let mut script = std::process::Command::new("sh");
    script.args(["-c", "\"$0\" acquire k --owner o --ttl 1m > token; echo $$ > pid", crate::fixture::PALISADE]);
    script.envs(nodes.environment()).current_dir(nodes.file(""));
    assert!(script.status().unwrap().success());
    let note = nodes.servers[0].client().say("LOCK.INFO k").field("note").as_text();
    assert!(note.ends_with(&format!(" pid {}: sh", nodes.wait_file("pid"))), "{note}");
}
