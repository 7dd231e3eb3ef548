//! The command is dead before another client can have its lock, whatever happens to the nodes and to this program.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{HEARTBEAT, Nodes, PALISADE, Running, last_beat, read, since_boot, wait_dead};
use crate::harness::{Frozen, Setup, wait_until};

/// The length of leases in these tests.
const TTL: Duration = Duration::from_secs(2);
const OPTIONS: &str = "--ttl 2s --grace 300ms k";

/// Returns the end of validity of a lease that was requested at this time.
fn valid_until(asked: Duration) -> Duration {
    asked + TTL.mul_f64(0.99) - Duration::from_millis(2)
}

fn beating(nodes: &Nodes, options: &str) -> Running {
    let running = Running::start(nodes.exec(options, HEARTBEAT));
    nodes.wait_file("pid");
    wait_until("it beats", || !read(&nodes.file("beat")).is_empty());
    running
}

/// No lease was requested after the nodes froze. So the command is dead before the end of a lease that was requested at
/// that moment.
#[test]
fn nodes_that_freeze() {
    let nodes = Nodes::start(3);
    let running = beating(&nodes, OPTIONS);
    let frozen = [Frozen::new(&nodes.servers[0]), Frozen::new(&nodes.servers[1])];
    let end = valid_until(since_boot());
    let last = last_beat(&nodes);
    assert!(last < end, "{last:?} {end:?}");
    drop(frozen);
    let ended = running.end();
    assert_eq!(ended.code(), Some(197), "{ended:?}");
    assert!(ended.err().contains("too few nodes extended it in time"), "{ended:?}");
    nodes.wait_idle();
}

/// Each command that holds a lock explains with the same text why it lost the lock: which nodes, their answers, what to
/// do.
#[test]
fn nodes_that_refuse_to_extend() {
    let nodes = Nodes::start(3);
    nodes.say("ACL SETUSER app on >sesame ~* +@all");
    let at = nodes.addresses_with("?user=app&pass=sesame");
    let start = |line: &str| {
        let mut command = nodes.palisade(line);
        command.env("PALISADE_NODES", &at).stdin(Stdio::piped());
        Running::start(command)
    };
    let exec = start("exec --ttl 2s --grace 300ms k -- sleep 1000");
    let lock = start("lock --ttl 2s l");
    wait_until("both hold", || nodes.holding("k") == 3 && nodes.holding("l") == 3);
    nodes.say("ACL SETUSER app -lock.extend");
    let ended = [exec, lock].map(Running::end);
    for (ended, key) in ended.iter().zip(["k", "l"]) {
        ended.assert_refused_after(
            197,
            &format!("{key} was lost: too few nodes extended it in time: all 3 nodes: NOPERM "),
        );
        ended.assert_refused_after(197, ": allow its user what it lacks (ACL SETUSER)");
    }
    nodes.wait_idle();
}

#[test]
fn this_program_stopped() {
    let nodes = Nodes::start(1);
    let running = beating(&nodes, OPTIONS);
    running.signal(Signal::SIGSTOP);
    let end = valid_until(since_boot());
    let last = last_beat(&nodes);
    assert!(last < end, "{last:?} {end:?}");
    running.signal(Signal::SIGCONT);
    assert_eq!(running.end().code(), Some(197));
}

#[test]
fn this_program_killed() {
    let nodes = Nodes::start(1);
    let running = beating(&nodes, OPTIONS);
    running.signal(Signal::SIGKILL);
    let end = valid_until(since_boot());
    assert_eq!(running.end().code(), None);
    let last = last_beat(&nodes);
    assert!(last < end, "{last:?} {end:?}");
}

/// If this program is killed, the watchdog sends SIGTERM first, so that a command that handles SIGTERM can end by
/// itself.
#[test]
fn this_program_killed_and_a_command_that_obeys() {
    let nodes = Nodes::start(1);
    let script = "trap 'echo > asked; exit' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let running = Running::start(nodes.exec("--ttl 60s --grace 1s k", script));
    let pid = nodes.wait_file("pid");
    running.signal(Signal::SIGKILL);
    wait_dead(&pid);
    assert!(nodes.file("asked").exists());
}

/// Returns nodes with leases that do not end during a test.
fn with_long_leases() -> Nodes {
    let mut nodes = Nodes::start(0);
    nodes.servers = (0..3).map(|_| Setup::new().module_arguments(&["max-ttl", "86400000"]).start()).collect();
    nodes
}

/// The lock of a program that was killed is free as soon as the command and all processes that it started have ended,
/// and not before.
#[test]
fn this_program_killed_and_its_lock_given_back() {
    let nodes = with_long_leases();
    let script = "sh -c 'trap \"\" TERM; echo $$ > inner; while ! [ -e go ]; do sleep 0.01; done; sleep 0.3; echo > ended' & \
                  while ! [ -s inner ]; do sleep 0.01; done; echo $$ > pid; wait; wait";
    let running = Running::start(nodes.exec("--ttl 1day --grace 1s k", script));
    let pid = nodes.wait_file("pid");
    let next = Running::start(nodes.exec("--ttl 1day k", "test -e ended"));
    wait_until("it waits", || nodes.servers.iter().all(|server| server.info("waiters") == 1));
    running.signal(Signal::SIGKILL);
    wait_dead(&pid);
    std::fs::write(nodes.file("go"), "").unwrap();
    let ended = next.end();
    assert_eq!(ended.code(), Some(0), "all of the command had ended: {ended:?}");
    nodes.wait_idle();
}

/// In a container it is possible that no process waits for orphaned processes, so they stay in the list after they have
/// ended. The lock is released all the same. Here, another instance of this program is their parent, and waits only for
/// its own command.
#[test]
fn this_program_killed_where_nobody_waits_for_what_ended() {
    let nodes = with_long_leases();
    let script =
        format!("{PALISADE} exec --ttl 1day k -- sh -c 'echo $PPID $$ > pids; sleep 1000'; echo > killed; sleep 1000");
    let outer = Running::start(nodes.exec("--ttl 1day outer", &script));
    let pids = nodes.wait_file("pids");
    let (inner, command) = pids.split_once(' ').unwrap();
    kill(Pid::from_raw(inner.parse().unwrap()), Signal::SIGKILL).unwrap();
    nodes.wait_file("killed");
    wait_until("the lock is given back", || nodes.holding("k") == 0);
    assert!(Path::new(&format!("/proc/{command}")).exists(), "nobody has waited for the command");
    assert_eq!(nodes.holding("outer"), 3);
    outer.terminate();
}

/// Not only the command is ended, but all processes that it started, even if the command itself ends quickly.
#[test]
fn all_of_the_process_group() {
    let nodes = Nodes::start(1);
    let script = "(trap '' TERM; sh -c 'echo $$ > inner; while :; do sleep 1; done') & echo > held; wait";
    let running = Running::start(nodes.exec("--ttl 1s --grace 200ms --max-hold 1ms k", script));
    let inner = nodes.wait_file("inner");
    let ended = running.end();
    assert_eq!(ended.code(), Some(197), "{ended:?}");
    wait_dead(&inner);
}

#[test]
fn extended_for_as_long_as_it_runs() {
    let nodes = Nodes::start(3);
    let running = Running::start(nodes.exec(
        "--ttl 2s --grace 50ms k",
        "echo $PALISADE_VALID_UNTIL_MS > until; while ! [ -e go ]; do sleep 0.01; done; exit 8",
    ));
    let until = Duration::from_millis(nodes.wait_file("until").parse().unwrap());
    wait_until("the first lease has ended", || since_boot() > until + Duration::from_millis(200));
    assert_eq!(nodes.holding("k"), 3);
    std::fs::write(nodes.file("go"), "").unwrap();
    assert_eq!(running.end().code(), Some(8));
}
