//! At a terminal: commands that read it, Ctrl-C, Ctrl-Z, and what the user sees.

use nix::sys::signal::Signal;

use crate::fixture::{Nodes, Running, read, wait_dead};
use crate::harness::wait_until;
use crate::pty::Person;

/// In a pipeline, another command may want the terminal, so `palisade exec` lends it to its command only when that
/// tries to use it.
#[test]
fn the_command_reads_it() {
    let nodes = Nodes::start(1);
    let mut person = Person::at_a_shell(&nodes);
    for (from, pipe) in [("", ""), ("< /dev/tty", "| cat")] {
        person
            .types(&format!("$P exec k -- sh -c 'echo ask''ing; read x {from}; echo got-$x' {pipe}; echo status-$?\n"));
        person.sees("asking");
        person.types("hello\n");
        person.sees("got-hello");
        person.sees("status-0");
        nodes.wait_idle();
    }
}

#[test]
fn an_interactive_shell_under_a_lock() {
    let nodes = Nodes::start(1);
    let mut person = Person::at_a_shell(&nodes);
    person.types("PS1='in''ner> ' $P exec k -- bash --norc --noprofile --noediting -i\n");
    person.sees("inner> ");
    person.types("sh -c 'echo > sleeps; exec sleep 1000'\n");
    nodes.wait_file("sleeps");
    person.types("\x03");
    person.sees("inner> ");
    assert_eq!(nodes.holding("k"), 1);
    person.types("exit 9\n");
    person.sees("ready> ");
    person.types("echo status-$?\n");
    person.sees("status-9");
    nodes.wait_idle();
}

/// Ctrl-C has the same effect as without this program: the command and the script around it end.
#[test]
fn interrupting_ends_a_script_too() {
    let nodes = Nodes::start(1);
    for (pipe, stage) in [("", "held"), (" | cat", "held"), ("", "waiting")] {
        let holder = (stage == "waiting").then(|| {
            let holder = Running::start(nodes.exec("k", "echo > first; sleep 1000"));
            nodes.wait_file("first");
            holder
        });
        let script = format!("$P exec k -- sh -c 'echo $$ > held; exec sleep 1000'{pipe}; echo survived");
        let mut person = Person::at(&nodes, &["bash", "-c", &script]);
        if stage == "waiting" {
            wait_until("it waits", || nodes.waiters() == 1);
        } else {
            nodes.wait_file("held");
        }
        person.types("\x03");
        let (_, seen) = person.end();
        assert!(!seen.contains("survived"), "{pipe:?} {stage}: {seen:?}");
        drop(holder);
        let _ = std::fs::remove_file(nodes.file("held"));
        if stage == "held" {
            nodes.wait_idle();
        }
    }
}

#[test]
fn stopped_and_continued() {
    let nodes = Nodes::start(1);
    let mut person = Person::at_a_shell(&nodes);
    person.types("$P exec --ttl 60s k -- cat\n");
    wait_until("it holds", || nodes.holding("k") == 1);
    person.types("one\n");
    person.sees("one\r\none");
    person.types("\x1a");
    person.sees("Stopped");
    person.sees("ready> ");
    assert_eq!(nodes.holding("k"), 1);
    person.types("fg\n");
    person.sees("exec");
    person.types("two\n");
    person.sees("two\r\ntwo");
    person.types("\x04");
    person.sees("ready> ");
    person.types("echo status-$?\n");
    person.sees("status-0");
    nodes.wait_idle();
}

#[test]
fn stopped_while_it_waits() {
    let nodes = Nodes::start(1);
    let holder = nodes.holder("k");
    let mut person = Person::at_a_shell(&nodes);
    person.types("$P exec k -- echo my turn\n");
    person.sees("waiting for k since ");
    person.types("\x1a");
    person.sees("Stopped");
    holder.terminate();
    person.types("fg\n");
    person.sees("exec");
    person.sees("my turn");
    nodes.wait_idle();
}

/// The lock of a stopped job is not extended; when its validity ends, the command is ended.
#[test]
fn stopped_for_too_long() {
    let nodes = Nodes::start(1);
    let mut person = Person::at_a_shell(&nodes);
    person.types("$P exec --ttl 1s --grace 100ms k -- sh -c 'echo $$ > pid; while :; do read x; done'\n");
    let pid = nodes.wait_file("pid");
    person.types("\x1a");
    person.sees("Stopped");
    wait_dead(&pid);
    person.types("fg\n");
    person.sees("k was lost");
    person.sees("ready> ");
    person.types("echo status-$?\n");
    person.sees("status-197");
}

#[test]
fn in_the_background_it_stops_when_it_wants_to_read() {
    let nodes = Nodes::start(1);
    let mut person = Person::at_a_shell(&nodes);
    person.types("$P exec --ttl 60s k -- sh -c 'read x; echo got-$x' &\n");
    person.sees("ready> ");
    wait_until("it holds", || nodes.holding("k") == 1);
    // The shell reports the stop at its next prompt.
    wait_until("it is stopped", || {
        person.types("\n");
        std::thread::sleep(std::time::Duration::from_millis(20));
        person.seen().contains("Stopped")
    });
    person.types("fg\n");
    person.sees("exec");
    person.types("late\n");
    person.sees("got-late");
    nodes.wait_idle();
}

/// A killed command leaves the terminal in modes that it has set. The next command finds the earlier modes again.
#[test]
fn the_terminal_is_as_it_was() {
    let nodes = Nodes::start(1);
    let script = "$P exec k -- sh -c 'stty -echo -icanon; kill -9 $$'; stty -a > modes";
    let (code, seen) = Person::at(&nodes, &["sh", "-c", script]).end();
    assert_eq!(code, Some(0), "{seen}");
    let modes = read(&nodes.file("modes"));
    assert!(modes.contains(" echo ") && modes.contains(" icanon"), "{modes}");
}

#[test]
fn who_waits_sees_for_whom() {
    let nodes = Nodes::start(3);
    let holder = nodes.holder("--note the-backup k");
    let mut person = Person::at(&nodes, &["sh", "-c", "$P exec k -- echo my turn"]);
    person.sees("palisade: waiting for k since ");
    person.sees("held by the-backup for ");
    holder.signal(Signal::SIGTERM);
    person.sees("my turn");
    assert_eq!(holder.end().code(), Some(143));
    assert_eq!(person.end().0, Some(0));
    nodes.wait_idle();
}

#[test]
fn a_lock_until_enter() {
    let nodes = Nodes::start(1);
    let mut person = Person::at_a_shell(&nodes);
    person.types("$P lock k; echo status-$?\n");
    person.sees("k is held; Enter gives it back");
    assert_eq!(nodes.holding("k"), 1);
    person.types("\n");
    person.sees("status-0");
    nodes.wait_idle();
}

#[test]
fn breaking_is_asked_about() {
    let nodes = Nodes::start(1);
    nodes.say("LOCK.ACQUIRE k somebody 60000 NOTE the-backup");
    let mut person = Person::at_a_shell(&nodes);
    person.types("$P break k; echo status-$?\n");
    person.sees("k is held by the-backup");
    person.sees("Break k? [y/N] ");
    person.types("n\n");
    person.sees("status-193");
    assert_eq!(nodes.holding("k"), 1);
    person.types("$P break k; echo status-$?\n");
    person.sees("[y/N] ");
    person.types("y\n");
    person.sees("status-0");
    assert_eq!(nodes.holding("k"), 0);
}

#[test]
fn top_until_q() {
    let nodes = Nodes::start(3);
    let mut person = Person::at_a_shell(&nodes);
    person.types("$P top --interval 100ms; echo status-$?\n");
    person.sees("serving");
    nodes.say("LOCK.ACQUIRE k somebody 60000 NOTE the-backup");
    person.sees("the-backup");
    person.types("q");
    person.sees("status-0");
}

/// A terminal sends its signals to all programs of the tests that run at it, and `nohup` makes them all ignore some.
/// Neither may influence a test.
#[test]
fn tests_do_not_depend_on_where_they_run() {
    let tests = "\"$TESTS\" --exact signals::while_it_waits signals::a_lock_that_is_held_by_itself";
    let nodes = Nodes::start(0);
    for script in [tests.to_owned(), format!("trap '' HUP INT QUIT TERM; {tests}")] {
        let tests = format!("TESTS={}", std::env::current_exe().unwrap().display());
        let (code, seen) = Person::at(&nodes, &["env", &tests, "sh", "-c", &script]).end();
        assert!(code == Some(0) && seen.contains("2 passed"), "{seen}");
    }
}
