//! Runs the README's first five minutes, with the pauses of a person who reads.

use crate::command_pages::{ask, fits, shown};
use crate::harness::{Server, int, wait_until};

/// The lease, in milliseconds, for a person who reads a paragraph between two commands.
const HUMAN_MS: &str = "60000";

#[test]
fn the_first_five_minutes_run_as_they_are_shown() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let five = readme.split("## Five minutes").nth(1).and_then(|text| text.split("\n## ").next()).unwrap();
    let server = Server::start();
    let mut client = server.client_resp3();
    let mut lines = five.lines().peekable();
    let mut commands = 0;
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ redis-cli ") else { continue };
        let command = command.trim_start_matches("-3 ");
        commands += 1;
        let words: Vec<&str> = command.split(' ').collect();
        if let ["LOCK.ACQUIRE" | "LOCK.EXTEND", _, _, ttl_ms, ..] = words[..] {
            assert_eq!(ttl_ms, HUMAN_MS, "{command}");
        }
        let reply = if words.contains(&"WAIT") {
            client.ask(command);
            wait_until("it waits", || server.info("waiters") == 1);
            // The text says to do this in a third terminal.
            let release = five.split("`redis-cli ").nth(1).and_then(|text| text.split('`').next()).unwrap();
            assert_eq!(server.client().say(release), int(0));
            client.hear()
        } else {
            ask(&mut client, command)
        };
        for shown in shown(&reply).lines() {
            let line = lines.next().unwrap_or_default();
            assert!(fits(line, shown), "{command}\nis shown to answer {line}\nand answered     {shown}");
        }
        let next = lines.peek().copied().unwrap_or_default();
        assert!(next == "```" || next.starts_with("$ "), "{command}\ndid not answer {next}");
    }
    assert!(commands > 10, "{commands} commands");
}
