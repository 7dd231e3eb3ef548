//! Many programs at once: cron on many hosts.

use std::fs;

use crate::fixture::{Nodes, Running, read, run};
use crate::harness::wait_until;

const HOSTS: usize = 20;

/// All programs start at the same moment, and one gets the lock, although at first each may get a node and none a
/// majority.
#[test]
fn one_of_twenty_runs() {
    let nodes = Nodes::start(3);
    let start =
        || Running::start(nodes.exec("--no-wait cron", "echo x >> ran; while ! [ -e go ]; do sleep 0.05; done"));
    let mut hosts: Vec<Running> = (0..HOSTS).map(|_| start()).collect();
    let mut codes = vec![];
    wait_until("all but one have given up", || {
        hosts.retain_mut(|host| match host.0.try_wait().unwrap() {
            Some(status) => {
                codes.push(status.code());
                false
            }
            None => true,
        });
        hosts.len() <= 1
    });
    assert_eq!(hosts.len(), 1, "{codes:?}");
    assert_eq!(codes, [Some(194); HOSTS - 1]);
    fs::write(nodes.file("go"), "").unwrap();
    assert_eq!(hosts.remove(0).end().code(), Some(0));
    assert_eq!(read(&nodes.file("ran")), "x\n");
    nodes.wait_idle();
}

/// Two programs that asked at the same moment got a node each and gave up: nobody holds the lock, so the next one is
/// not refused.
#[test]
fn a_collision_is_not_taken_for_a_holder() {
    let nodes = Nodes::start(3);
    nodes.servers[0].client().say("LOCK.ACQUIRE k one 700");
    nodes.servers[1].client().say("LOCK.ACQUIRE k other 700");
    let ended = run(nodes.exec("--no-wait k", "true"));
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    nodes.wait_idle();
}

/// A short job has ended before hosts with late clocks start theirs. With `--min-hold` they still find its lock held.
#[test]
fn kept_for_those_who_are_late() {
    let nodes = Nodes::start(3);
    let first = Running::start(nodes.exec("--no-wait --min-hold 1h cron", "echo $$ > pid"));
    crate::fixture::wait_dead(&nodes.wait_file("pid"));
    run(nodes.exec("--no-wait cron", "echo > ran")).assert_refused(194, "cron is held by ");
    first.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(first.end().code(), Some(0));
    nodes.wait_idle();
}
