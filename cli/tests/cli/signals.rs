//! Signals reach the command, or end the wait for the lock, at every stage.

use nix::sys::signal::Signal;
use std::fs;

use crate::fixture::{Nodes, PALISADE, Running, apart, read};
use crate::harness::Frozen;
use crate::harness::{int, wait_until};

#[test]
fn while_it_connects() {
    let nodes = Nodes::start(1);
    let frozen = Frozen::new(&nodes.servers[0]);
    let running = Running::start(nodes.exec("k", "echo > ran"));
    let listens = || {
        read(format!("/proc/{}/status", running.pid()).as_ref()).lines().any(|line| {
            line.strip_prefix("SigCgt:")
                .is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 14) != 0)
        })
    };
    wait_until("it listens to SIGTERM", listens);
    running.terminate();
    drop(frozen);
    nodes.wait_idle();
    assert!(!nodes.file("ran").exists());
}

#[test]
fn while_it_waits() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let holder = nodes.holder("k");
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
            let waiter = Running::start(nodes.exec("k", "echo > ran"));
            wait_until("it waits", || nodes.waiters() == 1);
            waiter.signal(signal);
            assert_eq!(waiter.end().code(), Some(code));
            wait_until("it left the queue", || nodes.servers.iter().all(|server| server.info("waiters") == 0));
        }
        holder.terminate();
        nodes.wait_idle();
        assert!(!nodes.file("ran").exists());
    }
}

#[test]
fn while_the_command_runs() {
    let nodes = Nodes::start(1);
    let script = "for s in HUP INT QUIT USR1 USR2; do trap \"echo $s >> got\" $s; done; trap 'echo TERM >> got; exit 5' TERM; \
                  echo > held; while :; do sleep 0.01; done";
    let running = Running::start(nodes.exec("k", script));
    nodes.wait_file("held");
    let mut expected = String::new();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGINT] {
        running.signal(signal);
        expected += &format!("{}\n", &signal.as_str()[3..]);
        wait_until("the command got it", || read(&nodes.file("got")) == expected);
    }
    assert_eq!(nodes.holding("k"), 1);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code(), Some(5));
    nodes.wait_idle();
}

/// A stopped command receives no signal but SIGKILL until it is continued, so the program continues it, and SIGTERM
/// ends it.
#[test]
fn while_the_command_is_stopped() {
    let nodes = Nodes::start(1);
    let running = Running::start(nodes.exec("k", "trap 'exit 5' TERM; echo $$ > pid; while :; do sleep 0.01; done"));
    let pid = nodes.wait_file("pid");
    let command = nix::unistd::Pid::from_raw(pid.parse().unwrap());
    nix::sys::signal::kill(command, Signal::SIGSTOP).unwrap();
    let is_stopped = || read(format!("/proc/{pid}/status").as_ref()).lines().any(|line| line.starts_with("State:\tT"));
    wait_until("it is stopped", is_stopped);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code(), Some(5));
    nodes.wait_idle();
}

/// A shell that waits for a command dies of SIGTERM at once. The command that it started gets the signal too, and ends.
#[test]
fn what_the_command_started_gets_them_too() {
    let nodes = Nodes::start(1);
    let running = Running::start(nodes.exec("k", "sh -c 'echo $$ > inner; while :; do sleep 1; done'; true"));
    let inner = nodes.wait_file("inner");
    running.terminate();
    crate::fixture::wait_dead(&inner);
}

/// One node does not answer, so the release takes as long as a node may take. Signals during that time change nothing.
#[test]
fn while_it_gives_back() {
    let nodes = Nodes::start(3);
    let running =
        Running::start(nodes.exec("--ttl 50s k", "echo > held; while ! [ -e go ]; do sleep 0.01; done; exit 4"));
    nodes.wait_file("held");
    wait_until("all have it", || nodes.holding("k") == 3);
    let frozen = Frozen::new(&nodes.servers[2]);
    fs::write(nodes.file("go"), "").unwrap();
    wait_until("it is given back", || nodes.servers[..2].iter().all(|s| s.client().say("EXISTS k") == int(0)));
    running.signal(Signal::SIGTERM);
    running.signal(Signal::SIGINT);
    drop(frozen);
    assert_eq!(running.end().code(), Some(4), "the command had ended");
    nodes.wait_idle();
}

#[test]
fn while_it_keeps_the_lock_after_the_command() {
    let nodes = Nodes::start(1);
    let running = Running::start(nodes.exec("--min-hold 1h k", "echo $$ > pid; exit 3"));
    crate::fixture::wait_dead(&nodes.wait_file("pid"));
    assert_eq!(nodes.holding("k"), 1);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code(), Some(3));
    nodes.wait_idle();
}

#[test]
fn what_is_ignored_from_the_start_stays_ignored() {
    let nodes = Nodes::start(1);
    let mut command = apart("sh");
    let script = format!(
        "trap '' HUP; exec {PALISADE} exec k -- sh -c 'echo > held; while ! [ -e go ]; do sleep 0.01; done; exit 6'"
    );
    command
        .args(["-c", &script])
        .envs(nodes.environment())
        .current_dir(nodes.file(""))
        .stdin(std::process::Stdio::null());
    let running = Running::start(command);
    nodes.wait_file("held");
    running.signal(Signal::SIGHUP);
    fs::write(nodes.file("go"), "").unwrap();
    assert_eq!(running.end().code(), Some(6));
}

#[test]
fn a_lock_that_is_held_by_itself() {
    let nodes = Nodes::start(3);
    let lock = Running::start(nodes.palisade("lock k"));
    wait_until("it holds", || nodes.holding("k") == 3);
    lock.signal(Signal::SIGINT);
    assert_eq!(lock.end().code(), Some(130));
    nodes.wait_idle();
}
