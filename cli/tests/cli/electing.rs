//! Tests of `palisade elect`, which runs a command while it leads, and of `palisade leader`, which shows the current
//! leader.

use std::io::{BufRead, BufReader};

use nix::sys::signal::Signal;

use crate::fixture::{Nodes, Running, read, run, wait_dead};
use crate::harness::{grants, wait_until};

fn elect(nodes: &Nodes, options: &str, script: &str) -> Running {
    let mut command = nodes.palisade(&format!("elect {options} e -- sh -c"));
    command.arg(script);
    Running::start(command)
}

/// Returns a script for `palisade elect` that writes term and token to the file `name`, and runs until it is ended.
fn leads(name: &str) -> String {
    format!("echo $PALISADE_TERM $PALISADE_TOKEN > {name}; exec sleep 1000")
}

#[test]
fn one_leads_and_the_next_follows() {
    let nodes = Nodes::start(3);
    run(nodes.palisade("leader e")).assert_refused(194, "nobody leads e");
    let nobody = run(nodes.palisade("leader e --json"));
    assert_eq!((nobody.code(), &*nobody.out()), (Some(194), "{}\n"));
    let mut follow = Running::start(nodes.palisade("leader e --follow"));
    let mut told = BufReader::new(follow.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(told.next().unwrap(), "-");

    let first = elect(&nodes, "--value web-1", &leads("first"));
    let file = nodes.wait_file("first");
    let (term, token) = file.split_once(' ').unwrap();
    // The term is the token of the win; a node that grants the lock late may have raised the token since.
    assert!(token.trim_end().parse::<u64>().unwrap() >= term.parse::<u64>().unwrap(), "{file}");
    assert_eq!(told.next().unwrap(), format!("{term} web-1"));
    assert_eq!(run(nodes.palisade("leader e")).out(), format!("{term} web-1\n"));
    let json = run(nodes.palisade("leader e --json")).json();
    assert_eq!(
        (json["term"].to_string(), &json["sequence"], &json["value"]),
        (term.to_owned(), &1.into(), &"web-1".into())
    );

    let second = elect(&nodes, "--value web-2", &leads("second"));
    wait_until("it waits", || nodes.waiters() == 1);
    first.terminate();
    let file = nodes.wait_file("second");
    let next = file.split(' ').next().unwrap();
    assert!(next.parse::<u64>().unwrap() > term.parse::<u64>().unwrap());
    let line = told.next().unwrap();
    let line = if line == "-" { told.next().unwrap() } else { line };
    assert_eq!(line, format!("{next} web-2"));
    second.terminate();
    assert_eq!(told.next().unwrap(), "-");
    follow.signal(Signal::SIGTERM);
    nodes.wait_idle();
}

#[test]
fn it_campaigns_again_when_it_was_lost_and_ends_with_its_command() {
    let nodes = Nodes::start(3);
    let script = "echo $PALISADE_TERM >> terms; echo $$ > pid; [ $(wc -l < terms) -gt 1 ] && exit 7; exec sleep 1000";
    let leader = elect(&nodes, "--ttl 2s --grace 300ms", script);
    let pid = nodes.wait_file("pid");
    nodes.say("LOCK.BREAK e");
    wait_dead(&pid);
    let ended = leader.end();
    assert_eq!(ended.code(), Some(7), "{ended:?}");
    let terms: Vec<u64> = read(&nodes.file("terms")).lines().map(|term| term.parse().unwrap()).collect();
    assert!(terms.len() == 2 && terms[0] < terms[1], "{terms:?}");
    assert!(ended.err().contains("it campaigns again"), "{}", ended.err());
    nodes.wait_idle();
}

/// A signal that the command has handled, as daemons read their files again at SIGHUP, does not keep the program from
/// campaigning again after a later loss. SIGTERM does, however long the command takes to end.
#[test]
fn it_campaigns_again_after_a_signal_that_the_command_has_survived() {
    for (signal, code) in [(Signal::SIGHUP, 7), (Signal::SIGTERM, 143)] {
        let nodes = Nodes::start(3);
        let script = "trap 'echo it > handled' HUP TERM; echo $PALISADE_TERM >> terms; echo $$ > pid; \
                      [ $(wc -l < terms) -gt 1 ] && exit 7; while :; do sleep 0.05; done";
        let leader = elect(&nodes, "--ttl 2s --grace 300ms", script);
        let pid = nodes.wait_file("pid");
        leader.signal(signal);
        nodes.wait_file("handled");
        let extended_at = || {
            let grant = &grants(&mut nodes.servers[0].client(), "e")[0];
            grant.field("held").as_int() - grant.field("extended").as_int()
        };
        let handled_at = extended_at();
        wait_until("it is extended much later", || extended_at() > handled_at + 1_000);
        nodes.say("LOCK.BREAK e");
        wait_dead(&pid);
        let ended = leader.end();
        assert_eq!(ended.code(), Some(code), "{signal}: {ended:?}");
    }
}

/// When the program is killed, its watchdog ends the command, and the next candidate leads.
#[test]
fn killed_it_is_followed() {
    let nodes = Nodes::start(3);
    let mut first =
        elect(&nodes, "--ttl 2s --grace 300ms --value web-1", &format!("echo $$ > pid; {}", leads("first")));
    let pid = nodes.wait_file("pid");
    let term: u64 = nodes.wait_file("first").split(' ').next().unwrap().parse().unwrap();
    let second = elect(&nodes, "--ttl 2s --grace 300ms --value web-2", &leads("second"));
    wait_until("it waits", || nodes.waiters() == 1);
    let killed = std::time::Instant::now();
    first.0.kill().unwrap();
    let next: u64 = nodes.wait_file("second").split(' ').next().unwrap().parse().unwrap();
    println!("the next leads {:?} after kill -9, ttl 2s", killed.elapsed());
    assert!(next > term);
    wait_dead(&pid);
    second.signal(Signal::SIGTERM);
    second.end();
}

#[test]
fn what_cannot_be_is_said_before_it_campaigns() {
    let nodes = Nodes::start(1);
    run(nodes.palisade("elect e -- ./there-is-no-such-command")).assert_refused(198, "there-is-no-such-command");
    run(nodes.palisade("elect --ttl 1s --grace 1s e -- true")).assert_refused(193, "--grace");
    let long = "x".repeat(1_003);
    run(nodes.palisade(&format!("elect --value {long} e -- true"))).assert_refused(193, "at most 1002 bytes");
    assert_eq!(run(nodes.palisade("elect e -- true")).code(), Some(0));
    nodes.wait_idle();
}

/// A candidate and its command have a holder id, by which `palisade deadlocks` finds a waiting candidate that also
/// holds another lock.
#[test]
fn a_candidate_has_a_holder_id_and_its_command_too() {
    let nodes = Nodes::start(3);
    let script = "echo $PALISADE_HOLDER > holder; exec sleep 1000";
    let _first = elect(&nodes, "--value web-1", script);
    assert!(nodes.wait_file("holder").trim().contains('/'));
    let mut second = nodes.palisade("elect --value web-2 e -- true");
    second.env("PALISADE_HOLDER", "web-2/batch");
    let _second = Running::start(second);
    let waits = || run(nodes.palisade("info e --json")).out().contains(r#""holder_id": "web-2/batch""#);
    wait_until("it waits under its id", waits);
}
