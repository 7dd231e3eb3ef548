//! docs/modes.md: runs its examples, its recipes, and the scripts with which a resource checks tokens.

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Lines;

use crate::command_pages::{ask, fits, shown};
use crate::harness::{Client, Reply, Server, Setup, error, int, null, text, token, wait_until, waits};

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/modes.md")).unwrap()
}

/// Returns the code after a marker.
fn code(marker: &str) -> String {
    let page = page();
    let behind = page.split(&format!("<!-- {marker} -->\n```lua\n")).nth(1).expect("the marker and its code");
    behind.split("```").next().unwrap().to_owned()
}

/// The page's mark for a command that is answered only after others.
const WAITS: &str = "(waits)";
const IS_ANSWERED: &str = "(is answered)";

/// Splits a line of an example into the terminal's name and the text.
fn at_terminal(line: &str) -> Option<(&str, &str)> {
    let (terminal, what) = line.split_once("> ")?;
    (!terminal.is_empty() && terminal.chars().all(|c| c.is_ascii_lowercase())).then_some((terminal, what))
}

#[track_caller]
fn assert_shown(reply: &Reply, lines: &mut Peekable<Lines>, command: &str) {
    for shown in shown(reply).lines() {
        let line = lines.next().unwrap_or_default();
        assert!(fits(line, shown), "{command}\nis shown to answer {line}\nand answered     {shown}");
    }
    let next = lines.peek().copied().unwrap_or_default();
    assert!(next == "```" || at_terminal(next).is_some(), "{command}\ndid not answer {next}");
}

#[test]
fn the_examples_run_as_they_are_shown() {
    let page = page();
    let server = Server::start();
    let mut terminals = HashMap::new();
    let mut lines = page.lines().peekable();
    let (mut answered, mut waited) = (0, 0);
    while let Some(line) = lines.next() {
        let Some((name, what)) = at_terminal(line) else { continue };
        let terminal = terminals.entry(name.to_owned()).or_insert_with(|| server.client_resp3());
        let reply = if what == IS_ANSWERED {
            waited += 1;
            terminal.hear()
        } else if lines.next_if_eq(&WAITS).is_some() {
            let before = server.info("waiters");
            terminal.ask(what);
            wait_until(what, || server.info("waiters") == before + 1);
            continue;
        } else {
            answered += 1;
            ask(terminal, what)
        };
        assert_shown(&reply, &mut lines, line);
    }
    assert!(answered > 30 && waited > 3, "{answered} commands, {waited} that waited");
    assert_eq!(server.info("waiters"), 0, "somebody still waits at the end");
}

/// A lock server that issues tokens, and a resource without locks.
struct Fenced {
    _servers: [Server; 2],
    locks: Client,
    resource: Client,
    readers_and_writers: String,
    permits: String,
}

impl Fenced {
    fn start() -> Self {
        let servers = [Server::start(), Setup::bare().module_later().start()];
        let [locks, resource] = [servers[0].client(), servers[1].client()];
        let [readers_and_writers, permits] = ["the fence of readers and writers", "the fence of permits"].map(code);
        Self { _servers: servers, locks, resource, readers_and_writers, permits }
    }

    /// Returns the token of a grant of `k`.
    fn acquire(&mut self, owner: &str, mode: &str) -> i64 {
        let reply = self.locks.say(format!("LOCK.ACQUIRE k {owner} 60000 {mode}").trim_end());
        if mode.contains("LIMIT") { token(&reply) } else { reply.as_int() }
    }

    /// Ends the lock of this owner without its knowledge, as if its lease were over.
    fn ends(&mut self, owner: &str) {
        assert_eq!(self.locks.say(&format!("LOCK.RELEASE k {owner}")), int(0));
    }

    fn eval(&mut self, script: &str, arguments: &[&str]) -> Reply {
        let command = ["EVAL", script, "2", "{data}:fence", "data"];
        let words: Vec<_> = command.iter().chain(arguments).map(|word| word.as_bytes()).collect();
        self.resource.send(&words)
    }

    fn write(&mut self, token: i64, value: &str) -> Reply {
        let script = self.readers_and_writers.clone();
        self.eval(&script, &["write", &token.to_string(), value])
    }

    fn read(&mut self, token: i64) -> Reply {
        let script = self.readers_and_writers.clone();
        self.eval(&script, &["read", &token.to_string()])
    }

    fn write_as(&mut self, number: &str, token: i64, value: &str) -> Reply {
        let script = self.permits.clone();
        self.eval(&script, &[number, &token.to_string(), value])
    }
}

#[track_caller]
fn assert_fenced(reply: Reply) {
    let reply = error(reply);
    assert!(reply.starts_with("FENCED "), "{reply}");
}

/// A late writer is refused even if it has not written before, so that the resource has never seen its token.
#[test]
fn a_late_writer_is_refused_after_a_reader_and_after_a_writer() {
    for has_written in [true, false] {
        let mut it = Fenced::start();
        let late = it.acquire("late", "");
        if has_written {
            assert_eq!((it.write(late, "1"), it.write(late, "2")), (text("OK"), text("OK")));
        }
        it.ends("late");
        let before = if has_written { text("2") } else { null() };
        let reader = it.acquire("reader", "SHARED");
        assert_eq!(it.read(reader), before);
        assert_fenced(it.write(late, "late"));
        assert_eq!(it.read(reader), before, "what it read is still so");
        it.ends("reader");
        let next = it.acquire("next", "");
        assert_eq!(it.write(next, "3"), text("OK"));
        assert_fenced(it.write(late, "late"));
        assert_eq!(it.read(next), text("3"));
    }
}

#[test]
fn a_late_writer_is_refused_after_a_writer_though_nobody_has_read() {
    let mut it = Fenced::start();
    let late = it.acquire("late", "");
    it.ends("late");
    let next = it.acquire("next", "");
    assert_eq!(it.write(next, "1"), text("OK"));
    assert_fenced(it.write(late, "late"));
    assert_eq!(it.read(next), text("1"));
}

/// A late read, with a smaller token than earlier ones, does not undo what they have recorded.
#[test]
fn a_late_reader_does_not_let_a_late_writer_in() {
    let mut it = Fenced::start();
    let [first, writer, reader] = [("first", "SHARED"), ("writer", ""), ("reader", "SHARED")].map(|(owner, mode)| {
        let token = it.acquire(owner, mode);
        it.ends(owner);
        token
    });
    // The writer has not written, so the late first reader is not wrong.
    assert_eq!((it.read(reader), it.read(first)), (null(), null()));
    assert_fenced(it.write(writer, "late"));
}

#[test]
fn readers_come_in_any_order() {
    let mut it = Fenced::start();
    let writer = it.acquire("writer", "");
    it.write(writer, "1");
    it.ends("writer");
    let (first, second) = (it.acquire("first", "SHARED"), it.acquire("second", "SHARED"));
    assert!(first < second);
    for reader in [second, first, second, first] {
        assert_eq!(it.read(reader), text("1"));
    }
}

#[test]
fn an_old_reader_is_refused_after_a_new_writer() {
    let mut it = Fenced::start();
    let late = it.acquire("late", "SHARED");
    assert_eq!(it.read(late), null());
    it.ends("late");
    let writer = it.acquire("writer", "");
    assert_eq!(it.write(writer, "1"), text("OK"));
    assert_fenced(it.read(late));
    it.ends("writer");
    let reader = it.acquire("reader", "SHARED");
    assert_eq!(it.read(reader), text("1"));
    assert_fenced(it.read(late));
}

#[test]
fn a_writer_that_went_on_as_a_reader_writes_no_more_once_others_have_read() {
    let mut it = Fenced::start();
    let writer = it.acquire("writer", "");
    it.write(writer, "1");
    assert_eq!(it.locks.say("LOCK.CONVERT k writer SHARED"), int(writer));
    let reader = it.acquire("reader", "SHARED");
    assert_eq!((it.read(reader), it.read(writer)), (text("1"), text("1")));
    assert_fenced(it.write(writer, "2"));
}

#[test]
fn numbers_of_permits_have_nothing_to_do_with_each_other() {
    let mut it = Fenced::start();
    let (late, other) = (it.acquire("late", "LIMIT 2"), it.acquire("other", "LIMIT 2"));
    assert!(late < other);
    // The permit with the larger token writes first, and each several times.
    for (number, token) in [("2", other), ("1", late), ("1", late), ("2", other)] {
        assert_eq!(it.write_as(number, token, "1"), text("OK"));
    }
    it.ends("late");
    let next = it.acquire("next", "LIMIT 2");
    assert_eq!(it.write_as("1", next, "2"), text("OK"));
    assert_fenced(it.write_as("1", late, "late"));
    assert_eq!(it.write_as("2", other, "3"), text("OK"), "of another number, though smaller than the newest");
}

/// A client that acquires before all workers hold the lock is served too early: the page says that all must hold it
/// first.
#[test]
fn a_latch_opens_too_early_for_who_waits_before_all_holds_are_taken() {
    let server = Server::start();
    let mut me = server.client();
    me.say("LOCK.ACQUIRE latch piece-1 60000 SHARED");
    let (mut boss, _) = waits(&server, "LOCK.ACQUIRE latch boss 60000 WAIT 60000");
    let (mut late, _) = waits(&server, "LOCK.ACQUIRE latch piece-2 60000 SHARED WAIT 60000");
    me.say("LOCK.RELEASE latch piece-1");
    let opened = token(&boss.hear());
    assert_eq!(server.info("waiters"), 1, "the second piece has not begun");
    me.say("LOCK.RELEASE latch boss");
    assert!(token(&late.hear()) > opened);
}

/// The latch opens when the lease of a dead worker ends. If that worker was only paused, it notices the loss, and its
/// write is fenced.
#[test]
fn a_worker_that_dies_is_counted_out_and_a_late_result_is_refused() {
    let mut it = Fenced::start();
    let late = it.locks.say("LOCK.ACQUIRE k piece-1 1000 SHARED").as_int();
    let result = it.acquire("piece-2", "SHARED");
    assert_eq!(it.read(result), null());
    it.ends("piece-2");
    let boss = token(&it.locks.say("LOCK.ACQUIRE k boss 60000 WAIT 60000"));
    assert_eq!(it.locks.say("LOCK.EXTEND k piece-1 60000"), null());
    assert_eq!(it.locks.say("LOCK.RELEASE k piece-1"), null());
    assert_eq!(it.write(boss, "collected"), text("OK"));
    assert_fenced(it.read(late));
}

/// Workers also begin when the process that should start them dies.
#[test]
fn a_start_opens_when_the_lease_of_the_boss_ends() {
    let server = Server::start();
    let mut boss = server.client();
    let closed = boss.say("LOCK.ACQUIRE start boss 1000").as_int();
    let mut workers = ["ann", "bob"].map(|name| {
        let mut worker = server.client();
        worker.ask(&format!("LOCK.ACQUIRE start {name} 60000 SHARED WAIT 60000"));
        worker
    });
    for worker in &mut workers {
        assert!(token(&worker.hear()) > closed);
    }
    assert_eq!(boss.say("LOCK.INFO start").field("holders"), int(2));
}
