//! Reproduces the incidents of docs/troubleshooting.md on five nodes: the page shows what the program prints.
//!
//! `PALISADE_WRITE_PAGES=1` writes the current output to the page.

use std::fs;
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::Signal;

use crate::fixture::{Nodes, Running, run};
use crate::harness::{Server, wait_until, waits};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/troubleshooting.md");

/// The number of nodes in an incident.
const COUNT: usize = 5;

/// The number of waiters in the test; the page shows ten thousand instead.
const HERD: usize = 110;

/// Locked while a test writes the page.
static WRITES: Mutex<()> = Mutex::new(());

/// Checks that `line` ends with status `code`, and prints the text that the page shows under `heading`.
#[track_caller]
fn is_on_the_page(nodes: &Nodes, heading: &str, line: &str, user: &str, code: i32) {
    let mut command = nodes.palisade(line);
    command.env("PALISADE_NODES", nodes.addresses_with(user));
    let ended = run(command);
    assert_eq!(ended.code(), Some(code), "{ended:?}");
    // The page has readable addresses in place of the test's sockets.
    let mut said = ended.all();
    for (n, server) in nodes.servers.iter().enumerate() {
        said = said.replace(&server.socket().display().to_string(), &format!("10.0.0.{}:6379", n + 1));
    }
    let _writes = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    let page = fs::read_to_string(PAGE).unwrap();
    let start = page.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    let prompt = format!("```\n$ palisade {line}\n");
    let begin = start + page[start..].find(&prompt).unwrap_or_else(|| panic!("{heading} has no {line}")) + prompt.len();
    let end = begin + page[begin..].find("```").unwrap();
    if std::env::var_os("PALISADE_WRITE_PAGES").is_some() {
        fs::write(PAGE, format!("{}{said}{}", &page[..begin], &page[end..])).unwrap();
        return;
    }
    assert_eq!(masked(&said), masked(&page[begin..end]), "the page shows:\n{}\nand it is:\n{said}", &page[begin..end]);
}

/// Returns a text without anything that differs between runs: tokens, owners, times, large numbers, columns.
fn masked(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<String> = line.split_whitespace().map(masked_word).collect();
        // `1m 2s` and `59s` have to look the same.
        words.dedup_by(|next, before| {
            before == "LENGTH" && next.starts_with("LENGTH") && {
                *before = next.clone();
                true
            }
        });
        words.join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn masked_word(word: &str) -> String {
    let is_mark = |c: char| "(),.;:`".contains(c);
    let bare = word.trim_matches(is_mark);
    let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
    let is_number = digits == bare.len() && digits > 0;
    let mask = match bare {
        _ if is_number && digits >= 12 => "TOKEN",
        _ if is_number && digits >= 3 => "NUMBER",
        _ if digits > 0 && ["ms", "s", "m", "h"].contains(&&bare[digits..]) => "LENGTH",
        _ if bare.len() == 10 && digits == 4 && bare[4..].starts_with('-') => "DATE",
        _ if bare.len() == 8 && digits == 2 && bare[2..].starts_with(':') => "TIME",
        _ => return word.to_owned(),
    };
    word.replace(bare, mask)
}

#[test]
fn what_varies_is_masked_and_nothing_else() {
    let text = "k is held by web-1 for 1m 30s\n  holder   web-1, exclusive, token 1795420282239506, since 2026-11-23 07:51:22, 9s of 5 nodes\n";
    let masked_text =
        "k is held by web-1 for LENGTH\nholder web-1, exclusive, token TOKEN, since DATE TIME, LENGTH of 5 nodes";
    assert_eq!(masked(text), masked_text);
    assert_eq!(masked("and 9997 more, for 1m 2s, (610ms)"), "and NUMBER more, for LENGTH, (LENGTH)");
}

/// Runs a command under this lock, on all nodes, until the returned value is dropped.
fn holder(nodes: &Nodes, key: &str, note: &str) -> Running {
    let mut exec = nodes.palisade(&format!("exec {key}"));
    exec.args(["--note", note, "--", "sleep", "1000"]);
    let holder = Running::start(exec);
    wait_until("all have it", || nodes.holding(key) == COUNT);
    // The lock is held for sure once its command runs. Before that, new nodes grant different tokens, and a lock that
    // is broken between the two rounds is requested again.
    wait_until("it holds the lock", || holder.has_child());
    holder
}

#[test]
fn a_holder_that_hangs() {
    let nodes = Nodes::start(COUNT);
    let _holder = holder(&nodes, "report", "nightly report on web-1");
    let waiter = "LOCK.ACQUIRE report by-hand 60000 WAIT 3600000 NOTE ann@laptop:report";
    let _waiters: Vec<_> = nodes.servers.iter().map(|server| waits(server, waiter)).collect();
    is_on_the_page(&nodes, "A holder that hangs", "why report", "", 0);
}

#[test]
fn a_guarded_majority() {
    let mut nodes = Nodes::start(COUNT);
    for server in &mut nodes.servers[..3] {
        server.kill();
        server.start_again();
    }
    is_on_the_page(&nodes, "Nodes that were restarted", "why orders:42", "", 0);
}

#[test]
fn a_deadlock_of_two_workers() {
    let nodes = Nodes::start(COUNT);
    let (accounts, transfers) = (["accounts:1", "accounts:2"], ["transfer-17@web-1", "transfer-18@web-2"]);
    for (key, transfer) in accounts.iter().zip(transfers) {
        nodes.say(&format!("LOCK.ACQUIRE {key} {transfer} 60000 NOTE [holder={transfer}]"));
        // The holder that came later has to be ended, so the output must show which one that is.
        let held = |server: &Server| server.client().say(&format!("LOCK.INFO {key}")).field("held").as_int();
        wait_until("it is held for a while", || nodes.servers.iter().all(|server| held(server) >= 20));
    }
    let mut waiters = vec![];
    for server in &nodes.servers {
        for (key, transfer) in accounts.iter().rev().zip(transfers) {
            let line = format!("LOCK.ACQUIRE {key} {transfer}-next 60000 WAIT 3600000 NOTE [holder={transfer}]");
            waiters.push(waits(server, &line));
        }
    }
    is_on_the_page(&nodes, "Two that wait for each other", "deadlocks", "", 1);
}

#[test]
fn a_lock_that_was_broken() {
    let nodes = Nodes::start(COUNT);
    // Locks are held only briefly here, so everything is logged.
    nodes.say("CONFIG SET lock.log-slower-than 0");
    let before = holder(&nodes, "import", "import 17 on web-2");
    // The lock is broken on all nodes at once. If it were broken node by node, its holder would heal nodes in between.
    assert_eq!(run(nodes.palisade("break --yes import")).code(), Some(0));
    assert_eq!(before.end().code(), Some(197));
    let _now = holder(&nodes, "import", "import 18 on web-2");
    is_on_the_page(&nodes, "A lock that somebody broke", "history import", "", 0);
}

#[test]
fn a_herd_on_one_key() {
    let nodes = Nodes::start(COUNT);
    nodes.say("CONFIG SET lock.log-slower-than 0");
    nodes.say("LOCK.ACQUIRE counter job-100 1 NOTE job-100@web-3");
    nodes.wait_idle();
    let before = holder(&nodes, "counter", "job 41 on web-2");
    before.signal(Signal::SIGTERM);
    before.end();
    nodes.wait_idle();
    let _holder = holder(&nodes, "counter", "job 42 on web-2");
    let line = |n: usize| format!("LOCK.ACQUIRE counter job-{n} 60000 WAIT 3600000 NOTE job-{n}@web-3");
    // The page shows the first three waiters, so these are started one by one.
    let server = &nodes.servers[0];
    let _first: Vec<_> = (100..103).map(|n| waits(server, &line(n))).collect();
    let mut herd: Vec<_> = (3..HERD).map(|_| server.client()).collect();
    herd.iter_mut().enumerate().for_each(|(n, client)| client.ask(&line(n + 103)));
    wait_until("all wait", || nodes.waiters() == HERD as u64);
    is_on_the_page(&nodes, "Ten thousand that want one lock", "why counter", "", 0);
}

#[test]
fn nodes_that_refuse_by_acl() {
    let nodes = Nodes::start(COUNT);
    for (n, server) in nodes.servers.iter().enumerate() {
        let keys = if n < 3 { "~carts:*" } else { "~orders:* ~carts:*" };
        server.client().say(&format!("ACL SETUSER shop on >secret {keys} +@all"));
    }
    is_on_the_page(&nodes, "Nodes that refuse a user", "why orders:42", "?user=shop&pass=secret", 193);
}
