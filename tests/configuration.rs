//! The operator's settings, as they are set and shown.

use std::path::Path;

use crate::harness::{Server, Setup, error, text, wait_until};

#[test]
fn defaults_and_what_can_be_changed() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.say("CONFIG GET lock.max-ttl").field("lock.max-ttl"), text("60000"));
    assert_eq!(client.say("CONFIG GET lock.max-clock-skew").field("lock.max-clock-skew"), text("2000"));
    assert!(error(client.say("CONFIG SET lock.max-ttl 1000")).contains("immutable"));
    assert_eq!(client.say("CONFIG SET lock.max-clock-skew 500"), text("OK"));
    assert_eq!(client.say("CONFIG GET lock.max-clock-skew").field("lock.max-clock-skew"), text("500"));
    for value in ["-1", "60001", "x"] {
        assert!(error(client.say(&format!("CONFIG SET lock.max-clock-skew {value}"))).starts_with("ERR"));
    }
    assert_eq!(client.say("CONFIG GET lock.max-clock-skew").field("lock.max-clock-skew"), text("500"));
}

/// The table in docs/configuration.md has the default and the bounds of each parameter. (`documented.rs` checks that it
/// is complete.)
#[test]
fn the_page_has_every_parameter_as_it_is() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap();
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| [`lock.")).map(|row| row.split(" | ").collect()).collect();
    let server = Server::start();
    let all = server.client().say("CONFIG GET lock.*");
    for row in rows {
        let name = row[0].split('`').nth(1).unwrap();
        let (default, bounds) = (row[1], row[2]);
        if name == "lock.state-file" {
            // The default name contains the port, which these servers do not have.
            assert_eq!(default, "lock-node-*port*.state");
            continue;
        }
        if name == "lock.metrics-prefixes" {
            assert_eq!((default, all.field(name)), ("empty", text("")));
            let log = Setup::new().module_arguments(&["metrics-prefixes", "%"]).refused();
            assert!(log.contains(&format!("needs {bounds}")), "{bounds} is on the page:\n{log}");
            continue;
        }
        if name == "lock.gate-commands" {
            assert_eq!(all.field(name), text(default));
            let log = Setup::new().module_arguments(&["gate-commands", "set"]).refused();
            assert!(log.contains(&format!("needs {bounds}")), "{bounds} is on the page:\n{log}");
            continue;
        }
        assert_eq!(all.field(name), text(default), "{name}");
        let argument = name.trim_start_matches("lock.");
        let log = Setup::new().module_arguments(&[argument, "-2"]).refused();
        let expected = match bounds.split_once(" to ") {
            Some((min, max)) => format!("needs an integer from {min} to {max}"),
            None => format!("needs one of {bounds}"),
        };
        assert!(log.lines().any(|line| line.ends_with(&expected)), "{name}: {bounds} is on the page:\n{log}");
    }
}

#[test]
fn as_arguments_of_the_module() {
    let server = Setup::new().module_arguments(&["max-ttl", "30000", "max-clock-skew", "100"]).start();
    let mut client = server.client();
    assert_eq!(client.say("CONFIG GET lock.max-ttl").field("lock.max-ttl"), text("30000"));
    assert_eq!(server.info("max_ttl_ms"), 30_000);
    assert!(client.say("LOCK.ACQUIRE k me 30000").as_int() > 0);
    assert!(error(client.say("LOCK.EXTEND k me 30001")).contains("from 1 to 30000 milliseconds"));
}

#[test]
fn as_lines_of_a_configuration_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    std::fs::write(&file, "lock.max-ttl 5000\nlock.max-clock-skew 7\n").unwrap();
    let server = Setup::new().config(&file).start();
    let mut client = server.client();
    assert_eq!(client.say("CONFIG GET lock.max-ttl").field("lock.max-ttl"), text("5000"));
    assert_eq!(client.say("CONFIG GET lock.max-clock-skew").field("lock.max-clock-skew"), text("7"));
}

#[test]
fn what_is_out_of_bounds_keeps_the_server_from_starting_and_says_why() {
    let cases = [
        ("max-ttl 0", "its argument `max-ttl` needs an integer from 1 to 86400000"),
        ("max-ttl 86400001", "its argument `max-ttl` needs an integer from 1 to 86400000"),
        ("max-ttl", "its argument `max-ttl` needs an integer"),
        ("max-ttl ten", "its argument `max-ttl` needs an integer"),
        (
            "max-tll 10",
            "it has no argument `max-tll`, only max-ttl, max-clock-skew, max-waiters, max-waiting-bytes, handoff-window",
        ),
        ("max-ttl 10 max-ttl 10", "its argument `max-ttl` was given twice"),
        ("restart-guard maybe", "its argument `restart-guard` needs one of auto, always, never"),
        ("max-waiters 1000001", "its argument `max-waiters` needs an integer from 0 to 1000000"),
        ("handoff-window 0", "its argument `handoff-window` needs an integer from 1 to 10000"),
        ("max-clock-skew -1", "its argument `max-clock-skew` needs an integer from 0 to 60000"),
    ];
    for (arguments, expected) in cases {
        let words: Vec<_> = arguments.split(' ').collect();
        let log = Setup::new().module_arguments(&words).refused();
        assert!(log.contains("the lock module was not loaded"), "{arguments}:\n{log}");
        assert!(log.contains(expected), "{arguments}:\n{log}");
    }
    let dir = tempfile::tempdir().unwrap();
    for line in ["lock.max-ttl 0", "lock.max-ttl 86400001", "lock.max-clock-skew soon"] {
        let file = dir.path().join("redis.conf");
        std::fs::write(&file, line).unwrap();
        let log = Setup::new().config(&file).refused();
        assert!(log.contains(line.split(' ').next().unwrap()), "{line}:\n{log}");
        assert!(log.contains("a lock.* parameter in redis.conf"), "{line}:\n{log}");
    }
}

#[test]
fn the_shipped_configuration_is_a_safe_master() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis.conf");
    let server = Setup::bare().config(&file).start();
    let mut client = server.client();
    let mut get = |name: &str| client.say(&format!("CONFIG GET {name}")).field(name).as_text();
    assert_eq!(get("appendonly"), "yes");
    assert_eq!(get("appendfsync"), "always");
    assert_eq!(get("no-appendfsync-on-rewrite"), "no");
    assert_eq!(get("maxmemory-policy"), "noeviction");
    assert!(get("maxmemory").parse::<u64>().unwrap() > 0);
    assert_eq!(get("lock.max-ttl"), "60000");
    assert!(client.say("LOCK.ACQUIRE k me 1000").as_int() > 0);
}

/// A load at run time that fails leaves the server as it was. Redis 7.0 used to call a module after its load had
/// failed, and crashed at its next cron.
#[test]
fn a_failed_load_at_run_time_leaves_the_server_alone() {
    let server = Setup::new().module_later().start();
    let mut client = server.client();
    let module = crate::harness::module();
    let path = module.to_str().unwrap();
    for wrong in ["CONFIG lock.max-ttl 0", "CONFIG lock.max-ttl x", "ARGS max-ttl 0"] {
        assert!(error(client.say(&format!("MODULE LOADEX {path} {wrong}"))).starts_with("ERR"), "{wrong}");
        let before = client.info_field("uptime_in_seconds");
        wait_until("cron has come by", || client.info_field("uptime_in_seconds") > before);
    }
    assert_eq!(client.say(&format!("MODULE LOADEX {path} CONFIG lock.max-ttl 5000")), text("OK"));
    client.lift();
    assert!(client.say("LOCK.ACQUIRE k me 5000").as_int() > 0);
    client.say("DEL k");
    assert!(error(client.say("MODULE UNLOAD lock")).contains("data type"), "its locks may be in keys");
}

#[test]
fn what_undermines_the_guard_is_warned_of() {
    let server = Server::start();
    let warning = "maxmemory-policy lets the server evict keys";
    assert!(!server.log().contains(warning));
    server.client().say("CONFIG SET maxmemory-policy allkeys-lru");
    assert!(server.log().contains(warning));

    let forgetful = Setup::new().module_arguments(&["restart-guard", "never", "state-file", ""]).start();
    assert!(forgetful.log().contains("this node forgets every grant at a restart"));
    let careful = Setup::new().module_arguments(&["state-file", ""]).start();
    assert!(!careful.log().contains("this node forgets every grant"));
    careful.client().say("CONFIG SET lock.restart-guard never");
    assert!(careful.log().contains("this node forgets every grant at a restart"));
}
