//! The lease goes on while the command's process is started, which takes long on a busy machine.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fixture::{HEARTBEAT, Nodes, Running, last_beat, run};
use crate::harness::wait_until;

/// Returns the program, which will run `script` under the lock. Its process takes this long to start.
fn slowly(nodes: &Nodes, start: Duration, options: &str, script: &str) -> Command {
    let (library, source) = (nodes.file("slow_start.so"), nodes.file("slow_start.c"));
    fs::write(&source, include_str!("slow_start.c")).unwrap();
    let status = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(status.expect("a C compiler is installed").success());
    let mut command = nodes.exec(options, script);
    command.env("LD_PRELOAD", library).env("START_TAKES_US", start.as_micros().to_string());
    command
}

/// The lease is not extended, and the program is stopped as soon as the command runs. So only the watchdog can end it.
#[test]
fn the_watchdog_ends_the_command_in_time_however_long_it_took_to_start() {
    let nodes = Nodes::start(1);
    let script = format!("echo $PALISADE_VALID_UNTIL_MS > until; {HEARTBEAT}");
    let options = "--ttl 10s --max-hold 10s --grace 100ms k";
    let running = Running::start(slowly(&nodes, Duration::from_secs(2), options, &script));
    nodes.wait_file("pid");
    running.signal(Signal::SIGSTOP);
    let end = Duration::from_millis(nodes.wait_file("until").parse().unwrap());
    let last = last_beat(&nodes);
    assert!(last < end, "{last:?} {end:?}");
    running.signal(Signal::SIGCONT);
    assert_eq!(running.end().code(), Some(197));
}

#[test]
fn a_command_that_is_ready_after_the_end_of_the_lock_does_not_run() {
    let nodes = Nodes::start(1);
    let options = "--ttl 1s --max-hold 1s --grace 100ms k";
    let ended = run(slowly(&nodes, Duration::from_secs(2), options, "echo > ran"));
    // Nothing is said of a command that would be ended.
    ended.assert_refused(197, "k was lost: it is extended for no longer than --max-hold 1s");
    assert!(!nodes.file("ran").exists());
    nodes.wait_idle();
}

#[test]
fn the_lock_of_a_program_that_was_killed_before_its_command_began_is_released() {
    let nodes = Nodes::start(1);
    let running = Running::start(slowly(&nodes, Duration::from_secs(2), "--ttl 60s k", "echo > ran"));
    wait_until("the command is being started", || nodes.holding("k") == 1 && running.has_child());
    running.signal(Signal::SIGKILL);
    wait_until("the lock is free", || nodes.holding("k") == 0);
    assert_eq!(nodes.servers[0].info("expiries"), 0);
    assert!(!nodes.file("ran").exists());
}
